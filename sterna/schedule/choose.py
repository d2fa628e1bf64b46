"""The one door through which schedules decide: choose(name, candidates, cost).

An untuned build takes the cheapest candidate by the analytic cost model. An answer from outside,
the setting schedule.answers of a PassContext or what `answering` holds around the build, replaces
it where it is offered: {"tile": "4 x 16"} everywhere, {"<scope>/tile": ...} in one kernel or layer.
What was asked, offered and taken is recorded for the build report, and so are answers that were not
offered.

Costs are cycles by cost.py, or of one step of a register tile; of products on GPUs, and of how
groups of convolutions become such, microseconds. Some questions have a rule instead,
and cost what a candidate is away from its answer (`near`, or 0 and 1), because the model sees no
difference that measurements show: unrolled steps, loads of the next steps, columns of depthwise
tiles, axes of rows, parts of split-K, band rows of chains, loops that threads share and their
pieces, layouts of data, blocks of recurrent units, whether weights come by bands, by parts or in
chunks. An answer from outside replaces these all the same.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from sterna.ir.pass_context import PassContext
from sterna.schedule.config import ANSWERS

T = TypeVar("T")


# The cheapest of many other candidates that a report tells.
TOLD = 8


@dataclass(frozen=True, slots=True)
class Decision:
    """One question: what was offered at which cost, and what was taken."""

    name: str
    offered: tuple[tuple[str, float], ...]
    """All candidates with their costs."""
    taken: str
    answer: str | None = None
    """What was answered from outside, whether it was offered or not."""

    @property
    def answered(self) -> bool:
        """Whether what was taken came from outside."""
        return self.answer == self.taken

    @property
    def is_stale(self) -> bool:
        """Whether the answer from outside was not offered."""
        return self.answer is not None and not self.answered

    def __str__(self) -> str:
        """winograd(m=4) at 812 k of direct 1,604 k, 8 more"""
        costs = dict(self.offered)
        others = heapq.nsmallest(TOLD, costs.keys() - {self.taken}, key=lambda o: (costs[o], o))
        shown = [f"{text} {_show(costs[text])}" for text in others]
        more = len(costs) - 1 - len(shown)
        shown += [f"{more} more"] if more else []
        own = f"{self.taken} at {_show(costs[self.taken])}"
        if self.answer is not None:
            own += ", as answered" if self.answered else f" ({self.answer} was not offered)"
        return f"{own} of {', '.join(shown)}" if shown else own


@dataclass(slots=True)
class Scope:
    """The kernel or the layer for which questions are asked, and what was decided there."""

    name: str = ""
    decisions: dict[str, Decision] = field(default_factory=dict)
    """By the questions' names; one that is asked again in the same place has the same answer."""
    inner: list["Scope"] = field(default_factory=list)
    """What was decided for parts of it."""

    def of(self, name: str) -> dict[str, Decision]:
        """What was decided for a part of that name."""
        return {q: d for part in self.inner if part.name == name for q, d in part.decisions.items()}


_answers: ContextVar[Mapping[str, str]] = ContextVar("answers", default=MappingProxyType({}))
_scope: ContextVar[Scope | None] = ContextVar("scope", default=None)


@contextmanager
def answering(answers: Mapping[str, str]) -> Iterator[None]:
    """Questions that are asked inside are answered so, whatever PassContexts lie in between."""
    token = _answers.set({**_answers.get(), **answers})
    try:
        yield
    finally:
        _answers.reset(token)


def answers_now() -> dict[str, str]:
    """All answers that hold here; those of a PassContext before those of `answering`."""
    return {**_answers.get(), **PassContext.current().get_config(ANSWERS)}


@contextmanager
def deciding(name: str) -> Iterator[Scope]:
    """Questions that are asked inside belong to what is named."""
    made, around = Scope(name), _scope.get()
    token = _scope.set(made)
    try:
        yield made
    finally:
        _scope.reset(token)
        if around is not None:
            around.inner.append(made)


@contextmanager
def asking_costs() -> Iterator[None]:
    """Questions that are asked inside belong to nothing: only what answers would cost counts."""
    token = _scope.set(None)
    try:
        yield
    finally:
        _scope.reset(token)


def choose(name: str, candidates: Sequence[T], cost: Callable[[T], float]) -> T:
    """The answer to a question: the recorded one, else the first of the cheapest candidates.

    Candidates are told apart by their text.
    """
    if not candidates:
        raise ValueError(f"there is nothing to choose from for '{name}'")
    scope = _scope.get()
    answer = _answer(name, scope)
    costs = [cost(each) for each in candidates]
    taken = min(range(len(costs)), key=costs.__getitem__)
    if answer is not None:
        texts = [str(each) for each in candidates]
        taken = texts.index(answer) if answer in texts else taken
    if scope is not None:
        offered = tuple((str(each), price) for each, price in zip(candidates, costs, strict=True))
        scope.decisions[name] = Decision(name, offered, offered[taken][0], answer)
    return candidates[taken]


def near(wanted: float) -> Callable[[float], float]:
    """The cost of numbers by their distance from the one that a rule prefers."""
    return lambda number: abs(number - wanted)


def _answer(name: str, scope: Scope | None) -> str | None:
    answers = answers_now()
    own = answers.get(f"{scope.name}/{name}") if scope is not None and answers else None
    return own if own is not None else answers.get(name)


def _show(cost: float) -> str:
    """Thousands where there are many."""
    return f"{cost / 1000:,.0f} k" if cost >= 10_000 else f"{cost:,.4g}"

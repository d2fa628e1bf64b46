"""The one door through which schedules decide: choose(name, candidates, cost).

An untuned build takes the cheapest candidate by the analytic cost model. An answer from outside,
the setting schedule.answers of a PassContext, replaces it: {"tile": "4 x 16"} answers a question
wherever it is asked, {"<scope>/tile": ...} in one kernel only. What was asked, offered and taken is
recorded for the build report.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from sterna.ir.pass_context import PassContext
from sterna.schedule.config import ANSWERS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision:
    """One question: what was offered at which cost, and what was taken."""

    name: str
    offered: tuple[tuple[str, float], ...]
    taken: str
    answered: bool = False
    """Whether the answer came from outside."""

    def __str__(self) -> str:
        """winograd(m=4) 812 k, direct 1,604 k"""
        others = sorted((item for item in self.offered if item[0] != self.taken), key=_cost)
        own = dict(self.offered)[self.taken]
        shown = [f"{label} {_show(cost)}" for label, cost in ((self.taken, own), *others)]
        return ", ".join(shown) + (", as answered" if self.answered else "")


@dataclass(slots=True)
class Scope:
    """The kernel or the layer for which questions are asked, and what was decided there."""

    name: str = ""
    decisions: list[Decision] = field(default_factory=list)


_scope: ContextVar[Scope | None] = ContextVar("scope", default=None)


@contextmanager
def deciding(name: str) -> Iterator[Scope]:
    """Questions that are asked inside belong to what is named."""
    made = Scope(name)
    token = _scope.set(made)
    try:
        yield made
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
    if len(candidates) == 1 and answer is None:
        return candidates[0]
    costs = [cost(each) for each in candidates]
    if answer is None:
        taken = min(range(len(costs)), key=costs.__getitem__)
    else:
        labels = [str(each) for each in candidates]
        if answer not in labels:
            raise ValueError(
                f"'{answer}' is no answer to the question '{name}'; there are {', '.join(labels)}"
            )
        taken = labels.index(answer)
    if scope is not None:
        offered = tuple(zip(map(str, candidates), costs, strict=True))
        decision = Decision(name, offered, offered[taken][0], answer is not None)
        if decision not in scope.decisions:
            scope.decisions.append(decision)
    return candidates[taken]


def _answer(name: str, scope: Scope | None) -> str | None:
    answers: Mapping[str, str] = PassContext.current().get_config(ANSWERS)
    own = answers.get(f"{scope.name}/{name}") if scope is not None and scope.name else None
    return own if own is not None else answers.get(name)


def _cost(item: tuple[str, float]) -> float:
    return item[1]


def _show(cost: float) -> str:
    """Thousands of cycles where there are many."""
    return f"{cost / 1000:,.0f} k" if cost >= 10_000 else f"{cost:,.4g}"

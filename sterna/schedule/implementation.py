"""The record of an implementation: one way to compute contractions, in one file.

An implementation says which contractions it suits and at what cost on a processor, in cycles of the
thread that ends last; how it packs weights; and how it writes its loops. Files of the folder
implementations/ are found by listing it, so adding one is adding a file. In the graph a convolution
stays nn.conv2d: its attribute `implementation` holds the plan, and its weights are packed for it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, TypeVar

from sterna.ir.types import TensorType, Type
from sterna.relay.arrays import Array, from_numpy
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Constant, RelayExpr
from sterna.relay.op import Way
from sterna.schedule.choose import Decision, asking_costs, choose, deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import tiled_cycles
from sterna.schedule.epilogue import Epilogue
from sterna.schedule.kernel import Processor
from sterna.schedule.statement_kernel import StatementKernel
from sterna.support.discovery import modules_of
from sterna.te import Tensor

FOLDER = "sterna.schedule.implementations"
# How many times larger packed weights may be, unless a user says so.
GROWTH = 8.0

Choice = int | str
T = TypeVar("T", int, str)


@dataclass(frozen=True, slots=True)
class Plan:
    """An implementation by name, with the choices that its packing and its loops depend on."""

    name: str
    choices: tuple[tuple[str, Choice], ...] = ()

    @staticmethod
    def of(name: str, **choices: Choice) -> "Plan":
        """A plan with these choices."""
        return Plan(name, tuple(choices.items()))

    @staticmethod
    def parse(text: str) -> "Plan":
        """What str gave."""
        found = re.fullmatch(r"(\w+)(?:\((\w+=[\w-]+(?:, \w+=[\w-]+)*)\))?", text)
        if found is None:
            raise ValueError(f"implementation is written as name(choice=1, ...), not '{text}'")
        parts = [part.partition("=") for part in (found[2] or "").split(", ") if part]
        values = [(name, int(v) if re.fullmatch(r"-?\d+", v) else v) for name, _, v in parts]
        return Plan(found[1], tuple(values))

    def integer(self, name: str) -> int:
        """A choice that is a number."""
        return self._choice(name, int, "number")

    def text(self, name: str) -> str:
        """A choice that is a word."""
        return self._choice(name, str, "word")

    def _choice(self, name: str, kind: type[T], what: str) -> T:
        value = dict(self.choices).get(name)
        if not isinstance(value, kind):
            raise ValueError(f"the implementation '{self}' has no {what} '{name}'")
        return value

    def __str__(self) -> str:
        """winograd(m=4, split=blocks)"""
        inner = ", ".join(f"{name}={value}" for name, value in self.choices)
        return f"{self.name}({inner})" if inner else self.name


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan with its cost, and the weights that it needs."""

    plan: Plan
    cycles: float
    """Of the thread that ends last, by the cost model."""
    pack: Callable[[], tuple[Array, ...]] | None = None
    """Makes the operands that stand for the weights; None: they stay as they are."""
    arranged: "Arranged | None" = None
    """What the data becomes first, where it is not taken as it is."""
    growth: float = 0.0
    """How many times larger packed weights are than the model's; 0: they are as large."""
    label: str = ""
    """What answers call it, where that is not its plan: the one candidate of its kind."""

    def __str__(self) -> str:
        return self.label or str(self.plan)


@dataclass(frozen=True, slots=True)
class Arranged:
    """Data in another arrangement, such as pixels in blocks, and the contraction over it."""

    contraction: Contraction
    data: Callable[[RelayExpr], RelayExpr]


class Implementation(ABC):
    """One way to compute contractions."""

    name: ClassVar[str]
    takes_open: ClassVar[bool] = False
    """Whether its loops run over rows that only the run counts."""

    @abstractmethod
    def candidates(
        self, made: Contraction, weights: Array, processor: Processor
    ) -> Sequence[Candidate]:
        """The plans that suit a contraction there, with their costs; none if it suits none.

        weights: (output channel, window, input channel of the group).
        """


class Packing(Implementation):
    """One that computes with weights packed for it."""

    @abstractmethod
    def expect(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        """Raise ValueError unless a plan and its packed operands fit to a contraction."""

    def expect_values(
        self, made: Contraction, plan: Plan, operands: Sequence[Array | None]
    ) -> None:
        """Raise ValueError unless what operands say about memory holds; None: only a run tells.

        Loops read where operands say without asking, and a graph may come from a stranger.
        """

    @abstractmethod
    def unpack(self, made: Contraction, plan: Plan, operands: Sequence[Array]) -> Array:
        """The weights that were packed: (output channel, window, input channel of the group)."""


class PackedImplementation(Packing):
    """One that computes with packed weights in statements of its own."""

    wants: ClassVar[str]
    """Which contractions it computes, in words."""

    @abstractmethod
    def suits(self, made: Contraction) -> bool:
        """Whether it computes such a contraction, on whatever processor."""

    @abstractmethod
    def expect_types(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        """Raise ValueError unless packed operands have the types that the plan needs."""

    @abstractmethod
    def kernel(
        self, made: Contraction, plan: Plan, out: TensorType, packed: Sequence[Tensor]
    ) -> StatementKernel:
        """What writes the loops."""

    def transformed_work(self, made: Contraction, plan: Plan) -> tuple[str, int] | None:
        """Its name in profiles and its multiply-adds, where a transform makes these fewer."""
        return None

    def expect(self, made: Contraction, plan: Plan, operands: Sequence[TensorType]) -> None:
        """Raise ValueError unless a plan and its packed operands fit to a contraction."""
        if not self.suits(made):
            raise ValueError(f"{self.wants} is needed, not {made}")
        self.expect_types(made, plan, operands)

    def compute(
        self, made: Contraction, plan: Plan, out: TensorType, epilogue: Epilogue | None,
        data: Tensor, packed: Sequence[Tensor],
    ) -> Tensor:
        """The result, with what follows it if there is such."""
        kernel = self.kernel(made, plan, out, packed)
        return kernel.tensor(f"T_{self.name}", out, epilogue, (data, *packed))


@cache
def implementations() -> dict[str, Implementation]:
    """All of them by name, in the order of their files."""
    found: list[Implementation] = [module.IMPLEMENTATION for module in modules_of(FOLDER)]
    return {each.name: each for each in found}


def implementation_of(plan: Plan) -> Packing:
    """The implementation with packed weights that a plan names."""
    packed = {n: i for n, i in implementations().items() if isinstance(i, Packing)}
    if plan.name not in packed:
        raise ValueError(f"there is no implementation '{plan.name}'; there are {', '.join(packed)}")
    return packed[plan.name]


def expect_shape(operands: Sequence[TensorType], *shapes: Sequence[int]) -> None:
    """Raise ValueError unless packed operands have these shapes."""
    have = [tuple(kind.concrete_shape) for kind in operands]
    want = [tuple(shape) for shape in shapes]
    if have != want:
        raise ValueError(f"packed weights are {want}, not {have}")


def best_candidate(
    made: Contraction, weights: Array, processor: Processor, growth: float = GROWTH
) -> Candidate:
    """The cheapest way to compute a contraction, or the one that is asked for.

    growth: how many times larger packed weights may be than the model's. What other implementations
    asked for their plans changes nothing, and is not decided.
    """
    asked: dict[int, dict[str, Decision]] = {}
    with deciding(str(made)) as scope:
        found = []
        for candidates in _candidates(made, weights, processor):
            found += [candidate for candidate in candidates if candidate.growth <= growth]
            asked |= {id(candidate): scope.decisions for candidate in candidates}
            scope.decisions = {}
        taken = choose("implementation", found, lambda candidate: candidate.cycles)
        scope.decisions = asked[id(taken)] | scope.decisions
    if taken.arranged is not None:
        with deciding(str(taken.arranged.contraction)) as arranged:
            arranged.decisions = scope.decisions
    return taken


def cheapest_cycles(made: Contraction, weights: Array, processor: Processor) -> float:
    """What the implementation that best_candidate would take costs; nothing is decided."""
    with asking_costs():
        return min(
            candidate.cycles
            for each in implementations().values()
            for candidate in each.candidates(made, weights, processor)
            if candidate.growth <= GROWTH
        )


def least_cycles(made: Contraction, weights: Array, processor: Processor) -> float:
    """What the cheapest way to compute a contraction takes; nothing is decided.

    Of register tiles what their own loads add, which is the same for all ways that have some.
    """
    packed = [each for each in implementations().values() if isinstance(each, PackedImplementation)]
    with asking_costs():
        found = [
            candidate.cycles
            for each in packed
            for candidate in each.candidates(made, weights, processor)
            if candidate.growth <= GROWTH
        ]
    return min(tiled_cycles(made, processor), *found) if found else tiled_cycles(made, processor)


def ways_to_grow(made: Contraction, weights: Array, processor: Processor) -> list[Way]:
    """Its ways by the growth of their weights, each cheaper than all that grow less."""
    with deciding(str(made)) as scope:
        offered = [each for those in _candidates(made, weights, processor) for each in those]
        scope.decisions = {}  # nothing is taken yet
    found: list[Way] = []
    for candidate in sorted(offered, key=lambda each: (each.growth, each.cycles)):
        if not found or candidate.cycles < found[-1].cycles:
            found.append(Way(candidate.growth, candidate.cycles))
    return found


def _candidates(
    made: Contraction, weights: Array, processor: Processor
) -> Iterator[Sequence[Candidate]]:
    """Those of one implementation after the other."""
    for each in implementations().values():
        if each.takes_open or not made.is_open:
            yield each.candidates(made, weights, processor)


def packed_operands(
    candidate: Candidate, data: RelayExpr, weight: RelayExpr
) -> tuple[RelayExpr, ...]:
    """The data as a candidate takes it, and the weights that it packs, by the weights' name."""
    assert candidate.pack is not None
    arranged = data if candidate.arranged is None else candidate.arranged.data(data)
    packed = [Constant(from_numpy(array)) for array in candidate.pack()]
    max(packed, key=lambda each: each.data.nbytes).span = weight.span
    return (arranged, *packed)


# ---- what operators ask, of calls whose weights are packed ----


def plan_of(attrs: Attrs | None) -> Plan | None:
    """The plan that a call's attributes hold; None if its weights are not packed."""
    text = getattr(attrs, "implementation", "")
    return Plan.parse(text) if text else None


def expect_packed(attrs: Attrs, made: Contraction | None, weights: Sequence[Type]) -> None:
    """Raise ValueError unless weights are packed as the call's plan wants them."""
    plan = plan_of(attrs)
    assert plan is not None
    known = [kind for kind in weights if isinstance(kind, TensorType) and kind.is_static]
    if made is None or len(known) < len(weights):
        raise ValueError(f"the implementation '{plan}' needs known extents")
    with _naming(plan):
        implementation_of(plan).expect(made, plan, known)


def expect_packed_values(
    attrs: Attrs, made: Contraction, weights: Sequence[Array | None]
) -> None:
    """Raise ValueError unless packed weights, as far as they are known, keep loops inside."""
    plan = plan_of(attrs)
    assert plan is not None
    with _naming(plan):
        implementation_of(plan).expect_values(made, plan, weights)


@contextmanager
def _naming(plan: Plan) -> Iterator[None]:
    """Errors inside name the implementation."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"the implementation '{plan}' does not fit: {error}") from None


def compute_packed(
    attrs: Attrs, made: Contraction | None, out: TensorType, epilogue: Epilogue | None,
    data: Tensor, weights: Sequence[Tensor],
) -> Tensor | None:
    """The statements of a call's implementation; None if it has none of its own."""
    plan = plan_of(attrs)
    found = None if plan is None else implementation_of(plan)
    if plan is None or not isinstance(found, PackedImplementation):
        return None
    assert made is not None, "its type was inferred"
    return found.compute(made, plan, out, epilogue, data, weights)


def unpacked(attrs: Attrs, made: Contraction | None, weights: Sequence[Array]) -> Array:
    """The weights of a call before they were packed."""
    plan = plan_of(attrs)
    assert plan is not None and made is not None, "its type was inferred"
    return implementation_of(plan).unpack(made, plan, weights)


def transformed_work_of(attrs: Attrs, made: Contraction) -> tuple[str, int] | None:
    """What a call's implementation is called and multiplies, where a transform spares products."""
    plan = plan_of(attrs)
    found = None if plan is None else implementation_of(plan)
    if plan is None or not isinstance(found, PackedImplementation):
        return None
    return found.transformed_work(made, plan)


def products_of(attrs: Attrs, made: Contraction) -> int:
    """Products of one element of the result in the model, without those that only fill up."""
    plan = plan_of(attrs)
    own = None if plan is None else dict(plan.choices).get("products")
    return own if isinstance(own, int) else made.products

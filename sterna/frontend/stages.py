"""Staged specialisation: a model imported for inputs that are at hand, as far as values decide it.

Where a converter must know a value (the shape of a Reshape, how many boxes are left, whether a loop
goes on), the import stops: what has been converted so far becomes a stage, which is run, and the
import goes on with the value as a constant. What later parts read of the stage are inputs of the
next one, so nothing is computed twice. Whoever runs the stages keeps them, and imports again only
when a value comes that was not seen before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from sterna.frontend.node import Feeds
from sterna.frontend.open_shapes import UndecidedError
from sterna.ir.types import TensorType, TupleType
from sterna.relay.analysis import free_vars
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.op import OPAQUE, record_of
from sterna.relay.traverse import post_order, rebuild
from sterna.support.dtype import DataType

HostFunction = Callable[[list[Array]], list[Array]]


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of a model, up to a value that decides how it goes on."""

    function: Function
    """Its results are the value, and what later parts read."""
    results: Sequence[str]
    """What later parts know the latter by."""
    host: HostFunction | None = None
    """What makes of its results others, whose shapes then decide."""


Decide = Callable[[Stage], list[Array]]
"""Runs a stage, keeps its results, and gives all: first the value that decides."""


@dataclass(slots=True)
class StagedFeeds(Feeds):
    """Values of inputs, and of all that stages have computed from them."""

    can_measure: ClassVar[bool] = True
    keeps_loops: ClassVar[bool] = True

    decide: Decide | None = None
    live: Callable[[], list[RelayExpr]] = list
    """What parts of the model that are yet to be converted read; the importer says it."""
    known: dict[int, RelayExpr] = field(default_factory=dict)
    """What stands for expressions that stages have computed."""
    held: list[RelayExpr] = field(default_factory=list)
    """They are kept, so that no other expression gets the identity of one."""

    def value_of(self, expr: RelayExpr) -> Array | None:
        """The value of an expression, which is computed if nobody knows it yet."""
        now = self.replaced([expr])[0]
        if isinstance(now, Constant):
            return to_numpy(now.data)
        if not self._is_known(now):
            return None
        return self._run(expr, self._needed_later(expr))

    def measured(self, count: RelayExpr, results: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Results of known shapes, as a run for these inputs gives them; a count decides."""
        if not all(map(self._is_known, self.replaced([count, *results]))):
            raise UndecidedError("the shape of a loop's results is decided in another loop")
        own = {id(result): result for result in results}
        more = [part for part in self._needed_later(count) if id(part) not in own]
        self._run(count, [*results, *more])
        return self.replaced(results)

    def by_host(
        self, function: HostFunction, operands: Sequence[RelayExpr], count: int, text: DataType
    ) -> list[RelayExpr]:
        """What a function of the host makes of operands; text is the element type of strings."""
        assert self.decide is not None
        roots = self.replaced(operands)
        if not all(map(self._is_known, roots)):
            raise UndecidedError("the host's functions are not part of loops")
        first = len(self.held)
        names = [f"stage{first + place}" for place in range(count)]
        made: list[RelayExpr] = []
        stage = Stage(function_of(Tuple(tuple(roots))), names, function)
        for name, array in zip(names, self.decide(stage)[1:], strict=True):
            self.values[name] = array
            kind = text if array.dtype.kind in "OUS" else DataType(str(array.dtype))
            made.append(Var(name, TensorType(array.shape, kind)))
        self.held += made
        return made

    def _run(self, expr: RelayExpr, kept: Sequence[RelayExpr]) -> Array:
        """Compute a value as a stage, together with what is kept for later parts."""
        assert self.decide is not None
        roots = self.replaced([expr, *kept])
        body = roots[0] if len(roots) == 1 else Tuple(tuple(roots))
        first = len(self.held)
        names = [f"stage{first + place}" for place in range(len(kept))]
        value, *rest = self.decide(Stage(function_of(body), names))
        self.note(expr, _constant_like(value, expr))
        for part, name, array in zip(kept, names, rest, strict=True):
            kind = part.checked_type
            assert isinstance(kind, TensorType)
            var = Var(name, TensorType(array.shape, kind.dtype))
            var.span = part.span
            self.values[name] = array
            self.note(part, var)
        return value

    def _is_known(self, expr: RelayExpr) -> bool:
        """Whether a value is one of this run, not of each round of a loop."""
        return all(var.name_hint in self.values for var in free_vars(expr))

    def note(self, expr: RelayExpr, now: RelayExpr) -> None:
        """Remember what stands for an expression."""
        self.known[id(expr)] = now
        self.held.append(expr)

    def replaced(self, roots: Sequence[RelayExpr]) -> list[RelayExpr]:
        """Expressions over what stages have computed."""
        memo: dict[int, RelayExpr] = dict(self.known)
        for root in roots:
            for part in post_order(root, lambda each: id(each) not in memo):
                if id(part) not in memo:
                    memo[id(part)] = rebuild(part, memo)
        return [memo[id(root)] for root in roots]

    def _needed_later(self, expr: RelayExpr) -> list[RelayExpr]:
        """Of what is read later, that which is computed from calls that the value needs too."""
        def is_new(each: RelayExpr) -> bool:
            return id(each) not in self.known

        needed = {id(part) for part in post_order(expr, is_new) if record_of(part) is not None}
        touches: set[int] = set()
        kept: dict[int, RelayExpr] = {}
        for root in self.live():
            if root is expr or id(root) in self.known:
                continue
            for part in post_order(root, is_new):
                if id(part) in needed or any(id(o) in touches for o in _operands(part, is_new)):
                    touches.add(id(part))
            is_computed = id(root) in touches and not isinstance(root, Var | Constant)
            if is_computed and self._is_known(self.replaced([root])[0]):
                for leaf in _tensors(root):
                    kept[id(leaf)] = leaf
        return list(kept.values())


def _operands(part: RelayExpr, is_new: Callable[[RelayExpr], bool]) -> tuple[RelayExpr, ...]:
    return part.operands() if is_new(part) else ()  # type: ignore[attr-defined]


def _tensors(expr: RelayExpr) -> list[RelayExpr]:
    """The tensors that an expression's value is made of."""
    if isinstance(expr.checked_type, TensorType):
        return [expr]
    if isinstance(expr, Tuple):
        return [leaf for part in expr.fields for leaf in _tensors(part)]
    return []


def _constant_like(value: Array, expr: RelayExpr) -> Constant:
    made = Constant(from_numpy(value))
    made.span = expr.span
    return made


def function_of(body: RelayExpr) -> Function:
    """A function of all variables that an expression reads."""
    return Function(tuple(free_vars(body)), body)


def is_cheap(function: Function, most: int = 4096, most_opaque: int = 256) -> bool:
    """Whether a function computes so little that compiling it is not worth its while.

    Operators that are more than an expression of elements may take more than one step for each of
    them, as suppression does for all pairs of boxes.
    """
    elements = calls = 0
    for part in post_order(function.body):
        kinds = part._type.fields if isinstance(part._type, TupleType) else (part._type,)
        for kind in kinds:
            if not isinstance(kind, TensorType) or not kind.is_static:
                return False
            elements += int(np.prod(kind.concrete_shape, dtype=np.int64))
        if not isinstance(part, Var | Constant | Call | Tuple | TupleGetItem):
            return False
        calls += isinstance(part, Call)
        record = record_of(part)
        if record is not None and record.pattern == OPAQUE:
            most = most_opaque
    return elements <= most and calls <= 256

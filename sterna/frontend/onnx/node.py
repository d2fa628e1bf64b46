"""What converters work with: a node of a model, and calls that are computed once they are known.

A converter is a function from a Node to an expression, or to one per output. It is registered for
an operator of ONNX and the versions of the operator set from which and to which it holds.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from sterna.ir.types import TensorType, TupleType, flatten_type
from sterna.relay.analysis import free_vars
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.relay.builders import builder
from sterna.relay.expr import (
    Call,
    Constant,
    Function,
    RelayExpr,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
)
from sterna.relay.interpreter import interpret
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, OpRecord
from sterna.relay.passes.fold_constant import fold_one
from sterna.runtime import NDArray

# What an operator whose results each read many elements may read in all to be computed here.
MOST_WORK = 1 << 24

# What a converter may write out by itself.
MOST_ELEMENTS = 1 << 26

# Operands of numbers that say how, such as a shape or axes, are not longer than this.
MOST_NUMBERS = 1 << 16

Result = RelayExpr | Sequence[RelayExpr | None]


@dataclass(slots=True)
class Feeds:
    """What a model will be run on, for operands that decide the graph itself, such as shapes."""

    values: dict[str, Array] = field(default_factory=dict)
    decisive: set[str] = field(default_factory=set)
    """The inputs whose values were asked for: the graph holds for these values alone."""

    def value_of(self, expr: RelayExpr) -> Array | None:
        """The value of an expression, if it depends on nothing but these inputs."""
        if isinstance(expr, Constant):
            return to_numpy(expr.data)
        if not self.values:  # a call of constants was too large to be computed
            return None
        needed = free_vars(expr)
        if any(var.name_hint not in self.values for var in needed):
            return None
        self.decisive.update(var.name_hint for var in needed)
        given = [self.values[var.name_hint] for var in needed]
        return np.asarray(interpret(Function(tuple(needed), expr), *given))


@dataclass(slots=True)
class Node:
    """One node of a model: its operands as expressions and its attributes as Python's values."""

    kind: str
    name: str
    opset: int
    inputs: list[RelayExpr | None]
    attrs: dict[str, Any]
    outputs: list[str]
    """The names of the results; an empty one is not wanted."""
    weights: dict[Var, NDArray] = field(default_factory=dict)
    """What is known about variables: the model's own weights."""
    feeds: Feeds = field(default_factory=Feeds)
    graphs: dict[str, Callable[..., list[RelayExpr]]] = field(default_factory=dict)
    """What the graphs in it give for their inputs, by the names of the attributes."""

    # ---- operands ----

    def has(self, place: int) -> bool:
        """Whether there is an operand at that place."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def __getitem__(self, place: int) -> RelayExpr:
        found = self.inputs[place] if place < len(self.inputs) else None
        if found is None:
            raise ValueError(f"{self}: operand {place} is missing")
        return found

    def get(self, place: int) -> RelayExpr | None:
        """The operand at that place, if there is one."""
        return self.inputs[place] if self.has(place) else None

    def operands(self) -> list[RelayExpr]:
        """All operands, none of which may be missing."""
        return [self[place] for place in range(len(self.inputs))]

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute or what it is if it is not given."""
        return self.attrs.get(name, default)

    def wants(self, place: int) -> bool:
        """Whether the result of that place has a name, so that something may read it."""
        return place < len(self.outputs) and bool(self.outputs[place])

    # ---- what is known when the model is imported ----

    def known(self, place: int) -> Array | None:
        """The value of an operand, if it is known."""
        expr = self[place]
        if isinstance(expr, Constant):
            return to_numpy(expr.data)
        if isinstance(expr, Var) and expr in self.weights:
            return to_numpy(self.weights[expr])
        return None

    def decided(self, place: int) -> Array | None:
        """The value of an operand that decides the graph, if it is known or the inputs tell it."""
        value = self.known(place)
        return self.feeds.value_of(self[place]) if value is None else value

    def array(self, place: int, what: str) -> Array:
        """The value of an operand that must be known."""
        value = self.decided(place)
        if value is None:
            raise ValueError(
                f"{self}: {what} depends on the model's inputs or on a dimension that is not "
                "known; give the inputs' shapes by shape={name: (...)}, or fold it in the model"
            )
        return value

    def ints(self, place: int, what: str) -> list[int]:
        """The whole numbers of an operand that must be known."""
        return self._few(self.array(place, what), what)

    def static(self, place: int) -> tuple[int, ...] | RelayExpr:
        """The whole numbers of an operand if they are known, else the operand."""
        value = self.decided(place)
        return self[place] if value is None else tuple(self._few(value, f"operand {place}"))

    def _few(self, value: Array, what: str) -> list[int]:
        """Whole numbers one by one: extents, axes and such."""
        if value.size > MOST_NUMBERS:
            raise ValueError(f"{self}: {what} has {value.size} numbers, more than {MOST_NUMBERS}")
        return [int(number) for number in value.reshape(-1)]

    def number(self, place: int, what: str) -> Any:
        """The one number of an operand that must be known."""
        value = self.array(place, what)
        if value.size != 1:
            raise ValueError(f"{self}: {what} is one number, not {value.size} of them")
        return value.reshape(()).item()

    def ints_of(self, place: int, name: str, since: int) -> list[int] | None:
        """Whole numbers that are an attribute up to a version and an operand from it on."""
        if self.opset < since:
            given = self.attr(name)
            return None if given is None else [int(v) for v in np.atleast_1d(given)]
        return self.ints(place, name) if self.has(place) else None

    def shape(self, place: int = 0) -> tuple[int, ...]:
        """The shape of an operand, which must be known."""
        return self.shape_of(self[place])

    def shape_of(self, expr: RelayExpr) -> tuple[int, ...]:
        """The shape of an expression, which must be known."""
        kind = type_of(expr)
        if not kind.is_static:
            raise ValueError(
                f"{self}: it needs the whole shape of its operand, which is {kind}; "
                "give the inputs' shapes by shape={name: (...)}"
            )
        return tuple(int(extent) for extent in kind.concrete_shape)

    def __str__(self) -> str:
        return f"node '{self.name}' ({self.kind})"


Converter = Callable[[Node], Result]
ConverterT = TypeVar("ConverterT", bound=Converter)

LATEST = 1 << 30
_CONVERTERS: dict[tuple[str, str], list[tuple[int, int, Converter]]] = {}


def converter(
    *kinds: str, since: int = 1, until: int = LATEST, domain: str = ""
) -> Callable[[ConverterT], ConverterT]:
    """Register a function that converts operators, for some versions of their operator set."""

    def add(function: ConverterT) -> ConverterT:
        for kind in kinds:
            _CONVERTERS.setdefault((domain, kind), []).append((since, until, function))
        return function

    return add


def find_converter(domain: str, kind: str, opset: int) -> Converter | None:
    """The converter of an operator at a version of its operator set."""
    own = "" if domain == "ai.onnx" else domain
    for since, until, function in _CONVERTERS.get((own, kind), ()):
        if since <= opset <= until:
            return function
    return None


# ---- building ----


def type_of(expr: RelayExpr) -> TensorType:
    """The type of a tensor."""
    kind = expr.checked_type
    assert isinstance(kind, TensorType)
    return kind


def rank_of(expr: RelayExpr) -> int:
    """The number of dimensions."""
    return type_of(expr).ndim


def dtype_of(expr: RelayExpr) -> str:
    """The element type."""
    return str(type_of(expr).dtype)


def constant(value: Any, dtype: str | None = None) -> Constant:
    """A constant of a value."""
    return Constant(from_numpy(np.asarray(value), dtype))


def like(value: float, expr: RelayExpr) -> Constant:
    """A number of the element type of an expression."""
    return constant(value, dtype_of(expr))


@dataclass(slots=True)
class Room:
    """The bytes that constants computed from others may still take."""

    left: int = 1 << 28

    def add_weight(self, size: int) -> None:
        """A model with large weights may have large constants."""
        self.left += 4 * size


_room: ContextVar[Room | None] = ContextVar("room", default=None)


@contextmanager
def limited_folding() -> Iterator[Room]:
    """Within it calls of constants are computed as long as there is room for their values."""
    room = Room()
    token = _room.set(room)
    try:
        yield room
    finally:
        _room.reset(token)


def call(name: str, *args: Any, **attrs: Any) -> RelayExpr:
    """A call of an operator; its value if the operands are known."""
    return fold_one(call_unfolded(name, *args, **attrs), _allows)


def call_unfolded(name: str, *args: Any, **attrs: Any) -> RelayExpr:
    """A call of an operator, even if its operands are known."""
    made = builder(name)(*args, **attrs)
    return made.tuple_value if isinstance(made, TupleWrapper) else made


def _allows(record: OpRecord, call: Call, size: int) -> bool:
    """Whether computing a call is little work, and there is room for its value.

    There always is for a few bytes: they may be a shape.
    """
    if record.pattern >= OUT_ELEMWISE_FUSABLE:
        given = (kind for arg in call.args for kind in flatten_type(arg.checked_type))
        if size * sum(math.prod(kind.concrete_shape) for kind in given) > MOST_WORK:
            return False
    room = _room.get()
    if room is None or size <= 1024:
        return True
    room.left -= min(size, room.left)
    return room.left > 0


def parts(expr: RelayExpr, count: int) -> list[RelayExpr]:
    """The fields of a tuple."""
    if isinstance(expr, Tuple):
        return list(expr.fields[:count])
    return [TupleGetItem(expr, index) for index in range(count)]


def is_sequence(expr: RelayExpr) -> bool:
    """Whether an expression is a sequence of tensors."""
    return isinstance(expr.checked_type, TupleType)


def fields_of(expr: RelayExpr) -> list[RelayExpr]:
    """All fields of a tuple."""
    kind = expr.checked_type
    assert isinstance(kind, TupleType)
    return parts(expr, len(kind.fields))


def reshape(data: RelayExpr, shape: Sequence[int]) -> RelayExpr:
    """Data in a shape whose numbers mean themselves; -1 is what is left."""
    return call("reshape", data, tuple(shape), allowzero=-1 not in shape)


def cast(data: RelayExpr, dtype: str) -> RelayExpr:
    """Data as elements of a type."""
    return data if dtype_of(data) == dtype else call("cast", data, dtype)


def expect_moderate(count: int, what: str) -> None:
    """So many elements can be made while a model is imported."""
    if count > MOST_ELEMENTS:
        raise ValueError(f"{what} asks for {count} elements, more than {MOST_ELEMENTS}")


def axes_below(axes: Sequence[int] | None, rank: int) -> list[int]:
    """Axes counted from the front; all if none are given."""
    if axes is None:
        return list(range(rank))
    found = [axis_below(axis, rank) for axis in axes]
    if len(set(found)) != len(found):
        raise ValueError(f"of the axes {list(axes)} two are the same")
    return found


def axis_below(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is none of {rank}")
    return axis + rank if axis < 0 else axis

"""Calls as converters make them: of operators by name, computed once their operands are known.

What a model computes from shapes so turns into numbers while it is imported.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.frontend.limits import MOST_WORK
from sterna.frontend.open_shapes import UndecidedError
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, TupleType, flatten_type
from sterna.relay.arrays import from_numpy
from sterna.relay.builders import builder
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple, TupleGetItem, TupleWrapper
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, AnyOp
from sterna.relay.passes.fold_constant import fold_one
from sterna.relay.symbols import simplified_dim


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


def _allows(record: AnyOp, call: Call, size: int) -> bool:
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


def reshape(data: RelayExpr, shape: Sequence[Dim]) -> RelayExpr:
    """Data in a shape whose numbers mean themselves; -1 or a dimension of which nothing is known is
    what is left.
    """
    dims = tuple(-1 if isinstance(dim, AnyDim) else dim for dim in shape)
    open_ones = sum(type(dim) is int and dim == -1 for dim in dims)
    if open_ones > 1:
        raise UndecidedError(
            f"a shape with {open_ones} dimensions that are not known; give the inputs' shapes by "
            "shape={name: (...)}"
        )
    return call("reshape", data, dims, allowzero=not open_ones)


def size_of(shape: Sequence[Dim]) -> Dim:
    """The number of elements of a shape; unknown where a dimension is."""
    unknown = next((dim for dim in shape if isinstance(dim, AnyDim)), None)
    if unknown is not None:
        return unknown if len(shape) == 1 else AnyDim()
    found: Dim = math.prod(dim for dim in shape if isinstance(dim, int))
    for dim in shape:
        found = found if isinstance(dim, int) else dim * found
    return simplified_dim(found)


def extent_of(data: RelayExpr, axis: int) -> RelayExpr:
    """An extent as a number of the graph."""
    extent = type_of(data).shape[axis]
    if isinstance(extent, int):
        return constant(extent, "int64")
    place = constant(axis_below(axis, rank_of(data)), "int64")
    return call("take", call("shape_of", data, dtype="int64"), place, axis=0)


def numbers_below(count: RelayExpr) -> RelayExpr:
    """The numbers from 0 to before a count, which may be an extent."""
    return call("arange", count, dtype="int64")


def cast(data: RelayExpr, dtype: str) -> RelayExpr:
    """Data as elements of a type."""
    return data if dtype_of(data) == dtype else call("cast", data, dtype)


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

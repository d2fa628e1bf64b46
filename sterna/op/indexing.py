"""Where the elements of a result come from: arithmetic on indices and shapes."""

import math
from collections.abc import Callable, Sequence

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, same_dim
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute

INT32, INT64 = DataType("int32"), DataType("int64")
LARGEST_INT32 = 2**31 - 1

Index = Sequence[Expr]


def dims_of(tensor: Tensor) -> list[Dim]:
    """A tensor's shape, with ints where dimensions are known."""
    return as_dims(tensor.shape)


def as_dims(shape: Sequence[Dim]) -> list[Dim]:
    """A shape with ints where dimensions are known."""
    return [dim if (known := build.int_value(dim)) is None else known for dim in shape]


def taken_from(
    source: Tensor, shape: Sequence[Dim], where: Callable[[Index], Sequence[ExprLike]], name: str
) -> Tensor:
    """A tensor whose element at i is the source's at where(i)."""
    made: Tensor = compute(tuple(shape), lambda *i: source(*where(i)), name=name)
    return made


def broadcast_place(at: Index, given: Tensor) -> tuple[ExprLike, ...] | int:
    """The element of an operand that broadcasting pairs with a place of the result."""
    shape = dims_of(given)
    own = zip(at[len(at) - len(shape) :], shape, strict=True)
    return tuple(_broadcast_index(index, extent) for index, extent in own) or 0


def _broadcast_index(index: Expr, extent: Dim) -> Expr:
    """The index along one dimension; an open extent may turn out to be 1."""
    zero = build.const(0, index.dtype)
    if type(extent) is int:
        return zero if extent == 1 else index
    return build.select(build.equal(extent, 1), zero, index)


def as_index(value: Expr) -> Expr:
    """A number that a tensor holds, as a type that indices can be computed in."""
    return build.cast(INT64 if value.dtype.bits + value.dtype.is_uint > 32 else INT32, value)


def from_either_end(value: Expr, dim: Dim) -> Expr:
    """An index that a tensor holds; below 0 it counts from the end of the dimension."""
    index = as_index(value)
    return build.select(index < 0, index + dim, index)


def within(index: Expr, dim: Dim) -> Expr:
    """An index held within a dimension, so that nothing outside of it is ever read."""
    return build.maximum(0, build.minimum(build.as_expr(dim) - 1, index))


def ravel(indices: Index, shape: Sequence[Dim]) -> Expr:
    """The place of an element when all of them stand in a row."""
    flat = build.const(0, INT64) if _is_large(shape) else build.const(0)
    for index, dim in zip(indices, shape, strict=True):
        flat = flat * dim + index
    return flat


def divisor(dim: Dim) -> Dim:
    """A dimension that places are divided by; where it is 0 there are no places."""
    known = build.int_value(dim) if isinstance(dim, Expr) else dim
    return 1 if type(known) is int and known == 0 else dim


def unravel(flat: Expr, shape: Sequence[Dim]) -> list[Expr]:
    """The indices of the element at a place in the row."""
    indices: list[Expr] = []
    for dim in reversed(shape[1:]):
        length = divisor(dim)
        indices.append(flat % length)
        flat = flat // length
    return [*([flat] if shape else []), *reversed(indices)]


def _is_large(shape: Sequence[Dim]) -> bool:
    return math.prod(dim for dim in shape if type(dim) is int) > LARGEST_INT32


def same_row(indices: Index, shape: Sequence[Dim], source: Sequence[Dim]) -> list[Expr]:
    """Where an element of a reshaped tensor lies in its source.

    Dimensions that are in both shapes are recognised, so that only what is really regrouped costs
    divisions: from (n, 2, 3) to (n, 6) the first index stays itself.
    """
    if 0 in shape:  # there are no elements
        return [build.const(0) for _ in source]
    found: list[Expr] = []
    for own, other in _groups(shape, source):
        flat = ravel(indices[own], shape[own])
        found += unravel(flat, source[other])
    return found


def _groups(shape: Sequence[Dim], source: Sequence[Dim]) -> list[tuple[slice, slice]]:
    """The finest stretches of two shapes that hold equally many elements, in order."""
    groups = []
    begin, start = 0, 0
    while begin < len(shape) or start < len(source):
        end, stop = _group_end(shape, source, begin, start)
        groups.append((slice(begin, end), slice(start, stop)))
        begin, start = end, stop
    return groups


def _group_end(
    shape: Sequence[Dim], source: Sequence[Dim], begin: int, start: int
) -> tuple[int, int]:
    ends = len(shape), len(source)
    if begin < ends[0] and is_one(shape[begin]):
        return begin + 1, start
    if start < ends[1] and is_one(source[start]):
        return begin, start + 1
    if begin == ends[0] or start == ends[1]:
        return ends
    mine, other = shape[begin], source[start]
    end, stop = begin + 1, start + 1
    if not isinstance(mine, AnyDim) and same_dim(mine, other):
        return end, stop
    while type(mine) is int and type(other) is int and mine != other:
        if mine < other:
            if end == ends[0]:
                return ends
            mine, end = mine * shape[end], end + 1
        else:
            if stop == ends[1]:
                return ends
            other, stop = other * source[stop], stop + 1
    return (end, stop) if type(mine) is int and type(other) is int else ends


def is_one(dim: Dim) -> bool:
    """Whether a dimension is known to be 1."""
    return type(dim) is int and dim == 1

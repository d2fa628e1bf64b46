"""What operators on the matrices in the last two dimensions share.

They compute in float64 what is given in float32, so that a result is right to its last digits.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import at_least, expect_dim, of_kind
from sterna.relay.arrays import Array
from sterna.tir.ir_builder import BufferVar, IRBuilder

WIDE = "float64"
ZERO = build.const(0.0, WIDE)
ONE = build.const(1.0, WIDE)


def matrices(kind: Type, name: str) -> TensorType:
    """A tensor of matrices of floats."""
    return of_kind(at_least(kind, name, 2), name, "float")


def square(kind: Type, name: str) -> TensorType:
    """A tensor of square matrices of floats."""
    found = matrices(kind, name)
    rows, columns = found.shape[-2:]
    expect_dim(columns, rows, "the number of columns of a square matrix")
    return found


def least(a: Dim, b: Dim) -> Dim:
    """The smaller of two extents."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else build.minimum(a, b)


def magnitude(value: Expr) -> Expr:
    """A number without its sign."""
    return build.select(value < ZERO, ZERO - value, value)


def load(
    ib: IRBuilder, source: BufferVar, places: Sequence[Expr], rows: Dim, columns: Dim, name: str
) -> BufferVar:
    """A copy of one matrix to work on."""
    made = ib.allocate(WIDE, (rows, columns), name=name)
    with ib.for_range(0, rows, name="r") as r, ib.for_range(0, columns, name="c") as c:
        made[r, c] = build.cast(WIDE, source[(*places, r, c)])
    return made


def store(
    ib: IRBuilder, result: BufferVar, places: Sequence[Expr], extents: Sequence[Dim],
    element: Callable[..., ExprLike],
) -> None:
    """Write the elements of one matrix or vector."""
    with nest(ib, extents) as at:
        value = build.as_expr(element(*at))
        result[(*places, *at)] = build.cast(result.dtype, value)


@contextmanager
def nest(ib: IRBuilder, extents: Sequence[Dim]) -> Iterator[list[Expr]]:
    """Loops over rows, or over rows and columns."""
    if len(extents) == 1:
        with ib.for_range(0, extents[0], name="r") as r:
            yield [r]
    else:
        with (
            ib.for_range(0, extents[0], name="r") as r,
            ib.for_range(0, extents[1], name="c") as c,
        ):
            yield [r, c]


def each_matrix(function: Callable[..., Sequence[Array]], *given: Array) -> list[Array]:
    """A reference of several arrays by that of one matrix in float64; given share outer extents."""
    outer = given[0].shape[: given[0].ndim - 2]
    found: list[list[Array]] = []
    for place in np.ndindex(*outer):
        with np.errstate(all="ignore"):
            made = function(*(each[place].astype(np.float64) for each in given))
        found.append([np.asarray(part) for part in made])
    if not found:  # no matrices: the shapes of what one would give
        empty = function(*(np.ones(each.shape[len(outer):]) for each in given))
        return [np.empty((*outer, *np.shape(part)), np.asarray(part).dtype) for part in empty]
    return [
        np.stack(parts).reshape((*outer, *parts[0].shape)) for parts in zip(*found, strict=True)
    ]

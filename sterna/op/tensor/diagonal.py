"""Matrices by their diagonals: eye_like, trilu, matrix_set_diag."""

from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, Type, show_shape
from sterna.op.axis_rows import AxisRows
from sterna.op.checks import at_least, expect_dim, of_kind, same_dtype, tensor
from sterna.op.indexing import as_index, dims_of
from sterna.op.statements import filled
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, const
from sterna.relay.op import INJECTIVE, OPAQUE, Case, OpRecord, register
from sterna.schedule.products import AS_DATA
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

# ---- ones on a diagonal ----


@attributes
class EyeLikeAttrs(Attrs):
    """Of eye_like."""

    k: int = 0
    dtype: DataType = AS_DATA


def _infer_eye(attrs: EyeLikeAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data", 2)
    return TensorType(kind.shape, attrs.dtype or kind.dtype)


def _compute_eye(attrs: EyeLikeAttrs, out: TensorType, data: Tensor) -> Tensor:
    """Rows of zeros, then a one in each: no element is asked where it stands."""
    rows = AxisRows(out.shape, 1)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        with rows.each(ib) as at:
            with ib.for_range(0, rows.length, name="j") as j:
                result[at(j)] = build.const(0, out.dtype)
            place = ib.let("place", at(0)[0] + attrs.k)
            with ib.if_scope(build.logical_and(place >= 0, place < rows.length)):
                result[at(place)] = build.const(1, out.dtype)

    return filled(out, [], fill, "T_eye_like")


def _eye(attrs: EyeLikeAttrs, data: Array) -> Array:
    rows, columns = data.shape
    kind = numpy_dtype(attrs.dtype) if attrs.dtype else data.dtype
    return np.eye(rows, columns, attrs.k).astype(kind)


register(OpRecord(
    "eye_like",
    inputs=("data",),
    attrs=EyeLikeAttrs,
    infer=_infer_eye,
    compute=_compute_eye,
    reference=_eye,
    pattern=OPAQUE,
    cases=[Case(((2, 3),)), Case(((4, 3),), {"k": -2, "dtype": "int8"})],
    doc="Ones on the k-th diagonal and zeros elsewhere, in the shape of a matrix.",
))


# ---- triangles ----


@attributes
class TriluAttrs(Attrs):
    """Of trilu."""

    upper: bool = True


def _infer_trilu(attrs: TriluAttrs, data: Type, k: Type) -> TensorType:
    of_kind(tensor(k, "k", 0), "k", "int", "uint")
    return at_least(data, "data", 2)


def _compute_trilu(attrs: TriluAttrs, out: TensorType, data: Tensor, k: Tensor) -> Tensor:
    def element(*i: Expr) -> Expr:
        above = i[-1] - i[-2]
        diagonal = as_index(k())
        kept = above >= diagonal if attrs.upper else above <= diagonal
        return build.select(kept, data(*i), build.const(0, out.dtype))

    made: Tensor = compute(out.shape, element, name="T_trilu")
    return made


def _trilu_reference(attrs: TriluAttrs, data: Array, k: Array) -> Array:
    rows, columns = data.shape[-2:]
    above = np.arange(columns) - np.arange(rows)[:, None]
    kept = above >= int(k) if attrs.upper else above <= int(k)
    return np.where(kept, data, data.dtype.type(0))


def _trilu(data: RelayExprLike, k: RelayExpr | int, upper: bool = True) -> Any:
    """The part of matrices from the k-th diagonal on, upwards or downwards; 0 elsewhere."""
    diagonal = k if isinstance(k, RelayExpr) else const(k, "int64")
    return make("trilu", data, diagonal, upper=upper)


register(OpRecord(
    "trilu",
    inputs=("data", "k"),
    attrs=TriluAttrs,
    infer=_infer_trilu,
    compute=_compute_trilu,
    reference=_trilu_reference,
    builder=_trilu,
    pattern=INJECTIVE,
    cases=[
        Case(((2, 3, 4), np.array(1))),
        Case((((4, 3), "int8"), np.array(-1, "int32")), {"upper": False}),
        Case((((3, 3), "bool"), np.array(0))),
    ],
    doc=_trilu.__doc__ or "",
))


# ---- diagonals replaced ----


@attributes
class MatrixSetDiagAttrs(Attrs):
    """Of matrix_set_diag."""

    k: tuple[int, int] = (0, 0)
    align: str = "RIGHT_LEFT"

    def normalize(self) -> None:
        if self.k[0] > self.k[1]:
            raise ValueError(f"k goes from a lower diagonal to a higher one, not {self.k}")
        sides = self.align.split("_")
        if len(sides) != 2 or not set(sides) <= {"LEFT", "RIGHT"}:
            raise ValueError(f"align is like 'RIGHT_LEFT', not {self.align!r}")


def _diagonal_length(rows: Dim, columns: Dim, k: Dim) -> Expr:
    """How many elements the k-th diagonal of a matrix has."""
    return build.minimum(rows + build.minimum(k, 0), columns - build.maximum(k, 0))


def _longest(rows: Dim, columns: Dim, attrs: MatrixSetDiagAttrs) -> Dim:
    low, high = attrs.k
    if type(rows) is not int or type(columns) is not int:
        return AnyDim()
    return min(rows + min(high, 0), columns - max(low, 0))


def _infer_set(attrs: MatrixSetDiagAttrs, data: Type, diagonal: Type) -> TensorType:
    kind, given = at_least(data, "data", 2), tensor(diagonal, "diagonal")
    same_dtype([kind, given], ["data", "diagonal"])
    low, high = attrs.k
    rows, columns = kind.shape[-2:]
    if type(rows) is int and type(columns) is int and not -rows < low <= high < columns:
        raise ValueError(f"k {attrs.k} lies outside of a matrix of {rows} x {columns}")
    several = (high - low + 1,) if high > low else ()
    wanted = (*kind.shape[:-2], *several, _longest(rows, columns, attrs))
    if given.ndim != len(wanted):
        shapes = f"{show_shape(wanted)}, not {show_shape(given.shape)}"
        raise ValueError(f"diagonal has the shape {shapes}")
    for axis, (have, want) in enumerate(zip(given.shape, wanted, strict=True)):
        expect_dim(have, want, f"dimension {axis} of diagonal")
    return kind


def _compute_set(
    attrs: MatrixSetDiagAttrs, out: TensorType, data: Tensor, diagonal: Tensor
) -> Tensor:
    low, high = attrs.k
    rows, columns = dims_of(data)[-2:]
    above_right, below_right = (side == "RIGHT" for side in attrs.align.split("_"))

    def element(*i: Expr) -> Expr:
        row, column = i[-2:]
        k = column - row
        gap = diagonal.shape[-1] - _diagonal_length(rows, columns, k)
        zero = build.const(0)
        skipped = build.select(k >= 0, gap if above_right else zero, gap if below_right else zero)
        place = build.minimum(row, column) + skipped
        own = [*i[:-2], high - k, place] if high > low else [*i[:-2], place]
        return build.if_then_else(t.all(k >= low, k <= high), diagonal(*own), data(*i))

    made: Tensor = compute(out.shape, element, name="T_matrix_set_diag")
    return made


def _set_reference(attrs: MatrixSetDiagAttrs, data: Array, diagonal: Array) -> Array:
    result = data.copy()
    low, high = attrs.k
    rows, columns = data.shape[-2:]
    above, below = attrs.align.split("_")
    for k in range(low, high + 1):
        length = min(rows + min(k, 0), columns - max(k, 0))
        values = diagonal[..., high - k, :] if high > low else diagonal
        first = values.shape[-1] - length if (above if k >= 0 else below) == "RIGHT" else 0
        at = np.arange(length)
        result[..., at - min(k, 0), at + max(k, 0)] = values[..., first : first + length]
    return result


register(OpRecord(
    "matrix_set_diag",
    inputs=("data", "diagonal"),
    attrs=MatrixSetDiagAttrs,
    infer=_infer_set,
    compute=_compute_set,
    reference=_set_reference,
    pattern=INJECTIVE,
    cases=[
        Case(((2, 3, 4), (2, 3))),
        Case(((3, 4), (3,)), {"k": 1}),
        Case(((3, 4), (4, 3)), {"k": (-1, 2)}),
        Case((((4, 3), "int8"), ((3, 3), "int8")), {"k": (-2, 0), "align": "LEFT_RIGHT"}),
    ],
    doc="Matrices with some diagonals replaced: the k-th, or those from k[0] to k[1], the highest "
        "first. align says at which side short ones above and below stand.",
))

"""Cholesky's factorisation, and LU with partial pivoting."""

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, TupleType, Type
from sterna.op.checks import at_least, of_kind
from sterna.op.indexing import dims_of
from sterna.op.matrices import (
    WIDE,
    ZERO,
    each_matrix,
    least,
    load,
    magnitude,
    matrices,
    square,
    store,
)
from sterna.op.statements import filled, loops, statements, variable
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

INT32 = DataType("int32")


# ---- Cholesky ----


def _infer_cholesky(attrs: None, data: Type) -> TupleType:
    kind = square(data, "data")
    return TupleType((kind, TensorType(kind.shape[:-2], INT32)))


def _cholesky(attrs: None, out: TupleType, data: Tensor) -> list[Tensor]:
    """Column by column; the first pivot that is not positive ends it and is the second result."""
    *batch, size, _ = dims_of(data)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        info = variable(ib, "int32", "info", 0)
        total = variable(ib, WIDE, "total", 0.0)
        with loops(ib, batch, "b") as at:
            info.set(0)
            factor = load(ib, ins[0], at, size, size, "factor")
            with ib.for_range(0, size, name="j") as j, ib.if_scope(info.get().equal(0)):
                total.set(factor[j, j])
                with ib.for_range(0, j, name="k") as k:
                    total.set(total.get() - factor[j, k] * factor[j, k])
                with ib.if_scope(total.get() > ZERO):
                    pivot = ib.let("pivot", t.sqrt(total.get()))
                    factor[j, j] = pivot
                    with ib.for_range(j + 1, size, name="i") as i:
                        total.set(factor[i, j])
                        with ib.for_range(0, j, name="k") as k:
                            total.set(total.get() - factor[i, k] * factor[j, k])
                        factor[i, j] = total.get() / pivot
                with ib.else_scope():
                    info.set(j + 1)
            store(ib, outs[0], at, (size, size),
                  lambda r, c: build.select(c > r, ZERO, factor[r, c]))
            outs[1][tuple(at) or 0] = info.get()

    return statements(out, [data], fill, "T_cholesky")


def _cholesky_of(matrix: Array) -> tuple[Array, Array]:
    factor = np.tril(matrix)
    for j in range(len(matrix)):
        total = factor[j, j] - factor[j, :j] @ factor[j, :j]
        if not total > 0:
            return factor, np.array(j + 1, np.int32)
        factor[j, j] = np.sqrt(total)
        factor[j + 1 :, j] -= factor[j + 1 :, :j] @ factor[j, :j]
        factor[j + 1 :, j] /= factor[j, j]
    return factor, np.array(0, np.int32)


def _cholesky_reference(attrs: None, data: Array) -> list[Array]:
    factor, info = each_matrix(_cholesky_of, data)
    return [factor.astype(data.dtype), info]


_POSITIVE = np.array([[[4, 2, 1], [2, 5, 3], [1, 3, 6]], [[1, 2, 0], [2, 1, 0], [0, 0, 1]]],
                     "float32")
register(OpRecord(
    "linalg.cholesky",
    inputs=("data",),
    infer=_infer_cholesky,
    compute=_cholesky,
    reference=_cholesky_reference,
    num_outputs=2,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[Case((_POSITIVE[0],)), Case((_POSITIVE,)), Case(((2, 0, 0),))],
    doc="The lower triangles L with L L^T = data, of symmetric positive matrices of which the "
        "lower triangle is read; and 0, or the number of the first pivot that is not positive.",
))


# ---- LU ----


def _infer_lu(attrs: None, data: Type) -> TupleType:
    kind = matrices(data, "data")
    *batch, rows, columns = kind.shape
    count = least(rows, columns)
    pivots = TensorType((*batch, count), INT32)
    return TupleType((kind, pivots, TensorType(tuple(batch), INT32)))


def _lu(attrs: None, out: TupleType, data: Tensor) -> list[Tensor]:
    """Gauss's elimination; the pivot of a column is its largest element."""
    *batch, rows, columns = dims_of(data)
    count = least(rows, columns)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        info = variable(ib, "int32", "info", 0)
        largest = variable(ib, WIDE, "largest", 0.0)
        pivot = variable(ib, "int32", "pivot", 0)
        held = variable(ib, WIDE, "held", 0.0)
        with loops(ib, batch, "b") as at:
            info.set(0)
            matrix = load(ib, ins[0], at, rows, columns, "matrix")
            with ib.for_range(0, count, name="k") as k:
                largest.set(-1.0)
                pivot.set(k)
                with ib.for_range(k, rows, name="i") as i:
                    here = ib.let("here", magnitude(matrix[i, k]))
                    with ib.if_scope(here > largest.get()):
                        largest.set(here)
                        pivot.set(i)
                outs[1][(*at, k)] = pivot.get() + 1
                with (
                    ib.if_scope(build.not_equal(pivot.get(), k)),
                    ib.for_range(0, columns, name="j") as j,
                ):
                    held.set(matrix[k, j])
                    matrix[k, j] = matrix[pivot.get(), j]
                    matrix[pivot.get(), j] = held.get()
                with (
                    ib.if_scope(build.not_equal(matrix[k, k], ZERO)),
                    ib.for_range(k + 1, rows, name="i") as i,
                ):
                    matrix[i, k] = matrix[i, k] / matrix[k, k]
                    with ib.for_range(k + 1, columns, name="j") as j:
                        matrix[i, j] = matrix[i, j] - matrix[i, k] * matrix[k, j]
                with ib.else_scope(), ib.if_scope(info.get().equal(0)):
                    info.set(k + 1)
            store(ib, outs[0], at, (rows, columns), lambda r, c: matrix[r, c])
            outs[2][tuple(at) or 0] = info.get()

    return statements(out, [data], fill, "T_lu_factor")


def _lu_of(matrix: Array) -> tuple[Array, Array, Array]:
    made, info = matrix.copy(), 0
    pivots = np.zeros(min(matrix.shape), np.int32)
    for k in range(len(pivots)):
        pivot = k + int(np.argmax(np.abs(made[k:, k])))
        pivots[k] = pivot + 1
        made[[k, pivot]] = made[[pivot, k]]
        if made[k, k] != 0:
            made[k + 1 :, k] /= made[k, k]
            made[k + 1 :, k + 1 :] -= np.outer(made[k + 1 :, k], made[k, k + 1 :])
        else:
            info = info or k + 1
    return made, pivots, np.array(info, np.int32)


def _lu_reference(attrs: None, data: Array) -> list[Array]:
    made, pivots, info = each_matrix(_lu_of, data)
    return [made.astype(data.dtype), pivots, info]


register(OpRecord(
    "linalg.lu_factor",
    inputs=("data",),
    infer=_infer_lu,
    compute=_lu,
    reference=_lu_reference,
    num_outputs=3,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((np.array([[0, 2, 1], [3, 0, -1], [1, 4, 0]], "float32"),)),
        Case((np.array([[[1, 2, 3], [2, 4, 7]], [[0, 0, 1], [0, 0, 5]]], "float32"),)),
        Case(((2, 4, 3),), tolerance=1e-4),
    ],
    doc="L below the diagonal and U above it with P L U = data; the rows, counted from 1, that "
        "each row was exchanged with; and 0, or the number of the first pivot that is zero.",
))


# ---- rows by pivots ----


@attributes
class RowsAttrs(Attrs):
    """Of linalg.pivoted_rows."""

    rows: int


def _infer_rows(attrs: RowsAttrs, pivots: Type) -> TensorType:
    kind = of_kind(at_least(pivots, "pivots", 1), "pivots", "int")
    return TensorType((*kind.shape[:-1], attrs.rows), INT32)


def _rows(attrs: RowsAttrs, out: TensorType, pivots: Tensor) -> Tensor:
    *batch, count = dims_of(pivots)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        held = variable(ib, "int32", "held", 0)
        with loops(ib, batch, "b") as at:
            with ib.for_range(0, attrs.rows, name="i") as i:
                result[(*at, i)] = build.cast("int32", i)
            with ib.for_range(0, count, name="k") as k:
                other = ib.let("other", build.cast("int32", ins[0][(*at, k)]) - 1)
                with ib.if_scope(t.all(other >= 0, other < attrs.rows)):
                    held.set(result[(*at, k)])
                    result[(*at, k)] = result[(*at, other)]
                    result[(*at, other)] = held.get()

    return filled(out, [pivots], fill, "T_pivoted_rows")


def _rows_reference(attrs: RowsAttrs, pivots: Array) -> Array:
    made = np.zeros((*pivots.shape[:-1], attrs.rows), np.int32)
    for place in np.ndindex(*pivots.shape[:-1]):
        rows = np.arange(attrs.rows, dtype=np.int32)
        for k, other in enumerate(pivots[place]):
            if 1 <= other <= attrs.rows:
                rows[[k, other - 1]] = rows[[other - 1, k]]
        made[place] = rows
    return made


register(OpRecord(
    "linalg.pivoted_rows",
    inputs=("pivots",),
    attrs=RowsAttrs,
    infer=_infer_rows,
    compute=_rows,
    reference=_rows_reference,
    pattern=OPAQUE,
    cases=[Case((np.array([[3, 3, 4], [1, 2, 3]], "int32"),), {"rows": 4})],
    doc="Which row of a matrix each row is after the exchanges that linalg.lu_factor gives.",
))

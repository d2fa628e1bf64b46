"""Sparse matrices by their rows: nn.sparse_dense, nn.sparse_add, nn.sparse_transpose.

A sparse matrix is three tensors: its elements, row by row, the column of each, and per row where it
begins (indptr, with one more for the end). Elements may also be blocks of the same size, whose rows
and columns are counted then.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.axis_rows import index_type
from sterna.op.checks import expect_dim, map_dims, not_empty, of_kind, same_dtype, tensor
from sterna.op.indexing import INT32, as_index, dims_of, within
from sterna.op.statements import filled, loops, statements, variable
from sterna.op.thread_sort import each
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, as_expr
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.schedule.products import wide, widened
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder

PARTS = ("sparse_data", "sparse_indices", "sparse_indptr")


@attributes
class SparseDenseAttrs(Attrs):
    """Of nn.sparse_dense."""

    sparse_lhs: bool = False


def _check(sparse: Sequence[Type], blocks: bool) -> tuple[TensorType, Dim]:
    """The elements, and the number of rows or rows of blocks."""
    data, indices, indptr = sparse
    found = of_kind(tensor(data, PARTS[0]), PARTS[0], "float", "int", "uint")
    if found.ndim != 1 and not (blocks and found.ndim == 3):
        words = "a row of elements or of blocks" if blocks else "a row of elements"
        raise ValueError(f"{PARTS[0]} is {words}, not of shape {found.shape}")
    columns = of_kind(tensor(indices, PARTS[1], 1), PARTS[1], "int")
    begins = of_kind(tensor(indptr, PARTS[2], 1), PARTS[2], "int")
    expect_dim(columns.shape[0], found.shape[0], f"the length of {PARTS[1]}")
    if begins.shape[0] == 0:
        raise ValueError(f"{PARTS[2]} has one number more than there are rows, not none")
    return found, map_dims(lambda count: count - 1, begins.shape[0])


def operands_of(matrix: object) -> list[RelayExpr]:
    """The three tensors of a sparse matrix, be it a tuple or an object as SciPy's."""
    parts = ("data", "indices", "indptr")
    if all(hasattr(matrix, name) for name in parts):
        matrix = tuple(getattr(matrix, name) for name in parts)
    if not isinstance(matrix, Sequence) or len(matrix) != 3:
        raise TypeError(
            "a sparse matrix is (data, indices, indptr) or has attributes of these names, not "
            f"{type(matrix).__name__}"
        )
    return [as_expr(part) for part in matrix]


def _row(ib: IRBuilder, indptr: BufferVar, row: Expr, count: Dim) -> tuple[Expr, Expr]:
    """Where a row's elements begin and end; never beyond those that there are."""
    ends = []
    for name, place in (("begin", row), ("end", row + 1)):
        held = build.minimum(build.maximum(as_index(indptr[place]), 0), count)
        ends.append(ib.let(name, build.cast(INT32, held)))
    return ends[0], build.maximum(ends[1], ends[0])


# ---- products ----


def _infer_dense(attrs: SparseDenseAttrs, dense: Type, *sparse: Type) -> TensorType:
    matrix = tensor(dense, "dense_mat", 2)
    found, rows = _check(sparse, blocks=True)
    same_dtype([matrix, found], ["dense_mat", PARTS[0]])
    if found.ndim == 3:
        tall, wide_block = found.shape[1:]
        rows = map_dims(lambda count, size: count * size, rows, tall)
        not_empty(found, PARTS[0], (1, 2), "the elements of a block are")
        both = type(matrix.shape[1]) is int and type(wide_block) is int
        if both and matrix.shape[1] % wide_block:
            raise ValueError(f"{matrix.shape[1]} columns are not whole blocks of {wide_block}")
    if found.shape[0] != 0:
        not_empty(matrix, "dense_mat", [1], f"{PARTS[1]} point to its columns")
    pair = (rows, matrix.shape[0]) if attrs.sparse_lhs else (matrix.shape[0], rows)
    return TensorType(pair, found.dtype)


def _compute_dense(
    attrs: SparseDenseAttrs, out: TensorType, dense: Tensor, *sparse: Tensor
) -> Tensor:
    return _products(attrs, out, dense, sparse, by_threads=False)


def _products(
    attrs: SparseDenseAttrs, out: TensorType, dense: Tensor, sparse: Sequence[Tensor],
    by_threads: bool,
) -> Tensor:
    """Row by row of the sparse matrix; by threads each element is a loop of its own."""
    data, _, indptr = sparse
    count, tall, broad = (*dims_of(data), 1, 1)[:3]
    lines, columns = dims_of(dense)
    rows: Any = dims_of(indptr)[0] - 1
    dtype = wide(out.dtype)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        matrix, values, places, begins = ins
        blocks = build.as_expr(columns) // broad

        def ends(row: Expr) -> tuple[Expr, Expr]:
            return _row(ib, begins, row, build.select(blocks > 0, count, 0))

        def add(row: Expr, line: Expr, inner: Expr, begin: Expr, end: Expr) -> None:
            total.set(0)
            with ib.for_range(begin, end, name="p") as p:
                first = ib.let("first", within(as_index(places[p]), blocks) * broad)
                with ib.for_range(0, broad, name="k") as k:
                    own = values[p, inner, k] if len(data.shape) == 3 else values[p]
                    other = build.cast(dtype, matrix[line, first + k])
                    total.set(total.get() + build.cast(dtype, own) * other)
            at = row * tall + inner
            place = (at, line) if attrs.sparse_lhs else (line, at)
            result[place] = build.cast(out.dtype, total.get())

        if by_threads:
            kind = index_type(rows * lines * tall)
            with each(ib, rows * lines * tall, kind) as number:
                at = number // lines
                begin, end = ends(at // tall)
                total = variable(ib, dtype, "total", 0)
                add(at // tall, ib.let("line", number % lines), at % tall, begin, end)
            return
        total = variable(ib, dtype, "total", 0)
        with ib.for_range(0, rows, name="row") as row:
            begin, end = ends(row)
            with loops(ib, [lines, tall], "i") as (line, inner):
                add(row, line, inner, begin, end)

    return filled(out, [dense, *sparse], fill, "T_sparse_dense")


def _dense_by_threads(
    attrs: SparseDenseAttrs, out: TensorType, dense: Tensor, *sparse: Tensor
) -> list[Tensor] | None:
    sizes = [*dims_of(sparse[0]), *dims_of(dense), *dims_of(sparse[2])]
    if not all(isinstance(size, int) for size in sizes):
        return None
    return [_products(attrs, out, dense, sparse, by_threads=True)]


def whole(sparse: Sequence[Array], columns: int) -> Array:
    """A sparse matrix with all its elements."""
    data, indices, indptr = sparse
    blocks = data.reshape(len(data), *(data.shape[1:] or (1, 1)))
    tall, broad = blocks.shape[1:]
    made = np.zeros(((len(indptr) - 1) * tall, columns), data.dtype)
    for row, (begin, end) in enumerate(pairwise(indptr)):
        for place in range(begin, end):
            first = int(indices[place]) * broad
            made[row * tall : (row + 1) * tall, first : first + broad] += blocks[place]
    return made


def _reference_dense(attrs: SparseDenseAttrs, dense: Array, *sparse: Array) -> Array:
    matrix = whole(sparse, dense.shape[1])
    a, b = (widened(part, str(dense.dtype)) for part in (dense, matrix))
    return np.asarray(b @ a.T if attrs.sparse_lhs else a @ b.T).astype(dense.dtype)


def _sparse_dense(dense_mat: RelayExprLike, sparse_mat: object, sparse_lhs: bool = False) -> Any:
    """A dense matrix times a sparse one that is transposed, or as sparse_lhs the other way round.

    sparse_mat is (data, indices, indptr) or has attributes of these names, as SciPy's matrices;
    data may hold blocks.
    """
    return make("nn.sparse_dense", dense_mat, *operands_of(sparse_mat), sparse_lhs=sparse_lhs)


_DATA = np.array([1.5, -2, 3, 0.5, 4], "float32")
_INDICES, _INDPTR = np.array([0, 3, 1, 0, 2], "int32"), np.array([0, 2, 2, 3, 5], "int32")
_ROWS = (_DATA, _INDICES, _INDPTR)
_BLOCKS = (((3, 2, 3), "float32"), np.array([1, 0, 1], "int32"), np.array([0, 1, 3], "int32"))

register(OpRecord(
    "nn.sparse_dense",
    inputs=("dense_mat", *PARTS),
    attrs=SparseDenseAttrs,
    infer=_infer_dense,
    compute=_compute_dense,
    compute_by_threads=_dense_by_threads,
    reference=_reference_dense,
    builder=_sparse_dense,
    pattern=OPAQUE,
    cases=[
        Case(((3, 4), *_ROWS)),
        Case(((3, 4), *_ROWS), {"sparse_lhs": True}),
        Case(((2, 6), *_BLOCKS)),
        Case(((2, 6), *_BLOCKS), {"sparse_lhs": True}),
        Case((((3, 4), "int8"), _DATA.astype("int8"), _INDICES, _INDPTR)),
        Case((((3, 4), "float16"), _DATA.astype("float16"), _INDICES, _INDPTR), tolerance=1e-2),
    ],
    doc=_sparse_dense.__doc__ or "",
))


# ---- sums ----


def _infer_add(attrs: None, dense: Type, *sparse: Type) -> TensorType:
    matrix = tensor(dense, "dense_mat", 2)
    found, rows = _check(sparse, blocks=False)
    same_dtype([matrix, found], ["dense_mat", PARTS[0]])
    expect_dim(rows, matrix.shape[0], "the number of rows of the sparse matrix")
    return matrix


def _compute_add(attrs: None, out: TensorType, dense: Tensor, *sparse: Tensor) -> Tensor:
    rows, columns = dims_of(dense)
    count = dims_of(sparse[0])[0]

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        matrix, values, places, begins = ins
        with ib.for_range(0, rows, name="row") as row:
            with ib.for_range(0, columns, name="column") as column:
                result[row, column] = matrix[row, column]
            begin, end = _row(ib, begins, row, count)
            with ib.for_range(begin, end, name="p") as p:
                at = ib.let("at", as_index(places[p]))
                with ib.if_scope(build.logical_and(at >= 0, at < columns)):
                    result[row, at] = result[row, at] + values[p]

    return filled(out, [dense, *sparse], fill, "T_sparse_add")


def _reference_add(attrs: None, dense: Array, *sparse: Array) -> Array:
    return np.asarray(dense + whole(sparse, dense.shape[1]))


def _sparse_add(dense_mat: RelayExprLike, sparse_mat: object) -> Any:
    """The sum of a dense matrix and a sparse one, (data, indices, indptr) or as SciPy's."""
    return make("nn.sparse_add", dense_mat, *operands_of(sparse_mat))


register(OpRecord(
    "nn.sparse_add",
    inputs=("dense_mat", *PARTS),
    infer=_infer_add,
    compute=_compute_add,
    reference=_reference_add,
    builder=_sparse_add,
    pattern=OPAQUE,
    cases=[
        Case(((4, 4), *_ROWS)),
        Case((((4, 5), "int32"), _DATA.astype("int32"), _INDICES, _INDPTR)),
    ],
    doc=_sparse_add.__doc__ or "",
))


# ---- transposition ----


def _infer_transpose(attrs: None, *sparse: Type) -> TupleType:
    _, rows = _check(sparse, blocks=False)
    kinds = [tensor(part, name) for part, name in zip(sparse, PARTS, strict=True)]
    same_dtype(kinds[1:], PARTS[1:])
    if isinstance(rows, AnyDim):
        raise ValueError(f"the number of rows, the length of {PARTS[2]}, is not known")
    return TupleType(tuple(kinds))


def _compute_transpose(attrs: None, out: TupleType, *sparse: Tensor) -> list[Tensor]:
    """Elements are counted by column; then each finds its place in the order of rows."""
    rows: Any = dims_of(sparse[2])[0] - 1
    count: Any = 0 if rows == 0 else dims_of(sparse[0])[0]

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        values, places, begins = ins
        data, indices, indptr = outs
        one = build.const(1, indptr.dtype)
        free = ib.allocate(INT32, (rows,), name="free")

        def column(p: Expr) -> Expr:
            return ib.let("column", within(as_index(places[p]), rows))

        with ib.for_range(0, rows + 1, name="i") as i:
            indptr[i] = build.const(0, indptr.dtype)
        with ib.for_range(0, dims_of(sparse[0])[0], name="p") as p:
            data[p], indices[p] = build.const(0, data.dtype), build.const(0, indices.dtype)
        with ib.for_range(0, count, name="p") as p:
            own = column(p)
            indptr[own + 1] = indptr[own + 1] + one
        with ib.for_range(0, rows, name="i") as i:
            indptr[i + 1] = indptr[i + 1] + indptr[i]
            free[i] = build.cast(INT32, indptr[i])
        with ib.for_range(0, rows, name="row") as row:
            begin, end = _row(ib, begins, row, count)
            with ib.for_range(begin, end, name="p") as p:
                own = column(p)
                at = ib.let("at", within(free[own], count))
                data[at] = values[p]
                indices[at] = build.cast(indices.dtype, row)
                free[own] = free[own] + 1

    return statements(out, list(sparse), fill, "T_sparse_transpose")


def _reference_transpose(attrs: None, data: Array, indices: Array, indptr: Array) -> list[Array]:
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.argsort(indices, kind="stable")
    counts = np.bincount(indices, minlength=len(indptr) - 1)
    begins = np.concatenate([[0], np.cumsum(counts)])
    return [data[order], rows[order].astype(indices.dtype), begins.astype(indptr.dtype)]


def _sparse_transpose(x: object) -> Any:
    """A square sparse matrix transposed: its data, indices and indptr."""
    return make("nn.sparse_transpose", *operands_of(x))


register(OpRecord(
    "nn.sparse_transpose",
    inputs=PARTS,
    infer=_infer_transpose,
    compute=_compute_transpose,
    reference=_reference_transpose,
    builder=_sparse_transpose,
    num_outputs=3,
    pattern=OPAQUE,
    cases=[
        Case(_ROWS),
        Case((_DATA.astype("int8"), _INDICES.astype("int64"), _INDPTR.astype("int64"))),
        Case((np.zeros(0, "float32"), np.zeros(0, "int32"), np.zeros(4, "int32"))),
    ],
    doc=_sparse_transpose.__doc__ or "",
))

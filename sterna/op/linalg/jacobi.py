"""Jacobi's rotations: eigenvalues of symmetric matrices, and singular values."""

from collections.abc import Sequence

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.elementwise import quiet
from sterna.op.indexing import dims_of
from sterna.op.matrices import (
    ONE,
    WIDE,
    ZERO,
    each_matrix,
    load,
    magnitude,
    matrices,
    square,
    store,
)
from sterna.op.statements import Variable, loops, statements, variable
from sterna.relay.arrays import Array
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Rotations of all pairs converge quadratically: this many rounds are more than any matrix needs.
ROUNDS = 30
# A product this small, for its factors' size, is rounding.
ENOUGH = 1e-16


def _rotation(ib: IRBuilder, product: Expr, first: Expr, second: Expr) -> tuple[Expr, Expr]:
    """Cosine and sine of the angle that takes the product of two away: tan of at most 45 degrees.
    """
    slope = ib.let("slope", (second - first) / (product + product))
    sign = build.select(slope < ZERO, ZERO - ONE, ONE)
    tangent = ib.let("tangent", sign / (magnitude(slope) + t.sqrt(slope * slope + ONE)))
    cosine = ib.let("cosine", ONE / t.sqrt(tangent * tangent + ONE))
    return cosine, ib.let("sine", tangent * cosine)


def _rotate(
    ib: IRBuilder, matrix: BufferVar, rows: Dim, p: Expr, q: Expr, cosine: Expr, sine: Expr
) -> None:
    """Rotate two columns of a matrix."""
    with ib.for_range(0, rows, name="i") as i:
        left, right = ib.let("left", matrix[i, p]), ib.let("right", matrix[i, q])
        matrix[i, p] = cosine * left - sine * right
        matrix[i, q] = sine * left + cosine * right


def _unit(ib: IRBuilder, size: Dim, name: str) -> BufferVar:
    made = ib.allocate(WIDE, (size, size), name=name)
    with ib.for_range(0, size, name="r") as r, ib.for_range(0, size, name="c") as c:
        made[r, c] = build.select(r.equal(c), ONE, ZERO)
    return made


def _sort(
    ib: IRBuilder, values: BufferVar, size: Dim, columns: Sequence[tuple[BufferVar, Dim]],
    descending: bool,
) -> None:
    """Selection sort of values, with the columns of matrices that belong to them."""
    held = variable(ib, WIDE, "held", 0.0)
    best = variable(ib, "int32", "best", 0)
    with ib.for_range(0, size, name="k") as k:
        best.set(k)
        with ib.for_range(k + 1, size, name="j") as j:
            new, old = values[j], values[best.get()]
            with ib.if_scope(new > old if descending else new < old):
                best.set(j)
        with ib.if_scope(build.not_equal(best.get(), k)):
            held.set(values[k])
            values[k] = values[best.get()]
            values[best.get()] = held.get()
            for matrix, rows in columns:
                with ib.for_range(0, rows, name="i") as i:
                    held.set(matrix[i, k])
                    matrix[i, k] = matrix[i, best.get()]
                    matrix[i, best.get()] = held.get()


def _sign_columns(
    ib: IRBuilder, decisive: BufferVar, size: Dim, columns: Sequence[tuple[BufferVar, Dim]]
) -> None:
    """Signs that vectors of equal right are told apart by: the largest element is positive."""
    largest = variable(ib, WIDE, "largest", 0.0)
    with ib.for_range(0, size, name="j") as j:
        largest.set(0.0)
        with ib.for_range(0, size, name="i") as i:
            here = decisive[i, j]
            with ib.if_scope(magnitude(here) > magnitude(largest.get()) * 1.000001):
                largest.set(here)
        with ib.if_scope(largest.get() < ZERO):
            for matrix, rows in columns:
                with ib.for_range(0, rows, name="i") as i:
                    matrix[i, j] = ZERO - matrix[i, j]


def _signed(decisive: Array, *columns: Array) -> list[Array]:
    """The same in NumPy."""
    signs = np.ones(decisive.shape[1])
    for j in range(decisive.shape[1]):
        largest = 0.0
        for value in decisive[:, j]:
            largest = value if abs(value) > abs(largest) * 1.000001 else largest
        signs[j] = -1.0 if largest < 0 else 1.0
    return [each * signs for each in columns]


# ---- eigenvalues ----


def _infer_eigh(attrs: None, data: Type) -> TupleType:
    kind = square(data, "data")
    return TupleType((TensorType(kind.shape[:-1], kind.dtype), kind))


def _eigh(attrs: None, out: TupleType, data: Tensor) -> list[Tensor]:
    """Rotations of rows and columns until only the diagonal is left."""
    *batch, size, _ = dims_of(data)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        rotated = variable(ib, "int32", "rotated", 1)
        values = ib.allocate(WIDE, (size,), name="values")
        with loops(ib, batch, "b") as at:
            matrix = load(ib, ins[0], at, size, size, "matrix")
            with ib.for_range(0, size, name="i") as i, ib.for_range(i + 1, size, name="j") as j:
                matrix[i, j] = matrix[j, i]
            vectors = _unit(ib, size, "vectors")
            rotated.set(1)
            with (
                ib.for_range(0, ROUNDS, name="round"),
                ib.if_scope(build.not_equal(rotated.get(), 0)),
            ):
                rotated.set(0)
                with ib.for_range(0, size, name="p") as p, \
                        ib.for_range(p + 1, size, name="q") as q:
                    off = ib.let("off", matrix[p, q])
                    a, b = ib.let("a", matrix[p, p]), ib.let("b", matrix[q, q])
                    with ib.if_scope(magnitude(off) > (magnitude(a) + magnitude(b)) * ENOUGH):
                        rotated.set(1)
                        cosine, sine = _rotation(ib, off, a, b)
                        _rotate(ib, matrix, size, p, q, cosine, sine)
                        with ib.for_range(0, size, name="i") as i:
                            left = ib.let("above", matrix[p, i])
                            right = ib.let("under", matrix[q, i])
                            matrix[p, i] = cosine * left - sine * right
                            matrix[q, i] = sine * left + cosine * right
                        _rotate(ib, vectors, size, p, q, cosine, sine)
            with ib.for_range(0, size, name="i") as i:
                values[i] = matrix[i, i]
            _sort(ib, values, size, [(vectors, size)], descending=False)
            _sign_columns(ib, vectors, size, [(vectors, size)])
            store(ib, outs[0], at, (size,), lambda r: values[r])
            store(ib, outs[1], at, (size, size), lambda r, c: vectors[r, c])

    return statements(out, [data], fill, "T_eigh")


def _eigh_of(matrix: Array) -> list[Array]:
    values, vectors = np.linalg.eigh(matrix, UPLO="L")
    return [values, *_signed(vectors, vectors)]


def _eigh_reference(attrs: None, data: Array) -> list[Array]:
    return [each.astype(data.dtype) for each in each_matrix(_eigh_of, data)]


_SYMMETRIC = np.array([[2, -1, 0.5], [-1, 3, 1], [0.5, 1, -4]], "float32")
register(OpRecord(
    "linalg.eigh",
    inputs=("data",),
    infer=_infer_eigh,
    compute=_eigh,
    reference=quiet(_eigh_reference),
    num_outputs=2,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((_SYMMETRIC,)),
        Case((np.stack([_SYMMETRIC, np.diag([3.0, 1.0, 2.0]).astype("float32")]),)),
        Case(((2, 0, 0),)),
    ],
    doc="The eigenvalues of symmetric matrices, of which the lower triangle is read, in rising "
        "order, and their eigenvectors as columns; the largest element of each is positive.",
))


# ---- singular values ----


def _infer_svd(attrs: None, data: Type) -> TupleType:
    kind = matrices(data, "data")
    *batch, rows, columns = kind.shape
    if isinstance(rows, int) and isinstance(columns, int) and rows < columns:
        raise ValueError(f"data has at least as many rows as columns, not {rows} and {columns}")
    values = TensorType((*batch, columns), kind.dtype)
    return TupleType((kind, values, TensorType((*batch, columns, columns), kind.dtype)))


def _orthogonalise(
    ib: IRBuilder, matrix: BufferVar, vectors: BufferVar, rows: Dim, columns: Dim,
    sums: Sequence[Variable], rotated: Variable,
) -> None:
    """One round of Hestenes's rotations, after which columns are nearer to orthogonal ones."""
    with ib.for_range(0, columns, name="p") as p, ib.for_range(p + 1, columns, name="q") as q:
        for each in sums:
            each.set(0.0)
        with ib.for_range(0, rows, name="i") as i:
            left, right = ib.let("x", matrix[i, p]), ib.let("y", matrix[i, q])
            for each, part in zip(sums, (left * left, right * right, left * right), strict=True):
                each.set(each.get() + part)
        a, b, off = (ib.let("sum", each.get()) for each in sums)
        with ib.if_scope(magnitude(off) > t.sqrt(a * b) * ENOUGH * 8.0):
            rotated.set(1)
            cosine, sine = _rotation(ib, off, a, b)
            _rotate(ib, matrix, rows, p, q, cosine, sine)
            _rotate(ib, vectors, columns, p, q, cosine, sine)


def _svd(attrs: None, out: TupleType, data: Tensor) -> list[Tensor]:
    *batch, rows, columns = dims_of(data)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        rotated = variable(ib, "int32", "rotated", 1)
        sums = [variable(ib, WIDE, name, 0.0) for name in ("first", "second", "product")]
        values = ib.allocate(WIDE, (columns,), name="values")
        with loops(ib, batch, "b") as at:
            matrix = load(ib, ins[0], at, rows, columns, "matrix")
            vectors = _unit(ib, columns, "vectors")
            rotated.set(1)
            with (
                ib.for_range(0, ROUNDS, name="round"),
                ib.if_scope(build.not_equal(rotated.get(), 0)),
            ):
                rotated.set(0)
                _orthogonalise(ib, matrix, vectors, rows, columns, sums, rotated)
            with ib.for_range(0, columns, name="j") as j:
                sums[0].set(0.0)
                with ib.for_range(0, rows, name="i") as i:
                    sums[0].set(sums[0].get() + matrix[i, j] * matrix[i, j])
                values[j] = t.sqrt(sums[0].get())
            both = [(matrix, rows), (vectors, columns)]
            _sort(ib, values, columns, both, descending=True)
            _sign_columns(ib, vectors, columns, both)
            store(ib, outs[0], at, (rows, columns), lambda r, c: matrix[r, c])
            store(ib, outs[1], at, (columns,), lambda r: values[r])
            store(ib, outs[2], at, (columns, columns), lambda r, c: vectors[r, c])

    return statements(out, [data], fill, "T_svd")


def _svd_of(matrix: Array) -> list[Array]:
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    scaled, vectors = _signed(right.T, left * values, right.T)
    return [scaled, values, vectors]


def _svd_reference(attrs: None, data: Array) -> list[Array]:
    return [each.astype(data.dtype) for each in each_matrix(_svd_of, data)]


register(OpRecord(
    "linalg.svd",
    inputs=("data",),
    infer=_infer_svd,
    compute=_svd,
    reference=quiet(_svd_reference),
    num_outputs=3,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((np.array([[1, 2], [0, -3], [2, 0.5]], "float32"),)),
        Case((np.array([[[2, 0], [0, 1]], [[1, -1], [0.5, 4]]], "float32"),)),
        Case(((0, 3, 2),)),
    ],
    doc="U S, S and V with U S V^T = data, of matrices with at least as many rows as columns: "
        "singular values in falling order; the largest element of a column of V is positive.",
))

"""Systems of equations with triangular matrices."""

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim
from sterna.op.elementwise import quiet
from sterna.op.indexing import dims_of
from sterna.op.matrices import WIDE, each_matrix, matrices, square
from sterna.op.statements import filled, loops, variable
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class TriangularAttrs(Attrs):
    """Of linalg.solve_triangular."""

    upper: bool = False
    unit: bool = False


def _infer(attrs: TriangularAttrs, a: Type, b: Type) -> TensorType:
    left, right = square(a, "a"), matrices(b, "b")
    if left.ndim != right.ndim:
        raise ValueError(f"a has {left.ndim} dimensions and b {right.ndim}")
    for have, want in zip(right.shape[:-1], left.shape[:-1], strict=True):
        expect_dim(have, want, "an extent of b before its last, as a has it,")
    return right


def _compute(attrs: TriangularAttrs, out: TensorType, a: Tensor, b: Tensor) -> Tensor:
    """Substitution, from the last row of an upper triangle and the first of a lower one."""
    *batch, size, columns = dims_of(b)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        line = ib.allocate(WIDE, (size,), name="line")
        total = variable(ib, WIDE, "total", 0.0)
        with loops(ib, [*batch, columns], "b") as (*at, column), \
                ib.for_range(0, size, name="step") as step:
            row = ib.let("row", size - 1 - step if attrs.upper else step)
            first = row + 1 if attrs.upper else build.const(0)
            total.set(build.cast(WIDE, ins[1][(*at, row, column)]))
            with ib.for_range(first, size if attrs.upper else row, name="k") as k:
                weight = build.cast(WIDE, ins[0][(*at, row, k)])
                total.set(total.get() - weight * line[k])
            pivot = build.cast(WIDE, ins[0][(*at, row, row)])
            line[row] = total.get() if attrs.unit else total.get() / pivot
            result[(*at, row, column)] = build.cast(out.dtype, line[row])

    return filled(out, [a, b], fill, "T_solve_triangular")


def _reference(attrs: TriangularAttrs, a: Array, b: Array) -> Array:
    def solve(matrix: Array, right: Array) -> list[Array]:
        made = right.copy()
        order = range(len(matrix))
        for row in reversed(order) if attrs.upper else order:
            known = slice(row + 1, None) if attrs.upper else slice(0, row)
            made[row] -= matrix[row, known] @ made[known]
            made[row] /= 1.0 if attrs.unit else matrix[row, row]
        return [made]

    return each_matrix(solve, a, b)[0].astype(b.dtype)


_LOWER = np.array([[2, 0.5, 1], [1, 3, -1], [0.5, -2, 4]], "float32")
register(OpRecord(
    "linalg.solve_triangular",
    inputs=("a", "b"),
    attrs=TriangularAttrs,
    infer=_infer,
    compute=_compute,
    reference=quiet(_reference),
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((_LOWER, (3, 2))),
        Case((np.stack([_LOWER, _LOWER.T]), (2, 3, 4)), {"upper": True}),
        Case((_LOWER, (3, 1)), {"unit": True}),
    ],
    doc="x with a x = b, where a is a lower triangle, or an upper one; what lies on the other side "
        "of the diagonal is not read, and unit: nor is the diagonal, which is 1.",
))

"""The exponential of square matrices: scaling and squaring of Taylor's series."""

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.elementwise import quiet
from sterna.op.indexing import dims_of
from sterna.op.matrices import ONE, WIDE, ZERO, each_matrix, load, magnitude, square, store
from sterna.op.statements import filled, loops, variable
from sterna.relay.arrays import Array
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Taylor's terms of a matrix of norm at most one, and how often halves are squared at the most.
TERMS = 18
MOST_SQUARES = 1100.0


def _infer(attrs: None, data: Type) -> TensorType:
    return square(data, "data")


def _compute(attrs: None, out: TensorType, data: Tensor) -> Tensor:
    *batch, size, _ = dims_of(data)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        total = variable(ib, WIDE, "total", 0.0)
        norm = variable(ib, WIDE, "norm", 0.0)
        made = ib.allocate(WIDE, (size, size), name="made")
        other = ib.allocate(WIDE, (size, size), name="other")

        def multiply(left: BufferVar) -> None:
            """made = left made, by way of other."""
            with ib.for_range(0, size, name="r") as r, ib.for_range(0, size, name="c") as c:
                total.set(0.0)
                with ib.for_range(0, size, name="k") as k:
                    total.set(total.get() + left[r, k] * made[k, c])
                other[r, c] = total.get()
            with ib.for_range(0, size, name="r") as r, ib.for_range(0, size, name="c") as c:
                made[r, c] = other[r, c]

        with loops(ib, batch, "b") as at:
            matrix = load(ib, ins[0], at, size, size, "matrix")
            norm.set(0.0)
            with ib.for_range(0, size, name="r") as r:
                total.set(0.0)
                with ib.for_range(0, size, name="c") as c:
                    total.set(total.get() + magnitude(matrix[r, c]))
                norm.set(build.maximum(norm.get(), total.get()))
            doublings = t.ceil(t.log2(build.maximum(norm.get(), ONE)))
            squares = ib.let("squares", build.minimum(doublings, build.const(MOST_SQUARES, WIDE)))
            scale = ib.let("scale", t.exp2(ZERO - squares))
            with ib.for_range(0, size, name="r") as r, ib.for_range(0, size, name="c") as c:
                matrix[r, c] = matrix[r, c] * scale
                made[r, c] = build.select(r.equal(c), ONE, ZERO)
            with ib.for_range(0, TERMS, name="step") as step:
                multiply(matrix)
                share = ib.let("share", ONE / build.cast(WIDE, TERMS - step))
                with ib.for_range(0, size, name="r") as r, ib.for_range(0, size, name="c") as c:
                    unit = build.select(r.equal(c), ONE, ZERO)
                    made[r, c] = made[r, c] * share + unit
            with ib.for_range(0, build.cast("int32", squares), name="square"):
                multiply(made)
            store(ib, result, at, (size, size), lambda r, c: made[r, c])

    return filled(out, [data], fill, "T_matrix_exp")


def _exp_of(matrix: Array) -> list[Array]:
    norm = np.abs(matrix).sum(1).max(initial=1.0)
    squares = min(np.ceil(np.log2(norm)), MOST_SQUARES)
    scaled, made = matrix * 2.0 ** -squares, np.eye(len(matrix))
    for term in range(TERMS, 0, -1):
        made = scaled @ made / term + np.eye(len(matrix))
    for _ in range(int(squares)):
        made = made @ made
    return [made]


def _reference(attrs: None, data: Array) -> Array:
    return each_matrix(_exp_of, data)[0].astype(data.dtype)


register(OpRecord(
    "linalg.matrix_exp",
    inputs=("data",),
    infer=_infer,
    compute=_compute,
    reference=quiet(_reference),
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[Case((np.array([[[1, -2], [0.5, 4]], [[0, 1], [-1, 0]]], "float32"),))],
    doc="The exponential of square matrices.",
))

"""det: the determinants of square matrices."""


import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, expect_dim, of_kind
from sterna.op.elementwise import quiet
from sterna.op.indexing import dims_of
from sterna.op.statements import filled, loops, variable
from sterna.relay.arrays import Array
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.schedule.products import wide, widened
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


def _infer(attrs: None, data: Type) -> TensorType:
    kind = of_kind(at_least(data, "data", 2), "data", "float")
    rows, columns = kind.shape[-2:]
    expect_dim(columns, rows, "the number of columns of a square matrix")
    return TensorType(kind.shape[:-2], kind.dtype)


def _compute(attrs: None, out: TensorType, data: Tensor) -> Tensor:
    """Rows are subtracted until a triangle is left, whose diagonal is multiplied.

    The pivot of a column is its largest element, so that factors are at most 1.
    """
    *batch, size, _ = dims_of(data)
    dtype = wide(data.dtype)
    zero = build.const(0, dtype)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        matrix = ib.allocate(dtype, (size, size), name="matrix")
        found = variable(ib, dtype, "found", 1.0)
        largest = variable(ib, dtype, "largest", 0.0)
        pivot = variable(ib, "int32", "pivot", 0)

        def magnitude(value: Expr) -> Expr:
            return build.select(value < zero, zero - value, value)

        with loops(ib, batch, "b") as places:
            found.set(1.0)
            with loops(ib, [size, size], "i") as (i, j):
                matrix[i, j] = build.cast(dtype, ins[0][(*places, i, j)])
            with ib.for_range(0, size, name="k") as k:
                largest.set(-1.0)
                pivot.set(k)
                with ib.for_range(k, size, name="i") as i:
                    here = ib.let("here", magnitude(matrix[i, k]))
                    with ib.if_scope(here > largest.get()):
                        largest.set(here)
                        pivot.set(i)
                with ib.if_scope(build.not_equal(pivot.get(), k)):
                    with ib.for_range(0, size, name="j") as j:
                        held = ib.allocate(dtype, (1,), name="held", scope="local")
                        held[0] = matrix[k, j]
                        matrix[k, j] = matrix[pivot.get(), j]
                        matrix[pivot.get(), j] = held[0]
                    found.set(zero - found.get())
                found.set(found.get() * matrix[k, k])
                with (
                    ib.if_scope(build.not_equal(matrix[k, k], zero)),
                    ib.for_range(k + 1, size, name="i") as i,
                ):
                    factor = ib.let("factor", matrix[i, k] / matrix[k, k])
                    with ib.for_range(k, size, name="j") as j:
                        matrix[i, j] = matrix[i, j] - factor * matrix[k, j]
            result[tuple(places)] = build.cast(out.dtype, found.get())

    return filled(out, [data], fill, "T_det")


def _reference(attrs: None, data: Array) -> Array:
    return np.asarray(np.linalg.det(widened(data, str(data.dtype)))).astype(data.dtype)


register(OpRecord(
    "det",
    inputs=("data",),
    infer=_infer,
    compute=_compute,
    reference=quiet(_reference),
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((np.array([[0, 2, 1], [3, 0, -1], [1, 4, 0]], "float32"),)),
        Case(((2, 3, 4, 4),), tolerance=1e-4),
        Case((np.array([[[1, 2], [2, 4]], [[np.nan, 1], [1, 2]], [[0, 0], [0, 0]]], "float64"),)),
        Case((((2, 1, 1), "float16"),), tolerance=1e-3),
        Case(((3, 0, 0),)),
    ],
    doc="The determinants of the square matrices in data's last two dimensions.",
))

"""Householder's reflections: the QR factorisation as LAPACK holds it, and the matrix Q."""

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, TupleType, Type
from sterna.op.checks import expect_dim, of_kind, tensor
from sterna.op.elementwise import quiet
from sterna.op.indexing import dims_of
from sterna.op.matrices import ONE, WIDE, ZERO, each_matrix, least, load, matrices, store
from sterna.op.statements import filled, loops, statements, variable
from sterna.relay.arrays import Array
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder


def _infer_qr(attrs: None, data: Type) -> TupleType:
    kind = matrices(data, "data")
    *batch, rows, columns = kind.shape
    return TupleType((kind, TensorType((*batch, least(rows, columns)), kind.dtype)))


def _qr(attrs: None, out: TupleType, data: Tensor) -> list[Tensor]:
    """Column by column a reflection I - tau v v^T that leaves nothing below the diagonal."""
    *batch, rows, columns = dims_of(data)
    count = least(rows, columns)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        total = variable(ib, WIDE, "total", 0.0)
        with loops(ib, batch, "b") as at:
            matrix = load(ib, ins[0], at, rows, columns, "matrix")
            with ib.for_range(0, count, name="k") as k:
                total.set(0.0)
                with ib.for_range(k + 1, rows, name="i") as i:
                    total.set(total.get() + matrix[i, k] * matrix[i, k])
                below = ib.let("below", total.get())
                alpha = ib.let("alpha", matrix[k, k])
                with ib.if_scope(below.equal(ZERO)):
                    outs[1][(*at, k)] = build.const(0, outs[1].dtype)
                with ib.else_scope():
                    length = t.sqrt(alpha * alpha + below)
                    beta = ib.let("beta", build.select(alpha < ZERO, length, ZERO - length))
                    tau = ib.let("tau", (beta - alpha) / beta)
                    outs[1][(*at, k)] = build.cast(outs[1].dtype, tau)
                    with ib.for_range(k + 1, rows, name="i") as i:
                        matrix[i, k] = matrix[i, k] / (alpha - beta)
                    with ib.for_range(k + 1, columns, name="j") as j:
                        total.set(matrix[k, j])
                        with ib.for_range(k + 1, rows, name="i") as i:
                            total.set(total.get() + matrix[i, k] * matrix[i, j])
                        share = ib.let("share", tau * total.get())
                        matrix[k, j] = matrix[k, j] - share
                        with ib.for_range(k + 1, rows, name="i") as i:
                            matrix[i, j] = matrix[i, j] - share * matrix[i, k]
                    matrix[k, k] = beta
            store(ib, outs[0], at, (rows, columns), lambda r, c: matrix[r, c])

    return statements(out, [data], fill, "T_householder_qr")


def _qr_of(matrix: Array) -> tuple[Array, Array]:
    if not min(matrix.shape):
        return matrix, np.zeros(0)
    made, tau = np.linalg.qr(matrix, mode="raw")
    return made.T, tau


def _qr_reference(attrs: None, data: Array) -> list[Array]:
    return [each.astype(data.dtype) for each in each_matrix(_qr_of, data)]


register(OpRecord(
    "linalg.householder_qr",
    inputs=("data",),
    infer=_infer_qr,
    compute=_qr,
    reference=quiet(_qr_reference),
    num_outputs=2,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[Case(((2, 4, 3),)), Case(((2, 5),)), Case((np.eye(3, dtype="float32"),))],
    doc="R on and above the diagonal and below it the vectors v of the reflections "
        "I - tau v v^T whose product is Q, with Q R = data; v begins with a 1 that is not held. "
        "And tau.",
))


def _infer_product(attrs: None, data: Type, tau: Type) -> TensorType:
    kind = matrices(data, "data")
    factors = of_kind(tensor(tau, "tau", kind.ndim - 1), "tau", "float")
    for have, want in zip(factors.shape[:-1], kind.shape[:-2], strict=True):
        expect_dim(have, want, "an outer extent of tau, as data has it,")
    return kind


def _product(attrs: None, out: TensorType, data: Tensor, tau: Tensor) -> Tensor:
    """From the last reflection to the first, each applied to the columns of the unit matrix."""
    *batch, rows, columns = dims_of(data)
    count = dims_of(tau)[-1]

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        total = variable(ib, WIDE, "total", 0.0)
        made = ib.allocate(WIDE, (rows, columns), name="made")
        with loops(ib, batch, "b") as at:
            with ib.for_range(0, rows, name="r") as r, ib.for_range(0, columns, name="c") as c:
                made[r, c] = build.select(r.equal(c), ONE, ZERO)
            with ib.for_range(0, count, name="step") as step:
                k = ib.let("k", count - 1 - step)
                factor = ib.let("factor", build.cast(WIDE, ins[1][(*at, k)]))
                with ib.for_range(0, columns, name="j") as j:
                    total.set(made[k, j])
                    with ib.for_range(k + 1, rows, name="i") as i:
                        held = build.cast(WIDE, ins[0][(*at, i, k)])
                        total.set(total.get() + held * made[i, j])
                    share = ib.let("share", factor * total.get())
                    made[k, j] = made[k, j] - share
                    with ib.for_range(k + 1, rows, name="i") as i:
                        held = build.cast(WIDE, ins[0][(*at, i, k)])
                        made[i, j] = made[i, j] - share * held
            store(ib, result, at, (rows, columns), lambda r, c: made[r, c])

    return filled(out, [data, tau], fill, "T_householder_product")


def _product_of(matrix: Array, tau: Array) -> list[Array]:
    made = np.eye(*matrix.shape)
    for k in reversed(range(len(tau))):
        vector = np.concatenate([np.zeros(k), [1.0], matrix[k + 1 :, k]])
        made -= tau[k] * np.outer(vector, vector @ made)
    return [made]


def _product_reference(attrs: None, data: Array, tau: Array) -> Array:
    def one(matrix: Array, factors: Array) -> list[Array]:
        return _product_of(matrix, factors[0])

    made = each_matrix(one, data, np.expand_dims(tau, -2))
    return made[0].astype(data.dtype)


register(OpRecord(
    "linalg.householder_product",
    inputs=("data", "tau"),
    infer=_infer_product,
    compute=_product,
    reference=quiet(_product_reference),
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[Case(((2, 4, 3), (2, 3))), Case(((5, 5), (2,)))],
    doc="The first columns of the product of the reflections I - tau v v^T that "
        "linalg.householder_qr gives.",
))

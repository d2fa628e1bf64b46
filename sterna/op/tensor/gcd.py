"""The greatest common divisor of whole numbers, by Euclid's algorithm."""

from collections.abc import Sequence

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.op.indexing import broadcast_place
from sterna.op.statements import filled, loops, variable
from sterna.op.tensor.binary import INTEGERS, WHOLE, infer_binary
from sterna.relay.arrays import Array
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


def _compute(attrs: None, out: TensorType, *given: Tensor) -> Tensor:
    kind = str(out.dtype)
    # Fibonacci's numbers take longest: below 2**n there are fewer than 1.5 n of them.
    most = out.dtype.bits * 3 // 2

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        with loops(ib, out.shape) as at:
            a, b = (
                variable(ib, kind, name, source[broadcast_place(at, each)])
                for name, source, each in zip("ab", ins, given, strict=True)
            )
            with ib.for_range(0, most, name="step"), ib.if_scope(b.get() != build.const(0, kind)):
                rest = ib.let("rest", build.truncmod(a.get(), b.get()))
                a.set(b.get())
                b.set(rest)
            result[tuple(at) or 0] = _magnitude(a.get(), kind)

    return filled(out, given, fill, "T_gcd")


def _magnitude(value: Expr, kind: str) -> Expr:
    zero = build.const(0, kind)
    return value if kind.startswith("u") else build.select(value < zero, zero - value, value)


def _reference(attrs: None, lhs: Array, rhs: Array) -> Array:
    return np.asarray(np.gcd(lhs, rhs)).astype(lhs.dtype)


_LARGE: Sequence[Array] = (
    np.array([[7540113804746346429, -(1 << 63), 0, 12]], "int64"),
    np.array([[4660046610375530309], [6], [0]], "int64"),
)

register(OpRecord(
    "gcd",
    inputs=("lhs", "rhs"),
    infer=infer_binary(INTEGERS),
    compute=_compute,
    reference=_reference,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[WHOLE, Case(tuple(_LARGE)), Case((((2, 3), "uint8"), ((3,), "uint8")))],
    doc="The greatest common divisor of lhs and rhs, which is not negative; of zeros it is 0.",
))

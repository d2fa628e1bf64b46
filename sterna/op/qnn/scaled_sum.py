"""The sum of two tensors of bytes under the scale of the result: qnn.scaled_sum.

Both sums of a product are rounded once, as a multiply-add does. Without that instruction float64
has room for the products, and for what is added to them unless it is much smaller.
"""

import math

import numpy as np

from sterna.ir.expr import Call, Expr, ExprLike
from sterna.ir.types import TensorType, Type
from sterna.op.checks import broadcast_shapes, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.elementwise import elementwise
from sterna.op.tensor.convert import convert
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr
from sterna.relay.layout_rules import broadcast
from sterna.relay.op import BROADCAST, Case, OpRecord, call, register
from sterna.relay.quantized import int_range
from sterna.schedule.dot4 import are_bytes
from sterna.support.dtype import DataType
from sterna.target import Target, instructions_of
from sterna.te import nearbyint

FLOAT32, FLOAT64, INT32 = DataType("float32"), DataType("float64"), DataType("int32")


@attributes
class ScaledSumAttrs(Attrs):
    """Of qnn.scaled_sum."""

    lhs_ratio: float = 1.0
    rhs_ratio: float = 1.0
    start: float = 0.0
    out_dtype: DataType = DataType("int8")
    fused: bool = False
    """Whether the target's multiply-add gives these very numbers."""

    def normalize(self) -> None:
        """Floats of 32 bits."""
        for name in ("lhs_ratio", "rhs_ratio", "start"):
            number = float(np.float32(getattr(self, name)))
            if not math.isfinite(number):
                raise ValueError(f"{name} is a finite float32, not {getattr(self, name)}")
            setattr(self, name, number)


def sum_of_bytes(lhs: Type, rhs: Type, out_dtype: DataType) -> TensorType:
    """The type of a sum of two tensors of bytes, which is one itself."""
    a, b = tensor(lhs, "lhs"), tensor(rhs, "rhs")
    if not are_bytes(a, b):
        raise ValueError(f"lhs and rhs are integers of 8 bits, not {a.dtype} and {b.dtype}")
    if not out_dtype.is_integer or out_dtype.bits != 8:
        raise ValueError(f"out_dtype is integers of 8 bits, not {out_dtype}")
    return TensorType(broadcast_shapes(a.shape, b.shape), out_dtype)


def _scalar(attrs: ScaledSumAttrs, a: Expr, b: Expr) -> Expr:
    kind = FLOAT32 if attrs.fused else FLOAT64

    def added(number: Expr, ratio: float, start: ExprLike) -> Expr:
        return (number.astype(kind) * ratio + start).astype(FLOAT32)

    first = added(b, attrs.rhs_ratio, attrs.start)
    whole = nearbyint(added(a, attrs.lhs_ratio, first.astype(kind)))
    most = 256 * (abs(attrs.lhs_ratio) + abs(attrs.rhs_ratio)) + abs(attrs.start)
    if most >= 1 << 30:
        return convert(whole, attrs.out_dtype)
    return Call(attrs.out_dtype, "saturate", (whole.astype(INT32),))


def _reference(attrs: ScaledSumAttrs, lhs: Array, rhs: Array) -> Array:
    first = (rhs.astype(np.float64) * attrs.rhs_ratio + attrs.start).astype(np.float32)
    total = (lhs.astype(np.float64) * attrs.lhs_ratio + first).astype(np.float32)
    held = np.clip(np.rint(total), *int_range(attrs.out_dtype))
    return np.asarray(held).astype(numpy_dtype(attrs.out_dtype))


def _legalize(
    attrs: ScaledSumAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """By multiply-adds of float32, which LLVM makes of such sums where a processor has them."""
    if attrs.fused or target is None or not target.kind.picks_instructions:
        return None
    if not instructions_of(target).provides("fma_contraction"):
        return None
    if not sums_are_exact(attrs, *[tensor_type(arg).dtype for arg in args]):
        return None
    return call("qnn.scaled_sum", *args, **dict(attrs.replace(fused=True).items()))


def sums_are_exact(attrs: ScaledSumAttrs, lhs: DataType, rhs: DataType) -> bool:
    """Whether float64 has all digits of both sums, for all pairs of bytes: it is rounded once."""
    a, b = (np.arange(low, high + 1.0) for low, high in map(int_range, (lhs, rhs)))
    first, rest = _two_sum(b * attrs.rhs_ratio, np.float64(attrs.start))
    held = first.astype(np.float32).astype(np.float64)
    _, other = _two_sum(np.multiply.outer(a, attrs.lhs_ratio), held)
    return not rest.any() and not other.any()


def _two_sum(x: Array, y: Array | float) -> tuple[Array, Array]:
    """A sum and what rounding took from it."""
    x = x[..., None] if x.ndim and np.ndim(y) else x
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


register(OpRecord(
    "qnn.scaled_sum",
    inputs=("lhs", "rhs"),
    attrs=ScaledSumAttrs,
    infer=lambda attrs, lhs, rhs: sum_of_bytes(lhs, rhs, attrs.out_dtype),
    compute=elementwise("scaled_sum", _scalar),
    reference=_reference,
    legalize=_legalize,
    pattern=BROADCAST,
    layout=broadcast,
    mixed_precision="never",
    cases=[
        Case((((2, 3, 5), "uint8"), ((5,), "uint8")),
             {"lhs_ratio": 0.7, "rhs_ratio": 0.3, "start": -12.5, "out_dtype": "uint8"}),
        Case((((16, 16), "int8"), ((16, 16), "uint8")), {"lhs_ratio": 1.5, "rhs_ratio": -0.25}),
        Case((((4, 4), "int8"), ((4, 4), "int8")), {"lhs_ratio": 1e30, "rhs_ratio": 1.0}),
    ],
    doc="lhs * lhs_ratio + (rhs * rhs_ratio + start), each sum rounded to a float32 once; then to "
        "the nearest whole number, halves to even ones, held within the range of out_dtype.",
))

"""Sums that are known to be small, scaled to bytes without conversions: qnn.scaled_bytes.

On some processors integers become floats slowly, and floats integers. The bits of 1.5 * 2**23 and
a small number, added as integers, are a float from which 1.5 * 2**23 is taken away; and what is
scaled into 16 bits is rounded by adding it. How far from 0 sums are follows from the weights.
"""

from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Call as ScalarCall
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import of_kind, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.quantization import along_channels, expect_scale, read_parameter, saturated, spread
from sterna.relay.arrays import Array, numpy_dtype, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, Constant, RelayExpr, const
from sterna.relay.layout import layout_of
from sterna.relay.op import BROADCAST, Case, Op, OpRecord, call, register
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute, nearbyint

INT16, FLOAT32 = DataType("int16"), DataType("float32")
# Of 1.5 * 2**23 and what is near to it, the last bits are a whole number.
LIFT, LIFT_BITS, LARGEST_LIFTED = 12582912.0, 0x4B400000, 1 << 22
SUMS = ("qnn.dense", "qnn.conv1d", "qnn.conv2d", "qnn.conv3d")


@attributes
class ScaledBytesAttrs(Attrs):
    """Of qnn.scaled_bytes."""

    zero_point: int = 0
    axis: int = -1
    out_dtype: DataType = DataType("int8")


def reach_of(sums: RelayExpr) -> int | None:
    """How far from 0 sums of products with constant weights, and constants added, are at most."""
    if isinstance(sums, Constant):
        return int(np.abs(to_numpy(sums.data).astype(np.int64)).max(initial=0))
    if not isinstance(sums, Call) or not isinstance(sums.op, Op):
        return None
    if sums.op.name == "add":
        parts = [reach_of(part) for part in sums.args]
        return None if None in parts else sum(part or 0 for part in parts)
    if sums.op.name not in SUMS:
        return None
    data, *factors = sums.args[:4]
    known = [to_numpy(each.data) for each in factors if isinstance(each, Constant)]
    if len(known) < len(factors):
        return None
    given, near, far = (each.astype(np.int64) for each in known)
    dtype = tensor_type(data).dtype
    if dtype.bits != 8 or given.size == 0 or near.size != 1 or far.any():
        return None
    low, high = int_range(dtype)
    distance = max(high - int(near.item()), int(near.item()) - low)
    layout = getattr(sums.attrs, "kernel_layout", "")
    if layout and layout_of(layout).is_blocked:
        return None
    own = layout_of(layout).index_of("O") if layout else 0
    others = tuple(axis for axis in range(given.ndim) if axis != own)
    return distance * int(np.abs(given).sum(axis=others).max())


def scaled_to_bytes(
    sums: RelayExpr, ratio: Array, zero: int, axis: int, dtype: DataType
) -> RelayExpr | None:
    """Sums times ratios as bytes, if these fit into 16 bits before they are held in range."""
    reach = reach_of(sums)
    if reach is None or not reach * float(np.max(ratio)) + abs(zero) < int_range(INT16)[1]:
        return None
    if reach < LARGEST_LIFTED:
        lifted = call("add", sums, const(np.int32(LIFT_BITS)))
        floats = call("subtract", call("reinterpret", lifted, dtype=FLOAT32),
                      const(np.float32(LIFT)))
    else:
        floats = call("cast", sums, dtype=FLOAT32)
    return call("qnn.scaled_bytes", floats, const(ratio), zero_point=zero, axis=axis,
                out_dtype=dtype)


def _infer(attrs: ScaledBytesAttrs, data: Type, ratio: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float")
    expect_scale(ratio, "ratio", kind, attrs.axis)
    if not attrs.out_dtype.is_integer or attrs.out_dtype.bits != 8:
        raise ValueError(f"out_dtype is integers of 8 bits, not {attrs.out_dtype}")
    return TensorType(kind.shape, attrs.out_dtype)


def _compute(attrs: ScaledBytesAttrs, out: TensorType, data: Tensor, ratio: Tensor) -> Tensor:
    def element(*i: Expr) -> Any:
        scaled = data(*i) * read_parameter(ratio, i, attrs.axis)
        short = nearbyint(scaled).astype(INT16) + build.const(attrs.zero_point, INT16)
        return ScalarCall(out.dtype, "saturate", (short,))

    made: Tensor = compute(out.shape, element, name="T_scaled_bytes")
    return made


def _reference(attrs: ScaledBytesAttrs, data: Array, ratio: Array) -> Array:
    whole = np.rint(data * spread(ratio, data, attrs.axis)).astype(np.int64)
    held = saturated(whole + attrs.zero_point, attrs.out_dtype)
    return np.asarray(held).astype(numpy_dtype(attrs.out_dtype))


# Halves, and what 16 bits hold when it is scaled.
_SMALL = np.array([
    [-60000, -7, -5, -3, -1, 1, 3, 5, 7, 60000], [-60000, -500, 0, 499, 500, 501, 833, 1500, 2, 4],
    [-60000, -15, -5, 0, 5, 14, 15, 16, 25, 60000],
], "float32")

register(OpRecord(
    "qnn.scaled_bytes",
    inputs=("data", "ratio"),
    attrs=ScaledBytesAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=BROADCAST,
    layout=along_channels,
    mixed_precision="never",
    cases=[Case((_SMALL, np.array([0.5, 3e-3, 0.1], "float32")),
                {"axis": 0, "zero_point": zero, "out_dtype": dtype})
           for zero, dtype in ((-7, "int8"), (200, "uint8"))],
    doc="data * ratio to the nearest whole number, halves to the even one, plus zero_point, held "
        "within the range of out_dtype; of what 16 bits hold before that.",
))

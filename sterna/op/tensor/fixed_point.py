"""Fixed-point multiplication: by numbers between 0 and 1 that are held as integers."""


import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import axis_of, expect_dim, tensor
from sterna.op.elementwise import Numbers, elementwise
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.layout_rules import LayoutPlan, Operands
from sterna.relay.op import BROADCAST, ELEMWISE, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute

FRACTION_BITS = 31
INT32, INT64 = DataType("int32"), DataType("int64")


@attributes
class FixedPointMultiplyAttrs(Attrs):
    """Of fixed_point_multiply."""

    multiplier: int
    shift: int


@attributes
class FixedPointMultiplyPerAxisAttrs(Attrs):
    """Of fixed_point_multiply_per_axis."""

    is_lshift_required: bool
    is_rshift_required: bool
    axes: tuple[int, ...]


def _scaled(
    x: Numbers, multiplier: Numbers, left: Numbers, right: Numbers, one: Numbers
) -> Numbers:
    """x * 2**left * multiplier / 2**(31 + right) on int64, to the nearest, halves upward."""
    total = right + FRACTION_BITS
    made: Numbers = ((x << left) * multiplier + (one << (total - 1))) >> total
    return made


def _int32(kind: Type, name: str, ndim: int | None = None) -> TensorType:
    found = tensor(kind, name, ndim)
    if found.dtype != INT32:
        raise ValueError(f"{name} has elements of type int32, not {found.dtype}; cast it")
    return found


def _infer(attrs: FixedPointMultiplyAttrs, data: Type) -> TensorType:
    if not -(1 << 31) <= attrs.multiplier < 1 << 31:
        raise ValueError(f"the multiplier {attrs.multiplier} is no number of 32 bits")
    if not -32 <= attrs.shift <= 31:
        raise ValueError(f"the shift lies between -32 and 31, not at {attrs.shift}")
    return _int32(data, "data")


def _shifts(attrs: FixedPointMultiplyAttrs) -> tuple[int, int]:
    return max(attrs.shift, 0), max(-attrs.shift, 0)


def _scalar(attrs: FixedPointMultiplyAttrs, x: Expr) -> Expr:
    left, right = (build.const(shift, INT64) for shift in _shifts(attrs))
    multiplier = build.const(attrs.multiplier, INT64)
    scaled = _scaled(build.cast(INT64, x), multiplier, left, right, build.const(1, INT64))
    return build.cast(INT32, scaled)


def _wide(number: int) -> Array:
    return np.asarray(number, np.int64)


def _reference(attrs: FixedPointMultiplyAttrs, data: Array) -> Array:
    left, right = map(_wide, _shifts(attrs))
    wide = _scaled(data.astype(np.int64), _wide(attrs.multiplier), left, right, _wide(1))
    return np.asarray(wide).astype(np.int32)


_DATA = np.array([-(2**31), -1001, -3, -1, 0, 1, 2, 3, 1000, 2**31 - 1], "int32")

register(OpRecord(
    "fixed_point_multiply",
    inputs=("data",),
    attrs=FixedPointMultiplyAttrs,
    infer=_infer,
    compute=elementwise("fixed_point_multiply", _scalar),
    reference=_reference,
    pattern=ELEMWISE,
    cases=[
        Case((_DATA,), {"multiplier": 1 << 30, "shift": 0}),
        Case((_DATA,), {"multiplier": 1395864371, "shift": -7}),
        Case((_DATA[1:-1],), {"multiplier": 1395864371, "shift": 4}),
    ],
    doc="data * multiplier * 2**(shift - 31) to the nearest integer, halves upward; the product "
        "is computed in 64 bits.",
))


def _infer_per_axis(
    attrs: FixedPointMultiplyPerAxisAttrs, x: Type, y: Type, lshift: Type, rshift: Type
) -> TensorType:
    data = _int32(x, "x")
    axes = [axis_of(axis, data.ndim, "axes") for axis in attrs.axes]
    for name, kind in (("y", y), ("lshift", lshift), ("rshift", rshift)):
        given = _int32(kind, name, len(axes))
        for have, axis in zip(given.shape, axes, strict=True):
            expect_dim(have, data.shape[axis], f"the extent of {name} along axis {axis}")
    return data


def _compute_per_axis(
    attrs: FixedPointMultiplyPerAxisAttrs, out: TensorType, x: Tensor, *params: Tensor
) -> Tensor:
    axes = [axis % x.ndim for axis in attrs.axes]

    def element(*indices: Expr) -> Expr:
        own = [indices[axis] for axis in axes]
        y, left, right = (build.cast(INT64, param(*own)) for param in params)
        zero, one = build.const(0, INT64), build.const(1, INT64)
        left = left if attrs.is_lshift_required else zero
        right = right if attrs.is_rshift_required else zero
        return build.cast(INT32, _scaled(build.cast(INT64, x(*indices)), y, left, right, one))

    made: Tensor = compute(out.shape, element, name="T_fixed_point_multiply_per_axis")
    return made


def _per_axis_reference(attrs: FixedPointMultiplyPerAxisAttrs, x: Array, *params: Array) -> Array:
    axes = [axis % x.ndim for axis in attrs.axes]
    shape = [x.shape[axis] if axis in axes else 1 for axis in range(x.ndim)]
    order = np.argsort(axes)
    y, left, right = (p.transpose(order).reshape(shape).astype(np.int64) for p in params)
    left = left * attrs.is_lshift_required
    right = right * attrs.is_rshift_required
    return np.asarray(_scaled(x.astype(np.int64), y, left, right, _wide(1))).astype(np.int32)


def _layout(
    attrs: FixedPointMultiplyPerAxisAttrs, old: FixedPointMultiplyPerAxisAttrs, operands: Operands
) -> LayoutPlan | None:
    laid = operands[0].laid
    if laid is None or not laid.is_permutation:
        return None
    moved = attrs.replace(axes=tuple(laid.axis(axis % len(laid.before)) for axis in attrs.axes))
    return LayoutPlan((laid, None, None, None), (laid,), moved)


_Y = np.array([1 << 30, 1395864371, -77777777], "int32")
_SHIFTS = np.array([0, 3, 1], "int32")

register(OpRecord(
    "fixed_point_multiply_per_axis",
    inputs=("x", "y", "lshift", "rshift"),
    attrs=FixedPointMultiplyPerAxisAttrs,
    infer=_infer_per_axis,
    compute=_compute_per_axis,
    reference=_per_axis_reference,
    pattern=BROADCAST,
    layout=_layout,
    cases=[
        Case((((2, 3, 2), "int32"), _Y, _SHIFTS, _SHIFTS[::-1].copy()),
             {"is_lshift_required": left, "is_rshift_required": right, "axes": (1,)})
        for left, right in ((True, True), (False, True), (True, False))
    ],
    doc="fixed_point_multiply by numbers and shifts of their own along some axes: y * "
        "2**(lshift - rshift - 31).",
))

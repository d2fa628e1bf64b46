"""Quantised numbers under another scale and zero point: qnn.requantize.

The ratio of both scales is a fraction of 31 bits and a power of 2, so that whole numbers suffice:
x * ratio is x * multiplier * 2**(shift - 31), computed in 64 bits and rounded once; or twice, as
microcontrollers' kernels do: to a whole number before the shift to the right, and behind it.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.ir import build
from sterna.ir.expr import Call, Expr, ExprLike, Let, Var
from sterna.ir.types import TensorType, Type
from sterna.op.checks import of_kind, tensor
from sterna.op.elementwise import quiet
from sterna.op.qnn._rescaled_layer import with_normal_factors
from sterna.op.qnn.rescaled_pixels import implement_pixels
from sterna.op.qnn.rescaled_planes import implement_planes
from sterna.op.qnn.rescaled_quads import implement_quads
from sterna.op.qnn.rescaled_rows import implement_rows
from sterna.op.qnn.rescaled_window import implement_window
from sterna.op.qnn.small_sums import scaled_to_bytes
from sterna.op.quantization import (
    along_channels,
    constant_of,
    expect_scale,
    expect_zero_point,
    held_within,
    is_single,
    read_parameter,
    round_half_away,
    saturated,
    spread,
)
from sterna.op.tensor.convert import convert, converted
from sterna.relay.arrays import Array, numpy_dtype, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call as CallExpr
from sterna.relay.expr import Constant, RelayExpr, const
from sterna.relay.op import BROADCAST, Case, ContractionRules, OpRecord, call, register
from sterna.relay.quantized import int_range
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType
from sterna.target import Target, instructions_of
from sterna.te import Tensor, compute, floor, nearbyint, round
from sterna.tir.halves import high_product

INT32, INT64 = DataType("int32"), DataType("int64")
FLOAT32, FLOAT64 = DataType("float32"), DataType("float64")
FRACTION_BITS = 31
# Beyond this, distances from a zero point are out of every result's range or rounded to nothing.
DATA_BITS = 32
# Distances of the ends of narrow types from such zero points are exact in every compute_dtype.
SMALL_ZERO = 1 << 20

ROUNDINGS = ("UPWARD", "TONEAREST", "TONEAREST_EVEN", "TWICE")
RESCALE_INPUTS = ("data", "multiplier", "shift", "input_zero_point", "output_zero_point")
COMPUTE_TYPES = ("int64", "float32", "float64")


@attributes
class RequantizeAttrs(Attrs):
    """Of qnn.requantize."""

    axis: int = -1
    rounding: str = "None"
    compute_dtype: str = "None"
    out_dtype: DataType = DataType("int8")
    scales_down: bool = False
    """Every scaled number is at most half as large: it and a zero point fit into 32 bits."""

    def normalize(self) -> None:
        """The classic defaults, which are written "None"."""
        self.rounding = "UPWARD" if self.rounding == "None" else self.rounding
        self.compute_dtype = "int64" if self.compute_dtype == "None" else self.compute_dtype
        _expect_rounding(self.rounding)
        if self.compute_dtype not in COMPUTE_TYPES:
            raise ValueError(
                f"compute_dtype is one of {', '.join(COMPUTE_TYPES)}, not {self.compute_dtype!r}"
            )
        if self.rounding == "TWICE" and self.compute_dtype != "int64":
            raise ValueError("rounding TWICE is of whole numbers; its compute_dtype is int64")


@attributes
class RescaleAttrs(Attrs):
    """Of qnn.rescale."""

    axis: int = -1
    rounding: str = "UPWARD"
    out_dtype: DataType = DataType("int8")
    scales_down: bool = False
    """Every scaled number is at most half as large: it and a zero point fit into 32 bits."""
    is_normal: bool = False
    """Every multiplier has all of its 31 bits, and shifts go two places or more to the right.

    Or one place, of sums of less than 2**30.
    """

    def normalize(self) -> None:
        _expect_rounding(self.rounding)
        self.scales_down = self.scales_down or self.is_normal


def _expect_rounding(rounding: str) -> None:
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding is one of {', '.join(ROUNDINGS)}, not {rounding!r}")


def _expect_narrow(dtype: DataType) -> None:
    if not dtype.is_integer or dtype.bits > 32:
        raise ValueError(f"out_dtype is integers of up to 32 bits, not {dtype}")


def _infer(attrs: RequantizeAttrs, data: Type, *parameters: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "int", "uint")
    input_scale, input_zero, output_scale, output_zero = parameters
    expect_scale(input_scale, "input_scale", kind, attrs.axis)
    expect_zero_point(input_zero, "input_zero_point", kind, attrs.axis)
    expect_scale(output_scale, "output_scale", kind, attrs.axis)
    expect_zero_point(output_zero, "output_zero_point", kind, attrs.axis)
    _expect_narrow(attrs.out_dtype)
    return TensorType(kind.shape, attrs.out_dtype)


# ---- by whole numbers ----


def _infer_rescale(attrs: RescaleAttrs, data: Type, *parameters: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "int", "uint")
    for name, parameter in zip(RESCALE_INPUTS[1:], parameters, strict=True):
        expect_zero_point(parameter, name, kind, attrs.axis)
    _expect_narrow(attrs.out_dtype)
    return TensorType(kind.shape, attrs.out_dtype)


def _fraction(ratio: Expr) -> tuple[Expr, Expr]:
    """A positive float64 as a multiplier of 31 bits and the power of 2 that belongs to it."""
    one = build.const(1, INT64)
    bits = Call(INT64, "reinterpret", (ratio,))
    mantissa = (bits & ((one << 52) - 1)) + (one << 52)
    rounded = (mantissa + (one << 21)) >> 22
    overflows = build.equal(rounded, one << 31)
    power = (bits >> 52) - 1022 + build.select(overflows, one, build.const(0, INT64))
    multiplier = build.select(overflows, one << 30, rounded)
    nothing = build.logical_or(build.equal(bits, 0), power < -FRACTION_BITS)
    zero = build.const(0, INT64)
    return build.select(nothing, zero, multiplier), build.select(nothing, zero, power)


def _between(x: Expr, low: ExprLike, high: ExprLike) -> Expr:
    return build.maximum(low, build.minimum(high, x))


def _scaled(x: Expr, multiplier: Expr, power: Expr, rounding: str) -> Expr:
    zero, one = build.const(0, INT64), build.const(1, INT64)
    left = build.minimum(build.maximum(power, zero), build.const(DATA_BITS, INT64))
    total = build.maximum(zero - power, zero) + FRACTION_BITS
    most = (one << DATA_BITS) >> left
    product = (_between(x, zero - most, most) << left) * multiplier
    return _shifted(product, total, rounding)


def _shifted(product: Expr, total: Expr, rounding: str) -> Expr:
    """product * 2**-total, rounded."""
    zero, one = build.const(0, INT64), build.const(1, INT64)
    if rounding == "TWICE":
        return _shifted_twice(product, total)
    half = one << (total - 1)
    if rounding == "UPWARD":
        return (product + half) >> total
    if rounding == "TONEAREST":
        return (product + half - build.select(product < 0, one, zero)) >> total
    is_odd = (product >> total) & one
    return (product + half - one + is_odd) >> total


def _shifted_twice(product: Expr, total: Expr) -> Expr:
    """Halves upward where the fraction ends, then away from zero; the rest has 32 bits."""
    one = build.const(1, INT64)
    high = (product + (one << (FRACTION_BITS - 1))) >> FRACTION_BITS
    narrow, right = high.astype(INT32), (total - FRACTION_BITS).astype(INT32)
    mask = (build.const(1, INT32) << right) - 1
    least = (mask >> 1) + build.select(narrow < 0, build.const(1, INT32), build.const(0, INT32))
    more = build.select((narrow & mask) > least, build.const(1, INT32), build.const(0, INT32))
    return ((narrow >> right) + more).astype(INT64)


def _shifted_to_half(
    x: Expr, multiplier: Expr, power: Expr, *, has_negative: bool = True
) -> Expr:
    """Twice the number that rounding TWICE gives, but for its last place, which halves upward.

    Away from zero is upward from what is less by one where it is negative. All has 32 bits.
    """
    high, right = Var("high", INT32), Call(INT32, "bitwise_not", (power,))
    if not has_negative:
        return high_product(x, multiplier) >> right
    return Let(high, high_product(x, multiplier), (high + (high >> 31)) >> right)


def _rescaled(
    attrs: RequantizeAttrs | RescaleAttrs, out: TensorType, data: Tensor, multipliers: Tensor,
    powers: Tensor, input_zero: Tensor, output_zero: Tensor,
) -> Tensor:
    point = constant_of(output_zero)
    narrow = attrs.scales_down and data.dtype == INT32 and out.dtype.bits <= 16
    if narrow and constant_of(input_zero) == 0 and point is not None and abs(point) < SMALL_ZERO:
        return _rescaled_narrow(attrs, out, data, multipliers, powers, int(point))

    known = [constant_of(each) for each in (multipliers, powers, input_zero, output_zero)]
    if attrs.rounding == "TWICE" and data.dtype == INT32 and None not in known:
        fraction, shift, near_zero, moved = (int(each or 0) for each in known)
        if fraction >> 30 == 1 and -31 < shift <= 0 == near_zero == moved:
            return _rescaled_known(out, data, fraction, shift)

    def element(*i: Expr) -> Any:
        multiplier, power, near, zero = (
            read_parameter(parameter, i, attrs.axis).astype(INT64)
            for parameter in (multipliers, powers, input_zero, output_zero)
        )
        x = data(*i).astype(INT64)
        if data.dtype.bits > DATA_BITS:
            x = held_within(x, DataType("int48"))
        scaled = _scaled(x - near, multiplier, power, attrs.rounding)
        return held_within(scaled + zero, out.dtype).astype(out.dtype)

    made: Tensor = compute(out.shape, element, name="T_requantize")
    return made


def _rescaled_known(out: TensorType, data: Tensor, multiplier: int, power: int) -> Tensor:
    """By a ratio that the kernel knows, between zero points of 0, in 32 bits."""

    def element(*i: Expr) -> Any:
        if power == 0:
            made = high_product(data(*i), build.const(multiplier, INT32))
        else:
            factors = (build.const(number, INT32) for number in (multiplier, power))
            made = (_shifted_to_half(data(*i), *factors) + 1) >> 1
        return made if out.dtype == INT32 else Call(out.dtype, "saturate", (made,))

    result: Tensor = compute(out.shape, element, name="T_requantize")
    return result


def _rescaled_narrow(
    attrs: RequantizeAttrs | RescaleAttrs, out: TensorType, data: Tensor, multipliers: Tensor,
    powers: Tensor, zero: int,
) -> Tensor:
    """Products of 32 bits and 32, which need no more than 32 when they are shifted."""

    def element(*i: Expr) -> Any:
        # as bits: a sum that widens term by term is no longer a factor of 32 bits
        narrow = Call(INT32, "reinterpret", (data(*i),))
        multiplier, power = (
            read_parameter(parameter, i, attrs.axis) if (known := constant_of(parameter)) is None
            else build.const(int(known), INT32) for parameter in (multipliers, powers)
        )
        if isinstance(attrs, RescaleAttrs) and attrs.is_normal and attrs.rounding == "TWICE":
            # what is negative becomes the lowest number anyway where 0 stands for that
            has_negative = zero != int_range(out.dtype)[0]
            half = _shifted_to_half(
                narrow, multiplier.astype(INT32), power.astype(INT32), has_negative=has_negative)
            return Call(out.dtype, "saturate", ((half + (2 * zero + 1)) >> 1,))
        product = narrow.astype(INT64) * multiplier.astype(INT64)
        right = build.const(FRACTION_BITS, INT64) - power.astype(INT64)
        shifted = _shifted(product, right, attrs.rounding)
        return Call(out.dtype, "saturate", (shifted.astype(INT32) + zero,))

    made: Tensor = compute(out.shape, element, name="T_requantize")
    return made


def _compute_whole(
    attrs: RequantizeAttrs, out: TensorType, data: Tensor, input_scale: Tensor,
    input_zero: Tensor, output_scale: Tensor, output_zero: Tensor,
) -> Tensor:
    single = is_single(input_scale.shape) and is_single(output_scale.shape)
    count = 1 if single else data.shape[attrs.axis]

    def ratio(c: Expr) -> Expr:
        have, want = (
            read_parameter(scale, [c]).astype(FLOAT64) for scale in (input_scale, output_scale)
        )
        return have / want

    def stage(part: int, name: str) -> Tensor:
        made: Tensor = compute(
            (count,), lambda c: _fraction(ratio(c))[part], name=f"T_requantize_{name}"
        )
        return made

    multipliers, powers = stage(0, "multiplier"), stage(1, "shift")
    return _rescaled(attrs, out, data, multipliers, powers, input_zero, output_zero)


def _implement(found: CallExpr, processor: Processor, growth: float) -> RelayExpr | None:
    """Together with a layer of one tap or of channels apart, where that spares instructions."""
    ways = (implement_pixels, implement_rows, implement_window, implement_planes, implement_quads)
    made = (way(found, processor) for way in ways)
    return next((each for each in made if each is not None), None) or with_normal_factors(found)


def _fractions(input_scale: Array, output_scale: Array) -> tuple[Array, Array]:
    """`_fraction` of the ratios of scales."""
    fraction, power = np.frexp(input_scale.astype(np.float64) / output_scale.astype(np.float64))
    multiplier = np.floor(fraction * 2.0**FRACTION_BITS + 0.5).astype(np.int64)
    power = power + (multiplier >> FRACTION_BITS)
    multiplier = np.where(power < -FRACTION_BITS, 0, multiplier >> (multiplier >> FRACTION_BITS))
    return multiplier, np.clip(power, -FRACTION_BITS, DATA_BITS).astype(np.int64)


def _rescale(
    attrs: RequantizeAttrs | RescaleAttrs, data: Array, multiplier: Array, power: Array,
    input_zero: Array, output_zero: Array,
) -> Array:
    multiplier, power, near, zero = (
        spread(parameter, data, attrs.axis).astype(np.int64)
        for parameter in (multiplier, power, input_zero, output_zero)
    )
    x = np.asarray(saturated(data.astype(np.int64), DataType("int48")) - near)
    left, total = np.maximum(power, 0), np.maximum(-power, 0) + FRACTION_BITS
    most = np.int64(1 << DATA_BITS) >> left
    product = (np.clip(x, -most, most) << left) * multiplier
    if attrs.rounding == "TWICE":
        product = (product + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS
        product, total = product.astype(np.int32).astype(np.int64) * 2, total - FRACTION_BITS + 1
    low = product >> total
    rest, half = product - (low << total), np.int64(1) << (total - 1)
    upward = {
        "UPWARD": rest >= half,
        "TONEAREST": (rest > half) | ((rest == half) & (product >= 0)),
        "TWICE": (rest > half) | ((rest == half) & (product >= 0)),
        "TONEAREST_EVEN": (rest > half) | ((rest == half) & (low % 2 == 1)),
    }[attrs.rounding]
    held = saturated(low + upward + zero, attrs.out_dtype)
    return np.asarray(held).astype(numpy_dtype(attrs.out_dtype))


def _reference_whole(
    attrs: RequantizeAttrs, data: Array, input_scale: Array, input_zero: Array,
    output_scale: Array, output_zero: Array,
) -> Array:
    scales = (spread(scale, data, attrs.axis).ravel() for scale in (input_scale, output_scale))
    return _rescale(attrs, data, *_fractions(*scales), input_zero, output_zero)


def _simplify(attrs: RequantizeAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    """Constant scales become fractions now instead of in every run."""
    data, input_scale, input_zero, output_scale, output_zero = args
    if not isinstance(input_scale, Constant) or not isinstance(output_scale, Constant):
        return None
    if attrs.compute_dtype != "int64":
        return _with_ratio(attrs, data, input_scale, input_zero, output_scale, output_zero)
    scales = (to_numpy(scale.data).reshape(-1) for scale in (input_scale, output_scale))
    multiplier, power = (part.astype(np.int32) for part in _fractions(*scales))
    if attrs.rounding == "TWICE" and not (input_scale.data.shape or output_scale.data.shape):
        multiplier, power = multiplier.reshape(()), power.reshape(())  # which kernels know
    return call("qnn.rescale", data, const(multiplier), const(power), input_zero, output_zero,
                axis=attrs.axis, rounding=attrs.rounding, out_dtype=attrs.out_dtype,
                scales_down=bool(np.all((power < 0) | (multiplier == 0))),
                is_normal=bool(np.all((power < -1) & (multiplier >= 1 << 30))))


def _with_ratio(
    attrs: RequantizeAttrs, data: RelayExpr, input_scale: Constant, input_zero: RelayExpr,
    output_scale: Constant, output_zero: RelayExpr,
) -> RelayExpr | None:
    """The ratio of scales in the place of the first, and 1 in that of the second."""
    kind = numpy_dtype(attrs.compute_dtype)
    have, want = (to_numpy(scale.data).astype(kind) for scale in (input_scale, output_scale))
    one = kind.type(1)
    sizes = {scale.size for scale in (have, want)} - {1}
    if len(sizes) > 1:
        return None
    ratio = have.reshape(-1) / want.reshape(-1)
    ratio = ratio if sizes or have.ndim else ratio.reshape(())
    found = attrs.replace(scales_down=bool(np.all(np.abs(ratio) <= 0.5)))
    if want.ndim == 0 and want == one and found.scales_down == attrs.scales_down:
        return None
    return call("qnn.requantize", data, const(ratio), input_zero, const(one), output_zero,
                **dict(found.items()))


# ---- by floats ----


def _compute_float(
    attrs: RequantizeAttrs, out: TensorType, data: Tensor, input_scale: Tensor,
    input_zero: Tensor, output_scale: Tensor, output_zero: Tensor,
) -> Tensor:
    kind = DataType(attrs.compute_dtype)
    if constant_of(input_zero) == 0 and constant_of(output_scale) == 1:
        point = constant_of(output_zero)
        if out.dtype.bits <= 16 and point is not None and abs(point) < SMALL_ZERO:
            return _compute_narrow(attrs, out, data, input_scale, int(point))

    def element(*i: Expr) -> Any:
        have, want = (
            read_parameter(scale, i, attrs.axis).astype(kind)
            for scale in (input_scale, output_scale)
        )
        zero = read_parameter(input_zero, i, attrs.axis).astype(INT64)
        difference = data(*i).astype(INT64) - zero
        whole = _rounded(difference.astype(kind) * (have / want), attrs.rounding)
        near = held_within(convert(whole, INT64), DataType("int48"))
        moved = near + read_parameter(output_zero, i, attrs.axis).astype(INT64)
        return held_within(moved, out.dtype).astype(out.dtype)

    made: Tensor = compute(out.shape, element, name="T_requantize")
    return made


def _rounded(scaled: Expr, rounding: str) -> Expr:
    if rounding == "UPWARD":
        return floor(scaled + build.const(0.5, scaled.dtype))
    return round(scaled) if rounding == "TONEAREST" else nearbyint(scaled)


def _compute_narrow(
    attrs: RequantizeAttrs, out: TensorType, data: Tensor, ratio: Tensor, zero: int
) -> Tensor:
    """Held within the range before it is rounded, unless 32 bits suffice from there on anyway."""
    kind = DataType(attrs.compute_dtype)
    low, high = (build.const(end - zero, kind) for end in int_range(out.dtype))

    def element(*i: Expr) -> Any:
        factor = read_parameter(ratio, i, attrs.axis).astype(kind)
        scaled = data(*i).astype(kind) * factor
        if attrs.scales_down and data.dtype.bits <= DATA_BITS:
            whole = _rounded(scaled, attrs.rounding).astype(INT32) + zero
            return Call(out.dtype, "saturate", (whole,))
        # Min and Max give their second operand if one is no number.
        held = build.minimum(build.maximum(scaled, low), high)
        whole = _rounded(held, attrs.rounding).astype(INT32)
        return (whole + zero).astype(out.dtype)

    made: Tensor = compute(out.shape, element, name="T_requantize")
    return made


def _legalize(
    attrs: RequantizeAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Small sums by additions, where conversions take longer."""
    data, *parameters = args
    if target is None or not target.kind.picks_instructions or attrs.out_dtype.bits != 8:
        return None
    if attrs.rounding != "TONEAREST_EVEN" or attrs.compute_dtype != FLOAT32:
        return None
    known = [to_numpy(each.data) for each in parameters if isinstance(each, Constant)]
    if len(known) < len(parameters) or known[1].any() or known[3].size != 1:
        return None
    if not instructions_of(target).provides("slow_conversions"):
        return None
    ratio = (known[0].astype(np.float32) / known[2].astype(np.float32)).astype(np.float32)
    return scaled_to_bytes(data, ratio, int(known[3].item()), attrs.axis, attrs.out_dtype)


@quiet
def _reference_float(
    attrs: RequantizeAttrs, data: Array, input_scale: Array, input_zero: Array,
    output_scale: Array, output_zero: Array,
) -> Array:
    kind = numpy_dtype(attrs.compute_dtype)
    have, want = (
        spread(scale, data, attrs.axis).astype(kind) for scale in (input_scale, output_scale)
    )
    zero = spread(input_zero, data, attrs.axis).astype(np.int64)
    difference = data.astype(np.int64) - zero
    scaled = np.asarray(np.asarray(difference).astype(kind) * (have / want))
    if attrs.rounding == "UPWARD":
        whole = np.floor(scaled + kind.type(0.5))
    else:
        whole = round_half_away(scaled) if attrs.rounding == "TONEAREST" else np.rint(scaled)
    near = saturated(converted(np.asarray(whole), INT64), DataType("int48"))
    moved = near + spread(output_zero, data, attrs.axis).astype(np.int64)
    return np.asarray(saturated(moved, attrs.out_dtype)).astype(numpy_dtype(attrs.out_dtype))


def _compute(attrs: RequantizeAttrs, out: TensorType, *operands: Tensor) -> Tensor:
    compute_it = _compute_whole if attrs.compute_dtype == "int64" else _compute_float
    return compute_it(attrs, out, *operands)


def _reference(attrs: RequantizeAttrs, *operands: Array) -> Array:
    reference = _reference_whole if attrs.compute_dtype == "int64" else _reference_float
    return reference(attrs, *operands)


def _operands(ratio: npt.ArrayLike, input_zero: int, output_zero: int) -> tuple[Array, ...]:
    least, most = int_range(DataType("int32"))
    data = [[least, -1000, -14, -6, -5], [-1, 0, 1, 6, 7], [10, 21, 123, 1 << 20, most]]
    return (np.array(data, "int32"), np.asarray(ratio, "float32"), np.array(input_zero),
            np.array(1.0, "float32"), np.array(output_zero))


register(OpRecord(
    "qnn.requantize",
    inputs=("data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"),
    attrs=RequantizeAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    simplify=_simplify,
    legalize=_legalize,
    pattern=BROADCAST,
    layout=along_channels,
    mixed_precision="never",
    cases=[
        Case(_operands(0.5, 0, 0)),
        Case(_operands(0.5, 0, 3), {"rounding": "TONEAREST", "out_dtype": "int32"}),
        Case(_operands(0.5, 1, -3), {"rounding": "TONEAREST_EVEN", "out_dtype": "int16"}),
        Case(_operands(1e-7, -20, 128), {"out_dtype": "uint8"}),
        Case(_operands([3.7, 1e-12, 1e15], 0, 1), {"axis": 0, "out_dtype": "int32"}),
        Case(_operands([0.3, 0.5, 2.5], 1, 3),
             {"axis": 0, "compute_dtype": "float32", "rounding": "TONEAREST_EVEN"}),
        Case(_operands(0.5, 1, 3), {"compute_dtype": "float64", "out_dtype": "int32"}),
        *[Case(_operands([0.5, 3e-6, 0.1], 0, zero), {
            "axis": 0, "compute_dtype": "float32", "rounding": "TONEAREST_EVEN", "out_dtype": dtype,
            "scales_down": True,
        }) for zero, dtype in ((-7, "int8"), (200, "uint8"))],
        Case((((4,), "uint8"), np.array(0.1, "float32"), np.array(3, "uint8"),
              np.array(0.04, "float32"), np.array(0, "int32")),
             {"rounding": "TONEAREST", "compute_dtype": "float32"}),
    ],
    doc="(data - input_zero_point) * input_scale / output_scale + output_zero_point, held within "
        "the range of out_dtype. Halves are rounded UPWARD, away from zero (TONEAREST) or to the "
        "even number (TONEAREST_EVEN); TWICE rounds upward behind 31 bits of fraction and then "
        "away from zero, as kernels of microcontrollers do.",
))

_MULTIPLIERS = np.array([1 << 30, 1395864371, (1 << 31) - 1], "int32")

register(OpRecord(
    "qnn.rescale",
    inputs=RESCALE_INPUTS,
    attrs=RescaleAttrs,
    infer=_infer_rescale,
    compute=_rescaled,
    reference=_rescale,
    pattern=BROADCAST,
    is_monotone=True,
    layout=along_channels,
    contraction=ContractionRules(implement=_implement),
    cases=[
        Case((_operands(1, 0, 0)[0], _MULTIPLIERS, np.array([0, -7, 4], "int32"),
              np.array(3), np.array(-5)), {"axis": 0, "rounding": rounding, "out_dtype": dtype})
        for rounding, dtype in (("UPWARD", "int8"), ("TONEAREST", "int32"),
                                ("TONEAREST_EVEN", "uint8"), ("TWICE", "int16"))
    ] + [
        Case((_operands(1, 0, 0)[0], _MULTIPLIERS, np.array([-1, -7, -31], "int32"),
              np.array(0), np.array(zero)),
             {"axis": 0, "rounding": rounding, "out_dtype": dtype, "scales_down": True})
        for rounding, dtype, zero in (("UPWARD", "int8", -5), ("TONEAREST", "int16", 3),
                                      ("TONEAREST_EVEN", "uint8", 130), ("TWICE", "int8", 4))
    ] + [
        Case((_operands(1, 0, 0)[0], _MULTIPLIERS, np.array([-2, -7, -31], "int32"),
              np.array(0), np.array(zero)),
             {"axis": 0, "rounding": "TWICE", "out_dtype": dtype, "is_normal": True})
        for dtype, zero in (("int8", -128), ("int16", 3), ("uint8", 255))
    ],
    doc="(data - input_zero_point) * multiplier * 2**(shift - 31) + output_zero_point, rounded and "
        "held within the range of out_dtype: qnn.requantize with the ratio of its scales as a "
        "fraction of 31 bits, between -31 and 32 places of shift.",
))

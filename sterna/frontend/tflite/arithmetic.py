"""What whole numbers of one scale are under another, by the rule that a model is computed by.

xnnpack: sums times a float32, rounded to the even number once, as LiteRT does on processors.
tflm: products by a fraction of 31 bits, rounded twice, as kernels for microcontrollers do.
"""

import math

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, rank_of, type_of
from sterna.frontend.tflite.fixed_point import FRACTION, quantized_multiplier
from sterna.frontend.tflite.node import TFLM, Node, single
from sterna.frontend.tflite.schema import Quantization
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented

# Bits of the low part of a sum of 64 bits.
PART = 16

ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
_BOUNDS = {
    "NONE": (-math.inf, math.inf), "RELU": (0.0, math.inf), "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
}


def activation_name(node: Node) -> str:
    """The function that a node applies to its results."""
    code = int(node.attr("activation", 0))
    if not 0 <= code < len(ACTIVATIONS):
        raise ValueError(f"its activation is {code}, which is none")
    return ACTIVATIONS[code]


def activated(node: Node, real: RelayExpr) -> RelayExpr:
    """Numbers under the function that a node applies to its results."""
    name = activation_name(node)
    if name == "TANH":
        return call("tanh", real)
    if name not in _BOUNDS:
        raise OpNotImplemented(f"the activation {name}")
    return bounded(real, *_BOUNDS[name])


def bounded(real: RelayExpr, low: float, high: float) -> RelayExpr:
    """Numbers between bounds."""
    if high == math.inf:
        return real if low == -math.inf else call("nn.relu", real)
    return call("clip", real, low, high)


def held(node: Node, whole: RelayExpr, quantization: Quantization, dtype: str) -> RelayExpr:
    """Whole numbers of a result between those that stand for the bounds of its activation."""
    name = activation_name(node)
    if name not in _BOUNDS:
        raise OpNotImplemented(f"the activation {name} of whole numbers")
    return held_between(whole, quantization, dtype, *_BOUNDS[name])


def held_between(
    whole: RelayExpr, quantization: Quantization, dtype: str, low: float, high: float
) -> RelayExpr:
    """Whole numbers between those that stand for bounds."""
    scale, zero = single(quantization, "the result")
    ends = int_range(DataType(dtype))
    first, last = (
        end if math.isinf(bound) else int(np.clip(rounded(np.float32(bound) / scale) + zero, *ends))
        for bound, end in zip((low, high), ends, strict=True)
    )
    return whole if (first, last) == ends else call("clip", whole, first, last)


def rounded(number: np.float32 | float) -> int:
    """To the nearest whole number, halves away from zero."""
    return int(math.copysign(math.floor(abs(float(number)) + 0.5), float(number)))


def rescaled(
    node: Node, whole: RelayExpr, ratio: Array, quantization: Quantization, dtype: str,
    axis: int = -1, twice: bool = False,
) -> RelayExpr:
    """Whole numbers times a ratio, of which there may be one for each index along an axis.

    twice: as kernels for microcontrollers round, under either rule.
    """
    _, zero = single(quantization, "the result")
    if dtype_of(whole) == "int64":
        is_short = node.kind != "FULLY_CONNECTED" or node.rounding == TFLM
        moved = (by_short_fractions if is_short else _upward)(whole, ratio)
        return cast(call("clip", moved, *int_range(DataType(dtype))), dtype)
    shaped = ratio.reshape(-1)  # also of one: layers of one shape share a kernel
    if node.rounding == TFLM or twice:
        how = {"rounding": "TWICE", "compute_dtype": "int64"}
    elif node.dtype() == "int16" and node.kind in ("CONV_2D", "FULLY_CONNECTED"):
        how = {"rounding": "UPWARD", "compute_dtype": "int64"}
    else:
        shaped = shaped.astype(np.float32)
        how = {"rounding": "TONEAREST_EVEN", "compute_dtype": "float32"}
    return call(
        "qnn.requantize", whole, constant(shaped), constant(0, "int32"),
        constant(1, str(shaped.dtype)), constant(zero, "int32"), axis=axis, out_dtype=dtype, **how,
    )


def _upward(whole: RelayExpr, ratio: Array) -> RelayExpr:
    """Sums of 64 bits by fractions of 31 bits, rounded once, halves upward.

    Products of sums and fractions need more than 64 bits, so sums go in two parts.
    """
    pairs = [quantized_multiplier(float(one)) for one in ratio.reshape(-1)]
    shifts = [FRACTION - power for _, power in pairs]
    if min(shifts) <= PART:
        raise OpNotImplemented("sums of 64 bits that become larger")
    factor, shift, half = (
        constant(np.array(numbers, np.int64)) for numbers in (
            [m for m, _ in pairs], [one - PART for one in shifts],
            [1 << (one - 1) for one in shifts])
    )
    high = call("right_shift", whole, _wide(PART))
    low = call("bitwise_and", whole, _wide((1 << PART) - 1))
    carried = call("right_shift", call("add", call("multiply", low, factor), half), _wide(PART))
    return call("right_shift", call("add", call("multiply", high, factor), carried), shift)


def by_short_fractions(whole: RelayExpr, ratio: Array) -> RelayExpr:
    """Sums of 64 bits by fractions of 15 bits, rounded once, halves upward."""
    pairs = [quantized_multiplier(float(one)) for one in ratio.reshape(-1)]
    short = [0x7FFF if m >= 0x7FFF0000 else (m + (1 << 15)) >> 16 for m, _ in pairs]
    shifts = [15 - power for _, power in pairs]
    if min(shifts) < 1:
        raise OpNotImplemented("sums of 64 bits that become larger")
    factor, shift, half = (
        constant(np.array(numbers if len(pairs) > 1 else numbers[0], np.int64))
        for numbers in (short, shifts, [1 << (one - 1) for one in shifts])
    )
    return call("right_shift", call("add", call("multiply", whole, factor), half), shift)


def in_vectors(
    node: Node, whole: RelayExpr, ratio: Array, quantization: Quantization, dtype: str,
    lanes: int = 8,
) -> RelayExpr:
    """Sums times ratios along their last axis, rounded twice, as kernels of LiteRT's own do.

    They take whole vectors of so many lanes, which round halves upward, and the rest one by one.
    Kernels for microcontrollers have no vectors.
    """
    extent, axis = type_of(whole).shape[-1], rank_of(whole) - 1
    if not isinstance(extent, int):
        raise OpNotImplemented("sums in vectors whose number is not known")
    count = extent - extent % lanes
    if node.rounding == TFLM or not count:
        return rescaled(node, whole, ratio, quantization, dtype, axis, twice=True)
    ratios = ratio.reshape(-1)
    of_first, of_rest = (ratios, ratios) if ratios.size == 1 else (ratios[:count], ratios[count:])
    made = [_upward_twice(_part(whole, 0, count), of_first, quantization, dtype)]
    if count < extent:
        rest = _part(whole, count, extent)
        made.append(rescaled(node, rest, of_rest, quantization, dtype, axis, twice=True))
    return made[0] if len(made) == 1 else call("concatenate", made, axis=-1)


def _part(data: RelayExpr, first: int, last: int) -> RelayExpr:
    axis = rank_of(data) - 1
    return call("strided_slice", data, begin=(first,), end=(last,), axes=(axis,))


def _upward_twice(
    whole: RelayExpr, ratio: Array, quantization: Quantization, dtype: str
) -> RelayExpr:
    """Sums times ratios along their last axis, rounded twice, halves upward both times."""
    _, zero = single(quantization, "the result")
    pairs = [quantized_multiplier(float(one)) for one in ratio.reshape(-1)]
    downs = [max(-power, 0) for _, power in pairs]
    factor, down, half = (
        constant(np.array(numbers, np.int64)) for numbers in (
            [m << max(power, 0) for m, power in pairs], downs, [(1 << one) >> 1 for one in downs])
    )
    product = call("add", call("multiply", cast(whole, "int64"), factor), _wide(1 << 30))
    high = call("right_shift", product, _wide(31))
    moved = call("add", call("right_shift", call("add", high, half), down), _wide(zero))
    return cast(call("clip", moved, *int_range(DataType(dtype))), dtype)


def _wide(number: int) -> RelayExpr:
    return constant(np.int64(number))


def product_ratio(
    node: Node, data: Quantization, weight: Quantization, out: Quantization, twice: bool = False
) -> Array:
    """The scale of products beside that of the result; twice: for what is rounded so."""
    is_wide = twice or node.rounding == TFLM or node.dtype() == "int16"
    kind = np.float64 if is_wide else np.float32
    scales: list[Array] = [one.scale.astype(kind) for one in (data, weight, out)]
    with np.errstate(all="ignore"):
        ratio = np.asarray(scales[0] * scales[1] / scales[2])
    if not np.all(np.isfinite(ratio)):
        raise ValueError("the scale of its result is too small beside those of its operands")
    return ratio

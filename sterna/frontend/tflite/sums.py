"""Sums, means and products of whole numbers under the scale of a result."""

import math

import numpy as np

from sterna.frontend.calls import call, cast, constant, parts, reshape
from sterna.frontend.tflite.arithmetic import by_short_fractions
from sterna.frontend.tflite.fixed_point import quantized_multiplier
from sterna.frontend.tflite.node import Node, single
from sterna.relay.expr import RelayExpr
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented


def by_floats(node: Node, total: RelayExpr, count: int, divisor: int) -> RelayExpr:
    """Sums of so many bytes by a float32, and what zero points add, rounded as one multiply-add."""
    scale, zero = single(node.quantization(0), "its data")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    ratio = np.float32(1) / np.float32(divisor) * (scale / out_scale)
    start = np.float32(out_zero - float(zero * count) * float(ratio))
    wide = call("multiply", cast(total, "float64"), constant(ratio, "float64"))
    moved = cast(call("add", wide, constant(start, "float64")), "float32")
    low, high = int_range(DataType(node.result_dtype()))
    held = call("clip", call("round_even", moved), float(low), float(high))
    return cast(held, node.result_dtype())


def by_fractions(node: Node, total: RelayExpr, count: int, divisor: int) -> RelayExpr:
    """Sums by a fraction that takes in their number, rounded twice.

    The fraction is divided as a whole number, with as many bits more as the number has.
    """
    scale, own_zero = single(node.quantization(0), "its data")
    out_scale, zero = single(node.result_quantization(), "the result")
    total = call("subtract", total, constant(own_zero * count, "int32"))
    count = divisor
    multiplier, power = quantized_multiplier(float(scale) / float(out_scale))
    shift = min(max(count, 1).bit_length() - 1, 32, 31 + power)
    multiplier, power = (multiplier << shift) // max(count, 1), power - shift
    return call(
        "qnn.rescale", total, constant(multiplier, "int32"), constant(power, "int32"),
        constant(0, "int32"), constant(zero, "int32"), rounding="TWICE",
        out_dtype=node.result_dtype(),
    )


# Factors of a product are steps of the graph.
MOST_FACTORS = 1024


def product(node: Node, axes: tuple[int, ...], keepdims: bool) -> RelayExpr:
    """Distances along axes multiplied one after the other, each time by a part of the ratio of
    scales: by a root of it, so that products stay within 32 bits.
    """
    scale, zero = single(node.quantization(0), "its data")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    extents = node.shape()
    kept = [axis for axis in range(len(extents)) if axis not in axes]
    count = math.prod(extents[axis] for axis in axes)
    if not 0 < count <= MOST_FACTORS:
        raise OpNotImplemented(f"a product of {count} numbers, where up to {MOST_FACTORS} are")
    ratio = np.array(float(scale) / float(out_scale) ** (1 / count))
    order = (*sorted(axes), *kept)
    rows = reshape(call("transpose", node[0], order), (count, *(extents[axis] for axis in kept)))
    distance = call("subtract", cast(rows, "int64"), constant(zero, "int64"))
    factors = [distance] if count == 1 else parts(call("split", distance, count, axis=0), count)
    made = factors[0]
    for factor in factors[1:]:
        made = _in_32_bits(by_short_fractions(call("multiply", made, factor), ratio))
    made = call("add", _in_32_bits(by_short_fractions(made, ratio)), constant(out_zero, "int64"))
    held = cast(call("clip", made, *int_range(DataType(node.result_dtype()))), node.result_dtype())
    shape = [1 if axis in axes else extents[axis] for axis in range(len(extents))
             if keepdims or axis in kept]
    return reshape(held, shape)


def _in_32_bits(wide: RelayExpr) -> RelayExpr:
    """Numbers of 64 bits of which the lower half is kept."""
    return cast(cast(wide, "int32"), "int64")

"""Sums and means of whole numbers under the scale of a result."""

import numpy as np

from sterna.frontend.calls import call, cast, constant
from sterna.frontend.tflite.fixed_point import quantized_multiplier
from sterna.frontend.tflite.node import Node, single
from sterna.relay.expr import RelayExpr
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType


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

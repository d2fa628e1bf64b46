"""Quotients of 8 or 16 bits in fixed point: the numerator by the denominator's reciprocal.

Tables have the reciprocals of all numbers, and numerators shifted as far to the left as they go.
"""

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of
from sterna.frontend.tflite.fixed_point import WIDE, quantized_multiplier
from sterna.frontend.tflite.fixed_point_graph import divided, high, number
from sterna.frontend.tflite.node import Node, single
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType

# The places that a number of 32 bits can be shifted, and the most that are shifted away.
ROOM, MOST = 31, 62


def quotient_of_whole_numbers(node: Node) -> RelayExpr:
    """Both operands change their signs where the denominator is negative; by 0 it is 0."""
    (scale, zero), (below_scale, below_zero) = (
        single(node.quantization(place), "its data") for place in (0, 1))
    out_scale, out_zero = single(node.result_quantization(), "the result")
    ratio = float(scale / (below_scale * out_scale))
    multiplier, power = quantized_multiplier(ratio)
    below = _every(node.dtype(1)) - below_zero
    inverse, inverse_places = _reciprocals(np.abs(below))
    distance = _every(node.dtype()) - zero
    shifted, places = _shifted(np.concatenate([distance, -distance]))

    def at(table: Array, index: RelayExpr) -> RelayExpr:
        return cast(call("take", constant(table), index, axis=0), "int64")

    second = _index(node[1])
    turned = call("less", cast(node[1], "int32"), constant(below_zero, "int32"))
    past = call("multiply", cast(turned, "int32"), constant(distance.size, "int32"))
    first = call("add", _index(node[0]), past)
    quotient = high(high(at(shifted, first), at(inverse, second)), number(multiplier))
    right = call("add", at(places, first), at(inverse_places, second))
    right = call("subtract", right, number(power))
    left = call("maximum", call("negative", right), number(0))
    held = call("minimum", call("maximum", right, number(0)), number(MOST))
    made = call("add", divided(call("left_shift", quotient, left), held), number(out_zero))
    dtype = node.result_dtype()
    return cast(call("clip", made, *int_range(DataType(dtype))), dtype)


def _every(dtype: str) -> Array:
    """Every number of a type in the order of its bits."""
    bits = DataType(dtype).bits
    return np.arange(1 << bits).astype(f"uint{bits}").view(dtype).astype(np.int64)


def _index(data: RelayExpr) -> RelayExpr:
    """Numbers as places in a table."""
    kind = DataType(dtype_of(data))
    plain = f"uint{kind.bits}"
    return cast(data if str(kind) == plain else call("reinterpret", data, plain), "int32")


def _reciprocals(x: Array) -> tuple[Array, Array]:
    """1 / x as fractions, and the places to the right at which they belong; 0 for 0."""
    bits = np.array([int(one).bit_length() for one in x])
    fractions = (np.maximum(x, 1) << (ROOM + 1 - np.maximum(bits, 1))) - (1 << ROOM)
    made = np.where(x == 0, 0, WIDE.reciprocal(fractions))
    return made.astype(np.int32), np.maximum(bits - 1, 0).astype(np.int8)


def _shifted(x: Array) -> tuple[Array, Array]:
    """Numbers shifted to the left as far as 32 bits with a sign have room, and by how much."""
    bits = np.array([int(one if one >= 0 else -one - 1).bit_length() for one in x])
    return (x << (ROOM - bits)).astype(np.int32), (ROOM - bits).astype(np.int8)

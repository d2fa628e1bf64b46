"""LOG_SOFTMAX of bytes: by a table of exponentials of floats, or in fixed point.

The first is what processors' kernels compute, the second what those for microcontrollers do.
"""

import numpy as np

from sterna.frontend.calls import call, cast, constant
from sterna.frontend.tflite.fixed_point import (
    FRACTION,
    LARGEST,
    WIDE,
    divided_by_power,
    multiplied,
    quantized_multiplier,
)
from sterna.frontend.tflite.fixed_point_graph import divided, high, number, reciprocal
from sterna.frontend.tflite.node import TFLM, Node, single
from sterna.relay.expr import RelayExpr
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented

# Bits of whole part: of differences and logarithms, of sums, of results.
DIFFERENCE_BITS, SUM_BITS, RESULT_BITS = 5, 12, 4
# Constants of the logarithm as fractions of 31 bits: log 2, 2**-0.5 and 2**-0.25, and the
# coefficients of a quotient of polynomials around the last one.
LOG_2, ROOT, FOURTH_ROOT = 1488522236, 1518500250, 1805811301
OF_CUBE, OF_SQUARE, OF_ONE, OF_SUM = 117049297, 127690142, 1057819769, 638450708


def log_softmax_of_bytes(node: Node) -> RelayExpr:
    """Each byte's distance from the largest of its row, less the logarithm of the row's sum.

    Products are not rounded before what is added to them, as compilers for AArch64 have it.
    """
    if node.rounding == TFLM:
        return _by_fixed_point(node)
    scale, _ = single(node.quantization(0), "its data")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    steps = np.arange(256, dtype=np.float32) * -scale
    table = np.exp(steps.astype(np.float64)).astype(np.float32)
    wide = cast(node[0], "int32")
    most = call("max", wide, axis=-1, keepdims=True)
    parts = call("take", constant(table), call("subtract", most, wide), axis=0)
    total = cast(call("sum", cast(parts, "float64"), axis=-1, keepdims=True), "float32")
    logarithm = cast(call("log", cast(total, "float64")), "float32")
    start = call("divide", _fused(most, scale, logarithm), constant(out_scale, "float32"))
    made = _fused(wide, scale / out_scale, call("negative", start))
    dtype = node.result_dtype()
    low, high = int_range(DataType(dtype))
    steps_from_zero = cast(call("clip", call("round_even", made), -1e6, 1e6), "int32")
    return cast(call("clip", call("add", steps_from_zero, constant(out_zero, "int32")), low, high),
                dtype)


def _fused(whole: RelayExpr, factor: np.float32, added: RelayExpr) -> RelayExpr:
    """A product and a sum, rounded together to float32."""
    product = call("multiply", cast(whole, "float64"), constant(factor, "float64"))
    return cast(call("add", product, cast(added, "float64")), "float32")


# ---- in fixed point ----


def _by_fixed_point(node: Node) -> RelayExpr:
    """Differences and the logarithm of the sum with 26 bits of fraction, rounded to a byte's.

    Differences that a result has no room for are its lowest number.
    """
    scale, _ = single(node.quantization(0), "its data")
    if node.dtype() != "int8":
        raise OpNotImplemented(f"{node.dtype()} by the rule of microcontrollers")
    places = FRACTION - DIFFERENCE_BITS
    multiplier, power = quantized_multiplier(min(float(scale) * (1 << places), float(LARGEST)))
    radius = int(np.floor(((1 << DIFFERENCE_BITS) - 1) * float(1 << places) / 2.0**power))
    differences = np.arange(256, dtype=np.int64)
    scaled = multiplied(-np.minimum(differences, radius), multiplier, power)
    parts = divided_by_power(WIDE.exp_of_negatives(scaled, DIFFERENCE_BITS), SUM_BITS)
    parts = np.where(differences <= radius, parts, 0)
    wide = cast(node[0], "int32")
    below = call("subtract", call("max", wide, axis=-1, keepdims=True), wide)
    seen = call("take", constant(parts), below, axis=0)
    logarithm = log_of_sums(call("sum", seen, axis=-1, keepdims=True))
    back = quantized_multiplier(2.0 ** (FRACTION - power) / multiplier)
    reach = call("maximum", number(-radius - 1),
                 _multiplied(call("subtract", logarithm, number(LARGEST + 1)), *back))
    exact = multiplied(-differences, multiplier, power)
    distance = call("subtract", call("take", constant(exact), below, axis=0), logarithm)
    made = divided(distance, number(FRACTION - DIFFERENCE_BITS - RESULT_BITS))
    low, last = int_range(DataType(node.result_dtype()))
    moved = call("clip", call("add", made, number(last)), low, last)
    is_near = call("greater", cast(call("negative", below), "int64"), reach)
    return cast(call("where", is_near, moved, number(low)), node.result_dtype())


def _multiplied(x: RelayExpr, multiplier: int, power: int) -> RelayExpr:
    """`multiplied` in a graph, by a factor below 1."""
    return divided(high(x, number(multiplier)), number(max(-power, 0)))


def log_of_sums(x: RelayExpr) -> RelayExpr:
    """The logarithm of numbers with 12 bits of whole part, with 5 such bits.

    A number is a power of 2 times r near 2**-0.25; of two powers that of the smaller r is taken.
    The logarithm of r is a quotient of polynomials.
    """
    places = FRACTION - DIFFERENCE_BITS - 1
    quarter = number(1 << (places - 2))
    free = _free_bits(x)
    whole = call("left_shift", x, call("subtract", free, number(1)))
    first = call("minimum", call("left_shift", high(whole, number(ROOT)), number(1)),
                 number(LARGEST))
    first_power = call("add", _power(free, places), quarter)
    free = call("subtract", _free_bits(high(x, number(ROOT))), number(1))
    second = call("minimum", call("left_shift", x, free), number(LARGEST))
    second_power = call("subtract", _power(free, places), quarter)
    r, power = call("minimum", first, second), call("maximum", first_power, second_power)
    middle = call("right_shift", call("add", r, number(FOURTH_ROOT + 1)), number(1))
    q = call("left_shift", call("subtract", r, number(FOURTH_ROOT)), number(1))
    square = high(q, q)
    above = call("add", high(q, r), high(high(q, square), number(OF_CUBE)))
    inner = call("add", call("add", number(OF_ONE), q), high(number(OF_SQUARE), square))
    under = call("add", high(middle, inner), high(number(OF_SUM), q))
    quotient = high(divided(above, number(DIFFERENCE_BITS + 1)), reciprocal(under))
    total = call("add", high(power, number(LOG_2)), quotient)
    return call("clip", call("left_shift", total, number(1)), -LARGEST - 1, LARGEST)


def _power(free: RelayExpr, places: int) -> RelayExpr:
    return call("left_shift", call("subtract", number(SUM_BITS), free), number(places))


def _free_bits(x: RelayExpr) -> RelayExpr:
    """How many of 32 bits are free above the highest one that is set."""
    made = number(32)
    for bit in range(FRACTION):
        is_set = cast(call("greater_equal", x, number(1 << bit)), "int64")
        made = call("subtract", made, is_set)
    return made

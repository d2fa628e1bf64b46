"""Softmax: of floats, of bytes by a table of exponentials, and of 16-bit numbers by lines.

Bytes differ from the largest of their row by no more than 255, so a table has all exponentials that
there are, and their sums are of whole numbers, in whatever order they are made.
"""

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of
from sterna.frontend.tflite.fixed_point import (
    FRACTION,
    LARGEST,
    WIDE,
    divided_by_power,
    multiplied,
    quantized_multiplier,
)
from sterna.frontend.tflite.fixed_point_graph import high, number, reciprocal
from sterna.frontend.tflite.lines import HIGH, LOW, RANGE, Float, on_lines, places_on
from sterna.frontend.tflite.narrow_floats import in_float32
from sterna.frontend.tflite.node import TFLM, Node, converter, single
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented

# Differences have 5 bits of whole part, sums 12.
DIFFERENCE_BITS, SUM_BITS = 5, 12
# Exponentials of processors' kernels have 16 bits.
TABLE_BITS = 16
LARGEST_SCALE = float(np.finfo(np.float32).max)
# Of 16 bits: how far below the largest of its row a number still counts, and the bits of 1.
REACH, SHORT_BITS = 10.0, 15


@converter("SOFTMAX")
@in_float32
def softmax(node: Node) -> RelayExpr:
    """Of rows, which are what lies along the last axis."""
    beta = float(node.attr("beta"))
    if dtype_of(node[0]) == "float32":
        scaled = node[0] if beta == 1 else call("multiply", node[0], constant(beta, "float32"))
        return call("nn.softmax", scaled, axis=-1)
    if dtype_of(node[0]) not in ("int8", "uint8", "int16"):
        raise OpNotImplemented(f"softmax of {node.dtype()}")
    scale, _ = single(node.quantization(0), "its data")
    if not 0 <= beta * float(scale) <= LARGEST_SCALE:
        raise ValueError(f"its beta times the scale of its data is a number of float32 from 0 on, "
                         f"not {beta} * {scale}")
    if node.dtype() == "int16":
        return _of_shorts(node, float(scale), beta)
    if node.rounding == TFLM or node.result_dtype() != node.dtype():
        return _by_fixed_point(node, float(scale), beta)
    return _by_table(node, np.float32(scale) * np.float32(beta))


def _differences(node: Node) -> RelayExpr:
    """How far each number lies below the largest of its row."""
    wide = cast(node[0], "int32")
    return call("subtract", call("max", wide, axis=-1, keepdims=True), wide)


def _held(node: Node, whole: RelayExpr) -> RelayExpr:
    """Numbers from 0 on as the result has them."""
    dtype = node.result_dtype()
    low, high = int_range(DataType(dtype))
    moved = call("add", whole, constant(low, dtype_of(whole)))
    return cast(call("clip", moved, low, high), dtype)


def _sum(parts: RelayExpr) -> RelayExpr:
    return call("sum", parts, axis=-1, keepdims=True)


def _by_table(node: Node, scale: np.float32) -> RelayExpr:
    """Quotients with one bit more of fraction for each that the sum has beyond 16, rounded, and
    rounded again.
    """
    steps = np.arange(256, dtype=np.float32) * -scale
    table = np.rint(np.exp(steps.astype(np.float64)) * ((1 << TABLE_BITS) - 1)).astype(np.int32)
    parts = call("take", constant(table), _differences(node), axis=0)
    total = _sum(parts)
    more = _bits_beyond(total, TABLE_BITS + 1)
    power = call("left_shift", constant(1 << TABLE_BITS, "int32"), more)
    ratio = call("divide", cast(power, "float64"), cast(total, "float64"))
    fine = cast(call("round", call("multiply", cast(parts, "float64"), ratio)), "int32")
    half = call("left_shift", constant(1 << 7, "int32"), more)
    shift = call("add", more, constant(8, "int32"))
    return _held(node, call("right_shift", call("add", fine, half), shift))


def _bits_beyond(total: RelayExpr, first: int) -> RelayExpr:
    """How many bits more than so many are needed for positive whole numbers."""
    made: RelayExpr | None = None
    for bit in range(first, 31):
        more = cast(call("greater_equal", total, constant(1 << bit, "int32")), "int32")
        made = more if made is None else call("add", made, more)
    assert made is not None
    return made


# ---- of 16 bits, as all kernels compute it ----


def _of_shorts(node: Node, scale: float, beta: float) -> RelayExpr:
    """exp and 1 / (1 + x) by lines; a sum is a power of 2 times 1 + x."""
    out_scale, out_zero = single(node.result_quantization(), "the result")
    _, zero = single(node.quantization(0), "its data")
    if zero != 0 or out_zero != 0 or abs(float(out_scale) * (1 << SHORT_BITS) - 1) > 1e-3:
        raise ValueError("numbers of 16 bits have zero points of 0, and the result 1/32768 for its "
                         f"scale, not {zero}, {out_zero} and {out_scale}")
    kind: Float = np.float32 if node.rounding == TFLM else np.float64
    multiplier, power = quantized_multiplier(scale * float(np.float32(beta)) / (REACH / RANGE))
    below = call("negative", _differences(node))
    scaled = call("qnn.rescale", below, constant(multiplier, "int32"), constant(power, "int32"),
                  constant(0, "int32"), constant(0, "int32"), rounding="TWICE", out_dtype="int32")
    parts = on_lines(
        _short(scaled, HIGH), places_on(np.exp, kind, REACH / RANGE, 2 / RANGE, HIGH))
    total = _sum(parts)
    over = _bits_beyond(total, SHORT_BITS)  # the largest number of a row is 1
    left = cast(call("subtract", constant(SHORT_BITS + 1, "int32"), over), "int64")
    moved = call("add", call("left_shift", cast(total, "int64"), left), constant(1 << 13, "int64"))
    fraction = cast(call("right_shift", moved, constant(14, "int64")), "int32")
    inverse = on_lines(_short(fraction, -3 << SHORT_BITS), places_on(
        lambda x: np.asarray(1 / (1 + x)), kind, 1 / RANGE, 2 / RANGE, LOW))
    right = call("add", over, constant(SHORT_BITS - 1, "int32"))
    half = call("right_shift", call("left_shift", constant(1, "int32"), right),
                constant(1, "int32"))
    whole = call("right_shift", call("add", call("multiply", parts, inverse), half), right)
    return cast(call("clip", whole, 0, HIGH), "int16")


def _short(x: RelayExpr, more: int) -> RelayExpr:
    """A number and so much more, held within 16 bits."""
    return call("clip", call("add", x, constant(more, "int32")), LOW, HIGH)


# ---- as reference kernels compute it ----


def _exponentials(scale: float, beta: float) -> Array:
    """exp of every difference as fractions of 31 bits; 0 beyond what differences can say."""
    real = min(beta * scale * (1 << (FRACTION - DIFFERENCE_BITS)), float(LARGEST))
    multiplier, power = quantized_multiplier(real)
    radius = int(np.floor(
        ((1 << DIFFERENCE_BITS) - 1) * float(1 << (FRACTION - DIFFERENCE_BITS)) / 2.0**power
    ))
    differences = np.arange(256, dtype=np.int64)
    seen = differences <= radius
    scaled = multiplied(np.where(seen, -differences, 0), multiplier, power)
    return np.where(seen, WIDE.exp_of_negatives(scaled, DIFFERENCE_BITS), 0)


def _by_fixed_point(node: Node, scale: float, beta: float) -> RelayExpr:
    table = _exponentials(scale, beta)
    differences = _differences(node)
    parts = call("take", constant(divided_by_power(table, SUM_BITS).astype(np.int32)), differences,
                 axis=0)
    total = _sum(parts)
    first = FRACTION - SUM_BITS  # the largest number of a row is 1
    over = _bits_beyond(total, first + 1)
    shift = call("subtract", constant(SUM_BITS, "int32"), over)
    fraction = call("subtract", call("left_shift", cast(total, "int64"), cast(shift, "int64")),
                    constant(1 << FRACTION, "int64"))
    inverse = reciprocal(fraction)
    whole = cast(call("take", constant(table), differences, axis=0), "int64")
    bits = DataType(node.result_dtype()).bits
    right = call("add", cast(over, "int64"), constant(FRACTION - bits, "int64"))
    return _held(node, cast(_away(high(whole, inverse), right), "int32"))


def _away(x: RelayExpr, power: RelayExpr) -> RelayExpr:
    """`divided` of what is not negative."""
    half = call("right_shift", call("left_shift", number(1), power), number(1))
    return call("right_shift", call("add", x, half), power)

"""Softmax: of floats, and of bytes by a table of exponentials.

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


@converter("SOFTMAX")
def softmax(node: Node) -> RelayExpr:
    """Of rows, which are what lies along the last axis."""
    beta = float(node.attr("beta"))
    if dtype_of(node[0]) == "float32":
        scaled = node[0] if beta == 1 else call("multiply", node[0], constant(beta, "float32"))
        return call("nn.softmax", scaled, axis=-1)
    if dtype_of(node[0]) not in ("int8", "uint8"):
        raise OpNotImplemented(f"softmax of {node.dtype()}")
    scale, _ = single(node.quantization(0), "its data")
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
    reciprocal = _reciprocal(fraction)
    whole = cast(call("take", constant(table), differences, axis=0), "int64")
    bits = DataType(node.result_dtype()).bits
    right = call("add", cast(over, "int64"), constant(FRACTION - bits, "int64"))
    return _held(node, cast(_away(_high(whole, reciprocal), right), "int32"))


def _high(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """`high_product` of expressions of int64."""
    product = call("add", call("multiply", a, b), constant(1 << 30, "int64"))
    return call("right_shift", product, constant(FRACTION, "int64"))


def _away(x: RelayExpr, power: RelayExpr) -> RelayExpr:
    """`divided_by_power` of what is not negative."""
    half = call("right_shift", call("left_shift", constant(1, "int64"), power),
                constant(1, "int64"))
    return call("right_shift", call("add", x, half), power)


def _reciprocal(x: RelayExpr) -> RelayExpr:
    """1 / (1 + x) of fractions from 0 to 1 by three steps of Newton's, as fractions."""

    def number(value: int) -> RelayExpr:
        return constant(value, "int64")

    half = call("right_shift", call("add", x, number(LARGEST + 1)), number(1))
    made = call("add", number(1515870810), _high(half, number(-1010580540)))
    for _ in range(3):
        left = call("subtract", number(1 << 29), _high(half, made))
        step = call("left_shift", _high(made, left), number(2))
        made = call("add", made, step)
    return call("minimum", call("left_shift", made, number(1)), number(LARGEST))

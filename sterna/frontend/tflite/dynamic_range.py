"""Products of floats with weights of whole numbers: floats are quantised by their range.

Each row, or each image, gets a scale and a zero point of its own when the model runs.
"""

from dataclasses import dataclass

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, rank_of, reshape
from sterna.frontend.tflite.schema import Quantization
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr

LOW, HIGH = -128.0, 127.0


@dataclass(frozen=True, slots=True)
class Ranged:
    """Floats as bytes, with a scale and a zero point for each index along the first axis."""

    data: RelayExpr
    scale: RelayExpr
    zero: RelayExpr


def _number(value: float) -> RelayExpr:
    return constant(value, "float32")


def by_range(data: RelayExpr) -> Ranged:
    """Floats by the range of each row, which 0 belongs to.

    The zero point is taken from the end of the range that it fits better.
    """
    axes = tuple(range(1, rank_of(data)))
    least = call("minimum", call("min", data, axis=axes, keepdims=True), _number(0))
    most = call("maximum", call("max", data, axis=axes, keepdims=True), _number(0))
    flat = call("equal", least, most)
    span = call("where", flat, _number(1), call("subtract", most, least))
    steps = call("where", flat, _number(1), call("divide", _number(HIGH - LOW), span))
    low, high = call("multiply", least, steps), call("multiply", most, steps)
    error = call("add", call("add", _number(LOW), low), call("add", _number(HIGH), high))
    from_low, from_high = call("subtract", _number(LOW), low), call("subtract", _number(HIGH), high)
    zero = call("where", call("greater", error, _number(0)), from_low, from_high)
    zero = call("round_even", call("clip", zero, LOW, HIGH))
    whole = call("add", call("round_even", call("multiply", data, steps)), zero)
    return Ranged(
        cast(call("clip", whole, LOW, HIGH), "int8"), call("divide", _number(1), steps),
        cast(zero, "int32"),
    )


def signed(weight: RelayExpr) -> RelayExpr:
    """Weights of bytes: those without a sign are the bits of bytes that have one."""
    return call("reinterpret", weight, "int8") if dtype_of(weight) == "uint8" else weight


def scaled_sums(sums: RelayExpr, scale: RelayExpr, weight: Quantization) -> RelayExpr:
    """Sums of products as floats; weights may have a scale for each result, which lies last."""
    own = weight.scale.reshape(()) if weight.is_single else weight.scale
    rows = call("multiply", cast(sums, "float32"), scale)
    return call("multiply", rows, constant(own.astype(np.float32)))


def dense_of_blocks(rows: RelayExpr, weight: RelayExpr, scales: Array, size: int) -> RelayExpr:
    """Rows of floats by weights whose rows have a scale for each block of so many.

    Sums of a block are whole numbers; they are scaled and added as floats.
    """
    units, count = scales.shape
    ranged = by_range(rows)
    difference = call("subtract", cast(ranged.data, "int16"), cast(ranged.zero, "int16"))
    blocks = call("transpose", reshape(difference, (-1, count, size)), (1, 0, 2))
    own = call("transpose", reshape(cast(weight, "int16"), (units, count, size)), (1, 0, 2))
    sums = call("nn.batch_matmul", blocks, own, out_dtype="int32")
    factors = constant(np.ascontiguousarray(scales.T[:, None, :]))
    total = call("sum", call("multiply", cast(sums, "float32"), factors), axis=0)
    return call("multiply", total, ranged.scale)

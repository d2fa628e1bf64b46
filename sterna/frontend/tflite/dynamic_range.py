"""Products of floats with weights of whole numbers: floats are quantised by their range.

Each row, or each image, gets a scale and a zero point of its own when the model runs. LiteRT's
kernels for processors (XNNPACK) take the whole range, in float32; where they do not take a layer,
its other kernels take the whole range, in float64, or the largest magnitude.
"""

from dataclasses import dataclass

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, rank_of, reshape
from sterna.frontend.tflite.node import Node, single
from sterna.frontend.tflite.schema import Quantization
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

LOW, HIGH = -128.0, 127.0
# Operators that kernels for processors have for weights of int8.
_OF_BYTES = ("FULLY_CONNECTED", "CONV_2D", "TRANSPOSE_CONV", "BATCH_MATMUL")


@dataclass(frozen=True, slots=True)
class Ranged:
    """Floats as bytes, with a scale and a zero point for each index along the first axis."""

    data: RelayExpr
    scale: RelayExpr
    zero: RelayExpr


def _number(value: float) -> RelayExpr:
    return constant(value, "float32")


def ranged_for(node: Node, data: RelayExpr) -> Ranged:
    """Data of a product as the kernel quantises it that LiteRT has for the node's weights."""
    kind, dtype = node.kind, node.dtype(1)
    has_scales = not node.quantization(1).is_single
    is_quick = kind in _OF_BYTES if dtype == "int8" else (
        dtype == "int4" and kind == "FULLY_CONNECTED" and node.shape(1)[1] % 2 == 0)
    if is_quick:
        return by_range(data)
    if kind == "FULLY_CONNECTED":
        is_whole = bool(node.attr("asymmetric"))
    else:
        is_whole = kind == "DEPTHWISE_CONV_2D" or (has_scales and dtype != "uint8")
    return by_wide_range(data) if is_whole else by_magnitude(data)


def by_magnitude(data: RelayExpr) -> Ranged:
    """Floats by the largest magnitude of each row; their zero point is 0."""
    axes = tuple(range(1, rank_of(data)))
    most = call("max", call("abs", data), axis=axes, keepdims=True)
    none = call("equal", most, _number(0))
    span = call("where", none, _number(1), most)
    steps = call("divide", _number(HIGH), span)
    whole = call("clip", call("round", call("multiply", data, steps)), -HIGH, HIGH)
    scale = call("where", none, _number(1), call("divide", most, _number(HIGH)))
    zero = cast(call("zeros_like", most), "int32")
    return Ranged(cast(whole, "int8"), scale, zero)


def by_wide_range(data: RelayExpr) -> Ranged:
    """Floats by the range of each row, which 0 belongs to, found in float64.

    The zero point is taken from the end of the range that has the smaller error.
    """

    def wide(value: float) -> RelayExpr:
        return constant(value, "float64")

    axes = tuple(range(1, rank_of(data)))
    least = call("minimum", call("min", data, axis=axes, keepdims=True), _number(0))
    most = call("maximum", call("max", data, axis=axes, keepdims=True), _number(0))
    flat = call("equal", least, most)
    least, most = cast(least, "float64"), cast(most, "float64")
    span = call("where", flat, wide(HIGH - LOW), call("subtract", most, least))
    scale = call("divide", span, wide(HIGH - LOW))
    low, high = call("divide", least, scale), call("divide", most, scale)
    low_error = call("add", wide(-LOW), call("abs", low))
    is_low = call("less", low_error, call("add", wide(HIGH), call("abs", high)))
    ends = call("subtract", wide(LOW), low), call("subtract", wide(HIGH), high)
    zero = call("round", call("clip", call("where", is_low, *ends), LOW, HIGH))
    zero = call("where", flat, wide(0), zero)
    single = cast(scale, "float32")
    steps = call("divide", _number(1), single)
    whole = call("round", call("multiply", data, steps))
    moved = call("clip", call("add", whole, cast(zero, "float32")), LOW, HIGH)
    return Ranged(cast(moved, "int8"), single, cast(zero, "int32"))


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


def distances(ranged: Ranged) -> RelayExpr:
    """How far bytes are from the zero points of their rows."""
    return call("subtract", cast(ranged.data, "int16"), cast(ranged.zero, "int16"))


def scaled_sums(sums: RelayExpr, scale: RelayExpr, weight: Quantization) -> RelayExpr:
    """Sums of products as floats; weights may have a scale for each result, which lies last."""
    own = weight.scale.reshape(()) if weight.is_single else weight.scale
    rows = call("multiply", cast(sums, "float32"), scale)
    return call("multiply", rows, constant(own.astype(np.float32)))


def dense_of_bytes(ranged: Ranged, weight: RelayExpr, scheme: Quantization) -> RelayExpr:
    """Rows of floats, as bytes, by weights of bytes."""
    one = constant(1, "float32")
    sums = call("qnn.dense", ranged.data, signed(weight), reshape(ranged.zero, (-1,)),
                constant(0, "int32"), one, one)
    return scaled_sums(sums, ranged.scale, scheme)


def dense_of_state(node: Node, rows: RelayExpr, place: int) -> RelayExpr:
    """Rows by weights of a layer with a state, which has one rule for all weights of bytes."""
    match node.dtype(place):
        case "float32":
            return call("nn.dense", rows, node[place], units=node.shape(place)[0])
        case "int8" | "uint8":
            single(node.quantization(place), "its weights")
            ranged = by_wide_range if node.attr("asymmetric") else by_magnitude
            return dense_of_bytes(ranged(rows), node[place], node.quantization(place))
    raise OpNotImplemented(f"floats by weights of {node.dtype(place)}")


def as_floats(node: Node, place: int) -> RelayExpr:
    """Factors, or what bytes of a single scale stand for."""
    if node.dtype(place) == "float32":
        return node[place]
    scale, _ = single(node.quantization(place), "its weights")
    return call("multiply", cast(signed(node[place]), "float32"), constant(scale, "float32"))


def dense_of_blocks(rows: RelayExpr, weight: RelayExpr, scales: Array, size: int) -> RelayExpr:
    """Rows of floats by weights whose rows have a scale for each block of so many.

    Sums of a block are whole numbers; they are scaled and added as floats.
    """
    units, count = scales.shape
    ranged = by_range(rows)
    blocks = call("transpose", reshape(distances(ranged), (-1, count, size)), (1, 0, 2))
    own = call("transpose", reshape(cast(weight, "int16"), (units, count, size)), (1, 0, 2))
    sums = call("nn.batch_matmul", blocks, own, out_dtype="int32")
    factors = constant(np.ascontiguousarray(scales.T[:, None, :]))
    total = call("sum", call("multiply", cast(sums, "float32"), factors), axis=0)
    return call("multiply", total, ranged.scale)

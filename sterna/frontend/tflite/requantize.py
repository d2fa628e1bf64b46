"""Bytes of one scale as those of another, by tables and by whole numbers: what operators share."""

from collections.abc import Callable

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of
from sterna.frontend.tflite.fixed_point import multiplied, quantized_multiplier
from sterna.frontend.tflite.node import TFLM, Node, single
from sterna.frontend.tflite.schema import Quantization
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType

# Factors that XNNPACK's kernels for bytes take.
LEAST_RATIO, MOST_RATIO = 2.0**-8, 2.0**7


def all_bytes(dtype: str) -> Array:
    """Every number of a type of 8 bits in the order of its bits, as a table is read."""
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.int64)


def by_table(data: RelayExpr, table: Array) -> RelayExpr:
    """What a table says for every byte; it is in the order of the bytes' bits."""
    index = data if dtype_of(data) == "uint8" else call("reinterpret", data, "uint8")
    return call("take", constant(table), cast(index, "int32"), axis=0)


def saturated(whole: Array, dtype: str) -> Array:
    """Whole numbers held within the range of a type."""
    return np.clip(whole, *int_range(DataType(dtype))).astype(dtype)


def real_values(whole: Array, quantization: Quantization) -> Array:
    """What whole numbers stand for."""
    scale, zero = single(quantization, "its data")
    return ((whole - zero).astype(np.float32) * scale).astype(np.float32)


def quantized(real: Array, quantization: Quantization, dtype: str) -> Array:
    """The whole numbers nearest to real ones, halves to even ones."""
    return held_whole(np.rint(_in_steps(real, quantization)), quantization, dtype)


def rounded_away(real: Array, quantization: Quantization, dtype: str) -> Array:
    """The whole numbers nearest to real ones, halves away from 0."""
    steps = _in_steps(real, quantization).astype(np.float64)
    return held_whole(np.trunc(steps + np.copysign(0.5, steps)), quantization, dtype)


def cut_off(real: Array, quantization: Quantization, dtype: str) -> Array:
    """The whole numbers of real ones, whose fractions are cut off."""
    return held_whole(np.trunc(_in_steps(real, quantization)), quantization, dtype)


def _in_steps(real: Array, quantization: Quantization) -> Array:
    scale, _ = single(quantization, "the result")
    with np.errstate(over="ignore"):
        return np.nan_to_num(real.astype(np.float32), nan=0.0) * (np.float32(1) / scale)


def held_whole(steps: Array, quantization: Quantization, dtype: str) -> Array:
    """Steps from the zero point as numbers of a type."""
    _, zero = single(quantization, "the result")
    return saturated(np.clip(steps, -1e6, 1e6).astype(np.int64) + zero, dtype)


def of_bytes(
    node: Node, function: Callable[[Array], Array], rule: Callable[..., Array] = quantized
) -> RelayExpr:
    """A function of the numbers that bytes stand for, as the bytes of the result."""
    values = function(real_values(all_bytes(node.dtype()), node.quantization(0)))
    return by_table(node[0], rule(values, node.result_quantization(), node.result_dtype()))


def like_result(node: Node, place: int, fine: bool = False) -> RelayExpr:
    """An operand of whole numbers under the scale of the result."""
    have, want = node.quantization(place), node.result_quantization()
    if np.array_equal(have.scale, want.scale) and np.array_equal(have.zero, want.zero):
        return node[place]
    return moved_to(node, node[place], have, want, node.result_dtype(), fine)


def moved_to(
    node: Node, data: RelayExpr, have: Quantization, want: Quantization, dtype: str,
    fine: bool = False,
) -> RelayExpr:
    """Whole numbers under another scale; fine: by a factor of 31 bits under either rule."""
    kind = dtype_of(data)
    scale, zero = single(have, "its data")
    out_scale, out_zero = single(want, "the result")
    if DataType(kind).bits == 8:
        is_quick = LEAST_RATIO <= scale / out_scale <= MOST_RATIO
        by_fraction = fine or node.rounding == TFLM or kind != dtype or not is_quick
        table = _moved(all_bytes(kind) - zero, scale, out_scale, by_fraction)
        return by_table(data, saturated(table + out_zero, dtype))
    ratio = np.float64(scale) / np.float64(out_scale)
    return call(
        "qnn.requantize", data, constant(ratio), constant(zero, "int32"), constant(1, "float64"),
        constant(out_zero, "int32"), rounding="TWICE", out_dtype=dtype,
    )


def _moved(
    distances: Array, scale: np.float32, out_scale: np.float32, by_fraction: bool
) -> Array:
    """By a factor with 31 bits of fraction; processors have one with 8 between bytes of a type."""
    if by_fraction:
        return multiplied(distances, *quantized_multiplier(float(scale) / float(out_scale)))
    factor = int(np.rint(np.float32(256) * (scale / out_scale)))
    return np.asarray((distances * factor + 128) >> 8)

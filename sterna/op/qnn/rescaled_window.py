"""Depthwise windows as large as the image with their rescaling in one kernel: qnn.rescaled_window.

Four channels have one record: what sums begin with, weights as halves of words, the zero point, and
what rounds each of them TWICE to bytes. Of an odd number of taps the first has two words, of
channels 0 and 2 and of 1 and 3; two taps have four words, one of each channel.
"""

from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.qnn._double_rounding import (
    INT8,
    INT32,
    INT64,
    rounded,
    rounded_array,
    rounding_words,
)
from sterna.op.qnn._rescaled_layer import (
    bytes_and_records,
    in_place_of,
    layer_cost,
    rescaled_layer,
)
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, RelayExpr, const
from sterna.relay.op import OPAQUE, Case, ContractionRules, OpRecord, call, register
from sterna.schedule.contraction import Contraction
from sterna.schedule.kernel import Processor
from sterna.schedule.rescaled_window_kernel import (
    BESIDE,
    FOUR,
    RescaledWindowKernel,
    covers_image,
    rescaled_window_instructions,
)
from sterna.te import Tensor, compute, reduce_axis
from sterna.te import sum as te_sum

# Instructions of a product in plain loops.
PLAIN_PRODUCT = 3.5


@attributes
class RescaledWindowAttrs(Attrs):
    """Of qnn.rescaled_window."""

    by_halves: bool = False
    """Whether halves of words are multiplied; else one number after the other, on any processor."""


def implement_window(found: Call, processor: Processor) -> RelayExpr | None:
    """A window as large as its image together with its rescaling, where that spares work."""
    if not processor.has_dot_halves or processor.has_dot_across:
        return None
    given = rescaled_layer(found)
    if given is None or not _suits(given.made):
        return None
    words = rounding_words(given.multiplier, given.power, given.zero)
    if words is None:
        return None
    if layer_cost(given, PLAIN_PRODUCT) <= rescaled_window_instructions(given.made):
        return None
    records = const(_records(given.weights, given.start, words))
    records.span = given.sums.args[1].span
    return in_place_of(found, call(
        "qnn.rescaled_window", given.sums.args[0], records, by_halves=True))


def _suits(made: Contraction) -> bool:
    kinds = {str(made.data), str(made.weight)} == {"int8"}
    return kinds and made.channels_last and covers_image(made) and made.outputs % FOUR == 0


def _records(weights: Array, start: Array, words: Array) -> Array:
    """weights: (channel, ...); words: by channel a multiplier, a factor and what rounds."""
    blocks = len(weights) // FOUR
    taps = weights.reshape(blocks, FOUR, -1).astype("<i2")
    alone = taps.shape[2] % 2
    first = taps[:, [0, 2, 1, 3], :alone]  # halves of two words
    pairs = taps[:, :, alone:].reshape(blocks, FOUR, -1, 2).transpose(0, 2, 1, 3)
    halves = [np.ascontiguousarray(part).reshape(blocks, -1) for part in (first, pairs)]
    four = np.ascontiguousarray(np.concatenate(halves, 1)).view("<i4")
    factors = words[:, :2].reshape(blocks, -1)
    parts = [start.reshape(blocks, FOUR), four, words[::FOUR, 2:], factors]
    return np.concatenate(parts, 1).astype(np.int32)


def _weights(records: Array) -> Array:
    """(channel, tap) of what _records made."""
    four = np.ascontiguousarray(records[:, FOUR : -(BESIDE - FOUR)]).astype("<i4").view("<i2")
    alone = four.shape[1] // FOUR % 2
    pairs = four[:, alone * FOUR :].reshape(len(records), -1, FOUR, 2).transpose(0, 2, 1, 3)
    taps = pairs.reshape(len(records), FOUR, -1)
    if alone:
        taps = np.concatenate([four[:, [0, 2, 1, 3], None], taps], 2)
    return taps.reshape(len(records) * FOUR, -1).astype(np.int64)


# ---- the operator ----


def _infer(attrs: RescaledWindowAttrs, data: Type, records: Type) -> TensorType:
    kind, words = bytes_and_records(data, records, 4)
    batch, rows, columns, channels = kind.concrete_shape
    want = (channels // FOUR, 2 * rows * columns + BESIDE)
    if channels % FOUR or tuple(words.shape) != want:
        raise ValueError(f"records of four channels have the shape {want} for {kind}, whose "
                         f"channels come by four, not {words.shape}")
    return TensorType((batch, 1, 1, channels), INT8)


def _compute(
    attrs: RescaledWindowAttrs, out: TensorType, data: Tensor, records: Tensor
) -> Tensor:
    batch, rows, columns, channels = TensorType(data.shape, INT8).concrete_shape
    if attrs.by_halves:
        made = Contraction(
            batch, (rows, columns), channels, (1, 1), channels, INT8, INT8, INT32,
            (rows, columns), groups=channels)
        kernel = RescaledWindowKernel(made)
        return kernel.tensor("T_rescaled", out, None, (data, records))
    row, column = (reduce_axis((0, n), name=f"r{axis}")
                   for n, axis in zip((rows, columns), "yx", strict=True))

    def product(n: Expr, channel: Expr) -> Expr:
        block, lane = channel // FOUR, channel % FOUR
        tap = row.var * columns + column.var
        alone = rows * columns % 2
        first = FOUR + 2 * alone
        pair = build.maximum(tap - alone, 0)
        place, half = first + pair // 2 * FOUR + lane, pair % 2
        if alone:
            is_first = tap < 1
            place = build.select(is_first, lane % 2 + FOUR, place)
            half = build.select(is_first, lane // 2, half)
        weight = (records(block, place) << 16 - half * 16) >> 16
        return data(n, row.var, column.var, channel).astype(INT32) * weight

    sums: Tensor = compute(
        out.shape, lambda *i: te_sum(product(i[0], i[-1]), axis=[row, column]), name="T_sums")
    behind = FOUR + 2 * rows * columns

    def element(*i: Expr) -> Any:
        block, lane = i[-1] // FOUR, i[-1] % FOUR
        factor, right = (records(block, lane * 2 + (behind + place)) for place in (1, 2))
        total = sums(*i) + records(block, lane)
        return rounded(total.astype(INT64), factor, right, records(block, behind))

    result: Tensor = compute(out.shape, element, name="T_rescaled")
    return result


def _reference(attrs: RescaledWindowAttrs, data: Array, records: Array) -> Array:
    channels, behind = data.shape[-1], records.shape[1] - (BESIDE - FOUR)
    taps = _weights(records).T
    seen = data.reshape(len(data), -1, channels).astype(np.int64)
    sums = (seen * taps).sum(1) + records[:, :FOUR].reshape(-1)
    factors = records[:, behind + 1 :].reshape(-1, 2)
    words = np.column_stack([factors, np.repeat(records[:, behind], FOUR)])
    made = rounded_array(sums, words)
    return np.asarray(made.reshape(len(data), 1, 1, channels).astype(np.int8))


def _macs(attrs: RescaledWindowAttrs, out: TensorType, data: TensorType, *others: Any) -> int:
    """One for each element of the data."""
    return int(np.prod(data.concrete_shape))


_WORDS = rounding_words(np.resize([1 << 30, 1395864371], 8), np.resize([-7, -4, -9], 8), 9)
assert _WORDS is not None
_TAPS, _START = np.resize([127, -128, 3, 5, -70], (8, 6)), np.resize([400, -30], 8)

register(OpRecord(
    "qnn.rescaled_window",
    inputs=("data", "records"),
    attrs=RescaledWindowAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    macs=_macs,
    pattern=OPAQUE,
    contraction=ContractionRules(is_packed=True),
    mixed_precision="never",
    cases=[Case((((2, 3, 2, 8), "int8"), _records(_TAPS, _START, _WORDS)), {}),
           Case((((1, 1, 5, 8), "int8"), _records(_TAPS[:, :5], _START, _WORDS)), {})],
    doc="A depthwise convolution of int8 with the channels last, by windows as large as the image, "
        "rescaled to int8. A record is what the sums of four channels begin with, their weights as "
        "halves of words, the zero point times 2 and 1, and of each channel a multiplier less "
        "2**31 times 2 and a shift as a power of 2. The first of an odd number of taps has two "
        "words, of channels 0 and 2 and of 1 and 3; two taps have four, one of each channel.",
))

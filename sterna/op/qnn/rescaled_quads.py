"""Depthwise convolutions of bytes with their rescaling on MVE in one kernel: qnn.rescaled_quads.

Four channels have one record: what sums begin with, a word of weights for each tap, and what rounds
each of them TWICE to bytes. Of windows as large as the image eight have one, with two words.
"""

from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Call as ScalarCall
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.qnn._double_rounding import INT8, INT32, INT64
from sterna.op.qnn._rescaled_layer import (
    DepthwiseAttrs,
    bytes_and_records,
    depthwise_of,
    in_place_of,
    layer_cost,
    rescaled_layer,
)
from sterna.relay.arrays import Array
from sterna.relay.attributes import attributes
from sterna.relay.expr import Call, RelayExpr, const
from sterna.relay.op import OPAQUE, Case, ContractionRules, OpRecord, call, register
from sterna.schedule.across_steps import QUAD
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import plan_of
from sterna.schedule.implementations.quads import IMPLEMENTATION as QUADS
from sterna.schedule.implementations.quads import quad_instructions, tiles_of
from sterna.schedule.kernel import Processor
from sterna.schedule.rescaled_quad_kernel import (
    RescaledQuadKernel,
    lanes_of,
    record_words,
    rescaled_quad_instructions,
)
from sterna.te import Tensor, compute, if_then_else, reduce_axis
from sterna.te import all as all_of
from sterna.te import sum as te_sum

HALF = 1 << 30
# Instructions of a product in loops of vectors.
PLAIN_PRODUCT = 1.7


@attributes
class RescaledQuadsAttrs(DepthwiseAttrs):
    """Of qnn.rescaled_quads."""

    lanes: int = QUAD
    """The channels of a record."""


def implement_quads(found: Call, processor: Processor) -> RelayExpr | None:
    """A depthwise layer's rescaling together with the layer, where that spares instructions."""
    given = rescaled_layer(found) if processor.has_dot_across else None
    if given is None or not _suits(given.made):
        return None
    made, plan = given.made, plan_of(given.sums.attrs)
    before = layer_cost(given, PLAIN_PRODUCT)
    if plan is not None and plan.name == QUADS.name:
        before = quad_instructions(made, plan.integer("outputs"))
    costs = {n: rescaled_quad_instructions(made, n) for n in _tiles(made)}
    outputs = choose("tile", list(costs), costs.__getitem__)
    if before <= costs[outputs]:
        return None
    records = const(_records(given.weights, given.start, given.multiplier, given.power,
                             given.zero, lanes_of(made)))
    records.span = given.sums.args[1].span
    return in_place_of(found, call(
        "qnn.rescaled_quads", given.sums.args[0], records, window=made.window,
        strides=made.strides, dilation=made.dilation, padding=(*made.before, *made.after),
        border=made.border, outputs=outputs, lanes=lanes_of(made)))


def _suits(made: Contraction) -> bool:
    return QUADS.suits(made) and made.is_depthwise and made.outputs % QUAD == 0


def _tiles(made: Contraction) -> list[int]:
    """Results of a row of which all rows are full."""
    return [outputs for outputs in tiles_of(made) if made.result[1] % outputs == 0]


def _records(
    weights: Array, start: Array, multiplier: Array, power: Array, zero: int, lanes: int = QUAD
) -> Array:
    """weights: (channel, ...); lanes: the channels of a record."""
    count = len(weights) // lanes
    taps = weights.reshape(count, lanes, -1).transpose(0, 2, 1).astype(np.int8)
    words = np.ascontiguousarray(taps).view("<i4").reshape(count, -1)
    parts = [start.reshape(count, lanes), words, multiplier.reshape(count, lanes),
             power.reshape(count, lanes) + 1, np.full((count, 1), 2 * zero + 1)]
    return np.concatenate(parts, 1).astype(np.int32)


# ---- the operator ----


def _infer(attrs: RescaledQuadsAttrs, data: Type, records: Type) -> TensorType:
    kind, words = bytes_and_records(data, records, 4)
    if not kind.is_static:
        raise ValueError(f"data has known extents, not {kind}")
    channels, lanes = kind.concrete_shape[-1], attrs.lanes
    if lanes not in (QUAD, 2 * QUAD):
        raise ValueError(f"a record is of four or of eight channels, not of {lanes}")
    made = depthwise_of(attrs, kind, channels)
    want = (channels // lanes, record_words(made, lanes))
    if channels % lanes or tuple(words.shape) != want or min(made.result) < 1:
        raise ValueError(f"records of {lanes} channels have the shape {want} for windows of "
                         f"{attrs.window} in {kind}, whose channels come by {lanes}, "
                         f"not {words.shape}")
    suits = _suits(made) and attrs.outputs in _tiles(made) and lanes == lanes_of(made)
    if attrs.outputs and not suits:
        raise ValueError(f"tiles of {attrs.outputs} pixels do not fit to {kind}")
    return TensorType((made.batch, *made.result, channels), INT8)


def _compute(
    attrs: RescaledQuadsAttrs, out: TensorType, data: Tensor, records: Tensor
) -> Tensor:
    made = depthwise_of(attrs, TensorType(data.shape, INT8), out.concrete_shape[-1])
    if attrs.outputs:
        kernel = RescaledQuadKernel(made, attrs.outputs)
        return kernel.tensor("T_rescaled", out, None, (data, records))
    row, column = (reduce_axis((0, n), name=f"r{axis}")
                   for n, axis in zip(attrs.window, "yx", strict=True))
    (down, across), (top, left), apart = attrs.strides, attrs.padding[:2], attrs.dilation
    lanes = attrs.lanes

    def product(n: Expr, y: Expr, x: Expr, channel: Expr) -> Expr:
        y = y * down + row.var * apart[0] - top
        x = x * across + column.var * apart[1] - left
        inside = all_of(y >= 0, y < made.image[0], x >= 0, x < made.image[1])
        held = if_then_else(inside, data(n, y, x, channel).astype(INT32), attrs.border)
        tap, lane = row.var * attrs.window[1] + column.var, channel % lanes
        word = records(channel // lanes, tap * (lanes // QUAD) + lane // QUAD + lanes)
        return held * (word >> lane % QUAD * 8).astype(INT8).astype(INT32)

    sums: Tensor = compute(
        out.shape, lambda *i: te_sum(product(*i), axis=[row, column]), name="T_sums")
    behind = lanes + made.taps * lanes // QUAD

    def element(*i: Expr) -> Any:
        block, lane = i[-1] // lanes, i[-1] % lanes
        factor, shift = (records(block, lane + (behind + n * lanes)) for n in range(2))
        total = (sums(*i) + records(block, lane)).astype(INT64)
        high = ((total * factor.astype(INT64) + HALF) >> 31).astype(INT32)
        shifted = (high + (high >> 31)) >> (build.const(0) - shift)
        half = (shifted + records(block, behind + 2 * lanes)) >> 1
        return ScalarCall(INT8, "saturate", (half,))

    result: Tensor = compute(out.shape, element, name="T_rescaled")
    return result


def _reference(attrs: RescaledQuadsAttrs, data: Array, records: Array) -> Array:
    made = depthwise_of(attrs, TensorType(data.shape, INT8), data.shape[-1])
    lanes, words = attrs.lanes, made.taps * attrs.lanes // QUAD
    four = np.ascontiguousarray(records[:, lanes : lanes + words]).astype("<i4").view("<i1")
    taps = four.reshape(len(records), *made.window, lanes).astype(np.int64)
    weights = taps.transpose(1, 2, 0, 3).reshape(*made.window, -1)
    top, left, bottom, right = attrs.padding
    padded = np.pad(data.astype(np.int64), [(0, 0), (top, bottom), (left, right), (0, 0)],
                    constant_values=attrs.border)
    sums = np.zeros((made.batch, *made.result, made.outputs), np.int64)
    sums += records[:, :lanes].reshape(-1)
    for y, x in np.ndindex(*made.window):
        (down, across), (rows, columns) = attrs.strides, made.result
        seen = padded[:, y * attrs.dilation[0] :: down, x * attrs.dilation[1] :: across]
        sums += seen[:, :rows, :columns] * weights[y, x]
    factor, shift = (records[:, first : first + lanes].reshape(-1).astype(np.int64)
                     for first in (lanes + words, 2 * lanes + words))
    high = (sums * factor + HALF) >> 31
    half = ((high + (high >> 63)) >> -shift) + int(records[0, -1])
    return np.asarray(np.clip(half >> 1, -128, 127).astype(np.int8))


def _macs(attrs: RescaledQuadsAttrs, out: TensorType, *operands: TensorType) -> int:
    """One for each element of the result and each tap of the window."""
    return int(np.prod(out.concrete_shape)) * int(np.prod(attrs.window))


def _case(window: tuple[int, int], data: tuple[int, ...], **attrs: Any) -> Case:
    """Channels whose weights are the largest and the smallest bytes."""
    channels = data[-1]
    weights = np.resize([127, -128, 3, 5, -70], (channels, *window))
    start, multiplier, power = (
        np.resize(numbers, channels)
        for numbers in ([400, -30], [HALF, 1395864371], [-7, -4, -9]))
    records = _records(weights, start, multiplier, power, 9, attrs.get("lanes", QUAD))
    return Case(((data, "int8"), records), {"window": window, **attrs})


register(OpRecord(
    "qnn.rescaled_quads",
    inputs=("data", "records"),
    attrs=RescaledQuadsAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    macs=_macs,
    pattern=OPAQUE,
    contraction=ContractionRules(is_packed=True),
    mixed_precision="never",
    cases=[_case((3, 3), (1, 4, 5, 8), padding=(1, 1, 1, 1), border=-7),
           _case((1, 4), (2, 2, 9, 4), strides=(1, 2)),
           _case((2, 2), (1, 5, 4, 4), dilation=(3, 2)),
           _case((3, 2), (1, 3, 2, 16), lanes=8)],
    doc="A depthwise convolution of int8 with the channels last, rescaled to int8. A record is "
        "what the sums of its lanes, four or eight channels, begin with, by taps their weights as "
        "the bytes of words, of each channel a multiplier of 31 bits of fraction, then of each a "
        "shift and 1, both to the right where negative, and the zero point times 2 and 1.",
))

"""Dense and pointwise layers of few pixels with their rescaling in one kernel: qnn.rescaled_rows.

Four channels have one record: what their sums begin with, and by four inputs a word of weights of
each; the last has as many channels as are left. Pairs of channels share their words where there is
room: of each input 256 times the first one's weight and the second's, in 16 bits, as sums begin
with 256 times the first number and the second, and with the second. Behind the records lies what
rounds TWICE to bytes: the zero point, and a multiplier and a shift of all channels, or of each.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, tensor
from sterna.op.qnn._double_rounding import (
    INT8,
    INT32,
    INT64,
    rounded,
    rounded_array,
    rounding_words,
)
from sterna.op.qnn._packed_halves import macs
from sterna.op.qnn._rescaled_layer import (
    RescaledLayer,
    in_place_of,
    layer_cost,
    rescaled_layer,
)
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, RelayExpr, const
from sterna.relay.op import OPAQUE, Case, ContractionRules, OpRecord, call, register
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP
from sterna.schedule.halves_kernel import calls_saved
from sterna.schedule.implementation import plan_of
from sterna.schedule.implementations.halves import IMPLEMENTATION as HALVES
from sterna.schedule.implementations.halves import Tile, layer_instructions
from sterna.schedule.kernel import Processor
from sterna.schedule.rescaled_rows_kernel import (
    FOUR,
    MOST_SUM,
    Records,
    RescaledRowsKernel,
    rescaled_rows_instructions,
)
from sterna.te import Tensor, compute, reduce_axis
from sterna.te import sum as te_sum

# Instructions of a product in plain loops, and those that load what rounds a sum, which the sums of
# several pixels share.
PLAIN_PRODUCT, LOADED = 2.5, 5


@attributes
class RescaledRowsAttrs(Attrs):
    """Of qnn.rescaled_rows."""

    units: int = 0
    """The output channels."""
    has_pairs: bool = False
    """Whether weights of two channels are in one number."""
    by_halves: bool = False
    """Whether halves of words are multiplied; else one number after the other, on any processor."""


def implement_rows(found: Call, processor: Processor) -> RelayExpr | None:
    """A layer of one tap together with its rescaling, where that spares instructions."""
    if not processor.has_dot_halves or processor.has_dot_across:
        return None
    given = rescaled_layer(found)
    if given is None or not given.made.is_pointwise or not HALVES.suits(given.made):
        return None
    words = rounding_words(given.multiplier, given.power, given.zero)
    weights = given.weights.reshape(given.made.outputs, -1).astype(np.int64)
    pairs = _have_room(weights, given.start)
    if words is None or _instructions(given) <= rescaled_rows_instructions(given.made, pairs):
        return None
    records = const(_records(weights, given.start, words, pairs))
    records.span = given.sums.args[1].span
    return in_place_of(found, call(
        "qnn.rescaled_rows", given.sums.args[0], records, units=given.made.outputs,
        has_pairs=pairs, by_halves=True))


def _instructions(given: RescaledLayer) -> float:
    """Of such a layer as it is implemented."""
    plan = plan_of(given.sums.attrs)
    if plan is None or plan.name != HALVES.name:
        return layer_cost(given, PLAIN_PRODUCT)
    tile = Tile(plan.integer("pixels"), plan.integer("channels"))
    spared = calls_saved(given.made, tile.pixels, tile.channels)
    shared = LOADED * (1 - 1 / tile.pixels) * given.made.pixels * given.made.outputs
    return layer_instructions(given.made, tile) - spared - shared


def _have_room(weights: Array, start: Array) -> bool:
    """Whether 16 bits hold the weights of each pair, and words 256 times its first sums."""
    pairs = len(weights) // 2
    first, second = weights[: 2 * pairs : 2], weights[1::2]
    sums = (np.abs(first).sum(1) << 7) + np.abs(start[: 2 * pairs : 2])
    return bool(np.all(256 * first + second >= -(1 << 15)) and np.all(sums < MOST_SUM))


def _records(weights: Array, start: Array, words: Array, has_pairs: bool) -> Array:
    """weights: (output, input); words: by channel a multiplier, a factor and what rounds."""
    more = -weights.shape[1] % GROUP
    four = np.pad(weights, [(0, 0), (0, more)]).astype(np.int64)
    whole = np.column_stack([start, _words(four)])
    for first in range(0, len(four) - 1 if has_pairs else 0, 2):
        one, two = four[first : first + 2]
        halves = (256 * one + two).reshape(-1, 2, 2).transpose(0, 2, 1).astype("<i2")
        pair = np.ascontiguousarray(halves).view("<i4").reshape(-1, 2)
        whole[first : first + 2, 1:] = pair.T
        whole[first, 0] = 256 * start[first] + start[first + 1]
    whole = whole.astype(np.int32)
    blocks = [whole[first : first + FOUR].T.reshape(-1) for first in range(0, len(whole), FOUR)]
    factors = words[:, :2]
    if np.all(factors == factors[0]):
        factors = factors[:1]
    return np.concatenate([*blocks, words[0, 2:], factors.reshape(-1)]).astype(np.int32)


def _words(four: Array) -> Array:
    """By channel the bytes of four inputs as words."""
    return np.ascontiguousarray(four.astype(np.int8)).view("<i4").astype(np.int64)


# ---- the operator ----


def _groups(depth: int) -> int:
    return -(-depth // GROUP)


def _infer(attrs: RescaledRowsAttrs, data: Type, records: Type) -> TensorType:
    kind, words = at_least(data, "data", 2), tensor(records, "records", 1)
    if kind.dtype != INT8 or words.dtype != INT32:
        raise ValueError(f"data is int8 and records are int32, not {kind.dtype}, {words.dtype}")
    if not kind.is_static or attrs.units < 1:
        raise ValueError(f"data has known extents and there are units, not {kind}, {attrs.units}")
    least = _place_of_rounding(attrs, kind.concrete_shape[-1]) + 1
    (length,) = words.concrete_shape
    if length not in (least + 2, least + 2 * attrs.units):
        raise ValueError(f"records of {attrs.units} units have {least} words, and two of all "
                         f"channels or of each, for {kind}, not {length}")
    return TensorType((*kind.shape[:-1], attrs.units), INT8)


def _place_of_rounding(attrs: RescaledRowsAttrs, depth: int) -> int:
    """The words before the zero point."""
    return attrs.units * (1 + _groups(depth))


def _compute(
    attrs: RescaledRowsAttrs, out: TensorType, data: Tensor, records: Tensor
) -> Tensor:
    shape, depth = out.concrete_shape, build.int_value(data.shape[-1]) or 0
    groups, behind = _groups(depth), _place_of_rounding(attrs, depth)
    has_one_factor = build.int_value(records.shape[0]) == behind + 3
    if attrs.by_halves:
        line = (1, math.prod(shape[:-1]))
        made = Contraction(1, line, depth, line, attrs.units, INT8, INT8, INT32)
        records_of = Records(attrs.has_pairs, has_one_factor)
        kernel = RescaledRowsKernel(made, shape[:-1], records_of)
        return kernel.tensor("T_rescaled", out, None, (data, records))
    whole, rest = divmod(attrs.units, FOUR)
    at = reduce_axis((0, depth), name="channel")

    def word(channel: Expr, place: Expr | int) -> Expr:
        block, lane = channel // FOUR, channel % FOUR
        count: Expr = build.const(FOUR)
        if rest:
            count = build.select(block < whole, count, build.const(rest))
        return records(block * (FOUR * (1 + groups)) + count * place + lane)

    def of_pair(channel: Expr, place: Expr | int, value: Callable[[Expr, Expr], Expr],
                other: Expr) -> Expr:
        """What words of a pair's first and second place stand for, or a channel's own."""
        if not attrs.has_pairs:
            return other
        first = channel - channel % 2
        made = value(word(first, place), word(build.minimum(first + 1, attrs.units - 1), place))
        if attrs.units % 2:
            made = build.select(channel < attrs.units - 1, made, other)
        return made

    def product(*i: Expr) -> Expr:
        group, lane, channel = at.var // GROUP + 1, at.var % GROUP, i[-1]

        def weight_of_pair(even: Expr, odd: Expr) -> Expr:
            both = (build.select(lane % 2 == 0, even, odd) << 16 - lane // 2 * 16) >> 16
            low = both.astype(INT8).astype(INT32)
            return build.select(channel % 2 == 0, (both - low) >> 8, low)

        own = (word(channel, group) >> lane * 8).astype(INT8).astype(INT32)
        return data(*i[:-1], at).astype(INT32) * of_pair(channel, group, weight_of_pair, own)

    def begun(channel: Expr) -> Expr:
        def begun_of_pair(both: Expr, low: Expr) -> Expr:
            wide = (both.astype(INT64) - low.astype(INT64)).astype(INT32) >> 8
            return build.select(channel % 2 == 0, wide, low)

        return of_pair(channel, 0, begun_of_pair, word(channel, 0))

    sums: Tensor = compute(out.shape, lambda *i: te_sum(product(*i), axis=at), name="T_sums")

    def element(*i: Expr) -> Any:
        first = behind + 1 if has_one_factor else i[-1] * 2 + (behind + 1)
        total = (sums(*i) + begun(i[-1])).astype(INT64)
        return rounded(total, records(first), records(first + 1), records(behind))

    result: Tensor = compute(out.shape, element, name="T_rescaled")
    return result


def _reference(attrs: RescaledRowsAttrs, data: Array, records: Array) -> Array:
    groups = _groups(data.shape[-1])
    behind = _place_of_rounding(attrs, data.shape[-1])
    whole = attrs.units // FOUR * FOUR * (1 + groups)
    parts = [records[:whole].reshape(-1, 1 + groups, FOUR), records[whole:behind].reshape(
        1, 1 + groups, -1)]
    rows = np.concatenate([part.transpose(0, 2, 1).reshape(-1, 1 + groups) for part in parts])
    four = np.ascontiguousarray(rows[:, 1:]).astype("<i4")
    weights, start = four.view("<i1").astype(np.int64), rows[:, 0].astype(np.int64)
    for first in range(0, attrs.units - 1 if attrs.has_pairs else 0, 2):
        halves = np.ascontiguousarray(four[first : first + 2].T).view("<i2").reshape(-1, 2, 2)
        both = halves.transpose(0, 2, 1).reshape(-1).astype(np.int64)
        weights[first + 1] = both.astype(np.int8)
        weights[first] = (both - weights[first + 1]) >> 8
        start[first] = (start[first] - start[first + 1]).astype(np.int32) >> 8
    sums = data.astype(np.int64) @ weights[:, : data.shape[-1]].T + start
    factors = np.broadcast_to(records[behind + 1 :].reshape(-1, 2), (attrs.units, 2))
    words = np.column_stack([factors, np.full(attrs.units, records[behind])])
    return np.asarray(rounded_array(sums, words).astype(np.int8))


def _case(depth: int, units: int, factors: int, has_pairs: bool) -> Case:
    multiplier = np.resize(np.resize([1 << 30, 1395864371], factors), units)
    words = rounding_words(multiplier, np.resize(np.resize([-7, -4, -9], factors), units), 9)
    assert words is not None
    least = -127 if has_pairs else -128
    weights = np.resize([127, least, 3, 5, -70], (units, depth)).astype(np.int64)
    records = _records(weights, np.resize([400, -30], units), words, has_pairs)
    return Case((((2, depth), "int8"), records), {"units": units, "has_pairs": has_pairs})


register(OpRecord(
    "qnn.rescaled_rows",
    inputs=("data", "records"),
    attrs=RescaledRowsAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    macs=macs,
    pattern=OPAQUE,
    contraction=ContractionRules(is_packed=True),
    mixed_precision="never",
    cases=[_case(8, 8, 1, False), _case(7, 6, 6, False), _case(6, 7, 7, True)],
    doc="A product of int8 rows with weights, rescaled to int8. A record is of four channels, or "
        "of those that are left: what their sums begin with, and by four inputs a word of weights "
        "for each. With has_pairs two channels share words of halves, of the first and third input "
        "and of the second and fourth: 256 times the first one's weight and the second's; sums "
        "begin with 256 times the first one's number and the second's, and with that. Behind them "
        "come the zero point times 2 and 1, and a multiplier less 2**31 times 2 and a shift as a "
        "power of 2, of all channels or of each.",
))

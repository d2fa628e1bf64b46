"""Dense and pointwise layers of few pixels with their rescaling in one kernel: qnn.rescaled_rows.

Four channels have one record: what their sums begin with, and by four inputs a word of weights of
each; the last has as many channels as are left. Behind them lies what rounds TWICE to bytes: the
zero point, and a multiplier and a shift of all channels, or of each.
"""

import math
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
from sterna.schedule.implementation import plan_of
from sterna.schedule.implementations.halves import IMPLEMENTATION as HALVES
from sterna.schedule.implementations.halves import Tile, layer_instructions
from sterna.schedule.kernel import Processor
from sterna.schedule.rescaled_rows_kernel import (
    FOUR,
    RescaledRowsKernel,
    rescaled_rows_instructions,
)
from sterna.te import Tensor, compute, reduce_axis
from sterna.te import sum as te_sum

# Instructions of a product in plain loops.
PLAIN_PRODUCT = 2.5


@attributes
class RescaledRowsAttrs(Attrs):
    """Of qnn.rescaled_rows."""

    units: int = 0
    """The output channels."""
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
    if words is None or _instructions(given) <= rescaled_rows_instructions(given.made):
        return None
    weights = given.weights.reshape(given.made.outputs, -1)
    records = const(_records(weights, given.start, words))
    records.span = given.sums.args[1].span
    return in_place_of(found, call(
        "qnn.rescaled_rows", given.sums.args[0], records, units=given.made.outputs,
        by_halves=True))


def _instructions(given: RescaledLayer) -> float:
    """Of such a layer as it is implemented."""
    plan = plan_of(given.sums.attrs)
    if plan is None or plan.name != HALVES.name:
        return layer_cost(given, PLAIN_PRODUCT)
    tile = Tile(plan.integer("pixels"), plan.integer("channels"))
    return layer_instructions(given.made, tile)


def _records(weights: Array, start: Array, words: Array) -> Array:
    """weights: (output, input); words: by channel a multiplier, a factor and what rounds."""
    more = -weights.shape[1] % GROUP
    four = np.pad(weights, [(0, 0), (0, more)]).astype(np.int8)
    whole = np.column_stack([start, np.ascontiguousarray(four).view("<i4").astype(np.int64)])
    blocks = [whole[first : first + FOUR].T.reshape(-1) for first in range(0, len(whole), FOUR)]
    factors = words[:, :2]
    if np.all(factors == factors[0]):
        factors = factors[:1]
    return np.concatenate([*blocks, words[0, 2:], factors.reshape(-1)]).astype(np.int32)


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
        kernel = RescaledRowsKernel(made, shape[:-1], has_one_factor)
        return kernel.tensor("T_rescaled", out, None, (data, records))
    whole, rest = divmod(attrs.units, FOUR)
    at = reduce_axis((0, depth), name="channel")

    def word(channel: Expr, place: Expr | int) -> Expr:
        block, lane = channel // FOUR, channel % FOUR
        count: Expr = build.const(FOUR)
        if rest:
            count = build.select(block < whole, count, build.const(rest))
        return records(block * (FOUR * (1 + groups)) + count * place + lane)

    def product(*i: Expr) -> Expr:
        weight = (word(i[-1], at.var // GROUP + 1) >> at.var % GROUP * 8).astype(INT8)
        return data(*i[:-1], at).astype(INT32) * weight.astype(INT32)

    sums: Tensor = compute(out.shape, lambda *i: te_sum(product(*i), axis=at), name="T_sums")

    def element(*i: Expr) -> Any:
        first = behind + 1 if has_one_factor else i[-1] * 2 + (behind + 1)
        total = (sums(*i) + word(i[-1], 0)).astype(INT64)
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
    four = np.ascontiguousarray(rows[:, 1:]).astype("<i4").view("<i1")
    weights = four[:, : data.shape[-1]].astype(np.int64)
    sums = data.astype(np.int64) @ weights.T + rows[:, 0]
    factors = np.broadcast_to(records[behind + 1 :].reshape(-1, 2), (attrs.units, 2))
    words = np.column_stack([factors, np.full(attrs.units, records[behind])])
    return np.asarray(rounded_array(sums, words).astype(np.int8))


def _case(depth: int, units: int, factors: int) -> Case:
    multiplier = np.resize(np.resize([1 << 30, 1395864371], factors), units)
    words = rounding_words(multiplier, np.resize(np.resize([-7, -4, -9], factors), units), 9)
    assert words is not None
    weights = np.resize([127, -128, 3, 5, -70], (units, depth))
    records = _records(weights, np.resize([400, -30], units), words)
    return Case((((2, depth), "int8"), records), {"units": units})


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
    cases=[_case(8, 8, 1), _case(7, 6, 6)],
    doc="A product of int8 rows with weights, rescaled to int8. A record is of four channels, or "
        "of those that are left: what their sums begin with, and by four inputs a word of each "
        "channel's weights. Behind them come the zero point times 2 and 1, and a multiplier less "
        "2**31 times 2 and a shift as a power of 2, of all channels or of each.",
))

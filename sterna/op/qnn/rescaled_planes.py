"""Depthwise convolutions of bytes with their rescaling in one kernel: qnn.rescaled_planes.

A channel's record is what its sums begin with, its weights as bytes, and what rounds TWICE to bytes
of any zero point.
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
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementations.planes import IMPLEMENTATION as PLANES
from sterna.schedule.implementations.planes import packed, unpacked
from sterna.schedule.kernel import Processor
from sterna.schedule.rescaled_plane_kernel import (
    PlaneTile,
    RescaledPlaneKernel,
    plane_tiles,
    record_words,
    rescaled_plane_instructions,
)
from sterna.schedule.rescaled_plane_steps import BESIDE
from sterna.te import Tensor, compute, if_then_else, reduce_axis
from sterna.te import all as all_of
from sterna.te import sum as te_sum

# Instructions of a product in plain loops, without a border and with one, and those of a run that
# each byte of code must spare.
PLAIN_PRODUCT, BORDER_PRODUCT, WORTH, CODE_BYTES = 2.2, 4.4, 5, 400


@attributes
class RescaledPlanesAttrs(DepthwiseAttrs):
    """Of qnn.rescaled_planes."""

    lanes: int = 1
    """Channels whose planes are copied together."""


def implement_planes(found: Call, processor: Processor) -> RelayExpr | None:
    """A depthwise layer's rescaling together with the layer, where that spares instructions."""
    if not processor.has_dot_halves or processor.has_dot_across:
        return None
    given = rescaled_layer(found)
    if given is None or not PLANES.suits(given.made):
        return None
    made, words = given.made, rounding_words(given.multiplier, given.power, given.zero)
    if words is None:
        return None
    costs = {tile: rescaled_plane_instructions(made, tile) for tile in plane_tiles(made)}
    tile = choose("tile", list(costs), costs.__getitem__)
    before = layer_cost(given, BORDER_PRODUCT if made.is_padded else PLAIN_PRODUCT)
    if before - costs[tile] <= WORTH * CODE_BYTES:
        return None
    records = const(_records(made, given.weights[..., 0], given.start, words))
    records.span = given.sums.args[1].span
    return in_place_of(found, call(
        "qnn.rescaled_planes", given.sums.args[0], records, window=made.window,
        strides=made.strides, dilation=made.dilation, padding=(*made.before, *made.after),
        border=made.border, outputs=tile.outputs, lanes=tile.lanes))


def _records(made: Contraction, weights: Array, start: Array, words: Array) -> Array:
    """By channel what sums begin with, words of weights, and what rounds.

    weights: (channel, row, column).
    """
    bytes_of_rows = packed(made, weights[..., None].astype(np.int8))
    four = np.ascontiguousarray(bytes_of_rows).view("<i4").reshape(len(weights), -1)
    return np.concatenate([start[:, None], four, words], 1).astype(np.int32)


# ---- the operator ----


def _infer(attrs: RescaledPlanesAttrs, data: Type, records: Type) -> TensorType:
    kind, words = bytes_and_records(data, records, 4)
    if not kind.is_static:
        raise ValueError(f"data has known extents, not {kind}")
    outputs, channels = words.concrete_shape[0], kind.concrete_shape[-1]
    made = depthwise_of(attrs, kind, outputs // channels * channels or channels if channels else 0)
    want = (made.outputs, record_words(made))
    if tuple(words.shape) != want or min(made.result) < 1:
        raise ValueError(f"records have the shape {want} for windows of {attrs.window} in {kind}, "
                         f"which they fit into, not {words.shape}")
    tile = PlaneTile(attrs.outputs, attrs.lanes)
    if attrs.outputs and (not PLANES.suits(made) or tile not in plane_tiles(made)):
        raise ValueError(f"tiles of {attrs.outputs} pixels of {attrs.lanes} channels do not fit "
                         f"to {kind}")
    return TensorType((made.batch, *made.result, made.outputs), INT8)


def _compute(
    attrs: RescaledPlanesAttrs, out: TensorType, data: Tensor, records: Tensor
) -> Tensor:
    made = depthwise_of(attrs, TensorType(data.shape, INT8), out.concrete_shape[-1])
    if attrs.outputs:
        kernel = RescaledPlaneKernel(made, PlaneTile(attrs.outputs, attrs.lanes))
        return kernel.tensor("T_rescaled", out, None, (data, records))
    row, column = (reduce_axis((0, n), name=f"r{axis}")
                   for n, axis in zip(attrs.window, "yx", strict=True))
    (down, across), (top, left), apart = attrs.strides, attrs.padding[:2], attrs.dilation
    pairs = (record_words(made) - BESIDE) // made.window[0]

    def product(n: Expr, y: Expr, x: Expr, channel: Expr) -> Expr:
        y = y * down + row.var * apart[0] - top
        x = x * across + column.var * apart[1] - left
        inside = all_of(y >= 0, y < made.image[0], x >= 0, x < made.image[1])
        read = data(n, y, x, channel // made.multiplier).astype(INT32)
        held = if_then_else(inside, read, attrs.border)
        pair = build.minimum(column.var // 2, pairs - 1)
        byte = column.var - 2 * pair
        word = records(channel, row.var * pairs + pair + 1)
        return held * ((word >> (byte + byte // 2) * 8).astype(INT8).astype(INT32))

    sums: Tensor = compute(
        out.shape, lambda *i: te_sum(product(*i), axis=[row, column]), name="T_sums")

    def element(*i: Expr) -> Any:
        behind = record_words(made) - BESIDE + 1
        begun, *words = (records(i[-1], place) for place in (0, *range(behind, behind + 3)))
        return rounded((sums(*i) + begun).astype(INT64), *words)

    result: Tensor = compute(out.shape, element, name="T_rescaled")
    return result


def _reference(attrs: RescaledPlanesAttrs, data: Array, records: Array) -> Array:
    made = depthwise_of(attrs, TensorType(data.shape, INT8), len(records))
    four = np.ascontiguousarray(records[:, 1:-3]).astype("<i4").view("<i1")
    weights = unpacked(made, four.reshape(made.outputs, made.window[0], -1, 4))
    top, left, bottom, right = attrs.padding
    repeated = np.repeat(data.astype(np.int64), made.multiplier, axis=3)
    padded = np.pad(repeated, [(0, 0), (top, bottom), (left, right), (0, 0)],
                    constant_values=attrs.border)
    sums = np.zeros((made.batch, *made.result, made.outputs), np.int64) + records[:, 0]
    for y, x in np.ndindex(made.window):
        (down, across), (rows, columns) = attrs.strides, made.result
        first, left = y * attrs.dilation[0], x * attrs.dilation[1]
        seen = padded[:, first :: down, left :: across]
        sums += seen[:, :rows, :columns] * weights[:, y, x].astype(np.int64)
    return np.asarray(rounded_array(sums, records[:, -3:]).astype(np.int8))


def _macs(attrs: RescaledPlanesAttrs, out: TensorType, *operands: TensorType) -> int:
    """One for each element of the result and each tap of the window."""
    return int(np.prod(out.concrete_shape)) * int(np.prod(attrs.window))


def _case(
    window: tuple[int, int], data: tuple[int, ...], outputs: int = 2, **attrs: Any
) -> Case:
    """So many channels whose weights are the largest and the smallest bytes."""
    given = RescaledPlanesAttrs(window=window, **attrs)
    made = depthwise_of(given, TensorType(data, INT8), outputs)
    weights = np.resize([127, -128, 3, 5, -70], (outputs, *window))
    words = rounding_words(
        np.resize([1 << 30, 1395864371], outputs), np.resize([-7, -4], outputs), 9)
    assert words is not None
    records = _records(made, weights, np.resize([400, -30], outputs), words)
    return Case(((data, "int8"), records), {"window": window, **attrs})


register(OpRecord(
    "qnn.rescaled_planes",
    inputs=("data", "records"),
    attrs=RescaledPlanesAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    macs=_macs,
    pattern=OPAQUE,
    contraction=ContractionRules(is_packed=True),
    mixed_precision="never",
    cases=[_case((3, 3), (1, 4, 5, 2), padding=(1, 1, 1, 1), border=-7),
           _case((1, 4), (2, 2, 9, 2), strides=(1, 2)),
           _case((2, 2), (1, 5, 4, 2), 6, dilation=(3, 2))],
    doc="A depthwise convolution of int8 with the channels last, rescaled to int8. There are "
        "records for each channel of the data, all as many. A record is "
        "what the sums of a channel begin with, its weights, four in a word (of each row the "
        "first, the second twice, the third, and so on from the third, the row filled up to an "
        "odd number of three or more), a multiplier less 2**31 times 2, a shift as a power of 2, "
        "and the zero point times 2 and 1.",
))

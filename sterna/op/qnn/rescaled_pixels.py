"""Pointwise convolutions of few bytes with their rescaling in one kernel: qnn.rescaled_pixels.

Rounding TWICE and upward is one sum and one shift: for n places behind the fraction of 31 bits

    ((x * m + 2**30 >> 31) + 2**(n - 1)) >> n  =  (x * m + 2**30 + 2**(30 + n)) >> (31 + n)

Of 2**k * x, whose product has both terms in its high word from k = 2 on, that is the high word,
an addend, and a shift by n + k - 1. Each channel takes the k that makes this shift the same for
all: weights as halves of words have room for it, and their sums too where there are few. That
serves where what is negative becomes the lowest byte. For other zero points, and for shifts that
lie far apart, each channel has its own.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Call as ScalarCall
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least
from sterna.op.qnn._double_rounding import (
    INT8,
    INT32,
    INT64,
    rounded,
    rounded_array,
    rounding_records,
)
from sterna.op.qnn._packed_halves import halves_of, macs, weight_at, weights_of
from sterna.op.qnn._rescaled_layer import RescaledLayer, in_place_of, rescaled_layer
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, RelayExpr, const
from sterna.relay.op import (
    OPAQUE,
    Case,
    ContractionRules,
    OpRecord,
    call,
    register,
)
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP
from sterna.schedule.implementation import plan_of
from sterna.schedule.implementations.halves import IMPLEMENTATION as HALVES
from sterna.schedule.implementations.halves import Tile, layer_instructions
from sterna.schedule.kernel import Processor
from sterna.schedule.rescaled_kernel import (
    BESIDE,
    WITH_SHIFT,
    RescaledKernel,
    pixels_of,
    rescaled_instructions,
)
from sterna.te import Tensor, compute, reduce_axis
from sterna.te import sum as te_sum

# Places that sums are shifted to the left by: fewer have no room for what rounds, and weights of
# 8 bits have no room for more.
LEAST_LEFT, MOST_LEFT = 2, 8
# Instructions of a run that each byte by which weights grow must spare.
WORTH = 100
LOWEST, HIGHEST = -128, 127
# No byte.
FREE = LOWEST - 1


@attributes
class RescaledPixelsAttrs(Attrs):
    """Of qnn.rescaled_pixels."""

    shift: int = 0
    """That of all channels; 0: each record has its own, and a zero point."""
    pixels: int = 0
    """Those whose sums are in registers together; 0: one after the other, on any processor."""

    def normalize(self) -> None:
        if not 0 <= self.shift <= 31:
            raise ValueError(f"shift is from 0 to 31, not {self.shift}")


def implement_pixels(found: Call, processor: Processor) -> RelayExpr | None:
    """A pointwise layer's rescaling together with the layer, where that spares instructions."""
    given = layer_of_pixels(found) if processor.has_dot_halves else None
    pixels = 0 if given is None else pixels_of(given.made)
    if given is None or pixels == 0:
        return None
    packed = None
    if given.zero == LOWEST:  # what is negative is the lowest anyway
        packed = records_of(given.weights, given.start, given.multiplier, given.power)
    if packed is None:
        own = rounding_records(
            given.weights, given.start, given.multiplier, given.power, given.zero)
        packed = None if own is None else (own, 0)
    if packed is None:
        return None
    records, shift = packed
    spared = pixel_instructions(given) - rescaled_instructions(given.made, pixels, shift > 0)
    if spared <= WORTH * given.made.weight_bytes:
        return None
    words = const(records)
    words.span = given.sums.args[1].span
    made = call("qnn.rescaled_pixels", given.sums.args[0], words, shift=shift, pixels=pixels)
    return in_place_of(found, made)


def layer_of_pixels(found: Call) -> RescaledLayer | None:
    """A layer of one tap by halves of words, with its weights (output, input)."""
    given = rescaled_layer(found)
    plan = None if given is None else plan_of(given.sums.attrs)
    if given is None or plan is None or plan.name != HALVES.name:
        return None
    made = given.made
    if made.taps > 1 or made.is_padded:
        return None
    return replace(given, weights=given.weights.reshape(made.outputs, made.depth).astype(np.int64))


def pixel_instructions(given: RescaledLayer) -> float:
    """Of such a layer as it is implemented."""
    plan = plan_of(given.sums.attrs)
    assert plan is not None
    tile = Tile(plan.integer("pixels"), plan.integer("channels"))
    return layer_instructions(given.made, tile)


def records_of(
    weights: Array, start: Array, multiplier: Array, power: Array
) -> tuple[Array, int] | None:
    """A record of each channel and the shift that all have; None where something has no room."""
    one = np.int64(1)
    fixed = _fixed(weights, start, multiplier, power)
    is_fixed = fixed > FREE
    if is_fixed.all():
        return None
    shift = int(-power[~is_fixed].min()) + LEAST_LEFT
    left = np.where(is_fixed, 0, shift + power)
    if left.max() > MOST_LEFT:
        return None
    wide = np.where(is_fixed[:, None], 0, weights << left[:, None])
    begun = np.where(is_fixed, 0, start << left)
    reach = (np.abs(wide).sum(1) << 7) + np.abs(begun)
    rounds = (one << np.maximum(left, LEAST_LEFT) - 2) + (one << shift - 2)
    addend = np.where(is_fixed, fixed << shift - 1, rounds + (LOWEST * (one << shift - 1)))
    if reach.max() >= 1 << 31 or np.abs(addend).max() >= 1 << 30:
        return None
    factor = np.where(is_fixed, 0, multiplier)
    parts = [begun[:, None], halves_of(wide), factor[:, None], addend[:, None]]
    return np.concatenate(parts, 1).astype(np.int32), shift - 1


def _fixed(weights: Array, start: Array, multiplier: Array, power: Array) -> Array:
    """By channel the byte that it is for any data, as its scale is next to nothing; or FREE."""
    least = start + np.minimum(weights * LOWEST, weights * HIGHEST).sum(1)
    most = start + np.maximum(weights * LOWEST, weights * HIGHEST).sum(1)
    places = np.maximum(-power, 1)

    def byte(sums: Array) -> Array:
        high = (sums * multiplier + (1 << 30)) >> 31
        rounded = (high + (np.int64(1) << places - 1)) >> places
        return np.clip(rounded + LOWEST, LOWEST, HIGHEST)

    is_fixed = (power < 0) & (byte(least) == byte(most))
    return np.where(is_fixed, byte(least), FREE)


# ---- the operator ----


def _infer(attrs: RescaledPixelsAttrs, data: Type, records: Type) -> TensorType:
    kind, words = at_least(data, "data", 2), at_least(records, "records", 2)
    depth, (outputs, length) = kind.shape[-1], words.shape[:2]
    if kind.dtype != INT8 or words.dtype != INT32:
        raise ValueError(f"data is int8 and records are int32, not {kind.dtype}, {words.dtype}")
    beside = _beside(attrs)
    if type(depth) is not int or depth % GROUP or (length, words.ndim) != (beside + depth // 2, 2):
        raise ValueError(
            f"records have {'three' if attrs.shift else 'four'} words and one for two channels, "
            f"which come by four; not shape {words.shape} for {depth} channels"
        )
    out = TensorType((*kind.shape[:-1], outputs), INT8)
    if attrs.pixels and attrs.pixels != pixels_of(_contraction(kind, out)):
        raise ValueError(f"tiles of {attrs.pixels} pixels do not fit to {out}")
    return out


def _beside(attrs: RescaledPixelsAttrs) -> int:
    """The words of a record beside its weights."""
    return BESIDE if attrs.shift else WITH_SHIFT


def _contraction(data: TensorType, out: TensorType) -> Contraction:
    shape = out.concrete_shape
    line = (1, math.prod(shape[:-1]))
    return Contraction(1, line, data.concrete_shape[-1], line, shape[-1], INT8, INT8, INT32)


def _compute(
    attrs: RescaledPixelsAttrs, out: TensorType, data: Tensor, records: Tensor
) -> Tensor:
    if attrs.pixels:
        made = _contraction(TensorType(data.shape, INT8), out)
        kernel = RescaledKernel(made, attrs.pixels, attrs.shift, out.concrete_shape[:-1])
        return kernel.tensor("T_rescaled", out, None, (data, records))
    depth = 2 * ((build.int_value(records.shape[-1]) or 0) - _beside(attrs))
    channel = reduce_axis((0, depth), name="channel")

    def product(*i: Expr) -> Expr:
        weight = weight_at(records, i[-1], channel.var)
        return data(*i[:-1], channel).astype(INT32) * weight

    sums: Tensor = compute(
        out.shape, lambda *i: te_sum(product(*i), axis=channel), name="T_sums")

    def element(*i: Expr) -> Any:
        total = (sums(*i) + records(i[-1], 0)).astype(INT64)
        first = 1 + depth // 2
        factor, *others = (
            records(i[-1], place) for place in range(first, first + _beside(attrs) - 1))
        if not attrs.shift:
            return rounded(total, factor, *others)
        high = (total * factor.astype(INT64)) >> 32
        return ScalarCall(INT8, "saturate", ((high.astype(INT32) + others[0]) >> attrs.shift,))

    result: Tensor = compute(out.shape, element, name="T_rescaled")
    return result


def _reference(attrs: RescaledPixelsAttrs, data: Array, records: Array) -> Array:
    behind = _beside(attrs) - 1
    plain = weights_of(records[:, 1:-behind])
    sums = (data.astype(np.int64) @ plain.T + records[:, 0]).astype(np.int32).astype(np.int64)
    if not attrs.shift:
        return rounded_array(sums, records[:, -behind:]).astype(np.int8)
    high = (sums * records[:, -2]) >> 32
    held = np.clip((high + records[:, -1]) >> attrs.shift, LOWEST, 127)
    return np.asarray(held.astype(np.int8))


_WEIGHTS = np.array([[127, -128, 3, 5], [1, -2, 90, -70]], np.int64)
_RECORDS, _SHIFT = records_of(
    _WEIGHTS, np.array([400, -30]), np.array([1 << 30, 1395864371]), np.array([-7, -4])) or (
    np.zeros((2, BESIDE + GROUP // 2), np.int32), 1)

_OWN = rounding_records(
    _WEIGHTS, np.array([400, -30]), np.array([1 << 30, 1395864371]), np.array([-7, -4]), 9)
assert _OWN is not None

register(OpRecord(
    "qnn.rescaled_pixels",
    inputs=("data", "records"),
    attrs=RescaledPixelsAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    macs=macs,
    pattern=OPAQUE,
    contraction=ContractionRules(is_packed=True),
    mixed_precision="never",
    cases=[Case((((3, 4), "int8"), _RECORDS), {"shift": _SHIFT}),
           Case((((3, 4), "int8"), _OWN), {})],
    doc="A product of int8 rows with weights of 16 bits, rescaled to int8: a record is what sums "
        "begin with, the weights of an output channel, by four (first, third, second, fourth) as "
        "halves of words, a multiplier, and what is added to the high word of the product before "
        "shift; or, where shift is 0, a multiplier less 2**31 times 2, a shift as a power of 2, "
        "and the zero point times 2 and 1.",
))

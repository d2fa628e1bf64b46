"""Residual connections of few channels in one kernel: qnn.residual_pixels.

A convolution of one tap is rescaled, rounding TWICE, to any zero point, and added to other bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Call as ScalarCall
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.qnn._double_rounding import (
    INT8,
    INT32,
    INT64,
    rounded,
    rounded_array,
    rounding_records,
)
from sterna.op.qnn._packed_halves import macs, weight_at, weights_of
from sterna.op.qnn.rescaled_pixels import layer_of_pixels, pixel_instructions
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, Constant, RelayExpr, const
from sterna.relay.op import (
    OPAQUE,
    Case,
    ContractionRules,
    OpRecord,
    call,
    is_call_of,
    register,
)
from sterna.relay.traverse import post_order
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP
from sterna.schedule.kernel import Processor
from sterna.schedule.rescaled_kernel import rescaled_instructions
from sterna.schedule.residual_kernel import (
    BESIDE,
    ResidualKernel,
    residual_instructions,
    residual_pixels_of,
)
from sterna.te import Tensor, compute, reduce_axis
from sterna.te import sum as te_sum

# Instructions of a run that each byte by which weights grow must spare, and those of a sum that
# is part of another kernel, and of one that is a kernel by itself.
WORTH, SUMMED, APART = 100, 6, 9


@attributes
class ResidualPixelsAttrs(Attrs):
    """Of qnn.residual_pixels."""

    strides: tuple[int, ...] = (1, 1)
    factor: int = 1
    beside_factor: int = 1
    start: int = 0
    shift: int = 1
    pixels: int = 0
    """Those whose sums are in registers together; 0: one after the other, on any processor."""

    def normalize(self) -> None:
        if len(self.strides) != 2 or min(self.strides) < 1:
            raise ValueError(f"strides are two numbers from 1 on, not {self.strides}")
        if not 1 <= self.shift <= 31:
            raise ValueError(f"shift is from 1 to 31, not {self.shift}")


def implement_sum(found: Call, processor: Processor, growth: float) -> RelayExpr | None:
    """A sum of bytes together with the layer that makes some of them, where that spares work."""
    attrs: Any = found.attrs
    if not processor.has_dot_halves or attrs.out_dtype != INT8 or not 1 <= attrs.shift <= 31:
        return None
    lhs, rhs = found.args
    factors = (attrs.lhs_factor, attrs.rhs_factor)
    for layer, beside, own in ((lhs, rhs, factors), (rhs, lhs, factors[::-1])):
        made = _with_layer(attrs, layer, beside, own)
        if made is not None:
            made.span = "\n".join(each for each in (layer.span, found.span) if each) or None
            return made
    return None


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer of one tap, rescaled to bytes, and what it and a sum take that is not part of it."""

    made: Contraction
    data: RelayExpr
    records: Array
    """Of each channel, without how many follow."""
    span: str | None
    instructions: float
    growth: int
    """Bytes by which weights grow."""


def _layer_of(layer: Call) -> _Layer | None:
    """A layer that may already be one kernel with its rescaling; None if it is no such layer."""
    attrs: Any = layer.attrs
    if is_call_of(layer, "qnn.rescaled_pixels") and attrs.pixels and not attrs.shift:
        data, words = layer.args
        assert isinstance(words, Constant)
        made = _contraction((1, 1), tensor_type(data), tensor_type(layer))
        takes = rescaled_instructions(made, attrs.pixels, False) + _sums(made, APART)
        return _Layer(made, data, to_numpy(words.data), words.span, takes, 0)
    given = layer_of_pixels(layer) if is_call_of(layer, "qnn.rescale") else None
    if given is None or given.made.depth % GROUP:
        return None
    parts = given.weights, given.start, given.multiplier, given.power
    records = rounding_records(*parts, given.zero)
    if records is None:
        return None
    data, weight = given.sums.args[:2]
    takes = pixel_instructions(given) + _sums(given.made, SUMMED)
    return _Layer(given.made, data, records, weight.span, takes, given.made.weight_bytes)


def _sums(made: Contraction, each: int) -> int:
    return each * made.pixels * made.outputs


def _with_layer(
    attrs: Any, layer: RelayExpr, beside: RelayExpr, factors: tuple[int, int]
) -> RelayExpr | None:
    if not isinstance(layer, Call) or tensor_type(layer) != tensor_type(beside):
        return None
    given = _layer_of(layer) if tensor_type(layer).ndim == 4 else None
    if given is None:
        return None
    made, pixels = given.made, residual_pixels_of(given.made)
    if pixels == 0 or any(part is layer for part in post_order(beside)):
        return None  # what others read, too, would be computed twice
    spared = given.instructions - residual_instructions(made, pixels)
    if spared <= WORTH * given.growth:
        return None
    words = const(counted(given.records))
    words.span = given.span
    return call(
        "qnn.residual_pixels", given.data, words, beside, strides=made.strides,
        factor=factors[0], beside_factor=factors[1], start=attrs.start, shift=attrs.shift,
        pixels=pixels)


def counted(records: Array) -> Array:
    """Records of channels, each with how many follow."""
    return np.column_stack([records, np.arange(len(records), dtype=np.int32)[::-1]])


# ---- the operator ----


def _infer(attrs: ResidualPixelsAttrs, data: Type, records: Type, beside: Type) -> TensorType:
    kind, words, other = tensor(data, "data", 4), at_least(records, "records", 2), tensor(
        beside, "beside", 4)
    if (kind.dtype, words.dtype, other.dtype) != (INT8, INT32, INT8):
        raise ValueError("data and beside are int8, and records are int32, not "
                         f"{kind.dtype}, {other.dtype} and {words.dtype}")
    depth, (outputs, length) = kind.shape[-1], words.shape[:2]
    if type(depth) is not int or depth % GROUP or (length, words.ndim) != (BESIDE + depth // 2, 2):
        raise ValueError(
            "records have five words and one for two channels, which come by four; not shape "
            f"{words.shape} for {depth} channels"
        )
    extents = zip(kind.concrete_shape[1:3], attrs.strides, strict=True)
    out = TensorType((kind.shape[0], *(-(-n // step) for n, step in extents), outputs), INT8)
    if out != other:
        raise ValueError(f"beside is {out} as the result, not {other}")
    if attrs.pixels and attrs.pixels != residual_pixels_of(_contraction(attrs.strides, kind, out)):
        raise ValueError(f"tiles of {attrs.pixels} pixels do not fit to {out}")
    return out


def _contraction(
    strides: tuple[int, ...], data: TensorType, out: TensorType
) -> Contraction:
    batch, rows, columns, inputs = data.concrete_shape
    result = out.concrete_shape
    return Contraction(batch, (rows, columns), inputs, result[1:3], result[3], INT8, INT8, INT32,
                       strides=strides)


def _factors(attrs: ResidualPixelsAttrs) -> tuple[int, int, int, int]:
    return attrs.factor, attrs.beside_factor, attrs.start, attrs.shift


def _compute(
    attrs: ResidualPixelsAttrs, out: TensorType, data: Tensor, records: Tensor, beside: Tensor
) -> Tensor:
    if attrs.pixels:
        made = _contraction(attrs.strides, TensorType(data.shape, INT8), out)
        kernel = ResidualKernel(made, attrs.pixels, _factors(attrs), out.concrete_shape[:-1])
        return kernel.tensor("T_residual", out, None, (data, records, beside))
    depth = 2 * (build.int_value(records.shape[-1]) or 0) - 2 * BESIDE
    channel = reduce_axis((0, depth), name="channel")

    def product(n: Expr, y: Expr, x: Expr, output: Expr) -> Expr:
        down, across = attrs.strides
        weight = weight_at(records, output, channel.var)
        return data(n, y * down, x * across, channel).astype(INT32) * weight

    sums: Tensor = compute(
        out.shape, lambda *i: te_sum(product(*i), axis=channel), name="T_sums")

    def element(*i: Expr) -> Any:
        begun, factor, right, zero = (
            records(i[-1], place) for place in (0, *range(1 + depth // 2, 4 + depth // 2)))
        own = rounded((sums(*i) + begun).astype(INT64), factor, right, zero)
        both = own.astype(INT32) * attrs.factor + beside(*i).astype(INT32) * attrs.beside_factor
        return ScalarCall(INT8, "saturate", ((both + attrs.start) >> attrs.shift,))

    result: Tensor = compute(out.shape, element, name="T_residual")
    return result


def _reference(attrs: ResidualPixelsAttrs, data: Array, records: Array, beside: Array) -> Array:
    plain = weights_of(records[:, 1:-4])
    down, across = attrs.strides
    sums = data[:, ::down, ::across].astype(np.int64) @ plain.T + records[:, 0]
    own = rounded_array(sums, records[:, -4:-1])
    both = own * attrs.factor + beside.astype(np.int64) * attrs.beside_factor + attrs.start
    return np.asarray(np.clip(both >> attrs.shift, -128, 127).astype(np.int8))


_RECORDS = rounding_records(
    np.array([[127, -128, 3, 5], [1, -2, 90, -70]], np.int64), np.array([400, -30]),
    np.array([1 << 30, 1395864371]), np.array([-7, -4]), 9)
assert _RECORDS is not None

register(OpRecord(
    "qnn.residual_pixels",
    inputs=("data", "records", "beside"),
    attrs=ResidualPixelsAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    macs=macs,
    pattern=OPAQUE,
    contraction=ContractionRules(is_packed=True),
    mixed_precision="never",
    cases=[Case((((1, 3, 5, 4), "int8"), counted(_RECORDS), ((1, 2, 3, 2), "int8")),
                {"strides": (2, 2), "factor": 3526604, "beside_factor": -8912256, "shift": 22})],
    doc="A convolution of one tap of int8, rescaled to int8, times factor, and beside times "
        "beside_factor, added to start, shifted to the right. A record is what sums begin with, "
        "the weights of an output channel, by four (first, third, second, fourth) as halves of "
        "words, a multiplier less 2**31 times 2, a shift as a power of 2, the zero point times 2 "
        "and 1, and how many channels follow.",
))

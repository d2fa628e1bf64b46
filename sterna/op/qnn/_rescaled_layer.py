"""Layers that are rescaled, rounding TWICE to bytes: what a kernel of both has to know."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, axis_of, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.nn._conv_implementation import with_known_weights
from sterna.op.qnn._double_rounding import INT8, INT32
from sterna.op.windows import full_padding, positive
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.infer import infer
from sterna.relay.op import call, is_call_of, record_of
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import plan_of, unpacked
from sterna.schedule.implementations.halves import FINISHED
from sterna.schedule.implementations.planes import IMPLEMENTATION as PLANES
from sterna.schedule.implementations.planes import layer_instructions


@dataclass(frozen=True, slots=True)
class RescaledLayer:
    """A layer of known weights, rounded TWICE to bytes; by output channel."""

    sums: Call
    made: Contraction
    weights: Array
    """(output, window, input)"""
    start: Array
    """What is added to sums."""
    multiplier: Array
    power: Array
    zero: int


@attributes
class DepthwiseAttrs(Attrs):
    """Of a depthwise layer with its rescaling."""

    window: tuple[int, ...] = (3, 3)
    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0, 0, 0)
    dilation: tuple[int, ...] = (1, 1)
    border: int = 0
    """What lies outside of the data."""
    outputs: int = 0
    """Results of a row in registers together; 0: one after the other, on any processor."""

    def normalize(self) -> None:
        given = {"window": self.window, "strides": self.strides, "dilation": self.dilation}
        if any(len(extents) != 2 for extents in given.values()):
            raise ValueError("window, strides and dilation are of two axes, not "
                             f"{self.window}, {self.strides}, {self.dilation}")
        for name, extents in given.items():
            positive(extents, name)
        self.padding = full_padding(self.padding, 2)


def depthwise_of(attrs: DepthwiseAttrs, data: TensorType, outputs: int) -> Contraction:
    """The layer, of so many channels."""
    batch, *image, channels = data.concrete_shape
    before, after = attrs.padding[:2], attrs.padding[2:]
    reach = [(k - 1) * apart for k, apart in zip(attrs.window, attrs.dilation, strict=True)]
    extents = zip(image, reach, attrs.strides, before, after, strict=True)
    result = tuple((n + first + last - k - 1) // step + 1 for n, k, step, first, last in extents)
    return Contraction(
        batch, tuple(image), channels, result, outputs, INT8, INT8, INT32, attrs.window,
        attrs.strides, attrs.dilation, before=before, after=after, groups=channels,
        border=attrs.border,
    )


def layer_cost(given: RescaledLayer, product: float) -> float:
    """Instructions of a layer as it is implemented, with so many for a product in plain loops."""
    plan, made = plan_of(given.sums.attrs), given.made
    if plan is not None and plan.name == PLANES.name:
        return layer_instructions(made, plan.integer("outputs"))
    return made.pixels * made.outputs * (FINISHED + product * made.products)


def bytes_and_records(data: Type, records: Type, ndim: int) -> tuple[TensorType, TensorType]:
    """Types of bytes with so many dimensions, and of the records of output channels."""
    kind, words = tensor(data, "data", ndim), at_least(records, "records", 2)
    if kind.dtype != INT8 or words.dtype != INT32:
        raise ValueError(f"data is int8 and records are int32, not {kind.dtype}, {words.dtype}")
    return kind, words


def rescaled_layer(found: Call) -> RescaledLayer | None:
    """What is rescaled by normal factors, if it is such a layer and its parameters are known."""
    attrs: Any = found.attrs
    return _layer(found) if attrs.is_normal else None


def with_normal_factors(found: Call) -> Call | None:
    """The same, where some shift goes a single place to the right and all sums have room for it."""
    attrs: Any = found.attrs
    given = None if attrs.is_normal else _layer(found)
    if given is None or given.multiplier.min() < 1 << 30 or given.power.max() >= 0:
        return None
    weights = given.weights.astype(np.int64)
    reach = np.abs(weights).reshape(len(weights), -1).sum(1) << 7
    if (reach + np.abs(given.start)).max() >= 1 << 30:
        return None
    return Call(found.op, found.args, attrs.replace(is_normal=True, scales_down=True))


def _layer(found: Call) -> RescaledLayer | None:
    attrs: Any = found.attrs
    total, *factors, near, zero = found.args
    points = [_number(each) for each in (near, zero)]
    if attrs.rounding != "TWICE" or attrs.out_dtype != INT8:
        return None
    sums, start = _split_bias(total)
    if points[0] != 0 or points[1] is None or not isinstance(sums, Call):
        return None
    is_layer = is_call_of(sums, "nn.conv2d") or is_call_of(sums, "nn.dense")
    if not is_layer or not _reads_channels(attrs, start, sums):
        return None
    described = _described(sums)
    known = [to_numpy(each.data) for each in factors if isinstance(each, Constant)]
    if described is None or len(known) < len(factors):
        return None
    made, weights = described
    start, multiplier, power = (
        np.broadcast_to(values.reshape(-1), made.outputs).astype(np.int64)
        for values in (start, *known)
    )
    return RescaledLayer(sums, made, weights, start, multiplier, power, points[1])


def in_place_of(found: Call, made: Call) -> RelayExpr:
    """A kernel's result with the extents of what it stands for."""
    infer(made)
    shape = tensor_type(found).concrete_shape
    return made if tensor_type(made).shape == shape else call("reshape", made, newshape=shape)


def _split_bias(total: RelayExpr) -> tuple[RelayExpr, Array]:
    """Sums, and the constants that are added to them."""
    for name, sign in (("add", 1), ("subtract", -1)):
        if isinstance(total, Call) and is_call_of(total, name):
            sums, added = total.args
            if isinstance(added, Constant):
                return _of_an_image(sums), sign * to_numpy(added.data).astype(np.int64)
    return _of_an_image(total), np.zeros((), np.int64)


def _of_an_image(sums: RelayExpr) -> RelayExpr:
    """What is no more than arranged in other rows of pixels."""
    if isinstance(sums, Call) and is_call_of(sums, "reshape"):
        (read,) = sums.args
        if tensor_type(read).shape[-1:] == tensor_type(sums).shape[-1:]:
            return read
    return sums


def _number(parameter: RelayExpr) -> int | None:
    if not isinstance(parameter, Constant):
        return None
    values = to_numpy(parameter.data).reshape(-1)
    return int(values[0]) if values.size and np.all(values == values[0]) else None


def _reads_channels(attrs: Any, start: Array, sums: Call) -> bool:
    """Whether factors, and what is added, are one number or of the last axis: of channels."""
    ndim = tensor_type(sums).ndim
    is_last = axis_of(attrs.axis, ndim) == ndim - 1
    return is_last and (start.size == 1 or start.size == start.shape[-1])


def _described(sums: Call) -> tuple[Contraction, Array] | None:
    """A layer, with its weights (output, window, input)."""
    plan, (data, weight) = plan_of(sums.attrs), sums.args[:2]
    if plan is None and is_call_of(sums, "nn.conv2d"):
        return with_known_weights(sums)
    record = record_of(sums)
    describe = None if record is None else record.contraction.describe
    if not isinstance(weight, Constant) or len(sums.args) > 2 or describe is None:
        return None
    made = describe(sums.attrs, tensor_type(data), tensor_type(weight))
    if made is None or sums.attrs is None:
        return None
    known = to_numpy(weight.data)
    if plan is None:
        return made, known.reshape(made.outputs, *made.window, made.depth)
    return made, unpacked(sums.attrs, made, [known])

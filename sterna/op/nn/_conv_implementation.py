"""Convolutions whose weights are packed for the implementation that costs least."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir.types import TensorType
from sterna.op.nn._conv_factors import factors_into_weights
from sterna.op.nn._conv_shape import ConvAttrs, Layouts, contraction_of
from sterna.op.nn._padded_channels import with_wide_channels
from sterna.relay.arrays import Array, shared_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, const
from sterna.relay.infer import infer
from sterna.relay.layout import layout_of, to_plain
from sterna.relay.op import Way
from sterna.relay.op import call as call_of
from sterna.schedule.choose import choose, deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.cost import depthwise_cycles, tiled_cycles
from sterna.schedule.epilogue import Epilogue
from sterna.schedule.expression import Expression
from sterna.schedule.implementation import (
    Candidate,
    Plan,
    best_candidate,
    compute_packed,
    packed_operands,
    unpacked,
    ways_to_grow,
)
from sterna.schedule.implementations.direct import packing_of
from sterna.schedule.implementations.im2col import IMPLEMENTATION as IM2COL
from sterna.schedule.implementations.im2col import (
    im2col_cycles,
    offers_im2col,
    packed_in_graph,
    taken_image,
    with_border,
)
from sterna.schedule.implementations.polyphase import IMPLEMENTATION as POLYPHASE
from sterna.schedule.implementations.polyphase import offers_polyphase, polyphase_cycles
from sterna.schedule.implementations.winograd import IMPLEMENTATION as WINOGRAD
from sterna.schedule.implementations.winograd import transformed_in_graph
from sterna.schedule.kernel import Processor
from sterna.schedule.packed import expression_of
from sterna.schedule.sum_of_products import DIRECT
from sterna.support.dtype import DataType
from sterna.te import Tensor


def grouped_weights(attrs: ConvAttrs, weight: Array, channels: int) -> Array:
    """Weights as (group, output channel of the group, input channel of the group, window)."""
    layouts = Layouts.of(attrs)
    plain = to_plain(weight, layouts.kernel, f"OI{layouts.spatial}")
    outer, inner, *window = plain.shape
    if 1 < attrs.groups == channels == outer:
        return plain.reshape(outer, inner, 1, *window)
    return plain.reshape(attrs.groups, outer // attrs.groups, inner, *window)


def implement_conv(call: Call, processor: Processor, growth: float) -> RelayExpr | None:
    """A convolution with known weights, packed; None where it runs best as it stands."""
    attrs: Any = call.attrs
    data, weight = call.args[:2]
    described = with_known_weights(call)
    if described is None:
        return _with_free_weights(call, processor, growth)
    made, plain = described
    wide = with_wide_channels(call, made, processor)
    if wide is not None:
        return _cut_to(made, attrs, wide, processor, growth)
    found = best_candidate(made, plain, processor, growth)
    if found.pack is None:
        return None
    seen = made if found.arranged is None else found.arranged.contraction
    packed = _packed_attrs(attrs, found.plan, seen)
    operands, how = packed_operands(found, data, weight), expression_of(packed)
    if how is not None:
        operands = factors_into_weights(made, layout_of(how.weights), *operands)
    return Call(call.op, operands, packed)


def _cut_to(
    made: Contraction, attrs: Any, wide: Call, processor: Processor, growth: float
) -> RelayExpr:
    """The channels that a convolution with further ones was made for."""
    infer(wide)
    whole = implement_conv(wide, processor, growth) or wide
    axis = layout_of(attrs.out_layout or attrs.data_layout).index_of("C")
    return call_of("strided_slice", whole, begin=(0,), end=(made.outputs,), axes=(axis,))


def _packed_attrs(attrs: Any, plan: Plan, seen: Contraction) -> ConvAttrs:
    """Of a convolution whose weights are packed for a plan, over data as it is arranged."""
    packed: ConvAttrs = attrs.replace(
        implementation=str(plan), channels=seen.outputs, kernel_size=seen.window,
        strides=seen.strides, padding=(*seen.before, *seen.after), data_layout=seen.data_layout,
        out_layout="" if seen.out_layout == seen.data_layout else seen.out_layout,
        kernel_layout=_plain_layout(attrs), out_dtype=seen.out,
    )
    return packed


def _with_free_weights(call: Call, processor: Processor, growth: float) -> RelayExpr | None:
    """With channels first weights that only the run knows are packed for im2col as it begins.

    With channels last they are transformed for Winograd's way, or laid out for register tiles.
    """
    attrs: Any = call.attrs
    data, weight = call.args[:2]
    if attrs.implementation or isinstance(weight, Constant) or attrs.kernel_layout != "OIHW":
        return None
    made = described_conv(call)
    if made is None:
        return None
    if made.channels_last:
        return _with_free_weights_last(call, made, processor, growth)
    with deciding(str(made)):
        found = _ways_with_channels_first(made, processor)
        taken = choose("implementation", found, lambda each: each.cycles)
    if taken.plan.name == IM2COL.name:
        seen = taken_image(made, taken.plan)
        padded = data if seen is made else with_border(made, data)
        packed = packed_in_graph(seen, taken.plan, weight)
        return Call(call.op, (padded, packed), _packed_attrs(attrs, taken.plan, seen))
    return _by_planes(call, made, taken.plan) if taken.plan.name == POLYPHASE.name else None


def _ways_with_channels_first(made: Contraction, processor: Processor) -> list[Candidate]:
    """The ways to compute a convolution whose weights only the run knows.

    im2col copies every element for each place of the window, which a depthwise one need not.
    """
    found = []
    if offers_im2col(made, processor):
        plan, cycles = IM2COL.plan(made, processor), im2col_cycles(made, processor)
        found.append(Candidate(plan, cycles, label=IM2COL.name))
    if offers_polyphase(made, processor):
        plan, cycles = POLYPHASE.plan(made, processor), polyphase_cycles(made, processor)
        found.append(Candidate(plan, cycles, label=POLYPHASE.name))
    if made.is_depthwise or not found:
        found.append(Candidate(Plan.of(DIRECT), depthwise_cycles(made, processor), label=DIRECT))
    return found


def implement_planes(call: Call, processor: Processor, growth: float) -> RelayExpr | None:
    """A depthwise convolution of rows or volumes, plane by plane; None where that does not pay."""
    attrs: Any = call.attrs
    made = described_conv(call)
    plain = f"OI{Layouts.of(attrs).spatial}"
    if made is None or attrs.implementation or attrs.kernel_layout != plain:
        return None
    if not offers_polyphase(made, processor):
        return None
    with deciding(str(made)):
        found = _ways_with_channels_first(made, processor)
        taken = choose("implementation", found, lambda each: each.cycles)
    return _by_planes(call, made, taken.plan) if taken.plan.name == POLYPHASE.name else None


def _by_planes(call: Call, made: Contraction, plan: Plan) -> RelayExpr:
    data, weight = call.args[:2]
    shape = (made.outputs, made.taps)
    if isinstance(weight, Constant):
        packed: RelayExpr = const(shared_numpy(weight.data).reshape(shape))
    else:
        packed = call_of("reshape", weight, newshape=shape)
    return Call(call.op, (data, packed), _packed_attrs(call.attrs, plan, made))


def _with_free_weights_last(
    call: Call, made: Contraction, processor: Processor, growth: float
) -> RelayExpr | None:
    attrs: Any = call.attrs
    data, weight = call.args[:2]
    found = [each for each in ways_of_free_weights(made, processor) if each.growth <= growth]
    if not found:
        return None
    with deciding(str(made)):
        taken = choose("implementation", found, lambda each: each.cycles)
    if taken.plan.name == WINOGRAD.name:
        packed = transformed_in_graph(made, taken.plan, weight, attrs.kernel_layout, processor)
        return Call(call.op, (data, packed), _packed_attrs(attrs, taken.plan, made))
    layout = Expression.of(taken.plan).weights
    if not layout:
        return None
    laid = call_of("layout_transform", weight, src_layout=attrs.kernel_layout, dst_layout=layout)
    return Call(call.op, (data, laid), attrs.replace(kernel_layout=layout))


def ways_of_free_weights(made: Contraction, processor: Processor) -> list[Candidate]:
    """The ways to compute a convolution with channels last whose weights only the run knows."""
    with deciding(str(made)):
        plan = packing_of(made, processor).plan(DIRECT)
    return [
        Candidate(plan, tiled_cycles(made, processor)),
        *WINOGRAD.of_free_weights(made, processor),
    ]


def ways_of_conv(call: Call, processor: Processor) -> list[Way]:
    """The ways among which implement_conv picks by the growth that they are allowed."""
    described = with_known_weights(call)
    return [] if described is None else ways_to_grow(*described, processor)


def with_known_weights(call: Call) -> tuple[Contraction, Array] | None:
    """A convolution's description, with weights that can be packed; None if they cannot."""
    attrs: Any = call.attrs
    weight, made = call.args[1], None if attrs.implementation else described_conv(call)
    if made is None or not isinstance(weight, Constant):
        return None
    grouped = grouped_weights(attrs, shared_numpy(weight.data), made.inputs)
    return made, np.moveaxis(grouped.reshape(made.outputs, made.depth, *made.window), 1, -1)


def described_conv(call: Call) -> Contraction | None:
    """A convolution's description; None if its extents are not known."""
    data, weight = (arg.checked_type for arg in call.args[:2])
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType):
        return None
    return contraction_of(call.attrs, data, weight)


def _plain_layout(attrs: ConvAttrs) -> str:
    return f"O{Layouts.of(attrs).spatial}I"


def as_expression(attrs: ConvAttrs) -> tuple[ConvAttrs, Expression]:
    """How a convolution's sum is written, and the same convolution of weights in that layout."""
    how = expression_of(attrs)
    assert how is not None, "it has no statements of its own"
    if how.weights:
        attrs = attrs.replace(implementation="", kernel_layout=how.weights)
    return attrs, how


def compute_implemented(
    attrs: ConvAttrs, out: TensorType, epilogue: Epilogue | None, data: Tensor, *weights: Tensor
) -> Tensor | None:
    """The statements of the implementation that weights are packed for, with what follows."""
    return compute_packed(attrs, _contraction(attrs, data, weights), out, epilogue, data, weights)


def with_plain_weights(
    attrs: ConvAttrs, data: Array, weights: Sequence[Array]
) -> tuple[ConvAttrs, Array]:
    """The same convolution with its weights as they were before they were packed."""
    if not attrs.implementation:
        return attrs, weights[0]
    plain = attrs.replace(implementation="", kernel_layout=_plain_layout(attrs))
    return plain, unpacked(attrs, _contraction(attrs, data, weights), weights)


def _contraction(
    attrs: ConvAttrs, data: Tensor | Array, weights: Sequence[Tensor | Array]
) -> Contraction | None:
    kinds = [TensorType(each.shape, DataType(str(each.dtype))) for each in (data, weights[0])]
    return contraction_of(attrs, *kinds) if attrs.implementation else None

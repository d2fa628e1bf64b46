"""The layouts of convolutions: which runs best on a processor, and how others pass through."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sterna.ir.types import TensorType
from sterna.op.nn._conv_implementation import (
    described_conv,
    ways_of_free_weights,
    with_known_weights,
)
from sterna.op.nn._conv_shape import contraction_of
from sterna.op.nn._padded_channels import has_few_channels, with_wide_weights
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.layout import from_plain, layout_of
from sterna.relay.layout_rules import Laid, LayoutPlan, Operands
from sterna.relay.passes.combine_parallel import ParallelRule
from sterna.relay.passes.fold_scale_axis import ScaleRule
from sterna.schedule.choose import choose, deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.conv_stages import UNROLLED_CHANNELS
from sterna.schedule.cost import KERNEL, LINE_BYTES, MOVED, depthwise_cycles
from sterna.schedule.dot4 import has_bytes, takes_dot4
from sterna.schedule.implementation import least_cycles
from sterna.schedule.implementations.direct import packing_of, pixel_cycles
from sterna.schedule.implementations.im2col import im2col_cycles, offers_im2col
from sterna.schedule.implementations.polyphase import depthwise_cycles_first
from sterna.schedule.kernel import Processor
from sterna.schedule.products import FLOAT32


def conv_layout(attrs: Any, old: Any, operands: Operands) -> LayoutPlan | None:
    """A convolution has the layouts that its attributes name."""
    result = Laid(old.out_layout or old.data_layout, attrs.out_layout or attrs.data_layout)
    data = Laid(old.data_layout, attrs.data_layout)
    weight = Laid(old.kernel_layout, attrs.kernel_layout)
    others = [None] * (len(operands) - 2)  # scales and zero points
    return LayoutPlan((data, weight, *others), (result,), attrs)


def convert_conv(
    attrs: Any, args: tuple[RelayExpr, ...], layouts: tuple[str, ...]
) -> Attrs | None:
    """The layouts that a user wants: of the data, and of the weights or "default"."""
    data = layouts[0] if layouts else "default"
    if data == "default":
        return None
    kernel = layouts[1] if len(layouts) > 1 else "default"
    spatial = "".join(axis for axis in layout_of(data).primal if axis not in "NC")
    if kernel == "default":
        last = layout_of(data).primal.endswith("C")
        per_channel = "OI" if attrs.groups > 1 and last else "IO"
        kernel = f"{spatial}{per_channel}" if last else f"OI{spatial}"
    made: Attrs = attrs.replace(data_layout=data, kernel_layout=kernel, out_layout="")
    return made


def convert_transposed(
    attrs: Any, args: tuple[RelayExpr, ...], layouts: tuple[str, ...]
) -> Attrs | None:
    """The same of transposed convolutions, whose weights begin with input channels."""
    data = layouts[0] if layouts else "default"
    if data == "default" or (len(layouts) > 1 and layouts[1] != "default"):
        return convert_conv(attrs, args, layouts)
    spatial = "".join(axis for axis in layout_of(data).primal if axis not in "NC")
    last = layout_of(data).primal.endswith("C")
    return convert_conv(attrs, args, (data, f"{spatial}OI" if last else f"IO{spatial}"))


def device_conv(attrs: Any, args: tuple[RelayExpr, ...]) -> Attrs | None:
    """Channels last: neighbouring threads have neighbouring channels, and so have products.

    Weights of products are rows as long as the sums; of depthwise convolutions their channels lie
    last, as the data's. So do the results' channels of those with few others: rows of their sums
    would be no multiples of 16 bytes.
    """
    layouts = (attrs.data_layout, attrs.out_layout or attrs.data_layout, attrs.kernel_layout)
    if any(layout_of(layout).is_blocked for layout in layouts):
        return None
    spatial = "".join(axis for axis in layout_of(attrs.data_layout).primal if axis not in "NC")
    kind = args[0].checked_type
    assert isinstance(kind, TensorType)
    channels = layout_of(attrs.data_layout).dims(kind.shape)["C"]
    is_depthwise = attrs.groups > 1 and channels == attrs.groups
    weights = f"{spatial}OI" if is_depthwise else f"O{spatial}I"
    is_odd = isinstance(channels, int) and channels * kind.dtype.bytes % ROW_BYTES != 0
    if attrs.groups == 1 and is_odd:
        weights = f"{spatial}IO"
    wanted = (f"N{spatial}C", weights)
    return None if layouts == (wanted[0], *wanted) else convert_conv(attrs, args, wanted)


@dataclass(frozen=True, slots=True)
class Layouts2D:
    """The layouts of a convolution's data and of its result."""

    data: str
    out: str

    def __str__(self) -> str:
        """NCHW -> NHWC"""
        return f"{self.data} -> {self.out}"


LAST = Layouts2D("NHWC", "NHWC")
ROW_BYTES = 16
"""What a row of weights is a multiple of where a device copies it."""
# Cycles in which an element goes into another layout within the second cache, and where squares
# are transposed whose rows are whole lines.
MOVED_NEAR, MOVED_BY_LINES = 1.25, 0.9


@dataclass(frozen=True, slots=True)
class LayoutCosts:
    """What convolutions cost whose layouts pass to each other, in cycles."""

    as_they_lie: float
    preferred: float
    """In the layouts that they prefer, with what comes and goes moved into these and back."""


def layout_costs(calls: Sequence[Call], moved: int, processor: Processor) -> LayoutCosts | None:
    """What convolutions cost with their channels first, and last; None where some cannot be so."""
    lying = other = 0.0
    near = True
    for call in calls:
        attrs: Any = call.attrs
        made, known = described_conv(call), with_known_weights(call)
        if made is None or not offers_im2col(made, processor):
            return None
        if known is None and attrs.kernel_layout != "OIHW":
            return None
        laid = _best_layouts(made, processor)
        seen = replace(made, data_layout=laid.data, out_layout=laid.out)
        if laid.data == made.data_layout:
            moved -= made.batch * made.inputs * math.prod(made.image)
        size = made.inputs * math.prod(made.image) + made.outputs * math.prod(made.result)
        fits = made.batch * size * made.data.bytes <= processor.l2_bytes
        near = near and made.is_depthwise and fits
        if made.is_depthwise:
            lying += depthwise_cycles_first(made, processor)
            other += depthwise_cycles(seen, processor)
            continue
        if known is None:
            lying += im2col_cycles(made, processor)
            other += min(each.cycles for each in ways_of_free_weights(seen, processor))
        else:
            lying += min(im2col_cycles(made, processor), pixel_cycles(made, processor))
            other += least_cycles(*with_wide_weights(seen, known[1], processor), processor)
    if near and processor.lanes(FLOAT32) * FLOAT32.bytes >= LINE_BYTES:
        moving = 2 * KERNEL + MOVED_BY_LINES * moved / processor.threads
    else:
        moving = (MOVED_NEAR if near else MOVED) * moved / processor.threads
    return LayoutCosts(lying, other + moving)


def alter_conv2d(
    attrs: Any, args: tuple[RelayExpr, ...], processor: Processor,
    costs: LayoutCosts | None = None,
) -> Attrs | None:
    """Channels last, in most cases.

    A few channels stay where they are: a tile reads them one by one, wherever they lie. So does
    everything where few channels are made by vectors of pixels, and where products with vectors of
    pixels cost less than moving channels.
    """
    data, weight = args[0].checked_type, args[1]
    assert isinstance(data, TensorType)
    plain = attrs.data_layout in ("NCHW", "NHWC") and not layout_of(attrs.kernel_layout).is_blocked
    kinds = (data, weight.checked_type)
    if not plain or not all(isinstance(k, TensorType) and k.is_static for k in kinds):
        return None
    made = contraction_of(attrs, data, weight.checked_type)  # type: ignore[arg-type]
    if made is None:
        return None
    preferred = _best_layouts(made, processor)
    here = Layouts2D(made.data_layout, made.out_layout)
    offered = dict.fromkeys([LAST, Layouts2D(here.data, "NHWC"), here, preferred])

    def cycles(each: Layouts2D) -> float:
        if costs is None or preferred == here:
            return each != preferred
        known = {here: costs.as_they_lie, preferred: costs.preferred}
        return known.get(each, math.inf)

    with deciding(str(made)):
        laid = choose("layouts", list(offered), cycles)
    if laid == here and (isinstance(weight, Constant) or laid.out != "NHWC"):
        return None
    altered: Attrs = attrs.replace(
        data_layout=laid.data, out_layout="" if laid.out == laid.data else laid.out
    )
    if isinstance(weight, Constant):  # which an implementation packs
        return altered
    seen = replace(made, data_layout=laid.data, out_layout=laid.out)
    if seen.channels_last and attrs.kernel_layout == "OIHW":
        return altered  # of which an implementation decides how its weights lie
    with deciding(str(made)):
        packing = packing_of(seen, processor).weights
    return altered.replace(kernel_layout=packing or attrs.kernel_layout)


def _best_layouts(made: Contraction, processor: Processor) -> Layouts2D:
    here = Layouts2D(made.data_layout, made.out_layout)
    floats = made.data == "float32" and made.groups == 1
    if here == Layouts2D("NCHW", "NCHW") and floats and has_few_channels(made.outputs, made.taps):
        return here
    few = made.groups == 1 and made.inputs <= UNROLLED_CHANNELS
    few = few and not (has_bytes(made) and takes_dot4(made.outputs, made.depth, processor))
    few = few and str(made.data) not in processor.matrix_tiles  # which take whole windows
    return Layouts2D(made.data_layout, "NHWC") if few else LAST


def _channel(layout: str, axis: str) -> int | None:
    found = layout_of(layout)
    return None if found.is_blocked else found.index_of(axis)


def _for_result(attrs: Any, shape: tuple[int, ...], factors: Array) -> Array:
    """Weights are given per output channel, or per input channel and the channels made of it."""
    outer, inner = _extents(attrs, shape)
    per_weight = factors[:, None] if factors.size == outer else factors.reshape(outer, inner)
    return _over_window(attrs, np.broadcast_to(per_weight, (outer, inner)))


def _for_data(attrs: Any, shape: tuple[int, ...], factors: Array) -> Array:
    """An output channel reads the input channels of its group."""
    outer, inner = _extents(attrs, shape)
    if 1 < attrs.groups == factors.size == outer:
        return _over_window(attrs, np.broadcast_to(factors[:, None], (outer, inner)))
    grouped = factors.reshape(attrs.groups, inner)
    return _over_window(attrs, grouped.repeat(outer // attrs.groups, axis=0))


def _extents(attrs: Any, shape: tuple[int, ...]) -> tuple[int, int]:
    found: Any = layout_of(attrs.kernel_layout).dims(shape)
    return found["O"], found["I"]


def _over_window(attrs: Any, factors: Array) -> Array:
    layout = layout_of(attrs.kernel_layout)
    spatial = "".join(axis for axis in layout.primal if axis not in "OI")
    return from_plain(factors.reshape(*factors.shape, *(1,) * len(spatial)), f"OI{spatial}", layout)


CONV_SCALE = ScaleRule(
    result=lambda attrs: _channel(attrs.out_layout or attrs.data_layout, "C"),
    for_result=_for_result,
    data=lambda attrs: _channel(attrs.data_layout, "C"),
    for_data=_for_data,
)


def _weight_axis(attrs: Any) -> int | None:
    return _channel(attrs.kernel_layout, "O") if attrs.groups == 1 else None


CONV_PARALLEL = ParallelRule(
    result=lambda attrs: _channel(attrs.out_layout or attrs.data_layout, "C"),
    weight=_weight_axis,
    joined=lambda attrs, channels: attrs.replace(channels=channels),
)

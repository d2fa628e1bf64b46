"""Convolutions along one or three axes by those along two, for which there are more ways to run.

    nn.conv1d(%x, %w)  ->  squeeze(nn.conv2d(expand_dims(%x), expand_dims(%w)))
    nn.conv3d(%x, %w)  ->  an image for each step along depth, with the channels of its whole window

A row is an image of one line. A window of several steps along depth reads as many images: side by
side, as channels of one, they make the sum over depth part of the sum over channels. Where the
border along depth is a good part of what windows read, results that read none of it, or some of it
at one end, are convolutions of their own over the images that there are.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sterna.ir.pass_context import PassContext
from sterna.ir.types import TensorType
from sterna.op.dynamic import tensor_type
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple, const
from sterna.relay.layout import Layout, layout_of
from sterna.relay.op import BROADCAST, call, is_call_of, record_of
from sterna.relay.passes.choose_implementations import MAX_GROWTH_IN_ALL, max_growth
from sterna.schedule.dot4 import are_bytes

if TYPE_CHECKING:
    from sterna.op.nn._conv_shape import ConvAttrs

PER_AXIS = ("strides", "dilation", "padding", "kernel_size")
# Fewer channels or products than these run as fast as they lie: vectors of pixels read rows and
# volumes too, where rows are no shorter than vectors may be.
LEAST_OF_ROWS, LEAST_OF_VOLUMES = 8, 10
LONG_ROW = 16
DEPTH_FIRST = (0, 2, 1, 3, 4)
# Of the steps of windows along depth, the share beyond which those in the border stay.
MOST_LEFT = 0.875


def row_as_image(attrs: "ConvAttrs", args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    """A convolution along one axis as one of a single line."""
    kinds = [tensor_type(arg) for arg in args]
    layouts = [layout_of(attrs.data_layout), layout_of(attrs.kernel_layout)]
    if attrs.implementation or any(layout.is_blocked for layout in layouts):
        return None
    if not all(kind.is_static for kind in kinds):
        return None
    if not are_bytes(*kinds) and _least_extent(attrs, layouts[1], kinds[1]) < LEAST_OF_ROWS:
        return None
    place, (data, weight) = layouts[0].index_of("W"), args
    own = {name: value for name, value in attrs.items() if name not in PER_AXIS}
    for name in ("data_layout", "kernel_layout", "out_layout"):
        own[name] = own[name].replace("W", "HW")
    made = call(
        "nn.conv2d", _line(data, place, {}), _window(weight, layouts[1]), **own,
        strides=(1, *attrs.strides), dilation=(1, *attrs.dilation),
        padding=(0, *attrs.before, 0, *attrs.after),
        kernel_size=attrs.kernel_size and (1, *attrs.kernel_size),
    )
    out = layout_of(attrs.out_layout or attrs.data_layout)
    return call("squeeze", made, axis=(out.index_of("W"),))


def _least_extent(attrs: "ConvAttrs", layout: Layout, weight: TensorType) -> int:
    """The channels that a group makes, or the products of each, whichever are fewer."""
    extents = layout.dims(weight.concrete_shape)
    outputs, inputs, wide = (extents[axis] for axis in "OIW")
    assert isinstance(outputs, int) and isinstance(inputs, int) and isinstance(wide, int)
    return min(outputs // attrs.groups, inputs * wide)


def _window(weight: RelayExpr, layout: Layout) -> RelayExpr:
    place = layout.index_of("W")
    if isinstance(weight, Constant):  # which those who pack it must see
        return const(np.expand_dims(to_numpy(weight.data), place))
    return call("expand_dims", weight, axis=place)


def _line(expr: RelayExpr, place: int, known: dict[RelayExpr, RelayExpr]) -> RelayExpr:
    """A row as an image; elementwise operators behind other convolutions move to their images.

    squeeze, relu, expand_dims  ->  relu
    """
    chain = _behind_images(expr, place)
    if not chain:
        return call("expand_dims", expr, axis=place)
    for each in chain:
        args = [known.get(arg) or _widened(arg, expr, place) for arg in each.args]
        is_squeeze = is_call_of(each, "squeeze")
        known[each] = each.args[0] if is_squeeze else Call(each.op, tuple(args), each.attrs)
    return known[expr]


def _behind_images(expr: RelayExpr, place: int) -> list[Call]:
    """Elementwise calls of one shape from the images that they begin with up to one of them.

    None where no image is at their beginning.
    """
    shape, found = tensor_type(expr).shape, False
    order: list[Call] = []
    stack: list[tuple[RelayExpr, bool]] = [(expr, False)]
    seen: set[RelayExpr] = set()
    while stack:
        each, done = stack.pop()
        if done:
            assert isinstance(each, Call)
            order.append(each)
            continue
        if each in seen or tensor_type(each).shape != shape or not isinstance(each, Call):
            continue
        seen.add(each)
        if is_call_of(each, "squeeze"):
            if each.attrs.axis != (place,):  # type: ignore[union-attr]
                continue
            found = True
            order.append(each)
        elif _is_elementwise(each):
            stack.append((each, True))
            stack += [(arg, False) for arg in each.args]
    return order if found and expr in seen and order and order[-1] is expr else []


def _is_elementwise(each: Call) -> bool:
    record = record_of(each)
    if record is None or record.pattern > BROADCAST:
        return False
    return record.attrs is None or "axis" not in record.attrs.FIELDS


def _widened(arg: RelayExpr, whole: RelayExpr, place: int) -> RelayExpr:
    """An operand that is broadcast, or comes from elsewhere, with the axis of one line."""
    rank = tensor_type(arg).ndim
    at = rank - (tensor_type(whole).ndim - place)
    return arg if at < 0 else call("expand_dims", arg, axis=at)


def depth_as_channels(attrs: "ConvAttrs", args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    """A convolution along three axes as one of images."""
    data, weight = (tensor_type(arg) for arg in args)
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)
    if layouts != ("NCDHW", "OIDHW", "NCDHW") or attrs.implementation:
        return None
    if not data.is_static or not weight.is_static or 0 in data.concrete_shape:
        return None
    outputs, inputs, *window = weight.concrete_shape
    least = min(outputs // attrs.groups, inputs * math.prod(window))
    is_by_rows = _is_along_depth(attrs, window) or data.concrete_shape[-1] < LONG_ROW
    few = least < (LEAST_OF_ROWS if is_by_rows else LEAST_OF_VOLUMES)
    if few and not are_bytes(data, weight):
        return None
    read = _of_pixels_read(attrs, args, window)
    if read is not None:
        return depth_as_channels(read.attrs, read.args) or read  # type: ignore[arg-type]
    if _is_along_depth(attrs, window):
        return _lines_of_pixels(attrs, args, data.concrete_shape, weight.concrete_shape)
    stretches = _stretches_of(attrs, args, data.concrete_shape[2], window[0])
    made = [_images_of(attrs, args, each) for each in stretches]
    whole = made[0] if len(made) == 1 else call("concatenate", Tuple(tuple(made)), axis=1)
    return call("transpose", whole, axes=DEPTH_FIRST)


@dataclass(frozen=True)
class _Stretch:
    """Steps of the result along depth that read the same steps of the window, one range of them."""

    first: int
    count: int
    taps: range
    padded: bool = False
    """Whether the window reaches into the border, which is then made."""


def _stretches_of(
    attrs: "ConvAttrs", args: tuple[RelayExpr, ...], extent: int, window: int
) -> list[_Stretch]:
    """The result in stretches of which none reads the border, where that is a good part of it."""
    stride, dilation = attrs.strides[0], attrs.dilation[0]
    before, after = attrs.before[0], attrs.after[0]
    steps = (extent + before + after - (window - 1) * dilation - 1) // stride + 1
    whole = _Stretch(0, steps, range(window), padded=before + after > 0)
    if not whole.padded or attrs.border:
        return [whole]
    found: list[_Stretch] = []
    for step in range(steps):
        begin = step * stride - before
        taps = [n for n in range(window) if 0 <= begin + n * dilation < extent]
        if not taps:
            return [whole]
        read = range(taps[0], taps[-1] + 1)
        if found and found[-1].taps == read:
            found[-1] = replace(found[-1], count=found[-1].count + 1)
        else:
            found.append(_Stretch(step, 1, read))
    left = sum(each.count * len(each.taps) for each in found) / (steps * window)
    growth = sum(len(each.taps) for each in found) / window
    return found if left <= MOST_LEFT and _may_grow(args[1], growth) else [whole]


def _may_grow(weight: RelayExpr, growth: float) -> bool:
    """Whether a model may hold so many times as many weights; free ones are parted by the run."""
    context = PassContext.current()
    limited = context.get_config(MAX_GROWTH_IN_ALL) != 0
    return not isinstance(weight, Constant) or (growth <= max_growth(context) and not limited)


def _images_of(
    attrs: "ConvAttrs", args: tuple[RelayExpr, ...], stretch: _Stretch
) -> RelayExpr:
    """The result of a stretch, with the batch and its steps first: (N, D, C, H, W)."""
    batch, _, _, high, wide = tensor_type(args[0]).concrete_shape
    outputs, inputs, *window = tensor_type(args[1]).concrete_shape
    before, after = (attrs.before[0], attrs.after[0]) if stretch.padded else (0, 0)
    (stride, *strides), (dilation, *dilations) = attrs.strides, attrs.dilation
    images: RelayExpr = call("transpose", args[0], axes=DEPTH_FIRST)
    if before or after:
        border = const(attrs.border, str(tensor_type(args[0]).dtype))
        pad = ((0, 0), (before, after), (0, 0), (0, 0), (0, 0))
        images = call("nn.pad", images, border, pad_width=pad)
    begin = stretch.first * stride + before - attrs.before[0]
    last = (stretch.count - 1) * stride + 1
    parts = [
        call("strided_slice", images, begin=(begin + n * dilation,),
             end=(begin + n * dilation + last,), strides=(stride,), axes=(1,))
        for n in stretch.taps
    ]
    taps = len(stretch.taps)
    images = parts[0] if taps == 1 else _side_by_side(parts, attrs.groups)
    channels = taps * inputs * attrs.groups
    images = call("reshape", images, newshape=(batch * stretch.count, channels, high, wide))
    weight = _some_of_depth(args[1], stretch.taps)
    made = call(
        "nn.conv2d", images, _reordered(weight, (outputs, taps * inputs, *window[1:])),
        strides=tuple(strides), dilation=tuple(dilations),
        padding=(*attrs.before[1:], *attrs.after[1:]), groups=attrs.groups, channels=outputs,
        kernel_size=tuple(window[1:]), out_dtype=attrs.out_dtype, border=attrs.border,
    )
    size = tensor_type(made).concrete_shape[2:]
    return call("reshape", made, newshape=(batch, stretch.count, outputs, *size))


def _some_of_depth(weight: RelayExpr, taps: range) -> RelayExpr:
    """Weights of some steps along depth of the window."""
    if len(taps) == tensor_type(weight).concrete_shape[2]:
        return weight
    if isinstance(weight, Constant):
        return const(to_numpy(weight.data)[:, :, taps.start : taps.stop])
    return call("strided_slice", weight, begin=(taps.start,), end=(taps.stop,), axes=(2,))


def _of_pixels_read(
    attrs: "ConvAttrs", args: tuple[RelayExpr, ...], window: list[int]
) -> Call | None:
    """The same of those pixels of its images that are read at all; None if all may be.

    A window of one pixel leaves out the pixels between its strides: every image is a smaller one.
    """
    apart = [
        axis for axis in range(3)
        if window[axis] == 1 < attrs.strides[axis] and not attrs.before[axis] + attrs.after[axis]
    ]
    if apart in ([], [0]):  # steps along depth alone are left out without a copy
        return None
    shape = tensor_type(args[0]).concrete_shape
    read = call(
        "strided_slice", args[0], axes=tuple(2 + axis for axis in apart), begin=(0,) * len(apart),
        end=tuple(shape[2 + axis] for axis in apart),
        strides=tuple(attrs.strides[axis] for axis in apart),
    )
    strides = tuple(1 if axis in apart else n for axis, n in enumerate(attrs.strides))
    return call("nn.conv3d", read, args[1], **{**dict(attrs.items()), "strides": strides})


def _side_by_side(parts: list[Call], groups: int) -> RelayExpr:
    """Images as channels of one, those of each group together."""
    batch, steps, channels, *size = tensor_type(parts[0]).concrete_shape
    cut = (batch, steps, groups, channels // groups, *size)
    apart = [call("reshape", part, newshape=cut) if groups > 1 else part for part in parts]
    return call("concatenate", Tuple(tuple(apart)), axis=3 if groups > 1 else 2)


def _is_along_depth(attrs: "ConvAttrs", window: list[int]) -> bool:
    """Whether nothing is read but the pixel at the same place, of one image or several."""
    beside = (*window[1:], *attrs.strides[1:])
    return set(beside) == {1} and not any((*attrs.before[1:], *attrs.after[1:]))


def _lines_of_pixels(
    attrs: "ConvAttrs", args: tuple[RelayExpr, ...], data: tuple[int, ...], weight: tuple[int, ...]
) -> RelayExpr:
    """A convolution along depth alone, with the pixels of an image as one line: nothing is moved.
    """
    batch, channels, extent, high, wide = data
    image = call("reshape", args[0], newshape=(batch, channels, extent, high * wide))
    shape = (weight[0], weight[1], weight[2], 1)
    made = call(
        "nn.conv2d", image, _reshaped(args[1], shape), strides=(attrs.strides[0], 1),
        dilation=(attrs.dilation[0], 1), padding=(attrs.before[0], 0, attrs.after[0], 0),
        groups=attrs.groups, channels=attrs.channels, kernel_size=(weight[2], 1),
        out_dtype=attrs.out_dtype, border=attrs.border,
    )
    outputs, steps = tensor_type(made).concrete_shape[1:3]
    return call("reshape", made, newshape=(batch, outputs, steps, high, wide))


def _reshaped(weight: RelayExpr, shape: tuple[int, ...]) -> RelayExpr:
    if isinstance(weight, Constant):
        return const(to_numpy(weight.data).reshape(shape))
    return call("reshape", weight, newshape=shape)


def _reordered(weight: RelayExpr, shape: tuple[int, ...]) -> RelayExpr:
    """Weights with the window's steps along depth as channels."""
    if isinstance(weight, Constant):
        return const(to_numpy(weight.data).transpose(DEPTH_FIRST).reshape(shape))
    return call("reshape", call("transpose", weight, axes=DEPTH_FIRST), newshape=shape)

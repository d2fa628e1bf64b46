"""Convolution along one, two or three axes, in any layout: nn.conv1d, nn.conv2d, nn.conv3d.

A group of output channels reads a group of input channels. A depthwise convolution's weights may
also be given as (input channel, channels of it) instead of (output channel, 1): axes O and I.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sterna.arith import Analyzer
from sterna.ir.build import const
from sterna.ir.types import Dim, TensorType, Type, same_dim
from sterna.op.checks import map_dims, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.integer_rules import convolved
from sterna.op.nn._border_taps import without_border
from sterna.op.nn._conv_column import column_as_line
from sterna.op.nn._conv_implementation import (
    as_expression,
    compute_implemented,
    grouped_weights,
    implement_conv,
    implement_planes,
    ways_of_conv,
    with_plain_weights,
)
from sterna.op.nn._conv_layout import (
    CONV_PARALLEL,
    CONV_SCALE,
    alter_conv2d,
    conv_layout,
    convert_conv,
    device_conv,
    layout_costs,
)
from sterna.op.nn._conv_rank import depth_as_channels, row_as_image
from sterna.op.nn._conv_shape import (
    Conv1DAttrs,
    Conv2DAttrs,
    Conv3DAttrs,
    ConvAttrs,
    Layouts,
    contraction_of,
    sizes_of,
    summed_axes,
)
from sterna.op.nn._dead_channels import CONV_CHANNELS
from sterna.op.nn._device_channels import with_device_channels
from sterna.op.nn._narrow_floats import convolved_in_float32
from sterna.op.nn._padded_bytes import with_whole_dots
from sterna.op.nn._padded_channels import with_whole_vectors
from sterna.op.nn._padded_inputs import with_whole_inputs
from sterna.op.windows import (
    axis_names,
    pad_array,
    padded,
    padded_by,
    simple_index,
    whole_blocks,
)
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.expr import RelayExpr
from sterna.relay.layout import from_plain, to_plain
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, ContractionRules, OpRecord, register
from sterna.relay.quantized import int_range
from sterna.schedule.chunked_sum import Places, sum_products
from sterna.schedule.contraction import Contraction
from sterna.schedule.conv_chain import gives_row_sums, runs_in_chain, schedule_convs
from sterna.schedule.implementation import expect_packed, products_of
from sterna.schedule.products import narrowed, result_dtype, widened
from sterna.schedule.sum_of_products import CHANNEL, TAP
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute
from sterna.te import all as all_of


def infer_conv(attrs: ConvAttrs, data: Type, *weights: Type) -> TensorType:
    """The type of a convolution's result."""
    layouts = Layouts.of(attrs)
    x = tensor(data, "data", len(layouts.data))
    w = tensor(weights[0], "weight", None if attrs.implementation else len(layouts.kernel))
    _expect_border(attrs, x.dtype)
    if attrs.implementation:
        expect_packed(attrs, contraction_of(attrs, x, w), weights)
    sizes = sizes_of(attrs, x, w)
    extents = dict(zip(f"NC{layouts.spatial}",
                       [sizes.batch, sizes.out_channels, *sizes.result], strict=True))
    whole_blocks(layouts.out, sizes.out_channels)
    return TensorType(layouts.out.shape(extents), result_dtype(attrs.out_dtype, x, w, "weight"))


def _expect_border(attrs: ConvAttrs, dtype: DataType) -> None:
    if dtype.is_integer:
        low, high = int_range(dtype)
        if not low <= attrs.border <= high:
            raise ValueError(f"border is a number of data's type {dtype}, not {attrs.border}")


def complete_conv(attrs: ConvAttrs, data: Type | None, weight: Type | None) -> list[Type | None]:
    """The type of weights that have none, from channels and kernel_size."""
    layouts = Layouts.of(attrs)
    if weight is not None or attrs.channels is None or attrs.kernel_size is None:
        return [data, weight]
    if not isinstance(data, TensorType) or data.ndim != len(layouts.data):
        return [data, weight]
    channels = layouts.data.dims(data.shape)["C"]
    outer, inner = attrs.channels, map_dims(lambda c: c // attrs.groups, channels)
    if attrs.groups > 1 and same_dim(channels, attrs.groups):
        outer, inner = attrs.groups, attrs.channels // attrs.groups
    extents = dict(zip(layouts.spatial, attrs.kernel_size, strict=True))
    shape = layouts.kernel.shape({"O": outer, "I": inner, **extents})
    return [data, TensorType(shape, data.dtype)]


def compute_conv(attrs: ConvAttrs, out: TensorType, data: Tensor, *weights: Tensor) -> Tensor:
    """A stage for the border where there is one, and one for the sums."""
    packed = compute_implemented(attrs, out, None, data, *weights)
    if packed is not None:
        return packed
    attrs, how = as_expression(attrs)
    layouts, (weight,) = Layouts.of(attrs), weights
    x, w = TensorType(data.shape, data.dtype), TensorType(weight.shape, weight.dtype)
    if how.weights and attrs.channels is not None:  # packed ones may have further channels
        attrs = attrs.replace(channels=layouts.kernel.dims(w.shape)["O"])
    sizes = sizes_of(attrs, x, w)
    name = f"T_conv{len(attrs.strides)}d"
    axes = summed_axes(layouts, sizes)
    depthwise = "rc" not in axes
    # A depthwise sum is so short that a border costs as much to make; vectors of channels skip it.
    skips = depthwise and layouts.out.parts[-1].axis == "C" and attrs.border == 0
    source = data
    if not skips:
        border = const(attrs.border, data.dtype)
        source = padded(data, layouts.data, layouts.spatial, attrs.before, attrs.after, border)

    shape = _flat_pixels(out.shape) if how.flat else out.shape
    filled = bool(how.weights) and layouts.out.dims(shape)["C"] != sizes.out_channels
    if filled:
        shape = (*shape[:-1], sizes.out_channels)

    def product(indices: Places, places: Places, kind: DataType) -> tuple[Any, Any]:
        ranges = Analyzer()
        for index, extent in zip(indices, shape, strict=True):
            ranges.bind(index, 0, extent)  # type: ignore[arg-type]
        place = layouts.out.coordinates(indices)
        if how.flat:
            place["H"], place["W"] = place["W"] // out.shape[2], place["W"] % out.shape[2]
        own: Any = place["C"]
        read: Any = 0 if depthwise else places[0]
        group = own // (sizes.out_channels // attrs.groups) if attrs.groups > 1 else 0
        inner = {"O": own, "I": read}
        if sizes.multiplied:
            inner = {"O": group, "I": own % (sizes.out_channels // attrs.groups)}
        outer = {"N": place["N"], "C": group * sizes.group + read}
        inside: list[Any] = []
        for axis, r, stride, dilation, first, last in zip(
            layouts.spatial, places[-len(sizes.window) :], attrs.strides, attrs.dilation,
            attrs.before, attrs.after, strict=True,
        ):
            inner[axis] = r
            outer[axis] = place[axis] * stride + r * dilation
            if skips and (first or last):
                outer[axis] = outer[axis] - first
                inside += [outer[axis] >= 0, outer[axis] < x.shape[layouts.data.index_of(axis)]]
        value = source(*simple_index(layouts.data, outer, ranges)).astype(kind)
        factor = weight(*simple_index(layouts.kernel, inner, ranges)).astype(kind)
        return value * factor, all_of(*inside) if inside else None

    roles = [*([] if depthwise else [CHANNEL]), *[TAP] * len(sizes.window)]
    total = sum_products(
        shape, axes, how.chunk, product, out.dtype, name, axis_names(layouts.out), roles,
        contraction_of(attrs, x, w), how.schedule,
    )
    made = narrowed(total, out.dtype, f"{name}_cast")
    if filled:
        made = compute((*shape[:-1], out.shape[-1]), made.__call__, name=f"{name}_own")
    return _in_rows(made, out.shape, f"{name}_rows") if how.flat else made


def _flat_pixels(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The extents of an image whose pixels are one row: images of 7 x 7 leave none over in each."""
    batch, height, width, channels = shape
    return (batch, 1, height * width, channels)


def _in_rows(flat: Tensor, shape: Sequence[Dim], name: str) -> Tensor:
    """The pixels of an image in rows again."""
    made: Tensor = compute(
        shape, lambda n, h, w, c: flat(n, 0, h * shape[2] + w, c), name=name,
        varargs_names=["n", "h", "w", "c"],
    )
    return made


def reference_conv(attrs: ConvAttrs, data: Array, *weights: Array) -> Array:
    """For each place in the window one product of matrices, for all groups and pixels."""
    attrs, weight = with_plain_weights(attrs, data, weights)
    dtype = attrs.out_dtype or str(data.dtype)
    layouts = Layouts.of(attrs)
    axes = f"NC{layouts.spatial}"
    plain = widened(to_plain(data, layouts.data, axes), dtype)
    batch, channels = plain.shape[:2]
    kernel = widened(grouped_weights(attrs, weight, channels), dtype)
    groups, outer, inner, *window = kernel.shape
    x = pad_array(plain, attrs.before, attrs.after, attrs.border)
    steps = list(zip(attrs.strides, attrs.dilation, strict=True))
    result = [
        (size - (k - 1) * dilation - 1) // stride + 1
        for size, k, (stride, dilation) in zip(x.shape[2:], window, steps, strict=True)
    ]
    total = np.zeros((batch, groups, outer, math.prod(result)), x.dtype)
    for place in np.ndindex(*window):
        seen: list[Any] = [
            slice(r * dilation, r * dilation + (count - 1) * stride + 1, stride)
            for r, count, (stride, dilation) in zip(place, result, steps, strict=True)
        ]
        pixels = x[(..., *seen)].reshape(batch, groups, inner, math.prod(result))
        total += np.matmul(kernel[(..., *place)], pixels)
    made = total.reshape(batch, groups * outer, *result).astype(numpy_dtype(dtype))
    return from_plain(made, axes, layouts.out)


def contraction_of_call(attrs: ConvAttrs, data: Type, *weights: Type) -> Contraction | None:
    """The contraction that a convolution of such operands is."""
    assert isinstance(data, TensorType) and isinstance(weights[0], TensorType)
    return contraction_of(attrs, data, weights[0])


def macs_conv(attrs: ConvAttrs, out: TensorType, data: TensorType, *weights: TensorType) -> int:
    """The multiply-adds of a convolution."""
    made = contraction_of(attrs, data, weights[0])
    assert made is not None, "extents are known"
    return made.pixels * made.outputs * products_of(attrs, made)


def _take_border(attrs: ConvAttrs, width: Sequence[tuple[int, int]], value: float) -> Any:
    if not math.isfinite(value) or value != int(value):
        return None
    if value != attrs.border and any((*attrs.before, *attrs.after)):
        return None
    return padded_by(attrs.replace(border=int(value)), attrs.data_layout, width)


def _stays_wide(attrs: Any, narrow: DataType) -> bool:
    """Instructions that multiply bfloat16 add up channels, of which groups have few or one each.

    Others would only make float32 of every number that they read, again and again.
    """
    return bool(attrs.groups > 1 and narrow == "bfloat16")


def _in_float32(
    rank: int, attrs: Any, args: tuple[RelayExpr, ...], processor: Any
) -> RelayExpr | None:
    """Of float16 or bfloat16, with operands that are widened before."""
    data, weight = (tensor_type(arg) for arg in args[:2])
    made = contraction_of(attrs, data, weight) if len(args) == 2 else None
    pixels = None if made is None else made.pixels
    return convolved_in_float32(f"nn.conv{rank}d", attrs, args, processor, pixels)


def _with_whole_channels(
    attrs: Any, args: tuple[RelayExpr, ...], target: Any
) -> RelayExpr | None:
    """With further channels where these fill no vectors, or of bytes no dot products."""
    found = (
        with_whole_inputs(attrs, args, target)
        or with_whole_vectors(attrs, args, target)
        or with_device_channels(attrs, args, target)
    )
    return found or with_whole_dots("nn.conv2d", attrs, args, target)


_CONTRACTION: ContractionRules[ConvAttrs] = ContractionRules(
    describe=contraction_of_call,
    compute_with=compute_implemented,
    convert_layout=convert_conv,
    scale=CONV_SCALE,
    parallel=CONV_PARALLEL,
    stays_wide=_stays_wide,
    device_layout=device_conv,
)


_OF_PLANES = replace(_CONTRACTION, implement=implement_planes)


def _register(
    rank: int, attrs: type[ConvAttrs], cases: list[Case],
    contraction: ContractionRules[ConvAttrs] = _CONTRACTION, **more: Any,
) -> None:
    register(OpRecord(
        f"nn.conv{rank}d",
        inputs=("data", "weight"),
        attrs=attrs,
        infer=infer_conv,
        complete=complete_conv,
        compute=compute_conv,
        contraction=replace(contraction, widen=partial(_in_float32, rank)),
        reference=reference_conv,
        macs=macs_conv,
        integer=convolved,
        pattern=OUT_ELEMWISE_FUSABLE,
        schedules={"cpu": schedule_convs},
        mixed_precision="always",
        layout=conv_layout,
        take_border=_take_border,
        cases=cases,
        **more,
        doc=f"Convolution along {rank} {'axis' if rank == 1 else 'axes'}.",
    ))


_register(1, Conv1DAttrs, [
    Case(((2, 3, 10), (4, 3, 3)), {"padding": (1, 2), "strides": 2}),
    Case(((1, 8, 4), (3, 2, 6)), {
        "data_layout": "NWC", "kernel_layout": "WIO", "groups": 2, "dilation": 2, "padding": 1,
    }),
    Case((((1, 4, 9), "float16"), ((2, 4, 3), "float16")), {}, 4e-3),
    Case((((1, 9, 4), "uint8"), ((3, 4, 2), "int8")), {
        "data_layout": "NWC", "kernel_layout": "WIO", "padding": (1, 2), "strides": 2,
        "out_dtype": "int32",
    }),
], _OF_PLANES, canonicalize=row_as_image)

_register(2, Conv2DAttrs, [
    Case(((1, 3, 8, 9), (4, 3, 3, 3)), {"padding": (1, 1), "channels": 4, "kernel_size": 3}),
    Case(((2, 7, 9, 3), (2, 3, 3, 5)), {
        "data_layout": "NHWC", "kernel_layout": "HWIO", "strides": (2, 1),
        "dilation": (1, 2), "padding": (1, 0, 2, 3),
    }),
    Case(((1, 6, 5, 5), (9, 2, 1, 1)), {"groups": 3}),
    Case(((1, 4, 6, 6), (8, 1, 3, 3)), {"groups": 4, "padding": 1}),
    Case(((1, 6, 6, 4), (3, 3, 4, 2)), {
        "groups": 4, "data_layout": "NHWC", "kernel_layout": "HWOI", "channels": 8, "strides": 2,
    }),
    Case(((1, 2, 5, 5, 4), (3, 2, 3, 3, 4, 2)), {
        "data_layout": "NCHW4c", "kernel_layout": "OIHW4i2o", "out_layout": "NCHW2c",
        "padding": 1,
    }),
    Case((((1, 4, 4, 8), "uint8"), ((2, 3, 3, 8, 4), "int8")), {
        "data_layout": "NHWC", "kernel_layout": "OHWI4o", "out_dtype": "int32",
    }),
    Case((((1, 4, 4, 8), "int8"), ((2, 1, 3, 3, 1, 4), "int8")), {
        "data_layout": "NHWC", "kernel_layout": "OIHW1i4o", "groups": 8, "out_dtype": "int32",
        "out_layout": "NCHW4c",
    }),
], replace(_CONTRACTION, alter_layout=alter_conv2d, layout_costs=layout_costs,
           without_border=without_border, implement=implement_conv, ways=ways_of_conv,
           chain=runs_in_chain, gives_row_sums=gives_row_sums, channels=CONV_CHANNELS,
           reads_images=True),
          canonicalize=column_as_line, legalize=_with_whole_channels)

_register(3, Conv3DAttrs, [
    Case(((1, 2, 4, 5, 6), (3, 2, 2, 3, 3)), {"padding": (0, 1, 1), "strides": (1, 2, 1)}),
    Case(((1, 4, 4, 3, 4), (2, 2, 2, 2, 4)), {
        "data_layout": "NDHWC", "kernel_layout": "DHWIO", "groups": 2,
        "padding": (1, 0, 0, 0, 1, 0),
    }),
], _OF_PLANES, canonicalize=depth_as_channels)

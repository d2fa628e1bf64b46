"""Convolutions down an image of a single column by those along a single line.

    nn.conv2d(%x of 1 x 30 x 1 x 40, %w of 3 x 1 x 40 x 1, data_layout="NHWC")
    ->  reshape(nn.conv2d(reshape(%x to 1 x 1 x 30 x 40), reshape(%w to 1 x 3 x 40 x 1)))

Sequences come from some exporters as images one pixel wide. Register tiles and planes hold
neighbours of a row. With the channels last nothing is moved.
"""

from typing import TYPE_CHECKING

from sterna.op.dynamic import tensor_type
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Constant, RelayExpr, const
from sterna.relay.op import call

if TYPE_CHECKING:
    from sterna.op.nn._conv_shape import ConvAttrs

KERNELS = ("HWIO", "HWOI", "OHWI", "OIHW")


def column_as_line(attrs: "ConvAttrs", args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    """A convolution whose images, windows and results are one pixel wide, with its axes swapped."""
    data, weight = (tensor_type(arg) for arg in args)
    static = data.is_static and weight.is_static
    if {attrs.data_layout, attrs.out_layout or "NHWC"} != {"NHWC"} or attrs.implementation:
        return None
    if attrs.kernel_layout not in KERNELS or not static:
        return None
    batch, high, wide, channels = data.concrete_shape
    first = attrs.kernel_layout.index("H")
    kernel = weight.concrete_shape
    window = kernel[first : first + 2]
    if wide != 1 or high == 1 or window[1] != 1 or window[0] == 1:
        return None
    if attrs.before[1] or attrs.after[1]:
        return None
    swapped = (*kernel[:first], *window[::-1], *kernel[first + 2 :])
    made = call(
        "nn.conv2d", call("reshape", args[0], newshape=(batch, wide, high, channels)),
        _reshaped(args[1], swapped),
        **{**dict(attrs.items()), "strides": attrs.strides[::-1], "dilation": attrs.dilation[::-1],
           "padding": (0, attrs.before[0], 0, attrs.after[0]),
           "kernel_size": attrs.kernel_size and attrs.kernel_size[::-1]},
    )
    _, _, steps, outputs = tensor_type(made).concrete_shape
    return call("reshape", made, newshape=(batch, steps, 1, outputs))


def _reshaped(weight: RelayExpr, shape: tuple[int, ...]) -> RelayExpr:
    if isinstance(weight, Constant):  # which those who pack it must see
        return const(to_numpy(weight.data).reshape(shape))
    return call("reshape", weight, newshape=shape)

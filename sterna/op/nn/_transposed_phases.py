"""Sub-pixel convolution: transposed convolutions by phases, as channels of a plain one.

    nn.conv2d_transpose(%x, %w, strides=(2, 2))  ->  nn.depth_to_space(nn.conv2d(%x, %v), 2)

With strides s, element s*m + r of the result, border included, is the sum over j of input element
m - j times place r + s*j of the window. For each r that is a convolution with a window of
ceil(window / s) places, turned round; all of them together are one of s*s times as many channels.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.op.dynamic import tensor_type
from sterna.relay.expr import RelayExpr, const
from sterna.relay.op import call
from sterna.target import Target

if TYPE_CHECKING:
    from sterna.op.nn.conv_transpose import ConvTransposeAttrs

FLOATS = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class _Phases:
    """One axis of a transposed convolution."""

    stride: int
    extent: int
    window: int
    before: int
    result: int

    @property
    def places(self) -> int:
        """Of the window that one element of the result reads."""
        return -(-self.window // self.stride)

    @property
    def first(self) -> int:
        """The first step of the strides that is part of the result."""
        return self.before // self.stride

    @property
    def border(self) -> tuple[int, int]:
        """Zeros before and after the input; below 0 where some of it is not read."""
        last = (self.before + self.result - 1) // self.stride
        return self.places - 1 - self.first, last - (self.extent - 1)

    @property
    def begin(self) -> int:
        """Where the result begins in what the steps make."""
        return self.before - self.first * self.stride


def by_phases(
    attrs: "ConvTransposeAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """A transposed convolution along two axes as one that is not transposed."""
    data, weight = (tensor_type(arg) for arg in args)
    plain = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    if plain != ("NCHW", "IOHW", "NCHW") or attrs.groups != 1 or attrs.dilation != (1, 1):
        return None
    if not data.is_static or not weight.is_static or len({*attrs.strides}) != 1:
        return None
    if str(data.dtype) not in FLOATS or (attrs.out_dtype or data.dtype) != data.dtype:
        return None
    stride = attrs.strides[0]
    inputs, outputs, *window = weight.concrete_shape
    axes = [
        _Phases(stride, n, k, before, (n - 1) * stride + k + more - before - after)
        for n, k, more, before, after in zip(
            data.concrete_shape[2:], window, attrs.output_padding, attrs.before, attrs.after,
            strict=True,
        )
    ]
    borders = [axis.border for axis in axes]
    if any(side < 0 for border in borders for side in border):
        return None
    (top, bottom), (left, right) = borders
    made: RelayExpr = call(
        "nn.conv2d", args[0], _turned(args[1], axes, inputs, outputs),
        padding=(top, left, bottom, right), kernel_size=(axes[0].places, axes[1].places),
        channels=stride * stride * outputs, out_dtype=attrs.out_dtype,
    )
    if stride > 1:
        made = call("nn.depth_to_space", made, block_size=stride)
    begin = [axis.begin for axis in axes]
    end = [axis.begin + axis.result for axis in axes]
    whole = [stride * (axis.extent + sum(axis.border) - axis.places + 1) for axis in axes]
    if begin == [0, 0] and end == whole:
        return made
    return call("strided_slice", made, begin=tuple(begin), end=tuple(end), axes=(2, 3))


def _turned(
    weight: RelayExpr, axes: list[_Phases], inputs: int, outputs: int
) -> RelayExpr:
    """The windows of all places between input elements, each as channels of their own."""
    stride, places = axes[0].stride, [axis.places for axis in axes]
    missing = tuple((0, axis.places * stride - axis.window) for axis in axes)
    if missing != ((0, 0), (0, 0)):
        zero = const(0.0, str(tensor_type(weight).dtype))
        weight = call("nn.pad", weight, zero, pad_width=((0, 0), (0, 0), *missing))
    split = (inputs, outputs, places[0], stride, places[1], stride)
    cut = call("reshape", weight, newshape=split)
    channels = call("transpose", cut, axes=(3, 5, 1, 0, 2, 4))
    joined = (stride * stride * outputs, inputs, *places)
    made: RelayExpr = call("reshape", channels, newshape=joined)
    for axis in (2, 3):
        made = call("reverse", made, axis=axis)
    return made

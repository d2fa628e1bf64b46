"""Sub-pixel convolution: transposed convolutions by phases, as channels of a plain one.

    nn.conv2d_transpose(%x, %w, strides=(2, 2))  ->  nn.depth_to_space(nn.conv2d(%x, %v), 2)

With strides s, element s*m + r of the result, border included, is the sum over j of input element
m - j times place r + s*j of the window. For each r that is a convolution with a window of
ceil(window / s) places, turned round; all of them together are one of s*s times as many channels.
Groups of channels stay groups: each has its phases side by side.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.ir.types import TensorType
from sterna.op.dynamic import tensor_type
from sterna.op.windows import SPATIAL
from sterna.relay.expr import Constant, RelayExpr, const
from sterna.relay.op import call
from sterna.schedule.choose import choose, deciding
from sterna.target import Target

if TYPE_CHECKING:
    from sterna.op.nn.conv_transpose import ConvTransposeAttrs

FLOATS = ("float32", "float64")
# Cycles in which a weight is brought to its phase, and in which an element of a column is added.
ARRANGED, ADDED = 8, 8


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
    """A transposed convolution as one that is not transposed."""
    data, weight = (tensor_type(arg) for arg in args)
    spatial = SPATIAL[len(attrs.strides)]
    plain = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)
    if plain != (f"NC{spatial}", f"IO{spatial}", f"NC{spatial}"):
        return None
    if set(attrs.dilation) != {1}:
        return None
    if not data.is_static or not weight.is_static:
        return None
    if str(data.dtype) not in FLOATS or (attrs.out_dtype or data.dtype) != data.dtype:
        return None
    inputs, outputs, *window = weight.concrete_shape
    axes = [
        _Phases(stride, n, k, before, (n - 1) * stride + k + more - before - after)
        for stride, n, k, more, before, after in zip(
            attrs.strides, data.concrete_shape[2:], window, attrs.output_padding, attrs.before,
            attrs.after, strict=True,
        )
    ]
    steps = zip(attrs.output_padding, attrs.strides, strict=True)
    whole = all(more < stride for more, stride in steps)  # no element that no window reaches
    free = attrs.groups == 1 and not isinstance(args[1], Constant)
    if whole and free and _as_columns(data, weight):
        return _by_columns(attrs, args, axes)
    borders = [axis.border for axis in axes]
    if any(side < 0 for border in borders for side in border):
        return None
    made: RelayExpr = call(
        f"nn.conv{len(axes)}d", args[0], _turned(args[1], axes, inputs, outputs, attrs.groups),
        padding=(*(first for first, _ in borders), *(last for _, last in borders)),
        kernel_size=tuple(axis.places for axis in axes), groups=attrs.groups,
        channels=math.prod(attrs.strides) * outputs * attrs.groups, out_dtype=attrs.out_dtype,
    )
    made = _in_place(made, attrs.strides, outputs, attrs.groups)
    begin = [axis.begin for axis in axes]
    end = [axis.begin + axis.result for axis in axes]
    made_extents = [
        axis.stride * (axis.extent + sum(axis.border) - axis.places + 1) for axis in axes
    ]
    if not any(begin) and end == made_extents:
        return made
    spatial_axes = tuple(range(2, 2 + len(axes)))
    return call("strided_slice", made, begin=tuple(begin), end=tuple(end), axes=spatial_axes)


def _as_columns(data: TensorType, weight: TensorType) -> bool:
    """Whether weights that only the run knows stay as they lie."""
    batch, inputs, *extents = data.concrete_shape
    elements = math.prod(weight.concrete_shape)
    costs = {"phases": ARRANGED * elements, "columns": (
        ADDED * batch * math.prod(extents) * elements // inputs
    )}
    with deciding(f"transposed {data!r} {weight!r}"):
        return choose("free weights", list(costs), costs.__getitem__) == "columns"


def _by_columns(
    attrs: "ConvTransposeAttrs", args: tuple[RelayExpr, ...], axes: list[_Phases]
) -> RelayExpr:
    """A product of matrices, whose columns are added where they overlap (col2im).

    Weights are read once, in the order in which they lie.
    """
    (batch, inputs, *extents), (_, _, *window) = (
        tensor_type(arg).concrete_shape for arg in args
    )
    pixels = math.prod(extents)
    rows = call("reshape", args[0], newshape=(batch, inputs, pixels))
    rows = call("transpose", rows, axes=(0, 2, 1))
    rows = call("reshape", rows, newshape=(1, batch * pixels, inputs))
    matrix = call("reshape", args[1], newshape=(1, inputs, -1))
    made = call("nn.batch_matmul", rows, matrix, transpose_b=False, out_dtype=attrs.out_dtype)
    made = call("reshape", made, newshape=(batch, pixels, -1))
    columns: RelayExpr = call("transpose", made, axes=(0, 2, 1))
    return call(
        "nn.col2im", columns, image_shape=tuple(axis.result for axis in axes),
        block_shape=tuple(window), strides=attrs.strides, padding=(*attrs.before, *attrs.after),
        dilation=attrs.dilation,
    )


def _in_place(
    made: RelayExpr, strides: tuple[int, ...], outputs: int, groups: int
) -> RelayExpr:
    """What channels hold, between the elements that it belongs between."""
    if set(strides) == {1}:
        return made
    if len(strides) == 2 and len({*strides}) == groups == 1:
        return call("nn.depth_to_space", made, block_size=strides[0])
    batch, _, *extents = tensor_type(made).concrete_shape
    rank = len(strides)
    cut = call("reshape", made, newshape=(batch, groups, *strides, outputs, *extents))
    pairs = [axis for n in range(rank) for axis in (rank + 3 + n, 2 + n)]
    moved = call("transpose", cut, axes=(0, 1, rank + 2, *pairs))
    whole = [extent * stride for extent, stride in zip(extents, strides, strict=True)]
    return call("reshape", moved, newshape=(batch, groups * outputs, *whole))


def _turned(
    weight: RelayExpr, axes: list[_Phases], inputs: int, outputs: int, groups: int
) -> RelayExpr:
    """The windows of all places between input elements, each as channels of their own."""
    strides, places = [axis.stride for axis in axes], [axis.places for axis in axes]
    missing = tuple((0, axis.places * axis.stride - axis.window) for axis in axes)
    if any(after for _, after in missing):
        zero = const(0.0, str(tensor_type(weight).dtype))
        weight = call("nn.pad", weight, zero, pad_width=((0, 0), (0, 0), *missing))
    split = [part for axis in axes for part in (axis.places, axis.stride)]
    cut = call("reshape", weight, newshape=(groups, inputs // groups, outputs, *split))
    steps = tuple(range(3, 3 + 2 * len(axes), 2))
    between = tuple(step + 1 for step in steps)
    channels = call("transpose", cut, axes=(0, *between, 2, 1, *steps))
    joined = (groups * math.prod(strides) * outputs, inputs // groups, *places)
    made: RelayExpr = call("reshape", channels, newshape=joined)
    for axis in range(2, 2 + len(axes)):
        made = call("reverse", made, axis=axis)
    return made

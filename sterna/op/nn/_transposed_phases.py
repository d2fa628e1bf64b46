"""Sub-pixel convolution: transposed convolutions by phases, as channels of a plain one.

    nn.conv2d_transpose(%x, %w, strides=(2, 2))  ->  nn.depth_to_space(nn.conv2d(%x, %v), 2)

With strides s, element s*m + r of the result, border included, is the sum over j of input element
m - j times place r + s*j of the window. For each r that is a convolution with a window of
ceil(window / s) places, turned round; all of them together are one of s*s times as many channels.
Groups of channels stay groups: each has its phases side by side. Where s does not divide the
window, or where phases begin at different input elements, some products are of zeros that nobody
needs: there each phase may be a convolution of its own, with the places that it has. A dilated
window stays one along axes without strides; along others zeros stand between its places.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sterna.ir.types import TensorType, has_no_elements
from sterna.op.dynamic import tensor_type
from sterna.op.nn._conv_shape import contraction_of
from sterna.op.nn._padded_channels import with_wide_weights
from sterna.op.windows import SPATIAL
from sterna.relay.expr import Call, Constant, RelayExpr, Tuple, const
from sterna.relay.op import call
from sterna.schedule.caches import with_caches
from sterna.schedule.choose import choose, deciding
from sterna.schedule.cost import KERNEL
from sterna.schedule.implementation import least_cycles
from sterna.schedule.implementations.im2col import im2col_cycles, offers_im2col
from sterna.schedule.kernel import Processor
from sterna.target import Target, is_gpu, processor_of

if TYPE_CHECKING:
    from sterna.op.nn.conv_transpose import ConvTransposeAttrs

FLOATS, DEVICE_FLOATS = ("float32", "float64"), ("float32", "float16", "bfloat16")
# Cycles in which a weight is brought to its phase, and in which an element of a column is added.
ARRANGED, ADDED = 8, 8
# Cycles in which an element is put between others, for each phase that it may be of.
PUT = 1


@dataclass(frozen=True, slots=True)
class _Phases:
    """One axis of a transposed convolution."""

    stride: int
    extent: int
    window: int
    before: int
    result: int
    dilation: int = 1
    """Of the window; 1 where there are strides."""

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
        return self.dilation * (self.places - 1) - self.first, last - (self.extent - 1)

    @property
    def begin(self) -> int:
        """Where the result begins in what the steps make."""
        return self.before - self.first * self.stride

    @property
    def each(self) -> "list[_Phase]":
        """The phases of the result's elements, each with what it reads alone."""
        return [_Phase(self, place) for place in range(self.stride)]


@dataclass(frozen=True, slots=True)
class _Phase:
    """Every stride-th element of the result along an axis, from a place on."""

    axis: _Phases
    place: int

    @property
    def begin(self) -> int:
        """The first place of the window that it reads."""
        return (self.place + self.axis.before) % self.axis.stride

    @property
    def places(self) -> int:
        """Of the window that it reads."""
        return -(-(self.axis.window - self.begin) // self.axis.stride)

    @property
    def steps(self) -> int:
        """Its elements; as many as the first phase has, which has the most."""
        return -(-self.axis.result // self.axis.stride)

    @property
    def border(self) -> tuple[int, int]:
        """Zeros before and after the input; below 0 where some of it is not read."""
        met = (self.place + self.axis.before) // self.axis.stride
        reach = self.axis.dilation * (self.places - 1)
        return reach - met, self.steps + met - self.axis.extent


def by_phases(
    attrs: "ConvTransposeAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """A transposed convolution as one that is not transposed."""
    data, weight = (tensor_type(arg) for arg in args)
    spatial = SPATIAL[len(attrs.strides)]
    plain = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)
    on_device = target is not None and is_gpu(target)
    if on_device and 1 < attrs.groups == weight.shape[0]:
        return None  # a depthwise one waits for memory, not for products
    if on_device and plain == (f"N{spatial}C", f"IO{spatial}", f"N{spatial}C"):
        return _with_channels_first(attrs, args, target)
    if plain != (f"NC{spatial}", f"IO{spatial}", f"NC{spatial}"):
        return None
    if not data.is_static or not weight.is_static:
        return None
    if has_no_elements(data) or has_no_elements(weight):
        return None
    kinds = DEVICE_FLOATS if on_device else FLOATS
    sums = (str(data.dtype), "float32") if on_device else (str(data.dtype),)
    if str(data.dtype) not in kinds or str(attrs.out_dtype or data.dtype) not in sums:
        return None
    axes = [
        _phases(attrs, axis, extent, window)
        for axis, (extent, window) in enumerate(
            zip(data.concrete_shape[2:], weight.concrete_shape[2:], strict=True)
        )
    ]
    steps = zip(attrs.output_padding, attrs.strides, strict=True)
    whole = all(more < stride for more, stride in steps)  # no element that no window reaches
    free = attrs.groups == 1 and not isinstance(args[1], Constant)
    if whole and free and _as_columns(data, weight):
        return _by_columns(attrs, args, axes)
    args = (args[0], _with_zeros_between(attrs, args[1]))
    together, one_by_one = _as_channels(attrs, args, axes), _one_by_one(attrs, args, axes)
    if free or not _pays(together, one_by_one, target):
        one_by_one = []
    found = one_by_one or together
    if not found:
        return None
    if one_by_one:
        found = _with_empty_phases(one_by_one, axes)
    joined = found[0] if len(found) == 1 else call("concatenate", Tuple(tuple(found)), axis=1)
    made = _in_place(joined, attrs.strides, weight.concrete_shape[1], attrs.groups)
    begin = [0 if one_by_one else axis.begin for axis in axes]
    end = [first + axis.result for first, axis in zip(begin, axes, strict=True)]
    if not any(begin) and (*end,) == tensor_type(made).concrete_shape[2:]:
        return made
    spatial_axes = tuple(range(2, 2 + len(axes)))
    return call("strided_slice", made, begin=tuple(begin), end=tuple(end), axes=spatial_axes)


def _with_channels_first(
    attrs: "ConvTransposeAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """The same of data whose channels lie last, which plain convolutions have so on GPUs: the moves
    around them and these meet."""
    rank = len(attrs.strides) + 2
    moved = call("transpose", args[0], axes=(0, rank - 1, *range(1, rank - 1)))
    plain = attrs.replace(data_layout=f"NC{SPATIAL[rank - 2]}", out_layout="")
    made = by_phases(plain, (moved, *args[1:]), target)
    return None if made is None else call("transpose", made, axes=(0, *range(2, rank), 1))


def _phases(attrs: "ConvTransposeAttrs", axis: int, extent: int, window: int) -> _Phases:
    """Of an axis; zeros between the places of its window are places of it where it has strides."""
    stride, before = attrs.strides[axis], attrs.before[axis]
    reach = attrs.dilation[axis] * (window - 1) + 1
    more = attrs.output_padding[axis] - before - attrs.after[axis]
    result = (extent - 1) * stride + reach + more
    if stride == 1:
        return _Phases(stride, extent, window, before, result, attrs.dilation[axis])
    return _Phases(stride, extent, reach, before, result)


def _with_zeros_between(attrs: "ConvTransposeAttrs", weight: RelayExpr) -> RelayExpr:
    """Weights whose places are set apart along the axes that have strides."""
    apart = [
        1 if stride == 1 else dilation
        for stride, dilation in zip(attrs.strides, attrs.dilation, strict=True)
    ]
    return weight if set(apart) == {1} else call("nn.dilate", weight, strides=(1, 1, *apart))


def _as_channels(
    attrs: "ConvTransposeAttrs", args: tuple[RelayExpr, ...], axes: list[_Phases]
) -> list[Call]:
    """One convolution, which has all phases as channels; none where some input is not read."""
    inputs, outputs = tensor_type(args[1]).concrete_shape[:2]
    borders = [axis.border for axis in axes]
    if any(side < 0 for border in borders for side in border):
        return []
    return [call(
        f"nn.conv{len(axes)}d", args[0], _turned(args[1], axes, inputs, outputs, attrs.groups),
        padding=(*(first for first, _ in borders), *(last for _, last in borders)),
        kernel_size=tuple(axis.places for axis in axes), groups=attrs.groups,
        dilation=tuple(axis.dilation for axis in axes),
        channels=math.prod(attrs.strides) * outputs * attrs.groups, out_dtype=attrs.out_dtype,
    )]


def _one_by_one(
    attrs: "ConvTransposeAttrs", args: tuple[RelayExpr, ...], axes: list[_Phases]
) -> list[Call]:
    """A convolution for each phase that has places; none where one leaves input out."""
    if attrs.groups > 1 or set(attrs.strides) == {1}:
        return []
    found = [each for each in itertools.product(*(axis.each for axis in axes)) if _has_places(each)]
    if any(min(phase.border) < 0 for each in found for phase in each):
        return []
    spatial = tuple(range(2, 2 + len(axes)))
    made = []
    for phases in found:
        window: RelayExpr = call(
            "strided_slice", args[1], begin=tuple(phase.begin for phase in phases),
            end=tuple(axis.window for axis in axes), strides=attrs.strides, axes=spatial,
        )
        window = call("transpose", window, axes=(1, 0, *spatial))
        for axis in spatial:
            window = call("reverse", window, axis=axis)
        made.append(call(
            f"nn.conv{len(axes)}d", args[0], window,
            padding=(*(p.border[0] for p in phases), *(p.border[1] for p in phases)),
            kernel_size=tuple(phase.places for phase in phases),
            dilation=tuple(axis.dilation for axis in axes),
            channels=tensor_type(args[1]).concrete_shape[1], out_dtype=attrs.out_dtype,
        ))
    return made


def _has_places(phases: Sequence[_Phase]) -> bool:
    """Whether the window reaches elements of the result; a window below its strides skips some."""
    return all(phase.places > 0 for phase in phases)


def _with_empty_phases(convolutions: list[Call], axes: list[_Phases]) -> list[Call]:
    """The phases in order, with zeros for those that no place of the window reaches."""
    made, kind = iter(convolutions), tensor_type(convolutions[0])
    every = itertools.product(*(axis.each for axis in axes))
    return [
        next(made) if _has_places(each) else call("zeros", shape=kind.concrete_shape,
                                                  dtype=str(kind.dtype))
        for each in every
    ]


def _pays(together: list[Call], one_by_one: list[Call], target: Target | None) -> bool:
    """Whether each phase is better a convolution of its own."""
    if target is None or not one_by_one or not target.kind.picks_instructions:
        return False
    processor, shapes = with_caches(processor_of(target)), together or one_by_one
    elements = sum(math.prod(tensor_type(each).concrete_shape) for each in one_by_one)
    put = PUT * len(one_by_one) * elements
    costs = {"together": _cycles(together, processor)} if together else {}
    costs["apart"] = _cycles(one_by_one, processor) + put / processor.threads
    with deciding(" ".join(map(repr, map(tensor_type, (*shapes[0].args, shapes[0]))))):
        return choose("phases", list(costs), costs.__getitem__) == "apart"


def _cycles(convolutions: list[Call], processor: Processor) -> float:
    """What convolutions cost, with their channels first or last."""
    total = 0.0
    for each in convolutions:
        made = contraction_of(each.attrs, *(tensor_type(arg) for arg in each.args))
        assert made is not None, "extents are known"
        last = replace(made, data_layout=f"N{made.spatial}C", out_layout=f"N{made.spatial}C")
        nothing = np.broadcast_to(np.float32(1), (made.outputs, *made.window, made.depth))
        cycles = least_cycles(*with_wide_weights(last, nothing, processor), processor)
        if offers_im2col(made, processor):
            cycles = min(cycles, im2col_cycles(made, processor))
        total += cycles + KERNEL
    return total


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

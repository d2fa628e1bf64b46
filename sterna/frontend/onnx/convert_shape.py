"""Operators that move elements or change a tensor's shape."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from sterna.frontend.calls import (
    axes_below,
    axis_below,
    call,
    call_unfolded,
    cast,
    constant,
    dtype_of,
    extent_of,
    like,
    parts,
    rank_of,
    reshape,
    size_of,
    type_of,
)
from sterna.frontend.onnx.checks import lengths
from sterna.frontend.onnx.node import Node, converter
from sterna.frontend.open_shapes import broadcast_shapes
from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, same_dim
from sterna.relay.expr import RelayExpr


@converter("Shape")
def shape(node: Node) -> RelayExpr:
    kind = type_of(node[0])
    cut = slice(node.attr("start", 0), node.attr("end"))
    wanted = kind.shape[cut]
    if all(type(extent) is int for extent in wanted):
        return constant(np.array(wanted, "int64").reshape(-1))
    begin, end, _ = cut.indices(kind.ndim)
    found = call("shape_of", node[0], dtype="int64")
    return call("strided_slice", found, (begin,), (max(begin, end),))


@converter("Size")
def size(node: Node) -> RelayExpr:
    if type_of(node[0]).is_static:
        return constant(np.int64(math.prod(node.shape())))
    return call("ndarray_size", node[0], dtype="int64")


@converter("Reshape", until=4)
def reshape_by_attribute(node: Node) -> RelayExpr:
    return call("reshape", node[0], _target(tuple(node.attr("shape"))))


@converter("Reshape", since=5)
def reshape_to(node: Node) -> RelayExpr:
    shape, zero = node.static(1), bool(node.attr("allowzero", 0))
    if isinstance(shape, tuple):
        shape = _target(shape)
        if zero and 0 in shape and -1 in shape:
            raise ValueError(f"the shape {shape} has a 0 that means itself, and a -1")
    return call("reshape", node[0], shape, allowzero=zero)


def _target(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Relay gives numbers below -1 meanings that ONNX has not."""
    if any(isinstance(extent, int) and extent < -1 for extent in shape):
        raise ValueError(f"the shape {shape} has an extent below -1")
    return shape


@converter("Flatten")
def flatten(node: Node) -> RelayExpr:
    data, axis = node[0], node.attr("axis", 1)
    if axis == 1 and rank_of(data) > 1:
        return call("nn.batch_flatten", data)
    extents = node.dims()
    if axis != len(extents):
        axis = axis_below(axis, len(extents))
    return reshape(data, (size_of(extents[:axis]), size_of(extents[axis:])))


@converter("Squeeze")
def squeeze(node: Node) -> RelayExpr:
    axes = node.ints_of(1, "axes", 13)
    return call("squeeze", node[0], None if axes is None else tuple(axes))


@converter("Unsqueeze")
def unsqueeze(node: Node) -> RelayExpr:
    data = node[0]
    axes = node.ints_of(1, "axes", 13) or []
    for axis in sorted(axes_below(axes, rank_of(data) + len(axes))):
        data = call("expand_dims", data, axis)
    return data


@converter("Transpose")
def transpose(node: Node) -> RelayExpr:
    perm = node.attr("perm")
    return call("transpose", node[0], None if perm is None else tuple(perm))


@converter("Concat")
def concat(node: Node) -> RelayExpr:
    given = node.operands()
    axis = node.attr("axis", 1)
    return given[0] if len(given) == 1 else call("concatenate", given, axis=axis)


@converter("Split")
def split(node: Node) -> list[RelayExpr]:
    axis = node.attr("axis", 0)
    sizes = node.ints_of(1, "split", 13)
    count = len(node.outputs)
    extent = type_of(node[0]).shape[axis]
    if sizes is None:
        if type(extent) is not int:
            return _open_parts(node[0], axis, count)
        one = -(-extent // count)
        sizes = [one] * (count - 1) + [extent - one * (count - 1)]
    if len(sizes) != count or any(size < 0 for size in sizes):
        raise ValueError(f"it makes {count} parts of an axis of {extent} of sizes {sizes}")
    if type(extent) is int and sum(sizes) != extent:
        raise ValueError(f"the parts {sizes} are not the {extent} elements of axis {axis}")
    if count == 1:
        return [node[0]]
    cuts = tuple(int(cut) for cut in np.cumsum(sizes)[:-1])
    return parts(call("split", node[0], cuts, axis=axis), count)


def _open_parts(data: RelayExpr, axis: int, count: int) -> list[RelayExpr]:
    """Equal parts of an axis whose extent the run tells; the last one may be smaller."""
    extent = reshape(extent_of(data, axis), (1,))
    more = call("add", extent, constant([count - 1], "int64"))
    one = call("floor_divide", more, constant([count], "int64"))
    ends = [call("multiply", one, constant([place], "int64")) for place in range(count)]
    step = constant([1], "int64")
    return [
        call("strided_slice", data, begin, end, step, axes=(axis,))
        for begin, end in pairwise([*ends, extent])
    ]


@converter("Slice", until=9)
def slice_by_attributes(node: Node) -> RelayExpr:
    starts, ends = node.attr("starts"), node.attr("ends")
    axes = node.attr("axes") or range(len(starts))
    return call("strided_slice", node[0], tuple(starts), tuple(ends), axes=tuple(axes))


@converter("Slice", since=10)
def slice_to(node: Node) -> RelayExpr:
    begin, end = node.static(1), node.static(2)
    strides = _strides(node) if node.has(4) else None
    axes = tuple(node.ints(3, "axes")) if node.has(3) else None
    if all(isinstance(given, tuple) for given in (begin, end, strides or ())):
        own = axes or tuple(range(len(begin)))  # type: ignore[arg-type]
        if isinstance(strides, tuple):
            strides = _no_further(strides, own, node.dims())
        if strides is None or (isinstance(strides, tuple) and min(strides) > 0):
            return call("strided_slice", node[0], begin, end, strides, axes=own)
        return _cut_backwards(node, begin, end, strides, own)  # type: ignore[arg-type]
    if strides is None:
        kind = "int64" if isinstance(begin, tuple) else dtype_of(begin)
        count = len(begin) if isinstance(begin, tuple) else node.shape(1)[0]
        strides = call("ones", (count,), kind)
    first, last, steps = (
        constant(np.array(v, "int64")) if isinstance(v, tuple) else v
        for v in (begin, end, strides)
    )
    if node.has(4):
        first = _from_the_front(node[0], first, steps, axes)
    return call("strided_slice", node[0], first, last, steps, axes=axes)


def _strides(node: Node) -> tuple[int, ...] | RelayExpr:
    known = node.decided(4)
    return node[4] if known is None else tuple(node.ints(4, "steps"))


def _no_further(
    strides: tuple[int, ...], axes: tuple[int, ...], extents: Sequence[Dim]
) -> tuple[int, ...]:
    """Strides over the whole of an axis, for any that reach further: all leave one element."""
    if len(strides) != len(axes):  # the operator refuses it
        return strides
    known = dict(enumerate(extents)) | {i - len(extents): e for i, e in enumerate(extents)}
    reach = [max(e, 1) if isinstance(e := known.get(axis), int) else None for axis in axes]
    return tuple(
        stride if most is None else min(max(stride, -most), most)
        for stride, most in zip(strides, reach, strict=True)
    )


def _from_the_front(
    data: RelayExpr, begin: RelayExpr, strides: RelayExpr, axes: tuple[int, ...] | None
) -> RelayExpr:
    """Begins of slices; what goes backwards from before the front begins at the front."""
    kind = dtype_of(begin)
    (count,) = type_of(begin).shape
    own = range(count) if axes is None and isinstance(count, int) else axes or ()
    extents = [cast(reshape(extent_of(data, axis), (1,)), kind) for axis in own]
    front = call("negative", call("concatenate", extents, axis=0))
    is_backwards = call("less", strides, like(0, strides))
    return call("where", is_backwards, call("maximum", begin, front), begin)


def _cut_backwards(
    node: Node, begin: tuple[Dim, ...], end: tuple[Dim, ...], strides: tuple[int, ...],
    axes: tuple[int, ...],
) -> RelayExpr:
    """Slices of which some go backwards: from the last one to and with the first by an end that
    lies before the front, which begin and end are held to here.
    """
    extents = node.dims()
    firsts, lasts = list(begin), list(end)
    for place, (axis, stride) in enumerate(zip(axes, strides, strict=True)):
        extent, first, last = extents[axis], firsts[place], lasts[place]
        if stride < 0 and isinstance(first, int) and isinstance(last, int):
            if not isinstance(extent, int):
                firsts[place], lasts[place] = max(first, -_FAR), max(last, -_FAR)
                if first < -1 and isinstance(extent, Expr):
                    firsts[place] = build.maximum(firsts[place], -extent)
                continue
            first = max(0, min(first + extent if first < 0 else first, extent - 1))
            last = max(last + extent if last < 0 else last, -1)
            firsts[place] = first
            lasts[place] = last if last >= 0 else -extent - 1
    return call("strided_slice", node[0], tuple(firsts), tuple(lasts), strides, axes=axes)


@converter("Expand")
def expand(node: Node) -> RelayExpr:
    """Both shapes are broadcast: dimensions of the tensor may be larger than those wanted."""
    wanted, have = node.static(1), node.dims()
    if not isinstance(wanted, tuple) or any(isinstance(dim, AnyDim) for dim in have):
        filled = call_unfolded("full", constant(True), wanted, dtype="bool")
        return call("where", filled, node[0], node[0])
    target = broadcast_shapes(have, wanted)
    return node[0] if len(have) == len(target) and all(map(same_dim, have, target)) else call(
        "broadcast_to", node[0], target)


@converter("Tile")
def tile(node: Node) -> RelayExpr:
    return call("tile", node[0], node.static(1))


@converter("Pad", until=10)
def pad_by_attributes(node: Node) -> RelayExpr:
    pads = node.attr("pads") or node.attr("paddings")
    return _pad(node, list(pads), like(node.attr("value", 0.0), node[0]))


@converter("Pad", since=11)
def pad(node: Node) -> RelayExpr:
    value = node[2] if node.has(2) else like(0, node[0])
    value = reshape(value, ()) if rank_of(value) else value
    pads = node.static(1)
    return _pad(node, pads, value) if isinstance(pads, tuple) else _computed_pad(node, value)


def _axes(node: Node) -> list[int]:
    return axes_below(node.ints(3, "axes") if node.has(3) else None, rank_of(node[0]))


def _computed_pad(node: Node, value: RelayExpr) -> RelayExpr:
    """A border whose widths only a run tells, as rows of two for all axes."""
    axes = _axes(node)
    own = call("transpose", reshape(cast(node[1], "int64"), (2, len(axes))), (1, 0))
    none = constant(np.zeros((1, 2), "int64"))
    rows = [
        call("strided_slice", own, (axes.index(axis),), (axes.index(axis) + 1,), axes=(0,))
        if axis in axes else none for axis in range(rank_of(node[0]))
    ]
    width = call("concatenate", rows, axis=0)
    return call("nn.pad", node[0], width, value, pad_mode=node.attr("mode", "constant"))


def _pad(node: Node, pads: Sequence[Dim], value: RelayExpr) -> RelayExpr:
    rank, axes = rank_of(node[0]), _axes(node)
    if len(pads) != 2 * len(axes):
        raise ValueError(f"pads has two numbers for each of {len(axes)} axes, not {len(pads)}")
    width: list[tuple[Dim, Dim]] = [(0, 0)] * rank
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        width[axis] = (before, after)
    mode = node.attr("mode", "constant")
    if all(isinstance(each, int) and not each for pair in width for each in pair):
        return node[0]
    return call("nn.pad", node[0], tuple(width), value, pad_mode=mode)


# Further than any tensor reaches.
_FAR = 2**31 - 1
# Longer ranges are computed when the model runs.
SMALL_RANGE = 1 << 17


@converter("Range")
def number_range(node: Node) -> RelayExpr:
    kind = dtype_of(node[0])
    known = [node.decided(i) for i in range(3)]
    if all(value is not None for value in known):
        start, stop, step = (v.reshape(()) for v in known if v is not None)
        count = _steps(start.item(), stop.item(), step.item())
        if count > SMALL_RANGE:
            return call("arange", *map(constant, (start, stop, step)), dtype=kind)
        return constant((start + np.arange(count) * step).astype(start.dtype))
    ends = [reshape(node[i], ()) if rank_of(node[i]) else node[i] for i in range(3)]
    return call("arange", *ends, dtype=kind)


def _steps(start: float, stop: float, step: float) -> int:
    """How many numbers a range has; whole ones are counted exactly, however large they are."""
    if not step or not all(map(math.isfinite, (start, stop, step))):
        raise ValueError(
            f"a range goes by finite numbers and a step that is not 0, not from {start} to {stop} "
            f"by {step}"
        )
    if isinstance(step, int):
        return max(0, -int((start - stop) // step))
    return max(0, math.ceil((stop - start) / step))


@converter("DepthToSpace")
def depth_to_space(node: Node) -> RelayExpr:
    mode = node.attr("mode", "DCR")
    return call("nn.depth_to_space", node[0], node.attr("blocksize"), mode=mode)


@converter("SpaceToDepth")
def space_to_depth(node: Node) -> RelayExpr:
    mode = node.attr("mode", "DCR")
    return call("nn.space_to_depth", node[0], node.attr("blocksize"), mode=mode)


@converter("Trilu")
def trilu(node: Node) -> RelayExpr:
    k = node.number(1, "k") if node.has(1) else 0
    return call("trilu", node[0], k, upper=bool(node.attr("upper", 1)))


@converter("ReverseSequence")
def reverse_sequence(node: Node) -> RelayExpr:
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    seen = cast(lengths(node, 1, time), "int32")
    return call("reverse_sequence", node[0], seen, seq_axis=time, batch_axis=batch)


@converter("CenterCropPad")
def center_crop_pad(node: Node) -> RelayExpr:
    data, extents, wanted = node[0], node.dims(), node.ints(1, "shape")
    axes = axes_below(node.attr("axes"), len(extents))
    width = [(0, 0)] * len(extents)
    for axis, target in zip(axes, wanted, strict=True):
        extent = extents[axis]
        if not isinstance(extent, int):
            data = _centred(data, axis, target)
        elif target > extent:
            before = (target - extent) // 2
            width[axis] = (before, target - extent - before)
        else:
            begin = (extent - target) // 2
            data = call("strided_slice", data, (begin,), (begin + target,), axes=(axis,))
    return call("nn.pad", data, tuple(width), like(0, data))


def _centred(data: RelayExpr, axis: int, target: int) -> RelayExpr:
    """An axis whose extent the run tells, cropped or padded with zeros to another extent."""
    extent = extent_of(data, axis)
    more = call("subtract", extent, constant(target, "int64"))
    first = call("trunc_divide", more, constant(2, "int64"))
    places = call("add", constant(np.arange(target)), first)
    inside = call("logical_and", call("greater_equal", places, constant(0, "int64")),
                  call("less", places, extent))
    shape = [-1 if place == axis else 1 for place in range(rank_of(data))]
    taken = call("take", data, places, axis=axis, mode="clip")
    return call("where", reshape(inside, shape), taken, like(0, data))


@converter("Col2Im")
def col2im(node: Node) -> RelayExpr:
    image = tuple(node.ints(1, "image_shape"))
    pads = node.attr("pads")
    return call(
        "nn.col2im", node[0], image_shape=image, block_shape=tuple(node.ints(2, "block_shape")),
        strides=tuple(node.attr("strides") or ()), dilation=tuple(node.attr("dilations") or ()),
        padding=tuple(pads) if pads else 0,
    )

"""Operators that move elements, and those that compute with shapes."""

import math

import numpy as np

from sterna.frontend.calls import (
    axes_below,
    axis_below,
    call,
    cast,
    constant,
    dtype_of,
    like,
    parts,
    rank_of,
    reshape,
)
from sterna.frontend.tflite.arithmetic import activated, held, rounded
from sterna.frontend.tflite.node import Node, converter, single
from sterna.frontend.tflite.requantize import all_bytes, by_table, like_result, saturated
from sterna.frontend.tflite.schema import TYPES
from sterna.relay.expr import RelayExpr


def type_at(code: int) -> str:
    """An element type by its code."""
    if not 0 <= code < len(TYPES):
        raise ValueError(f"its element type is {code}, which is none")
    return TYPES[code]


@converter("RESHAPE")
def reshape_to(node: Node) -> RelayExpr:
    """To the shape of an operand, or to the one in the options."""
    if node.has(1):
        wanted = node.ints(1, "the shape")
    else:
        given = node.attr("new_shape")
        wanted = list(node.results_as[0].shape) if given is None else [int(x) for x in given]
    return reshape(node[0], wanted)


@converter("SQUEEZE")
def squeeze(node: Node) -> RelayExpr:
    given = node.attr("squeeze_dims")
    axes = None if given is None or not given.size else tuple(int(axis) for axis in given)
    return call("squeeze", node[0], axes)


@converter("EXPAND_DIMS")
def expand_dims(node: Node) -> RelayExpr:
    return call("expand_dims", node[0], int(node.number(1, "the axis")))


@converter("TRANSPOSE")
def transpose(node: Node) -> RelayExpr:
    return call("transpose", node[0], tuple(node.ints(1, "the order of axes")))


@converter("CONCATENATION")
def concatenation(node: Node) -> RelayExpr:
    """Of bytes: under the scale of the result; of 16 bits: as they are."""
    given = node.operands()
    if node.result_dtype() in ("int8", "uint8") and node.results_as[0].quantization:
        given = [_joined_part(node, place) for place in range(len(given))]
    axis = axis_below(int(node.attr("axis")), rank_of(given[0]))
    made = given[0] if len(given) == 1 else call("concatenate", given, axis=axis)
    if node.attr("activation"):
        if dtype_of(made) == "float32":
            return activated(node, made)
        return held(node, made, node.result_quantization(), node.result_dtype())
    return made


def _joined_part(node: Node, place: int) -> RelayExpr:
    """Bytes under the scale of the result; uint8 by a float, halves away from zero."""
    have, want = node.quantization(place), node.result_quantization()
    is_same = np.array_equal(have.scale, want.scale) and np.array_equal(have.zero, want.zero)
    if is_same or node.dtype(place) != "uint8":
        return like_result(node, place, fine=True)
    (scale, zero), (out_scale, out_zero) = (single(one, "its data") for one in (have, want))
    factor = scale * (np.float32(1) / out_scale)
    start = np.float64(np.float32(-zero) * factor)
    steps = (all_bytes("uint8") * np.float64(factor) + start).astype(np.float32)  # rounded once
    whole = np.array([rounded(float(one)) for one in steps]) + out_zero
    return by_table(node[place], saturated(whole, "uint8"))


@converter("PACK")
def pack(node: Node) -> RelayExpr:
    axis = axis_below(int(node.attr("axis")), rank_of(node[0]) + 1)
    return call("stack", node.operands(), axis=axis)


@converter("UNPACK")
def unpack(node: Node) -> list[RelayExpr]:
    axis = axis_below(int(node.attr("axis")), rank_of(node[0]))
    count = node.shape()[axis]
    if count != len(node.outputs):
        raise ValueError(f"it makes {len(node.outputs)} results of an axis of {count}")
    if count == 1:
        return [call("squeeze", node[0], (axis,))]
    every = parts(call("split", node[0], count, axis=axis), count)
    return [call("squeeze", part, (axis,)) for part in every]


@converter("SPLIT")
def split(node: Node) -> list[RelayExpr]:
    axis = axis_below(int(node.number(0, "the axis")), rank_of(node[1]))
    count = len(node.outputs)
    if node.shape(1)[axis] % count:
        raise ValueError(f"{node.shape(1)[axis]} elements are not {count} equal parts")
    return [node[1]] if count == 1 else parts(call("split", node[1], count, axis=axis), count)


@converter("SPLIT_V")
def split_v(node: Node) -> list[RelayExpr]:
    axis = axis_below(int(node.number(2, "the axis")), rank_of(node[0]))
    sizes, extent = node.ints(1, "the sizes"), node.shape()[axis]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = extent - sum(sizes) - 1
    if len(sizes) != len(node.outputs) or sum(sizes) != extent or min(sizes) < 0:
        raise ValueError(f"the parts {sizes} are not the {extent} elements of axis {axis}")
    if len(sizes) == 1:
        return [node[0]]
    cuts = tuple(int(cut) for cut in np.cumsum(sizes)[:-1])
    return parts(call("split", node[0], cuts, axis=axis), len(sizes))


@converter("SLICE")
def slice_to(node: Node) -> RelayExpr:
    begin, size = node.ints(1, "the begin"), node.ints(2, "the size")
    extents = node.shape()
    ends = [
        extent if count == -1 else first + count
        for first, count, extent in zip(begin, size, extents, strict=True)
    ]
    for first, end, extent in zip(begin, ends, extents, strict=True):
        if not 0 <= first <= end <= extent:
            raise ValueError(f"it cuts from {begin} to {ends}, out of the shape {list(extents)}")
    return call("strided_slice", node[0], tuple(begin), tuple(ends))


@converter("STRIDED_SLICE")
def strided_slice(node: Node) -> RelayExpr:
    """Masks say which axes have no begin or no end, which are new, and which go away."""
    begin, end, strides = (node.ints(place, "what it cuts out") for place in (1, 2, 3))
    masks = {
        name: int(node.attr(f"{name}_mask"))
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    extents, rank = node.shape(), rank_of(node[0])
    if not len(begin) == len(end) == len(strides) or 0 in strides:
        raise ValueError(f"it cuts from {begin} to {end} in steps of {strides}")

    def has(name: str, place: int) -> bool:
        return bool(masks[name] >> place & 1)

    named = sum(not has("new_axis", i) and not has("ellipsis", i) for i in range(len(begin)))
    if named > rank:
        raise ValueError(f"it cuts {named} axes of {rank}")
    lows, highs, steps = [0] * rank, list(extents), [1] * rank
    fresh: list[int] = []
    gone: list[int] = []
    axis = made = 0
    for place, step in enumerate(strides):
        if has("ellipsis", place):
            skipped = rank - named
            axis, made = axis + skipped, made + skipped
            continue
        if has("new_axis", place):
            fresh.append(made)
            made += 1
            continue
        extent = extents[axis]
        first = None if has("begin", place) else begin[place]
        last = None if has("end", place) else end[place]
        if node.attr("offset") and first is not None and last is not None:
            last += first
        if has("shrink_axis", place):
            one = begin[place] + (extent if begin[place] < 0 else 0)
            if not 0 <= one < extent:
                raise ValueError(f"index {begin[place]} is none of the {extent} of axis {axis}")
            lows[axis], highs[axis] = one, one + 1
            gone.append(axis)
        else:
            lows[axis], highs[axis], _ = slice(first, last, step).indices(extent)
            steps[axis] = step
            made += 1
            if step < 0 and highs[axis] < 0:
                highs[axis] = -extent - 1
            if step > 0:
                highs[axis] = max(lows[axis], highs[axis])
        axis += 1
    cut = call("strided_slice", node[0], tuple(lows), tuple(highs), tuple(steps))
    if gone:
        cut = call("squeeze", cut, tuple(gone))
    for place in fresh:
        cut = call("expand_dims", cut, place)
    return cut


# ---- borders ----


@converter("PAD", "PADV2")
def pad(node: Node) -> RelayExpr:
    """By what stands for 0, or by a number."""
    width = _width(node)
    if node.has(2):
        value = reshape(node[2], ())
    elif node.is_quantized():
        value = like(single(node.result_quantization(), "the result")[1], node[0])
    else:
        value = like(0, node[0])
    return call("nn.pad", node[0], width, value) if any(map(any, width)) else node[0]


@converter("MIRROR_PAD")
def mirror_pad(node: Node) -> RelayExpr:
    mode = "SYMMETRIC" if node.attr("mode") else "REFLECT"
    return call("nn.mirror_pad", node[0], _width(node), mode=mode)


def _width(node: Node) -> tuple[tuple[int, int], ...]:
    numbers = node.ints(1, "the width of the border")
    if len(numbers) != 2 * rank_of(node[0]) or min(numbers, default=0) < 0:
        raise ValueError(f"the border {numbers} does not fit {rank_of(node[0])} axes")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


@converter("SPACE_TO_BATCH_ND")
def space_to_batch(node: Node) -> RelayExpr:
    block, pads = node.ints(1, "the block"), node.ints(2, "the padding")
    zero = single(node.quantization(0), "its data")[1] if node.is_quantized() else 0
    return call("nn.space_to_batch_nd", node[0], tuple(block),
                tuple(zip(pads[::2], pads[1::2], strict=True)), float(zero))


@converter("BATCH_TO_SPACE_ND")
def batch_to_space(node: Node) -> RelayExpr:
    block, crops = node.ints(1, "the block"), node.ints(2, "what is cut off")
    return call("nn.batch_to_space_nd", node[0], tuple(block),
                tuple(zip(crops[::2], crops[1::2], strict=True)))


@converter("DEPTH_TO_SPACE")
def depth_to_space(node: Node) -> RelayExpr:
    return call("nn.depth_to_space", node[0], int(node.attr("block_size")), layout="NHWC")


@converter("SPACE_TO_DEPTH")
def space_to_depth(node: Node) -> RelayExpr:
    return call("nn.space_to_depth", node[0], int(node.attr("block_size")), layout="NHWC")


# ---- repeated and reversed ----


@converter("TILE")
def tile(node: Node) -> RelayExpr:
    return call("tile", node[0], tuple(node.ints(1, "how often")))


@converter("BROADCAST_TO")
def broadcast_to(node: Node) -> RelayExpr:
    wanted = tuple(node.ints(1, "the shape"))
    return node[0] if wanted == node.shape() else call("broadcast_to", node[0], wanted)


@converter("REVERSE_V2")
def reverse(node: Node) -> RelayExpr:
    made = node[0]
    for axis in axes_below(node.ints(1, "the axes"), rank_of(made)):
        made = call("reverse", made, axis)
    return made


@converter("REVERSE_SEQUENCE")
def reverse_sequence(node: Node) -> RelayExpr:
    return call("reverse_sequence", node[0], cast(node[1], "int32"),
                seq_axis=int(node.attr("seq_dim")), batch_axis=int(node.attr("batch_dim")))


# ---- shapes ----


@converter("SHAPE")
def shape(node: Node) -> RelayExpr:
    return constant(np.array(node.shape(), type_at(int(node.attr("out_type")))).reshape(-1))


@converter("RANK")
def rank(node: Node) -> RelayExpr:
    return constant(rank_of(node[0]), "int32")


@converter("BROADCAST_ARGS")
def broadcast_args(node: Node) -> RelayExpr:
    shapes = [tuple(node.ints(place, "a shape")) for place in (0, 1)]
    return constant(np.array(np.broadcast_shapes(*shapes), dtype_of(node[0])))


@converter("FILL")
def fill(node: Node) -> RelayExpr:
    return call("full", node[1], tuple(node.ints(0, "the shape")), dtype_of(node[1]))


@converter("ZEROS_LIKE")
def zeros_like(node: Node) -> RelayExpr:
    return call("zeros", node.shape(), dtype_of(node[0]))


@converter("RANGE")
def number_range(node: Node) -> RelayExpr:
    start, stop, step = (node.array(place, "the range").reshape(()) for place in range(3))
    if not step:
        raise ValueError("its range has steps of 0")
    count = max(0, math.ceil((float(stop) - float(start)) / float(step)))
    kind = dtype_of(node[0])
    return call("arange", *(constant(start + n * step, kind) for n in (0, count)),
                constant(step, kind), dtype=kind) if count else call("zeros", (0,), kind)

"""Operators that pick, place, order or count elements."""

import numpy as np

from sterna.frontend.calls import (
    axis_below,
    call,
    cast,
    constant,
    dtype_of,
    extent_of,
    numbers_below,
    parts,
    rank_of,
    reshape,
    type_of,
)
from sterna.frontend.onnx.checks import from_front_of_axis, on_axes, on_axis
from sterna.frontend.onnx.convert_vision import first_of
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr


@converter("Gather")
def gather(node: Node) -> RelayExpr:
    axis = node.attr("axis", 0)
    extent, picks = type_of(node[0]).shape[axis], node.known(1)
    at = on_axis(node, 1, axis)
    if picks is not None and type(extent) is int:
        at = constant(np.where(picks < 0, picks + extent, picks).astype(picks.dtype))
        return call("take", node[0], at, axis=axis)
    return call("take", node[0], at, axis=axis, mode="wrap")


@converter("GatherElements")
def gather_elements(node: Node) -> RelayExpr:
    axis = node.attr("axis", 0)
    return call("gather", node[0], axis, on_axis(node, 1, axis))


def _indices_first(indices: RelayExpr) -> RelayExpr:
    """ONNX keeps the indices of one element in the last dimension, Relay in the first."""
    rank = rank_of(indices)
    return call("transpose", indices, (rank - 1, *range(rank - 1))) if rank > 1 else indices


@converter("GatherND")
def gather_nd(node: Node) -> RelayExpr:
    batch = node.attr("batch_dims", 0)
    return call(
        "gather_nd", node[0], _indices_first(on_axes(node, 1, batch)), batch_dims=batch)


@converter("Scatter", "ScatterElements")
def scatter_elements(node: Node) -> RelayExpr:
    axis, how = node.attr("axis", 0), node.attr("reduction", "none")
    at = on_axis(node, 1, axis)
    return call("scatter_elements", node[0], at, node[2], axis=axis, reduction=how)


@converter("ScatterND")
def scatter_nd(node: Node) -> RelayExpr:
    indices, how = _indices_first(on_axes(node, 1)), node.attr("reduction", "none")
    return call("scatter_nd", node[0], indices, node[2], mode=how)


@converter("TensorScatter")
def tensor_scatter(node: Node) -> RelayExpr:
    """Slices of a cache replaced, for every batch from an index of its own on."""
    cache, update = node[0], node[1]
    extents = node.dims(1)
    rank = len(extents)
    axis = axis_below(node.attr("axis", -2), rank)
    if axis == 0:
        raise ValueError("the axis is not that of the batch")
    mode = node.attr("mode", "linear")
    if mode not in ("linear", "circular"):
        raise ValueError(f"mode is linear or circular, not {mode}")
    shape = [-1 if place == axis else 1 for place in range(rank)]
    at = reshape(numbers_below(extent_of(update, axis)), shape)
    if node.has(2):
        at = call("add", reshape(cast(node[2], "int64"), (-1, *[1] * (rank - 1))), at)
    if mode == "circular":
        at = call("floor_mod", at, extent_of(cache, axis))
    elif node.has(2):
        at = from_front_of_axis(node, at, axis)
    at = call("add", at, call("zeros_like", cast(update, "int64")))
    return call("scatter_elements", cache, at, update, axis=axis)


@converter("OneHot")
def one_hot(node: Node) -> RelayExpr:
    depth = node.number(1, "depth")
    off, on = parts_of_pair(node[2])
    ids = node[0] if dtype_of(node[0]).startswith(("int", "uint")) else cast(node[0], "int64")
    if not dtype_of(ids).startswith("uint"):
        depth_here = constant(int(depth), dtype_of(ids))
        moved = call("add", ids, depth_here)
        ids = call("where", call("less", ids, constant(0, dtype_of(ids))), moved, ids)
    axis, dtype = node.attr("axis", -1), dtype_of(node[2])
    return call("one_hot", ids, on, off, int(depth), axis, dtype)


def parts_of_pair(values: RelayExpr) -> tuple[RelayExpr, RelayExpr]:
    """The two numbers of a vector."""
    first, second = (
        reshape(call("strided_slice", values, (i,), (i + 1,)), ()) for i in range(2)
    )
    return first, second


@converter("ArgMax", "ArgMin")
def arg_extreme(node: Node) -> RelayExpr:
    return call(
        node.kind.lower(), node[0], axis=node.attr("axis", 0),
        keepdims=bool(node.attr("keepdims", 1)),
        select_last_index=bool(node.attr("select_last_index", 0)), dtype="int64",
    )


@converter("TopK")
def top_k(node: Node) -> list[RelayExpr]:
    axis = node.attr("axis", -1)
    if node.opset >= 10 and node.decided(1) is None:
        every = parts(_top(node, 0, axis), 2)
        return [first_of(node, each, node[1], axis) for each in every]
    k = int(node.attr("k") if node.opset < 10 else node.number(1, "K"))
    if k < 0:
        raise ValueError(f"K is the number of elements to find, not {k}")
    if k == 0:
        none = call("strided_slice", node[0], (0,), (0,), axes=(axis,))
        return [none, cast(none, "int64")]
    return parts(_top(node, k, axis), 2)


def _top(node: Node, k: int, axis: int) -> RelayExpr:
    """The first k of an axis, 0 for all."""
    return call(
        "topk", node[0], k, axis=axis, ret_type="both",
        is_ascend=not node.attr("largest", 1), dtype="int64",
    )


@converter("CumSum", "CumProd")
def cumulative(node: Node) -> RelayExpr:
    return call(
        node.kind.lower(), node[0], axis=int(node.number(1, "axis")),
        exclusive=bool(node.attr("exclusive", 0)), reverse=bool(node.attr("reverse", 0)),
    )


@converter("NonZero")
def non_zero(node: Node) -> RelayExpr:
    data = node[0]
    value = node.known(0)
    if value is not None:
        return constant(np.array(np.nonzero(value), "int64"))
    if not node.feeds.values:
        return call("transpose", call("argwhere", data, dtype="int64"), (1, 0))
    rows, count = parts(call("argwhere_padded", data, dtype="int64"), 2)
    return call("transpose", first_of(node, rows, count, 0), (1, 0))


@converter("Compress")
def compress(node: Node) -> RelayExpr:
    condition = node.known(1)
    axis = node.attr("axis")
    if condition is None and node.feeds.values:
        rows, count = parts(call("compress_padded", node[0], node[1], axis=axis), 2)
        return first_of(node, rows, count, axis or 0)
    if condition is None:
        return call("compress", node[0], node[1], axis=axis)
    data = reshape(node[0], (-1,)) if axis is None else node[0]
    places = constant(np.flatnonzero(condition))
    return call("take", data, places, axis=axis or 0)

"""Operators that pick, place, order or count elements."""

from collections.abc import Sequence

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
from sterna.frontend.onnx.convert_vision import first_of
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr


@converter("Gather")
def gather(node: Node) -> RelayExpr:
    axis = node.attr("axis", 0)
    extent = type_of(node[0]).shape[axis]
    picks = _known_inside(node, (axis,))
    if picks is not None and type(extent) is int:
        at = constant(np.where(picks < 0, picks + extent, picks).astype(picks.dtype))
        return call("take", node[0], at, axis=axis)
    return call("take", node[0], node[1], axis=axis, mode="wrap")


def _known_inside(node: Node, axes: Sequence[int]) -> Array | None:
    """Indices that are known, which must be inside of these axes; their last axis has them all."""
    indices = node.known(1)
    if indices is None:
        return None
    kind = type_of(node[0])
    for place, axis in enumerate(axes):
        extent, own = kind.shape[axis], indices[..., place] if len(axes) > 1 else indices
        if type(extent) is int and ((own < -extent) | (own >= extent)).any():
            raise ValueError(f"an index is not one of the {extent} elements of axis {axis}")
    return indices


def _known_tuples_inside(node: Node, batch: int = 0) -> None:
    """The same of tuples of indices, for the axes behind those of the batch."""
    length = type_of(node[1]).shape[-1]
    if type(length) is int:
        _known_inside(node, range(batch, batch + length))


@converter("GatherElements")
def gather_elements(node: Node) -> RelayExpr:
    axis = node.attr("axis", 0)
    _known_inside(node, (axis,))
    return call("gather", node[0], axis, node[1])


def _indices_first(indices: RelayExpr) -> RelayExpr:
    """ONNX keeps the indices of one element in the last dimension, Relay in the first."""
    rank = rank_of(indices)
    return call("transpose", indices, (rank - 1, *range(rank - 1))) if rank > 1 else indices


@converter("GatherND")
def gather_nd(node: Node) -> RelayExpr:
    batch = node.attr("batch_dims", 0)
    _known_tuples_inside(node, batch)
    return call("gather_nd", node[0], _indices_first(node[1]), batch_dims=batch)


@converter("Scatter", "ScatterElements")
def scatter_elements(node: Node) -> RelayExpr:
    axis, how = node.attr("axis", 0), node.attr("reduction", "none")
    _known_inside(node, (axis,))
    return call("scatter_elements", *node.operands(), axis=axis, reduction=how)


@converter("ScatterND")
def scatter_nd(node: Node) -> RelayExpr:
    _known_tuples_inside(node)
    indices, how = _indices_first(node[1]), node.attr("reduction", "none")
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

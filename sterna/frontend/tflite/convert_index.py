"""Elements read and written at places that other tensors name."""

import numpy as np

from sterna.frontend.calls import axis_below, call, cast, constant, dtype_of, like, rank_of, reshape
from sterna.frontend.tflite.convert_quantize import real
from sterna.frontend.tflite.node import Node, converter
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@converter("GATHER")
def gather(node: Node) -> RelayExpr:
    axis = axis_below(int(node.attr("axis")), rank_of(node[0]))
    batch = int(node.attr("batch_dims"))
    return call("take", node[0], cast(node[1], "int32"), axis=axis, batch_dims=batch)


@converter("GATHER_ND")
def gather_nd(node: Node) -> RelayExpr:
    """Indices lie last in the file and first in the graph."""
    rank = rank_of(node[1])
    order = (rank - 1, *range(rank - 1))
    indices = call("transpose", cast(node[1], "int32"), order)
    return call("gather_nd", node[0], indices, index_rank=node.shape(1)[-1])


@converter("EMBEDDING_LOOKUP")
def embedding_lookup(node: Node) -> RelayExpr:
    """Rows of a table, of whole numbers as what they stand for."""
    table = node[1]
    if node.is_quantized(1) and node.result_dtype() == "float32":
        table = real(table, node.quantization(1))
    return call("take", table, cast(node[0], "int32"), axis=0)


@converter("SCATTER_ND")
def scatter_nd(node: Node) -> RelayExpr:
    """Elements that meet in a place are added; of truths, one that holds is enough."""
    wanted = tuple(node.ints(2, "the shape"))
    rank = rank_of(node[0])
    indices = call("transpose", cast(node[0], "int32"), (rank - 1, *range(rank - 1)))
    is_truth = dtype_of(node[1]) == "bool"
    updates = cast(node[1], "int8") if is_truth else node[1]
    made = call("scatter_nd", call("zeros", wanted, dtype_of(updates)), indices, updates,
                mode="max" if is_truth else "add")
    return cast(made, "bool") if is_truth else made


@converter("SPARSE_TO_DENSE")
def sparse_to_dense(node: Node) -> RelayExpr:
    wanted = tuple(node.ints(1, "the shape"))
    return call("sparse_to_dense", cast(node[0], "int32"), wanted, node[2], node[3])


@converter("ONE_HOT")
def one_hot(node: Node) -> RelayExpr:
    depth = int(node.number(1, "the depth"))
    on, off = (reshape(node[place], ()) for place in (2, 3))
    return call("one_hot", node[0], on, off, depth, int(node.attr("axis")), dtype_of(node[2]))


@converter("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: Node) -> RelayExpr:
    """What is written begins where it still fits."""
    begin, extents, sizes = node.ints(2, "the begin"), node.shape(), node.shape(1)
    first = [
        min(max(at, 0), extent - size)
        for at, extent, size in zip(begin, extents, sizes, strict=True)
    ]
    last = [at + size for at, size in zip(first, sizes, strict=True)]
    return call("strided_set", node[0], node[1], *(
        constant(np.array(part, "int32")) for part in (first, last, [1] * len(first))
    ))


@converter("MATRIX_DIAG")
def matrix_diag(node: Node) -> RelayExpr:
    *batch, count = node.shape()
    zeros = call("zeros", (*batch, count, count), dtype_of(node[0]))
    return call("matrix_set_diag", zeros, node[0])


@converter("MATRIX_SET_DIAG")
def matrix_set_diag(node: Node) -> RelayExpr:
    return call("matrix_set_diag", node[0], node[1])


@converter("SEGMENT_SUM")
def segment_sum(node: Node) -> RelayExpr:
    known = node.known(1)
    if known is None:
        raise OpNotImplemented("segments that an input decides")
    count = int(known.max(initial=-1)) + 1
    return call("segment_sum", node[0], cast(node[1], "int32"), count)


_SEGMENTS = {
    "UNSORTED_SEGMENT_SUM": ("add", 0), "UNSORTED_SEGMENT_PROD": ("mul", 1),
    "UNSORTED_SEGMENT_MAX": ("max", None), "UNSORTED_SEGMENT_MIN": ("min", None),
}


@converter(*_SEGMENTS)
def unsorted_segment(node: Node) -> RelayExpr:
    """Elements of a segment together; a segment without any has what changes nothing."""
    how, neutral = _SEGMENTS[node.kind]
    count = int(node.number(2, "the number of segments"))
    shape, places = node.shape(), node.shape(1)
    kind = np.dtype(dtype_of(node[0]))
    if neutral is None:
        ends = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
        neutral = ends.min if how == "max" else ends.max
    start = call("full", like(neutral, node[0]), (count, *shape[len(places) :]), str(kind))
    indices = reshape(cast(node[1], "int32"), (1, *places))
    return call("scatter_nd", start, indices, node[0], mode=how)

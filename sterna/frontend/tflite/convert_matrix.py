"""Products of matrices, and what normalises rows."""

import math

import numpy as np

from sterna.frontend.calls import call, cast, dtype_of, like, rank_of, reshape, type_of
from sterna.frontend.tflite.arithmetic import activated, product_ratio, rescaled
from sterna.frontend.tflite.convert_products import zeros_and_scales
from sterna.frontend.tflite.dynamic_range import distances, ranged_for, scaled_sums
from sterna.frontend.tflite.log_softmax import log_softmax_of_bytes
from sterna.frontend.tflite.narrow_floats import in_float32
from sterna.frontend.tflite.node import Node, converter
from sterna.frontend.tflite.quantized_norm import norm_of_bytes
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@converter("BATCH_MATMUL")
@in_float32
def batch_matmul(node: Node) -> RelayExpr:
    """Leading axes broadcast; either operand may be transposed."""
    turned = {"transpose_a": bool(node.attr("adj_x")), "transpose_b": bool(node.attr("adj_y"))}
    a, b = node.shape(0), node.shape(1)
    batch = _batch(a[:-2], b[:-2])
    count = math.prod(batch)
    first, second = (
        reshape(_spread(node[i], batch), (count, *shape[-2:])) for i, shape in enumerate((a, b))
    )
    rows = a[-1] if turned["transpose_a"] else a[-2]
    columns = b[-2] if turned["transpose_b"] else b[-1]
    if dtype_of(node[0]) == "float32":
        if dtype_of(node[1]) == "float32":
            made = call("nn.batch_matmul", first, second, **turned)
        else:
            made = _of_ranges(node, first, second, rows)
    elif dtype_of(node[0]) in ("int8", "int16"):
        wide = "int64" if dtype_of(node[0]) == "int16" else "int32"
        sums = call("qnn.batch_matmul", first, second, *zeros_and_scales(node), out_dtype=wide,
                    **turned)
        out = node.result_quantization()
        # kernels for processors take over where the second operand has no zero point
        is_shifted = bool(np.any(node.quantization(1).zero))
        ratio = product_ratio(
            node, node.quantization(0), node.quantization(1), out, twice=is_shifted)
        made = rescaled(node, sums, ratio, out, node.result_dtype(), twice=is_shifted)
    else:
        raise OpNotImplemented(f"{node.dtype()}")
    return reshape(made, (*batch, rows, columns))


def _of_ranges(node: Node, first: RelayExpr, second: RelayExpr, rows: int) -> RelayExpr:
    """Rows of floats, each by its range, times bytes."""
    if node.dtype(1) != "int8":
        raise OpNotImplemented(f"floats by {node.dtype(1)}")
    if node.attr("adj_x"):
        first = call("transpose", first, (0, 2, 1))
    count, _, depth = type_of(first).concrete_shape
    ranged = ranged_for(node, reshape(first, (-1, depth)))
    bytes_ = reshape(distances(ranged), (count, rows, depth))
    sums = call("nn.batch_matmul", bytes_, cast(second, "int16"), out_dtype="int32",
                transpose_b=bool(node.attr("adj_y")))
    return scaled_sums(sums, reshape(ranged.scale, (count, rows, 1)), node.quantization(1))


def _batch(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    made = []
    for first, second in pairs:
        if first != second and 1 not in (first, second):
            raise ValueError(f"the leading axes {list(a)} and {list(b)} do not fit")
        made.append(second if first == 1 else first)
    return tuple(made)


def _spread(data: RelayExpr, batch: tuple[int, ...]) -> RelayExpr:
    kind = data.checked_type
    shape = (*batch, *kind.concrete_shape[-2:])  # type: ignore[attr-defined]
    return data if kind.concrete_shape == shape else call(  # type: ignore[attr-defined]
        "broadcast_to", data, shape
    )


@converter("L2_NORMALIZATION")
def l2_normalization(node: Node) -> RelayExpr:
    """Rows along the last axis, each over its length."""
    if node.is_quantized() and node.dtype() in ("int8", "uint8"):
        return norm_of_bytes(node)
    if dtype_of(node[0]) != "float32":
        raise OpNotImplemented(f"{node.dtype()}")
    squares = call("sum", call("multiply", node[0], node[0]), axis=-1, keepdims=True)
    length = call("maximum", call("sqrt", squares), like(1e-6, node[0]))
    return activated(node, call("divide", node[0], length))


@converter("LOG_SOFTMAX")
def log_softmax(node: Node) -> RelayExpr:
    if node.is_quantized() and node.dtype() in ("int8", "uint8"):
        return log_softmax_of_bytes(node)
    if dtype_of(node[0]) != "float32":
        raise OpNotImplemented(f"{node.dtype()}")
    return call("nn.log_softmax", node[0], axis=-1)


@converter("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(node: Node) -> RelayExpr:
    """alpha counts for each element of a window, not for all of them."""
    size = 2 * int(node.attr("radius")) + 1
    return call(
        "nn.lrn", node[0], size=size, axis=rank_of(node[0]) - 1, bias=float(node.attr("bias")),
        alpha=float(node.attr("alpha")) * size, beta=float(node.attr("beta")),
    )

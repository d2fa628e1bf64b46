"""Quantised tensors and what computes with them."""

from onnx import TensorProto

from sterna.frontend.onnx.convert_elementwise import element_type
from sterna.frontend.onnx.convert_matrix import product
from sterna.frontend.onnx.convert_nn import convolution
from sterna.frontend.onnx.node import (
    Node,
    call,
    call_unfolded,
    cast,
    constant,
    converter,
    dtype_of,
    like,
    rank_of,
    reshape,
    type_of,
)
from sterna.relay.expr import RelayExpr


def _scalar(expr: RelayExpr) -> RelayExpr:
    """A vector of one number as that number."""
    return reshape(expr, ()) if type_of(expr).shape == (1,) else expr


def _zero(node: Node, place: int, scale: RelayExpr, dtype: str) -> RelayExpr:
    if node.has(place):
        return _scalar(node[place])
    shape = node.shape_of(scale)
    return call("full", constant(0, dtype), shape, dtype=dtype)


def quantize(
    data: RelayExpr, scale: RelayExpr, zero: RelayExpr, dtype: str, axis: int = 1, block: int = 0,
    saturate: bool = True,
) -> RelayExpr:  # fmt: skip
    """Floats as whole numbers; halves go to the even neighbour."""
    return call(
        "qnn.quantize", data, scale, zero, axis=axis, out_dtype=dtype, rounding="TO_EVEN",
        saturate=saturate, block_size=block,
    )  # fmt: skip


def dequantize(
    data: RelayExpr, scale: RelayExpr, zero: RelayExpr, axis: int = 1, block: int = 0
) -> RelayExpr:
    """Whole numbers as the floats that they stand for; passes look at what they were."""
    return call_unfolded(
        "qnn.dequantize", data, scale, zero, axis=axis, out_dtype=dtype_of(scale),
        block_size=block,
    )  # fmt: skip


def _axis(node: Node, scale: RelayExpr) -> int:
    axis = node.attr("axis", 1)
    rank = rank_of(node[0])
    return axis if rank_of(scale) and -rank <= axis < rank else -1


@converter("QuantizeLinear")
def quantize_linear(node: Node) -> RelayExpr:
    scale = _scalar(node[1])
    named = element_type(node.attr("output_dtype", 0) or TensorProto.UINT8)
    dtype = dtype_of(node[2]) if node.has(2) else named
    zero, block = _zero(node, 2, scale, dtype), node.attr("block_size", 0)
    saturate = bool(node.attr("saturate", 1))
    return quantize(node[0], scale, zero, dtype, _axis(node, scale), block, saturate)


@converter("DequantizeLinear")
def dequantize_linear(node: Node) -> RelayExpr:
    scale = _scalar(node[1])
    zero, block = _zero(node, 2, scale, dtype_of(node[0])), node.attr("block_size", 0)
    return dequantize(node[0], scale, zero, _axis(node, scale), block)


@converter("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> list[RelayExpr]:
    """To uint8 by the range of the data, which is widened to hold 0."""
    data = node[0]
    low = call("minimum", call("min", data), like(0, data))
    high = call("maximum", call("max", data), like(0, data))
    scale = call("divide", call("subtract", high, low), like(255, data))
    start = call("divide", call("negative", low), scale)
    point = cast(call("clip", call("round_even", start), 0.0, 255.0), "uint8")
    return [quantize(data, scale, point, "uint8", axis=-1), scale, point]


# ---- products of whole numbers ----


def _moved(data: RelayExpr, zero: RelayExpr | None, axis: int | None = None) -> RelayExpr:
    """Whole numbers less their zero point, which may be one for each place along an axis."""
    wide = cast(data, "int32")
    if zero is None:
        return wide
    point = cast(_scalar(zero), "int32")
    if axis is not None and rank_of(point):
        point = reshape(point, (-1, *(1,) * (rank_of(wide) - axis - 1)))
    return call("subtract", wide, point)


@converter("ConvInteger")
def conv_integer(node: Node) -> RelayExpr:
    data, weight = _moved(node[0], node.get(2)), _moved(node[1], node.get(3), 0)
    return convolution(node, data, weight)


@converter("QLinearConv")
def qlinear_conv(node: Node) -> RelayExpr:
    data, weight = _moved(node[0], node[2]), _moved(node[3], node[5], 0)
    total = convolution(node, data, weight)
    if node.has(8):
        total = call("nn.bias_add", total, node[8], axis=1)
    factor = _scalar(node[4])
    if rank_of(factor):
        factor = reshape(factor, (-1, *(1,) * (rank_of(total) - 2)))
    return _rescaled(total, _scalar(node[1]), factor, _scalar(node[6]), _scalar(node[7]))


@converter("QLinearMatMul")
def qlinear_matmul(node: Node) -> RelayExpr:
    total = product(node, _moved(node[0], node[2]), _moved(node[3], node[5]))
    a, b, y = (_scalar(node[place]) for place in (1, 4, 6))
    return _rescaled(total, a, b, y, _scalar(node[7]))


def _rescaled(
    total: RelayExpr, a: RelayExpr, b: RelayExpr, y: RelayExpr, zero: RelayExpr
) -> RelayExpr:
    """Sums of products by the scales of the factors, quantised by that of the result."""
    kind = dtype_of(a)
    real = call("multiply", cast(total, kind), call("divide", call("multiply", a, b), y))
    return quantize(real, like(1, real), zero, dtype_of(zero))

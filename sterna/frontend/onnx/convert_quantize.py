"""Quantised tensors and what computes with them."""

from onnx import TensorProto

from sterna.frontend.calls import (
    call,
    call_unfolded,
    cast,
    constant,
    dtype_of,
    like,
    parts,
    rank_of,
    reshape,
    type_of,
)
from sterna.frontend.onnx.convert_elementwise import element_type
from sterna.frontend.onnx.convert_matrix import whole_product
from sterna.frontend.onnx.convert_nn import convolution
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr


def scalar_of(expr: RelayExpr) -> RelayExpr:
    """A vector of one number as that number."""
    return reshape(expr, ()) if type_of(expr).shape == (1,) else expr


def zero_of(node: Node, place: int, scale: RelayExpr, dtype: str) -> RelayExpr:
    """The zero point at a place; 0 of a type where none is given."""
    if node.has(place):
        return scalar_of(node[place])
    shape = node.shape_of(scale)
    return call("full", constant(0, dtype), shape, dtype=dtype)


def quantize(
    data: RelayExpr, scale: RelayExpr, zero: RelayExpr, dtype: str, axis: int = 1, block: int = 0,
    saturate: bool = True,
) -> RelayExpr:
    """Floats as whole numbers; halves go to the even neighbour."""
    return call(
        "qnn.quantize", data, scale, zero, axis=axis, out_dtype=dtype, rounding="TO_EVEN",
        saturate=saturate, block_size=block,
    )


def dequantize(
    data: RelayExpr, scale: RelayExpr, zero: RelayExpr, axis: int = 1, block: int = 0
) -> RelayExpr:
    """Whole numbers as the floats that they stand for; passes look at what they were."""
    return call_unfolded(
        "qnn.dequantize", data, scale, zero, axis=axis, out_dtype=dtype_of(scale),
        block_size=block,
    )


def _axis(node: Node, scale: RelayExpr) -> int:
    axis = node.attr("axis", 1)
    rank = rank_of(node[0])
    return axis if rank_of(scale) and -rank <= axis < rank else -1


@converter("QuantizeLinear")
def quantize_linear(node: Node) -> RelayExpr:
    scale = scalar_of(node[1])
    named = element_type(node.attr("output_dtype", 0) or TensorProto.UINT8)
    dtype = dtype_of(node[2]) if node.has(2) else named
    zero, block = zero_of(node, 2, scale, dtype), node.attr("block_size", 0)
    saturate = bool(node.attr("saturate", 1))
    return quantize(node[0], scale, zero, dtype, _axis(node, scale), block, saturate)


@converter("DequantizeLinear")
def dequantize_linear(node: Node) -> RelayExpr:
    scale = scalar_of(node[1])
    zero, block = zero_of(node, 2, scale, dtype_of(node[0])), node.attr("block_size", 0)
    return dequantize(node[0], scale, zero, _axis(node, scale), block)


@converter("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> list[RelayExpr]:
    """To uint8 by the range of the data, which is widened to hold 0."""
    return parts(call("qnn.dynamic_quantize", node[0]), 3)


# ---- products of whole numbers ----


def points_of(node: Node, *places: int) -> list[RelayExpr]:
    """The zero points of both operands; 0 where none is given."""
    return [scalar_of(node[i]) if node.has(i) else constant(0, "int32") for i in places]


@converter("ConvInteger")
def conv_integer(node: Node) -> RelayExpr:
    return convolution(node, node[0], node[1], points_of(node, 2, 3))


@converter("QLinearConv")
def qlinear_conv(node: Node) -> RelayExpr:
    total = convolution(node, node[0], node[3], points_of(node, 2, 5))
    if node.has(8):
        total = call("nn.bias_add", total, node[8], axis=1)
    return _rescaled(node, total, 1)


@converter("MatMulInteger")
def matmul_integer(node: Node) -> RelayExpr:
    return whole_product(node, node[0], node[1], points_of(node, 2, 3))


@converter("QLinearMatMul")
def qlinear_matmul(node: Node) -> RelayExpr:
    total = whole_product(node, node[0], node[3], points_of(node, 2, 5))
    return _rescaled(node, total, rank_of(total) - 1)


def _rescaled(node: Node, total: RelayExpr, axis: int) -> RelayExpr:
    """Sums of products by the scales of the factors, quantised by that of the result."""
    a, b, y, zero = (scalar_of(node[place]) for place in (1, 4, 6, 7))
    kind = dtype_of(a)
    if kind == "float32" and not rank_of(a) and rank_of(b) < 2:
        return call(
            "qnn.requantize", total, call("multiply", a, b), constant(0, "int32"), y, zero,
            axis=axis, rounding="TONEAREST_EVEN", compute_dtype=kind, out_dtype=dtype_of(zero),
        )
    if rank_of(b) == 1:
        b = reshape(b, (-1, *(1,) * (rank_of(total) - axis - 1)))
    real = call("multiply", cast(total, kind), call("divide", call("multiply", a, b), y))
    return quantize(real, like(1, real), zero, dtype_of(zero))

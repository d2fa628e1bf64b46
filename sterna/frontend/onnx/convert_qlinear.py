"""Operators of ONNX Runtime's own domain over quantised tensors.

Most are a standard operator between DequantizeLinear and QuantizeLinear, and are written as these:
passes find out what is computed in whole numbers.
"""

from dataclasses import replace
from typing import Any

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of, reshape
from sterna.frontend.onnx.convert_contrib import MICROSOFT
from sterna.frontend.onnx.convert_matrix import whole_product
from sterna.frontend.onnx.convert_quantize import (
    dequantize,
    dequantize_linear,
    dynamic_quantize_linear,
    points_of,
    qlinear_conv,
    quantize,
    quantize_linear,
    scalar_of,
    zero_of,
)
from sterna.frontend.onnx.node import Node, converter, find_converter
from sterna.relay.expr import RelayExpr

# The version of the standard's operators that these were written after.
STANDARD = 12

converter("QuantizeLinear", domain=MICROSOFT)(quantize_linear)
converter("DequantizeLinear", domain=MICROSOFT)(dequantize_linear)


def _real(node: Node, place: int, axis: int = 1) -> RelayExpr:
    """The floats of an operand that its scale and its zero point follow."""
    scale = scalar_of(node[place + 1])
    zero = zero_of(node, place + 2, scale, dtype_of(node[place]))
    return dequantize(node[place], scale, zero, axis if rank_of(scale) else -1)


def _result(node: Node, real: RelayExpr, place: int, dtype: str) -> RelayExpr:
    """Floats by the scale at a place and the zero point after it, of a type if there is none."""
    scale = scalar_of(node[place])
    zero = zero_of(node, place + 1, scale, dtype)
    return quantize(real, scale, zero, dtype_of(zero), -1)


def _standard(
    node: Node, kind: str, *inputs: RelayExpr | None, opset: int = STANDARD, **attrs: Any
) -> RelayExpr:
    """What the standard's operator of that name makes of floats."""
    found = find_converter("", kind, opset)
    assert found is not None
    every = {**node.attrs, **attrs}
    made = found(replace(node, kind=kind, inputs=list(inputs), opset=opset, attrs=every))
    assert isinstance(made, RelayExpr)
    return made


# ---- element by element ----


@converter("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def binary(node: Node) -> RelayExpr:
    kind = node.kind.removeprefix("QLinear")
    made = _standard(node, kind, _real(node, 0), _real(node, 3))
    return _result(node, made, 6, dtype_of(node[0]))


@converter("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def unary(node: Node) -> RelayExpr:
    made = _standard(node, node.kind.removeprefix("QLinear"), _real(node, 0))
    return _result(node, made, 3, dtype_of(node[0]))


@converter("QLinearSoftmax", domain=MICROSOFT)
def softmax(node: Node) -> RelayExpr:
    """opset: which of the standard's meanings it has."""
    made = _standard(node, "Softmax", _real(node, 0), opset=node.attr("opset"))
    return _result(node, made, 3, dtype_of(node[0]))


@converter("QLinearWhere", domain=MICROSOFT)
def where(node: Node) -> RelayExpr:
    made = _standard(node, "Where", node[0], _real(node, 1), _real(node, 4))
    return _result(node, made, 7, dtype_of(node[1]))


@converter("QLinearConcat", domain=MICROSOFT)
def concat(node: Node) -> RelayExpr:
    """The result's scale and zero point, then three operands for each part."""
    every = [_real(node, place) for place in range(2, len(node.inputs), 3)]
    return _result(node, _standard(node, "Concat", *every), 0, dtype_of(node[2]))


# ---- windows ----


@converter("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearReduceMean", domain=MICROSOFT)
def average(node: Node) -> RelayExpr:
    kind, last = node.kind.removeprefix("QLinear"), bool(node.attr("channels_last", 0))
    real = _real(node, 0)
    made = _standard(node, kind, _channels_first(real) if last else real)
    return _result(node, _channels_last(made) if last else made, 3, dtype_of(node[0]))


@converter("QLinearConv", domain=MICROSOFT)
def convolution(node: Node) -> RelayExpr:
    """The standard's, of images whose channels may lie last."""
    if not node.attr("channels_last", 0):
        return qlinear_conv(node)
    return _channels_last(
        qlinear_conv(replace(node, inputs=[_channels_first(node[0]), *node.inputs[1:]]))
    )


def _channels_first(data: RelayExpr) -> RelayExpr:
    rank = rank_of(data)
    return call("transpose", data, (0, rank - 1, *range(1, rank - 1)))


def _channels_last(data: RelayExpr) -> RelayExpr:
    return call("transpose", data, (0, *range(2, rank_of(data)), 1))


# ---- products of matrices ----


@converter("QGemm", domain=MICROSOFT)
def gemm(node: Node) -> RelayExpr:
    """What is added is whole and has the scale of the products; without a scale it gives floats."""
    columns = 0 if node.attr("transB", 0) else 1
    scale = scalar_of(node[1])
    scale = call("multiply", scale, like(node.attr("alpha", 1.0), scale))
    scaled = replace(node, inputs=[node[0], scale, *node.inputs[2:]])
    added = None
    if node.has(6):
        products = call("multiply", scale, scalar_of(node[4]))
        axis = rank_of(node[6]) - 1 if rank_of(products) else -1
        zero = call("zeros", node.shape_of(products), "int32")
        added = dequantize(node[6], products, zero, axis)
    made = _standard(
        node, "Gemm", _real(scaled, 0), _real(node, 3, columns), added, alpha=1.0, beta=1.0
    )
    return _result(node, made, 7, dtype_of(node[0])) if node.has(7) else made


@converter("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node: Node) -> RelayExpr:
    total = whole_product(node, node[0], node[1], points_of(node, 4, 5))
    return scaled_sums(total, call("multiply", scalar_of(node[2]), scalar_of(node[3])), node.get(6))


@converter("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(node: Node) -> RelayExpr:
    """Floats, quantised by their range, times whole numbers."""
    data, scale, zero = dynamic_quantize_linear(node)
    points = [zero, scalar_of(node[3]) if node.has(3) else constant(0, "int32")]
    total = whole_product(node, data, node[1], points)
    return scaled_sums(total, call("multiply", scale, scalar_of(node[2])), node.get(4))


def scaled_sums(total: RelayExpr, scale: RelayExpr, bias: RelayExpr | None) -> RelayExpr:
    """Sums of products as floats, and what is added to each row."""
    if rank_of(scale) > 1:
        scale = reshape(scale, (-1,))
    made = call("multiply", cast(total, dtype_of(scale)), scale)
    return made if bias is None else call("add", made, bias)

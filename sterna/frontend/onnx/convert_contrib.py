"""Operators that are no part of the standard: those of ONNX Runtime, and experimental ones."""


from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sterna.frontend.calls import call, constant, dtype_of, like, rank_of
from sterna.frontend.node import Result
from sterna.frontend.onnx.convert_matrix import gemm, product
from sterna.frontend.onnx.convert_nn import conv
from sterna.frontend.onnx.node import Node, converter, find_converter
from sterna.relay.expr import RelayExpr

MICROSOFT = "com.microsoft"
# The version of the standard whose operators these are like.
STANDARD = 17

# ---- activations ----


@converter("Gelu", domain=MICROSOFT)
def gelu(node: Node) -> RelayExpr:
    return call("nn.gelu", node[0])


@converter("BiasGelu", domain=MICROSOFT)
def bias_gelu(node: Node) -> RelayExpr:
    return call("nn.gelu", call("add", node[0], node[1]))


@converter("FastGelu", domain=MICROSOFT)
def fast_gelu(node: Node) -> RelayExpr:
    data = call("add", node[0], node[1]) if node.has(1) else node[0]
    return call("nn.gelu", data, approximate="tanh")


@converter("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: Node) -> RelayExpr:
    return call("nn.swish", node[0], beta=node.attr("alpha", 1.702))


@converter("FusedMatMul", domain=MICROSOFT)
def fused_matmul(node: Node) -> RelayExpr:
    a, b = (
        _swapped(node[i]) if node.attr(name, 0) else node[i]
        for i, name in enumerate(("transA", "transB"))
    )
    made = product(node, a, b)
    alpha = node.attr("alpha", 1.0)
    return made if alpha == 1 else call("multiply", made, like(alpha, made))


def _swapped(data: RelayExpr) -> RelayExpr:
    rank = rank_of(data)
    return call("transpose", data, (*range(rank - 2), rank - 1, rank - 2))


_FUSED = {"Relu": "nn.relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}


@converter("FusedConv", domain=MICROSOFT)
def fused_conv(node: Node) -> RelayExpr:
    made = conv(node)
    if node.has(3):
        made = call("add", made, node[3])
    return _activated(node, made, node.attr("activation_params") or [])


@converter("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: Node) -> RelayExpr:
    names = ("activation_alpha", "activation_beta")
    return _activated(node, gemm(node), [node.attr(name, 0.0) for name in names])


def _activated(node: Node, made: RelayExpr, given: Sequence[float]) -> RelayExpr:
    kind = node.attr("activation", "")
    if kind == "LeakyRelu":
        return call("nn.leaky_relu", made, alpha=given[0])
    if kind == "Clip":
        return call("clip", made, given[0], given[1])
    if kind == "HardSigmoid":
        return call("nn.hard_sigmoid", made, alpha=given[0], beta=given[1])
    if kind and kind not in _FUSED:
        raise ValueError(f"the activation {kind} is not one that it can be fused with")
    return call(_FUSED[kind], made) if kind else made


# ---- what the standard took over ----


@converter("GatherND", "Range", "Trilu", domain=MICROSOFT)
def as_the_standard_has_it(node: Node) -> Result:
    own = replace(node, opset=STANDARD)
    convert = find_converter("", node.kind, STANDARD)
    assert convert is not None
    return convert(own)


@converter("ExpandDims", domain=MICROSOFT)
def expand_dims(node: Node) -> RelayExpr:
    return call("expand_dims", node[0], node.number(1, "axis"))


# ---- experimental operators of the first versions ----


@converter("ImageScaler", until=9)
def image_scaler(node: Node) -> RelayExpr:
    data = node[0]
    bias = np.asarray(node.attr("bias", [0.0]), "float32").reshape(-1, 1, 1)
    scaled = call("multiply", data, like(node.attr("scale", 1.0), data))
    return call("add", scaled, constant(bias, dtype_of(data)))


@converter("Crop", until=9)
def crop(node: Node) -> RelayExpr:
    """border: what is cut from the left, the top, the right and the bottom of images."""
    left, top, right, bottom = node.attr("border")
    height, width = node.extents((2, 3))
    scale = node.attr("scale")
    end = (top + scale[0], left + scale[1]) if scale else (height - bottom, width - right)
    return call("strided_slice", node[0], (top, left), end, axes=(2, 3))


@converter("Affine", until=9)
def affine(node: Node) -> RelayExpr:
    scaled = call("multiply", node[0], like(node.attr("alpha", 1.0), node[0]))
    return call("add", scaled, like(node.attr("beta", 0.0), scaled))


@converter("ScaledTanh", until=9)
def scaled_tanh(node: Node) -> RelayExpr:
    inner = call("tanh", call("multiply", node[0], like(node.attr("beta", 1.0), node[0])))
    return call("multiply", inner, like(node.attr("alpha", 1.0), inner))

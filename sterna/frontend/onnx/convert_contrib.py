"""Operators that are no part of the standard: those of ONNX Runtime, and experimental ones."""

import math

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, like, parts, rank_of, reshape
from sterna.frontend.node import Result
from sterna.frontend.onnx.convert_matrix import product
from sterna.frontend.onnx.convert_nn import conv, normalised
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

MICROSOFT = "com.microsoft"

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
    kind, given = node.attr("activation", ""), node.attr("activation_params") or []
    if kind == "LeakyRelu":
        return call("nn.leaky_relu", made, alpha=given[0])
    if kind == "Clip":
        return call("clip", made, given[0], given[1])
    if kind == "HardSigmoid":
        return call("nn.hard_sigmoid", made, alpha=given[0], beta=given[1])
    if kind and kind not in _FUSED:
        raise ValueError(f"the activation {kind} is not one that it can be fused with")
    return call(_FUSED[kind], made) if kind else made


# ---- transformers ----


@converter("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(node: Node) -> Result:
    total = call("add", node[0], node[1])
    if node.has(4):
        total = call("add", total, node[4])
    last = (rank_of(total) - 1,)
    made = normalised(node, total, node[2], node.get(3), last, node.attr("epsilon", 1e-12))
    return [made, None, None, total]


@converter("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(node: Node) -> Result:
    """Words, positions and segments looked up, added and normalised."""
    ids, segments, words, places, kinds = (node.get(i) for i in range(5))
    assert ids is not None and words is not None and places is not None
    batch, length = node.shape()
    total = call("take", words, ids, axis=0)
    if node.has(8):
        total = call("add", total, call("take", places, node[8], axis=0))
    else:
        total = call("add", total, call("strided_slice", places, (0,), (length,), axes=(0,)))
    if kinds is not None and segments is not None:
        total = call("add", total, call("take", kinds, segments, axis=0))
    made = normalised(node, total, node[5], node[6], (2,), node.attr("epsilon", 1e-12))
    if node.has(7):
        counts = call("sum", cast(node[7], "int32"), axis=(1,))
    else:
        counts = call("zeros", (batch,), "int32")
    return [made, counts, total]


@converter("Attention", domain=MICROSOFT)
def attention(node: Node) -> Result:
    """Attention of several heads over itself; the mask has a number for each key."""
    if any(node.has(place) for place in (4, 5)) or node.attr("unidirectional", 0):
        raise OpNotImplemented("a past, a bias of the scores or one direction")
    data, heads = node[0], node.attr("num_heads")
    batch, length, _ = node.shape()
    mixed = product(node, data, node[1])
    if node.has(2):
        mixed = call("add", mixed, node[2])
    whole = node.shape_of(mixed)[2]
    sizes = node.attr("qkv_hidden_sizes") or [whole // 3] * 3
    cuts = tuple(int(cut) for cut in np.cumsum(sizes)[:-1])
    q, k, v = (
        call("transpose", reshape(part, (batch, length, heads, size // heads)), (0, 2, 1, 3))
        for part, size in zip(parts(call("split", mixed, cuts, axis=2), 3), sizes, strict=True)
    )
    scores = call("nn.batch_matmul", q, k, transpose_a=False, transpose_b=True)
    scale = node.attr("scale") or 1 / math.sqrt(sizes[0] // heads)
    scores = call("multiply", scores, like(scale, scores))
    if node.has(3):
        hidden = node.attr("mask_filter_value", -10000.0)
        scores = call("add", scores, _mask(node, (batch, length), dtype_of(data), hidden))
    weights = call("nn.softmax", scores, axis=-1)
    made = call("nn.batch_matmul", weights, v, transpose_a=False, transpose_b=False)
    made = call("transpose", made, (0, 2, 1, 3))
    return reshape(made, (batch, length, sizes[2]))


def _mask(node: Node, wanted: tuple[int, int], dtype: str, hidden: float) -> RelayExpr:
    if node.shape(3) != wanted:
        raise OpNotImplemented(f"a mask of shape {node.shape(3)} instead of {wanted}")
    seen = cast(node[3], dtype)
    added = call("multiply", call("subtract", like(1, seen), seen), like(hidden, seen))
    return reshape(added, (wanted[0], 1, 1, wanted[1]))


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

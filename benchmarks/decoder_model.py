"""A decoder of language models as ONNX: a step reads a KV cache of any length and extends it.

    ids [1, 1], past_k and past_v [layers, heads, past, width]  ->  logits, present_k, present_v
"""

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper


class _Graph:
    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(seed)

    def weight(self, *shape: int, scale: float = 0.05) -> str:
        value = self.rng.standard_normal(shape).astype("float32") * np.float32(scale)
        return self.constant(value)

    def constant(self, value: NDArray[np.generic]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def __call__(self, kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attrs))
        return name


def decoder(
    layers: int = 4, heads: int = 8, width: int = 32, words: int = 2000, seed: int = 0
) -> onnx.ModelProto:
    """Layers of attention over a cache and of two dense layers each."""
    g, channels = _Graph(seed), heads * width
    split = g.constant(np.array([1, 1, heads, width], "int64"))
    joined = g.constant(np.array([1, 1, channels], "int64"))
    scale = g.constant(np.array(width**-0.5, "float32"))

    def norm(x: str) -> str:
        ones = g.constant(np.ones(channels, "float32"))
        return g("LayerNormalization", x, ones, g.weight(channels), axis=-1)

    def by_heads(x: str) -> str:
        return g("Transpose", g("Reshape", x, split), perm=[0, 2, 1, 3])

    def past(what: str, layer: int) -> str:
        return g("Gather", what, g.constant(np.array([layer], "int64")), axis=0)

    x = g("Gather", g.weight(words, channels), "ids")
    caches: dict[str, list[str]] = {"k": [], "v": []}
    for layer in range(layers):
        y = norm(x)
        q, k, v = (by_heads(g("MatMul", y, g.weight(channels, channels))) for _ in range(3))
        k = g("Concat", past("past_k", layer), k, axis=2)
        v = g("Concat", past("past_v", layer), v, axis=2)
        caches["k"].append(k)
        caches["v"].append(v)
        scores = g("MatMul", g("Mul", q, scale), g("Transpose", k, perm=[0, 1, 3, 2]))
        seen = g("MatMul", g("Softmax", scores, axis=-1), v)
        rows = g("Reshape", g("Transpose", seen, perm=[0, 2, 1, 3]), joined)
        x = g("Add", x, g("MatMul", rows, g.weight(channels, channels)))
        wide = g("MatMul", norm(x), g.weight(channels, 4 * channels))
        x = g("Add", x, g("MatMul", g("Relu", wide), g.weight(4 * channels, channels)))
    logits = g("MatMul", norm(x), g.weight(channels, words))
    outputs = [logits, g("Concat", *caches["k"], axis=0), g("Concat", *caches["v"], axis=0)]
    names = ["logits", "present_k", "present_v"]
    for found, name in zip(outputs, names, strict=True):
        g.nodes.append(helper.make_node("Identity", [found], [name]))
    cache: list[int | str | None] = [layers, heads, "past", width]
    more: list[int | str | None] = [layers, heads, "present", width]
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        g.nodes, "decoder",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 1]),
            helper.make_tensor_value_info("past_k", floats, cache),
            helper.make_tensor_value_info("past_v", floats, cache),
        ],
        [
            helper.make_tensor_value_info("logits", floats, [1, 1, words]),
            helper.make_tensor_value_info("present_k", floats, more),
            helper.make_tensor_value_info("present_v", floats, more),
        ],
        g.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

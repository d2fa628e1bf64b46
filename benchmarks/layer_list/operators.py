"""What makes layers: contractions of every sort, recurrent networks and what stands around them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from layer_list.layer import Graph, Make

Extents = int | tuple[int, ...]


def extents(value: Extents, rank: int) -> tuple[int, ...]:
    """One number for every axis, or those that are given."""
    return (value,) * rank if isinstance(value, int) else value


def told(value: Extents) -> str:
    """3x3 or 224: extents in a name; equal ones once."""
    if isinstance(value, int):
        return str(value)
    return "x".join(map(str, value))


# ---- convolutions ----


@dataclass(frozen=True)
class Conv:
    """A convolution with a bias and an activation, of any rank, maybe transposed."""

    inputs: int
    outputs: int
    image: tuple[int, ...]
    window: Extents = 3
    stride: Extents = 1
    groups: int = 1
    dilation: Extents = 1
    padding: Extents | None = None
    """As much as keeps the image's size, if nothing is said."""
    transposed: bool = False
    after: str = "Relu"
    """An activation, or nothing."""

    @property
    def name(self) -> str:
        """3x3_64_128_56, and what is unusual."""
        rank = len(self.image)
        square = len(set(self.image)) == 1 and rank > 1
        parts = [
            "x".join(map(str, extents(self.window, rank))), str(self.inputs), str(self.outputs),
            str(self.image[0]) if square else told(self.image),
        ]
        parts += [f"s{told(self.stride)}"] if self.stride != 1 else []
        parts += [f"g{self.groups}"] if self.groups != 1 else []
        parts += [f"d{told(self.dilation)}"] if self.dilation != 1 else []
        parts += [f"p{told(self.padding)}"] if self.padding is not None else []
        return "_".join(parts)

    @property
    def multiply_adds(self) -> int:
        """For a batch of one."""
        rank = len(self.image)
        window, stride = extents(self.window, rank), extents(self.stride, rank)
        steps = prod(self.image)
        if not self.transposed:
            steps = prod(-(-size // by) for size, by in zip(self.image, stride, strict=True))
        return steps * prod(window) * self.inputs * self.outputs // self.groups

    def __call__(self, graph: Graph) -> str:
        rank = len(self.image)
        window, dilation = extents(self.window, rank), extents(self.dilation, rank)
        fan_in = self.inputs // self.groups * prod(window)
        x = graph.data(graph.variant.batch, self.inputs, *self.image)
        attributes: dict[str, Any] = {
            "strides": extents(self.stride, rank), "dilations": dilation, "group": self.groups,
            "kernel_shape": window,
        }
        if self.padding is None:
            reach = [by * (size - 1) for by, size in zip(dilation, window, strict=True)]
            attributes["pads"] = [r // 2 for r in reach] + [r - r // 2 for r in reach]
        else:
            attributes["pads"] = extents(self.padding, rank) * 2
        if self.transposed:
            shape = (self.inputs, self.outputs // self.groups, *window)
            fan_in = fan_in // prod(extents(self.stride, rank)) or 1
            weights = graph.weights(*shape, fan_in=fan_in, axis=1)
        else:
            weights = graph.weights(self.outputs, self.inputs // self.groups, *window,
                                    fan_in=fan_in)
        op = "ConvTranspose" if self.transposed else "Conv"
        y = graph.node(op, x, weights, graph.bias(self.outputs, fan_in), **attributes)
        if self.after:
            y = activation(self.after)(graph, y)
        return graph.result(y, fan_in, zero=0 if self.after == "Relu" else 128)


# ---- products of matrices ----


def dense(rows: int, inputs: int, outputs: int, after: str = "") -> Make:
    """A fully connected layer on so many rows."""
    def make(graph: Graph) -> str:
        x = graph.data(rows * graph.variant.batch, inputs)
        w = graph.weights(inputs, outputs, fan_in=inputs, axis=1)
        y = graph.node("MatMul", x, w)
        if not graph.variant.quantised:
            y = graph.node("Add", y, graph.weights(outputs))
        if after:
            y = activation(after)(graph, y)
        return graph.result(y, inputs)

    return make


def gemm(rows: int, inputs: int, outputs: int) -> Make:
    """A fully connected layer whose weights lie with their outputs first, as exporters write it."""
    def make(graph: Graph) -> str:
        x = graph.data(rows * graph.variant.batch, inputs)
        w = graph.weights(outputs, inputs, fan_in=inputs)
        y = graph.node("Gemm", x, w, graph.bias(outputs), transB=1)
        return graph.result(y, inputs)

    return make


def matmul(a: Sequence[int], b: Sequence[int]) -> Make:
    """The product of two inputs."""
    def make(graph: Graph) -> str:
        y = graph.node("MatMul", graph.data(*a), graph.data(*b))
        return graph.result(y, a[-1])

    return make


def attention(heads: int, queries: int, keys: int, width: int, windows: int = 1) -> Make:
    """Attention as exporters write it: MatMul, scale, Softmax, MatMul."""
    def make(graph: Graph) -> str:
        lead = (windows * graph.variant.batch, heads)
        q, k = graph.data(*lead, queries, width), graph.data(*lead, width, keys)
        scores = graph.node("MatMul", q, k)
        scores = graph.node("Mul", scores, graph.constant(width**-0.5))
        shares = graph.node("Softmax", scores, axis=-1)
        return graph.node("MatMul", shares, graph.data(*lead, keys, width))

    return make


def split_attention(tokens: int, heads: int, width: int) -> Make:
    """Attention with the heads split off and joined again by transposes, from q, k and v."""
    def make(graph: Graph) -> str:
        batch = graph.variant.batch
        split = graph.constant([batch, tokens, heads, width], "int64")
        joined = graph.constant([batch, tokens, heads * width], "int64")

        def part(*order: int) -> str:
            x = graph.node("Reshape", graph.data(batch, tokens, heads * width), split)
            return graph.node("Transpose", x, perm=order)

        scores = graph.node("MatMul", part(0, 2, 1, 3), part(0, 2, 3, 1))
        scores = graph.node("Div", scores, graph.constant(width**0.5))
        shares = graph.node("Softmax", scores, axis=-1)
        y = graph.node("MatMul", shares, part(0, 2, 1, 3))
        y = graph.node("Transpose", y, perm=(0, 2, 1, 3))
        return graph.node("Reshape", y, joined)

    return make


def feed_forward(rows: int, width: int, hidden: int, after: str = "Gelu") -> Make:
    """The two dense layers of a transformer's block."""
    def make(graph: Graph) -> str:
        x = graph.data(rows * graph.variant.batch, width)
        y = graph.node("MatMul", x, graph.weights(width, hidden, fan_in=width, axis=1))
        y = activation(after)(graph, graph.node("Add", y, graph.weights(hidden)))
        y = graph.node("MatMul", y, graph.weights(hidden, width, fan_in=hidden, axis=1))
        return graph.node("Add", graph.node("Add", y, graph.weights(width)), x)

    return make


def recurrent(op: str, steps: int, inputs: int, hidden: int, both: bool = False) -> Make:
    """An LSTM, a GRU or an RNN over a sequence; both ways if asked."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]

    def make(graph: Graph) -> str:
        ways = 2 if both else 1
        x = graph.data(steps, graph.variant.batch, inputs)
        w = graph.weights(ways, gates * hidden, inputs, fan_in=inputs)
        r = graph.weights(ways, gates * hidden, hidden, fan_in=hidden)
        b = graph.weights(ways, 2 * gates * hidden)
        direction = "bidirectional" if both else "forward"
        settings = {"linear_before_reset": 1} if op == "GRU" else {}
        return graph.node(op, x, w, r, b, hidden_size=hidden, direction=direction, **settings)

    return make


# ---- element-wise ----


def activation(name: str) -> Callable[[Graph, str], str]:
    """An operator of one input by its name, or one that exporters write as several."""
    return COMPOSED.get(name) or (lambda graph, x: graph.node(name, x))


def _silu(graph: Graph, x: str) -> str:
    return graph.node("Mul", x, graph.node("Sigmoid", x))


def _gelu(graph: Graph, x: str) -> str:
    """By erf."""
    inner = graph.node("Erf", graph.node("Div", x, graph.constant(2**0.5)))
    outer = graph.node("Mul", x, graph.node("Add", inner, graph.constant(1.0)))
    return graph.node("Mul", outer, graph.constant(0.5))


def _gelu_by_tanh(graph: Graph, x: str) -> str:
    cube = graph.node("Pow", x, graph.constant(3.0))
    inner = graph.node("Add", x, graph.node("Mul", cube, graph.constant(0.044715)))
    inner = graph.node("Tanh", graph.node("Mul", inner, graph.constant((2 / np.pi) ** 0.5)))
    half = graph.node("Mul", x, graph.constant(0.5))
    return graph.node("Mul", half, graph.node("Add", inner, graph.constant(1.0)))


def _hard_swish(graph: Graph, x: str) -> str:
    """By clip, as before there was an operator."""
    inner = graph.node("Add", x, graph.constant(3.0))
    inner = graph.node("Clip", inner, graph.constant(0.0), graph.constant(6.0))
    return graph.node("Div", graph.node("Mul", x, inner), graph.constant(6.0))


def _clipped(graph: Graph, x: str) -> str:
    return graph.node("Clip", x, graph.constant(0.0), graph.constant(6.0))


def _mish(graph: Graph, x: str) -> str:
    return graph.node("Mul", x, graph.node("Tanh", graph.node("Softplus", x)))


COMPOSED: dict[str, Callable[[Graph, str], str]] = {
    "SiLU": _silu, "Gelu": _gelu, "GeluTanh": _gelu_by_tanh, "HardSwishClip": _hard_swish,
    "Relu6": _clipped, "MishTanh": _mish,
}

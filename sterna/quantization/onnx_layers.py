"""The layers of an ONNX graph that are computed in integers: products with constant weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto

from sterna.quantization.onnx_graph import OnnxGraph, attribute
from sterna.quantization.products import Products
from sterna.relay.arrays import Array

# Patches that one sample gives a layer.
PATCHES = 32
# A first convolution of fewer channels stays in float, unless dot products take rows of its one.
FEWEST_CHANNELS = 3
MOST_ROWS = 4


@dataclass(slots=True)
class Layer:
    """A Conv, ConvTranspose, Gemm or MatMul with constant weights, and an Add of its bias."""

    node: NodeProto
    weight: str
    axis: int
    """Of the weights, along which each output has a scale of its own; -1: one scale for all."""
    bias: str
    """The constant that is added to each output; empty: none."""
    adds: NodeProto | None
    """The node that adds the bias, where the layer itself takes none."""
    products: Products
    rank: int
    """Of its weights."""

    @property
    def name(self) -> str:
        """The name that the user's model has for it."""
        return self.node.name

    @property
    def data(self) -> str:
        """The tensor that it reads."""
        return str(self.node.input[0])

    @property
    def result(self) -> str:
        """The tensor that it makes, with the bias in it."""
        return str((self.adds or self.node).output[0])

    @property
    def space(self) -> int:
        """How many axes are behind the channels of its outputs."""
        return self.rank - 2

    @property
    def can_add(self) -> bool:
        """Whether a bias may be added to its outputs."""
        return self.node.op_type != "MatMul" or self.adds is not None

    def patches(self, data: Array, generator: np.random.Generator) -> Array | None:
        """Some patches of an input, as (patches, groups, depth)."""
        if self.node.op_type == "Conv":
            return _windows(self.node, data, self.products.weights.shape, generator)
        if self.node.op_type == "ConvTranspose":
            return None
        rows = data.reshape(-1, data.shape[-1])
        drawn = generator.integers(0, len(rows), min(PATCHES, len(rows)))
        return rows[drawn][:, None, :] if len(rows) else None

    def from_matrix(self, matrix: Array, shape: Sequence[int]) -> Array:
        """The reverse."""
        if self.node.op_type == "Conv":
            return matrix.reshape(shape)
        if self.node.op_type == "ConvTranspose":
            groups, units, _ = matrix.shape
            inputs = shape[0] // groups
            turned = matrix.reshape(groups, units, inputs, *shape[2:])
            return np.ascontiguousarray(np.moveaxis(turned, 1, 2)).reshape(shape)
        return matrix[0] if self.axis == 0 else np.ascontiguousarray(matrix[0].T)


def to_matrix(node: NodeProto, weights: Array) -> Array:
    """A layer's weights as (groups, outputs, depth)."""
    groups = int(attribute(node, "group", 1))  # type: ignore[call-overload]
    if node.op_type == "Conv":
        return weights.reshape(groups, weights.shape[0] // groups, -1)
    if node.op_type == "ConvTranspose":
        inputs, units, *kernel = weights.shape
        split = weights.reshape(groups, inputs // groups, units, *kernel)
        return np.ascontiguousarray(np.moveaxis(split, 2, 1)).reshape(groups, units, -1)
    turned = node.op_type == "Gemm" and bool(attribute(node, "transB", 0))
    return np.ascontiguousarray(weights if turned else weights.T)[None]


def find_layers(graph: OnnxGraph) -> list[Layer]:
    """All layers that could be computed in integers, in the order of the graph."""
    readers = graph.readers()
    return [layer for node in graph.nodes if (layer := _layer(graph, node, readers)) is not None]


def is_narrow_first(graph: OnnxGraph, layer: Layer, activations: str) -> bool:
    """Whether a convolution reads the network's input, of fewer channels than bytes pay for.

    Byte dot products take four channels at once: those of one or two leave most of them idle, and
    integers of such an input would have to be made first. Of a single channel they take the rows of
    a window instead, if these are few: that pays where int8 suits the processor, whose vectors are
    short, not where uint8 does.
    """
    is_conv = layer.node.op_type == "Conv" and layer.data in graph.inputs
    _, channels, *window = graph.constants[layer.weight].shape
    takes_rows = channels == 1 and len(window) == 2 and 1 < window[0] <= MOST_ROWS
    pays = takes_rows and activations == "int8"
    return is_conv and channels < FEWEST_CHANNELS and not pays


def _layer(
    graph: OnnxGraph, node: NodeProto, readers: dict[str, list[NodeProto]]
) -> Layer | None:
    rank = {"Conv": (3, 4, 5), "ConvTranspose": (3, 4, 5), "Gemm": (2,), "MatMul": (2,)}
    if node.op_type not in rank or node.domain not in ("", "ai.onnx"):
        return None
    weight = graph.constants.get(node.input[1])
    if weight is None or node.input[0] in graph.constants or not weight.size:
        return None
    if weight.dtype != np.float32 or weight.ndim not in rank[node.op_type]:
        return None
    if not np.all(np.isfinite(weight)):
        raise ValueError(f"weight '{node.input[1]}' of node '{node.name}' is not finite everywhere")
    if attribute(node, "transA", 0):
        return None
    bias, adds = str(node.input[2]) if len(node.input) > 2 else "", None
    if bias and bias not in graph.constants:
        return None
    matrix = to_matrix(node, weight).astype(np.float32)
    if node.op_type == "MatMul":
        adds, bias = _added(graph, node, readers, matrix.shape[1])
    if node.op_type == "Gemm" and bias and graph.constants[bias].size != matrix.shape[1]:
        return None
    axis = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1}.get(node.op_type)
    if axis is None:
        axis = 0 if attribute(node, "transB", 0) else 1
    if node.op_type == "ConvTranspose" and matrix.shape[0] > 1:
        axis = -1
    return Layer(node, str(node.input[1]), axis, bias, adds, Products(matrix), weight.ndim)


def _added(
    graph: OnnxGraph, node: NodeProto, readers: dict[str, list[NodeProto]], units: int
) -> tuple[NodeProto | None, str]:
    """The node that adds a bias to a product of matrices, and that bias."""
    out = node.output[0]
    behind = readers.get(out, [])
    if out in graph.outputs or len(behind) != 1 or behind[0].op_type != "Add":
        return None, ""
    other = next((name for name in behind[0].input if name != out), "")
    value = graph.constants.get(other)
    fits = value is not None and value.dtype == np.float32 and value.size == units
    if not fits or value is None or value.shape[-1:] != (units,) or value.ndim > 2:
        return None, ""
    return behind[0], other


# ---- windows of images ----


def _windows(
    node: NodeProto, data: Array, weights: Sequence[int], generator: np.random.Generator
) -> Array | None:
    """Windows of an image at random places."""
    space = data.shape[2:]
    kernel = _numbers(node, "kernel_shape", [])
    strides = _numbers(node, "strides", [1] * len(space))
    dilations = _numbers(node, "dilations", [1] * len(space))
    groups, _, depth = weights
    if not kernel:
        kernel = [round((depth * groups / data.shape[1]) ** (1 / len(space)))] * len(space)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = conv_pads(node, space, reach, strides)
    before, after = pads[: len(space)], pads[len(space) :]
    counts = [(size + b + a - r) // s + 1
              for size, b, a, r, s in zip(space, before, after, reach, strides, strict=True)]
    if min(counts) < 1 or not data.shape[0]:
        return None
    padded = np.pad(data, ((0, 0), (0, 0), *zip(before, after, strict=True)))
    made = np.empty((PATCHES, groups, depth), np.float32)
    for index in range(PATCHES):
        at = [int(generator.integers(0, count)) * s for count, s in zip(counts, strides,
                                                                       strict=True)]
        window = tuple(slice(a, a + r, d) for a, r, d in zip(at, reach, dilations, strict=True))
        place: tuple[Any, ...] = (generator.integers(0, data.shape[0]), slice(None), *window)
        made[index] = padded[place].reshape(groups, depth)
    return made


def conv_pads(
    node: NodeProto, space: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> list[int]:
    """What a convolution adds before and after each axis."""
    manner = str(attribute(node, "auto_pad", "NOTSET"))
    if not manner.startswith("SAME"):
        return _numbers(node, "pads", [0] * 2 * len(space)) if manner == "NOTSET" else [
            0] * 2 * len(space)
    total = [max((-(-size // s) - 1) * s + r - size, 0)
             for size, s, r in zip(space, strides, reach, strict=True)]
    small, large = [t // 2 for t in total], [t - t // 2 for t in total]
    return [*small, *large] if manner == "SAME_UPPER" else [*large, *small]


def _numbers(node: NodeProto, name: str, default: list[int]) -> list[int]:
    found = attribute(node, name)
    return [int(number) for number in found] if isinstance(found, list | tuple) else default

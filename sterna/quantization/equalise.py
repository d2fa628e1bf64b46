"""Cross-layer equalisation: channels before a depthwise convolution fill one common range.

A factor for each channel goes into the weights before and its reciprocal into those behind, which
have a scale for each channel: one scale of the tensor between serves all its channels, and costs
nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from sterna.quantization.onnx_graph import OnnxGraph
from sterna.quantization.onnx_layers import Layer, find_layers
from sterna.quantization.runner import Runner, Sample
from sterna.relay.arrays import Array
from sterna.support.progress import stage

# A channel that is hardly ever anything else than 0 may still become something.
LARGEST_FACTOR = 256.0


@dataclass(frozen=True, slots=True)
class Link:
    """Two convolutions, the second depthwise, and the tensor between them."""

    first: Layer
    second: Layer
    tensor: str


def equalise(graph: OnnxGraph, samples: Iterable[Sample]) -> list[dict[str, Array]]:
    """Change the weights on both sides of tensors that only a depthwise convolution reads.

    Gives the outputs of the float model for the samples, on which it must be run.
    """
    links = find_links(graph)
    reach: dict[str, Array] = {}
    outputs: list[dict[str, Array]] = []
    runner = None
    with stage("run the float model on samples"):
        for sample in samples:
            if runner is None:
                shown = dict.fromkeys([*graph.outputs, *(link.tensor for link in links)])
                runner = Runner(graph.to_model(list(shown)), sample)
            made = runner(sample)
            outputs.append({name: made[name] for name in graph.outputs})
            for link in links:
                value = made[link.tensor]
                axes = tuple(axis for axis in range(value.ndim) if axis != 1)
                largest = np.abs(value).max(axes, initial=0.0)
                reach[link.tensor] = np.maximum(reach.get(link.tensor, 0.0), largest)
    for link in links:
        _scale(graph, link, reach[link.tensor])
    return outputs


def find_links(graph: OnnxGraph) -> list[Link]:
    """Convolutions with a depthwise one behind, and nothing but a rectifier between."""
    layers, readers = find_layers(graph), graph.readers()
    behind = {layer.data: layer for layer in layers if _is_depthwise(graph, layer)}
    found = []
    for layer in layers:
        tensor = layer.result
        while len(readers.get(tensor, ())) == 1 and tensor not in graph.outputs:
            (node,) = readers[tensor]
            second = behind.get(tensor)
            if layer.node.op_type == "Conv" and second is not None and second.node is node:
                found.append(Link(layer, second, tensor))
            if not _passes_factors(graph, node):
                break
            tensor = node.output[0]
    return found


def _is_depthwise(graph: OnnxGraph, layer: Layer) -> bool:
    has_one = graph.constants[layer.weight].shape[1] == 1
    return layer.node.op_type == "Conv" and has_one and len(layer.products.weights) > 1


def _passes_factors(graph: OnnxGraph, node: NodeProto) -> bool:
    """Whether factors of at least 1 before it are factors behind it, inside its range.

    What a Clip cuts off at its upper end is then cut off at the largest number that was seen.
    """
    if node.op_type != "Clip":
        return node.op_type == "Relu"
    low = graph.constants.get(node.input[1]) if len(node.input) > 1 else None
    return low is not None and low.size == 1 and not low.any()


def _scale(graph: OnnxGraph, link: Link, reach: Array) -> None:
    largest = float(reach.max(initial=0.0))
    if not 0 < largest < np.inf:
        return
    factors = np.clip(largest / np.maximum(reach, largest / LARGEST_FACTOR), 1, None)
    many = link.second.products.weights.shape[1]
    for layer, wanted in ((link.first, factors), (link.second, np.repeat(1 / factors, many))):
        weight = graph.constants[layer.node.input[1]]
        wide = wanted.reshape(-1, *(1,) * (weight.ndim - 1))
        name = graph.add_constant(layer.node.input[1], (weight * wide).astype(np.float32))
        layer.node.input[1] = name
    node = link.first.node
    if len(node.input) > 2 and node.input[2]:
        bias = graph.constants[node.input[2]] * factors
        node.input[2] = graph.add_constant(node.input[2], bias.astype(np.float32))

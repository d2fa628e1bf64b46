"""Writes the QDQ form: QuantizeLinear and DequantizeLinear around what is computed in integers."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, helper

from sterna.quantization.affine import Affine
from sterna.quantization.onnx_graph import OnnxGraph
from sterna.quantization.onnx_layers import Layer
from sterna.quantization.plan import Plan
from sterna.relay.arrays import Array

# Biases count in the units of the sums and stay below this, so that sums fit 32 bits.
LARGEST_BIAS = 1 << 29


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """A layer's weights and bias in integers."""

    weights: Array
    """(groups, outputs, depth) of int8."""
    scales: Array
    """(groups, outputs)"""
    bias: Array | None
    """One float for each output, corrected; None: the layer adds none."""


def write_qdq(
    graph: OnnxGraph, plan: Plan, schemes: Mapping[str, Affine], layers: Mapping[str, LayerWeights]
) -> ModelProto:
    """The model with the planned tensors and layers quantised."""
    writer = _Writer(graph)
    for layer in plan.layers:
        writer.add_layer(layer, layers[layer.name], schemes[layer.data])
    for tensor in plan.tensors:
        writer.add_tensor(tensor, schemes[tensor])
    graph.nodes += writer.made
    made = graph.to_model()
    made.producer_name = "sterna"
    return made


class _Writer:
    def __init__(self, graph: OnnxGraph) -> None:
        self.graph = graph
        self.made: list[NodeProto] = []
        self.readers = graph.readers()

    def add_tensor(self, tensor: str, scheme: Affine) -> None:
        """Let all who read a tensor read it as integers stand for it."""
        graph = self.graph
        scale = graph.add_constant(f"{tensor}_scale", np.array(scheme.scale, np.float32))
        zero = graph.add_constant(f"{tensor}_zero_point", np.array(scheme.zero, scheme.dtype))
        whole = graph.names.unique(f"{tensor}_quantized")
        real = graph.names.unique(f"{tensor}_dequantized")
        graph.rename_reads(self.readers.get(tensor, []), tensor, real)
        self._node("QuantizeLinear", [tensor, scale, zero], whole)
        self._node("DequantizeLinear", [whole, scale, zero], real)

    def add_layer(self, layer: Layer, made: LayerWeights, data: Affine) -> None:
        """Let a layer read weights of 8 bits, and a bias in the units of its sums."""
        shape = self.graph.constants[layer.weight].shape
        whole = layer.from_matrix(made.weights, shape)
        scales = made.scales.reshape(-1) if layer.axis >= 0 else made.scales.reshape(-1)[0]
        weight = self._constant(layer.weight, whole, scales.astype(np.float32), layer.axis)
        layer.node.input[1] = weight
        if made.bias is None:
            return
        units = np.broadcast_to(np.float32(data.scale) * scales, made.bias.shape)
        total = np.rint(made.bias.astype(np.float64) / units)
        total = np.clip(total, -LARGEST_BIAS, LARGEST_BIAS).astype(np.int32)
        bias = self._constant(layer.bias or f"{layer.name}_bias", total,
                              units.astype(np.float32), 0)
        if layer.adds is not None:
            place = list(layer.adds.input).index(layer.bias)
            layer.adds.input[place] = bias
        elif len(layer.node.input) > 2:
            layer.node.input[2] = bias
        else:
            layer.node.input.append(bias)

    def _constant(self, name: str, whole: Array, scales: Array, axis: int) -> str:
        """A constant in integers, as the floats that they stand for."""
        graph = self.graph
        own = graph.add_constant(f"{name}_quantized", whole)
        scale = graph.add_constant(f"{name}_scale", scales)
        zero = graph.add_constant(f"{name}_zero_point", np.zeros(scales.shape, whole.dtype))
        real = graph.names.unique(f"{name}_dequantized")
        self._node("DequantizeLinear", [own, scale, zero], real, axis if scales.ndim else None)
        return real

    def _node(self, kind: str, inputs: list[str], output: str, axis: int | None = None) -> None:
        made = helper.make_node(kind, inputs, [output], name=output)
        if axis is not None:
            made.attribute.append(helper.make_attribute("axis", axis))
        self.made.append(made)

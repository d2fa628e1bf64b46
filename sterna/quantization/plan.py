"""Which tensors of an ONNX graph are quantised, and which of them share one scheme.

A tensor is quantised where a layer in integers reads it. From there integers are carried back
through what moves or chooses elements, through concatenations, sums and products of two tensors
and means, to the layers before; anything else stays in float between DequantizeLinear and
QuantizeLinear.
A result that only floats read stays the sum that it is, without another rounding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto

from sterna.quantization.onnx_graph import OnnxGraph
from sterna.quantization.onnx_layers import Layer

# What keeps the numbers of its first operand: its result has the same scheme.
CARRIERS = frozenset({
    "MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split",
    "Gather", "DepthToSpace", "SpaceToDepth", "GlobalMaxPool",
})
RECTIFIERS = frozenset({"Relu", "Clip"})
PAIRS = frozenset({"Add", "Mul"})
MEANS = frozenset({"GlobalAveragePool", "AveragePool"})


@dataclass(slots=True)
class Plan:
    """The layers in integers, the tensors that are quantised, and the groups that share schemes."""

    layers: list[Layer]
    tensors: list[str] = field(default_factory=list)
    _above: dict[str, str] = field(default_factory=dict)

    def group_of(self, tensor: str) -> str:
        """The tensor that stands for all that share its scheme."""
        while self._above.get(tensor, tensor) != tensor:
            tensor = self._above[tensor]
        return tensor

    def tie(self, a: str, b: str) -> None:
        """Let two tensors share a scheme."""
        first, second = self.group_of(a), self.group_of(b)
        if first != second:
            self._above[second] = first

    def groups(self) -> dict[str, list[str]]:
        """The tensors of each group, by the tensor that stands for it."""
        found: dict[str, list[str]] = {}
        for tensor in self.tensors:
            found.setdefault(self.group_of(tensor), []).append(tensor)
        return found


def make_plan(graph: OnnxGraph, layers: list[Layer], in_float: Sequence[Layer] = ()) -> Plan:
    """What is quantised so that layers are computed in integers, beside others in float."""
    plan = Plan(layers)
    ends = {id(node) for layer in (*layers, *in_float) for node in (layer.node, layer.adds)}
    walk = _Walk(graph, plan, dict.fromkeys(layer.data for layer in layers), ends)
    for node in reversed(graph.nodes):
        walk.visit(node)
    order = {name: place for place, name in enumerate(
        [*graph.inputs, *(out for node in graph.nodes for out in node.output)])}
    plan.tensors = sorted(walk.wanted, key=order.__getitem__)
    return plan


class _Walk:
    """From layers back to what their inputs are made of."""

    def __init__(
        self, graph: OnnxGraph, plan: Plan, wanted: dict[str, None], layers: set[int]
    ) -> None:
        self.graph, self.plan, self.wanted = graph, plan, wanted
        self.readers, self.makers = graph.readers(), graph.makers()
        self.rectified: set[str] = set()
        """What is quantised when it has passed the rectifier behind it, not before."""
        self.layers = layers

    def visit(self, node: NodeProto) -> None:
        """Pass on that a node's result is wanted in integers."""
        outs = [name for name in node.output if name in self.wanted or name in self.rectified]
        if not outs or id(node) in self.layers:
            return
        source = str(node.input[0]) if node.input else ""
        if node.op_type in RECTIFIERS and _has_known_ends(self.graph, node):
            if self._is_computed_with(source):
                self.rectified.add(source)
            else:
                self._tie([source], outs)
        elif node.op_type in CARRIERS:
            self._tie([source], outs)
        elif node.op_type == "Concat":
            self._join(node, outs[0])
        elif node.op_type in PAIRS and not any(name in self.graph.constants for name in node.input):
            self.wanted.update(dict.fromkeys(node.input))
        elif node.op_type in MEANS and source not in self.graph.constants:
            self.wanted[source] = None

    def _is_computed_with(self, source: str) -> bool:
        """Whether a rectifier is the end of the operator before it."""
        maker = self.makers.get(source)
        if maker is None or len(self.readers[source]) > 1 or source in self.graph.outputs:
            return False
        return id(maker) in self.layers or (maker.op_type in PAIRS and source not in self.wanted)

    def _join(self, node: NodeProto, out: str) -> None:
        """Parts that nothing else reads share the scheme of the whole, which costs them nothing.

        Others keep their own: a chain of concatenations, each of which passes on a part of the one
        before, would else have the widest range of all from its first to its last.
        """
        if any(name in self.graph.constants for name in node.input):
            return
        for name in node.input:
            self.wanted[name] = None
            if self._is_read_once(name):
                self.plan.tie(name, out)

    def _is_read_once(self, name: str) -> bool:
        """Whether a tensor, and all that it is a part or a view of, has one reader."""
        while len(self.readers[name]) == 1 and name not in self.graph.outputs:
            maker = self.makers.get(name)
            if maker is None or maker.op_type not in CARRIERS:
                return True
            name = str(maker.input[0])
        return False

    def _tie(self, sources: list[str], outs: list[str]) -> None:
        if any(name in self.graph.constants for name in sources):
            return
        for name in sources:
            self.wanted[name] = None
        for name in (*sources[1:], *outs):
            self.plan.tie(sources[0], name)


def _has_known_ends(graph: OnnxGraph, node: NodeProto) -> bool:
    """Whether what a rectifier cuts off is known."""
    bounds = [name for name in node.input[1:] if name]
    return all(name in graph.constants and graph.constants[name].dtype == np.float32
               for name in bounds)

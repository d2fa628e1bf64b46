"""An ONNX graph that is being changed: its constants as arrays, who makes and reads a tensor."""

from collections.abc import Iterable, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, helper, numpy_helper

from sterna.frontend.names import Names
from sterna.frontend.onnx.model import reads, sorted_nodes
from sterna.relay.arrays import Array


class OnnxGraph:
    """The main graph of a model; graphs inside its nodes are left as they are."""

    def __init__(self, model: ModelProto) -> None:
        self.model = ModelProto()
        self.model.CopyFrom(model)
        graph = self.model.graph
        self.constants: dict[str, Array] = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer
        }
        known = {*self.constants, *(entry.name for entry in graph.input)}
        known.update(sparse.values.name for sparse in graph.sparse_initializer)
        self.nodes: list[NodeProto] = sorted_nodes(list(graph.node), known)
        self.inputs = [entry.name for entry in graph.input if entry.name not in self.constants]
        self.outputs = [entry.name for entry in graph.output]
        self.names = Names()
        for name in (*known, *(out for node in self.nodes for out in node.output)):
            self.names.unique(name)

    # ---- who makes and who reads ----

    def makers(self) -> dict[str, NodeProto]:
        """The node that makes each tensor."""
        return {name: node for node in self.nodes for name in node.output if name}

    def readers(self) -> dict[str, list[NodeProto]]:
        """The nodes that read each tensor, once for each place."""
        found: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in reads(node):
                found.setdefault(name, []).append(node)
        return found

    # ---- changes ----

    def add_constant(self, name: str, value: Array) -> str:
        """A constant under a name that was free."""
        own = self.names.unique(name)
        self.constants[own] = value
        return own

    def rename_reads(self, nodes: Iterable[NodeProto], old: str, new: str) -> None:
        """Let nodes read one tensor instead of another."""
        for node in nodes:
            for place, name in enumerate(node.input):
                if name == old:
                    node.input[place] = new

    def drop(self, dropped: Iterable[NodeProto]) -> None:
        """Take nodes out."""
        gone = {id(node) for node in dropped}
        self.nodes = [node for node in self.nodes if id(node) not in gone]

    def to_model(self, outputs: Sequence[str] | None = None) -> ModelProto:
        """The model as it is now; outputs: tensors that it gives in place of its own results."""
        made = ModelProto()
        made.CopyFrom(self.model)
        graph = made.graph
        inputs = {entry.name: entry for entry in self.model.graph.input}
        del graph.node[:], graph.initializer[:], graph.value_info[:], graph.input[:]
        graph.input.extend(inputs[name] for name in self.inputs)
        if outputs is not None:
            del graph.output[:]
            graph.output.extend(ValueInfoProto(name=name) for name in outputs)
        ends = {entry.name for entry in graph.output}
        ordered = sorted_nodes(self.nodes, {*self.inputs, *self.constants})
        nodes, needed = [], set(ends)
        for node in reversed(ordered):
            if any(name in needed for name in node.output):
                nodes.append(node)
                needed.update(reads(node))
        graph.node.extend(reversed(nodes))
        graph.initializer.extend(
            numpy_helper.from_array(np.asarray(value, order="C"), name)
            for name, value in self.constants.items() if name in needed
        )
        return made


def attribute(node: NodeProto, name: str, default: object = None) -> object:
    """An attribute of a node as a number, a text or a list of numbers."""
    for entry in node.attribute:
        if entry.name == name:
            value = helper.get_attribute_value(entry)
            return value.decode() if isinstance(value, bytes) else value
    return default

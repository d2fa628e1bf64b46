"""A format of one's own, complete: a model as lines of text.

    toy model
    input x float32 batch 3
    weight w 2x3 1 2 3 4 5 6
    dense hidden x w
    relu y hidden
    output y
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sterna.frontend.calls import call, limited_folding
from sterna.frontend.converters import Converters
from sterna.frontend.files import read_whole
from sterna.frontend.format import Format, Graph, ImportOptions
from sterna.frontend.graph_importer import GraphImporter, NodeFacts
from sterna.frontend.node import Node, Result

MAGIC = b"toy model\n"
converter: Converters[Node] = Converters()


@converter("dense")
def dense(node: Node) -> Result:
    return call("nn.dense", node[0], node[1])


@converter("relu")
def relu(node: Node) -> Result:
    return call("nn.relu", node[0])


@dataclass(frozen=True, slots=True)
class ToyModel:
    """What a framework of toys holds in memory."""

    text: str


def load(model: Any, options: ImportOptions) -> Graph:
    """The graph of a model that is given as a path, as bytes or as a ToyModel."""
    if isinstance(model, ToyModel):
        text = model.text
    else:
        text = (model if isinstance(model, bytes) else read_whole(model)).decode("utf-8")
    lines = [line.split() for line in text.splitlines()[1:]]
    shapes = {name: [_dim(dim) for dim in rest[1:]]
              for word, name, *rest in lines if word == "input"}
    given = options.inputs()
    given.expect_fitting(shapes)
    with limited_folding() as room:
        graph = GraphImporter(FORMAT.name, given, options.freeze_params, room)
        for word, name, *rest in lines:
            if word == "input":
                graph.add_input(name, shapes[name], partial(_dtype, rest[0]))
            elif word == "weight":
                graph.add_weight(name, partial(_weight, *rest))
            elif word != "output":
                _add_node(graph, word, name, rest)
        return graph.finish([name for word, name, *_ in lines if word == "output"])


def _dim(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _dtype(dtype: str, what: str) -> str:
    return dtype


def _weight(shape: str, *numbers: str) -> Any:
    *values, _ = numbers  # the last is what messages call the weight
    return np.array(values, "float32").reshape([int(extent) for extent in shape.split("x")])


def _add_node(graph: GraphImporter, kind: str, name: str, reads: list[str]) -> None:
    function = converter.find("", kind)
    facts = NodeFacts(name, kind, reads, [name], kind)

    def convert() -> Result:
        assert function is not None
        operands: list[Any] = [graph.result(operand) for operand in reads]
        return function(Node(kind, name, operands, {}, [name], graph.weights))

    graph.add_node(facts, None if function is None else convert)


FORMAT = Format(
    name="toy",
    suffixes=(".toy",),
    sniff=lambda head: head.startswith(MAGIC),
    load=load,
    takes=lambda model: isinstance(model, ToyModel),
)

"""An importer: multilayer perceptrons as JSON, {"input": [rows, columns], "layers": [...]}.

In the tree a format is a folder of sterna/frontend with a file format.py, found by listing. Anyone
else's is registered by a program, as here, or named by a package's entry point of the group
sterna.formats; then the command line takes its files too.
"""

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import sterna
from sterna.frontend import Format, ImportOptions, register_format
from sterna.frontend.calls import call, limited_folding
from sterna.frontend.converters import Converters
from sterna.frontend.files import read_whole
from sterna.frontend.format import Graph
from sterna.frontend.graph_importer import GraphImporter, NodeFacts
from sterna.frontend.node import Node, Result

# What a layer of each kind becomes: one function per kind, which knows nothing about files.
converter: Converters[Node] = Converters()


@converter("dense")
def dense(node: Node) -> Result:
    return call("nn.dense", node[0], node[1])


@converter("relu")
def relu(node: Node) -> Result:
    return call("nn.relu", node[0])


def load(model: Any, options: ImportOptions) -> Graph:
    """The graph of a model that is given as a path or as bytes."""
    parsed = json.loads(model if isinstance(model, bytes) else read_whole(model))
    given = options.inputs()
    given.expect_fitting({"x": parsed["input"]})
    with limited_folding() as room:
        graph = GraphImporter(FORMAT.name, given, options.freeze_params, room)
        graph.add_input("x", parsed["input"], lambda what: "float32")
        last = "x"
        for number, layer in enumerate(parsed["layers"]):
            last = _add_layer(graph, f"layer{number}", layer, last)
        return graph.finish([last])


def _add_layer(graph: GraphImporter, name: str, layer: dict[str, Any], last: str) -> str:
    reads = [last]
    if "weights" in layer:
        graph.add_weight(f"{name}.w", partial(_array, layer["weights"]))
        reads.append(f"{name}.w")
    kind = layer["kind"]
    function = converter.find("", kind)

    def convert() -> Result:
        assert function is not None
        operands: list[Any] = [graph.result(each) for each in reads]
        return function(Node(kind, name, operands, {}, [name], graph.weights))

    # A layer without a converter is listed with all others of that sort in one error.
    graph.add_node(NodeFacts(name, kind, reads, [name], kind), convert if function else None)
    return name


def _array(numbers: Any, what: str) -> Any:
    return np.array(numbers, "float32")


FORMAT = register_format(Format(
    name="perceptron",
    suffixes=(".perceptron",),
    sniff=lambda head: head.startswith(b'{"input":'),
    load=load,
))

layers = [{"kind": "dense", "weights": [[1, 2, 3], [-4, -5, -6]]}, {"kind": "relu"}]
with TemporaryDirectory() as folder:
    path = Path(folder) / "net.perceptron"
    path.write_text(json.dumps({"input": [1, 3], "layers": layers}))
    model = sterna.compile(path)
    print(model, model(np.ones((1, 3), "float32")))
    path.write_text(json.dumps({"input": [1, 3], "layers": [{"kind": "swim"}, {"kind": "dive"}]}))
    try:
        sterna.compile(path)
    except NotImplementedError as error:
        print(error)

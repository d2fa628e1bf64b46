"""ONNX models that are imported when inputs come."""

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.frontend.calls import limited_folding
from sterna.frontend.graph_importer import ABSENT
from sterna.frontend.inputs import Inputs
from sterna.frontend.node import ProgramFeeds
from sterna.frontend.onnx.host_nodes import KINDS
from sterna.frontend.onnx.importer import Importer
from sterna.frontend.onnx.model import Source, all_nodes, load_model
from sterna.frontend.onnx.open_graph import open_input
from sterna.frontend.open_inputs import Given, OpenInput, tensors_of
from sterna.frontend.open_shapes import open_dim
from sterna.frontend.stages import Decide, StagedFeeds
from sterna.ir.types import TensorType
from sterna.relay.arrays import on_host
from sterna.relay.expr import Function, RelayExpr, Tuple
from sterna.relay.symbols import Symbols


class OnnxTrace:
    """A model that is imported when inputs come, as often as they bring something new."""

    def __init__(self, model: Source) -> None:
        self.loaded = load_model(model)
        graph = self.loaded.proto.graph
        weights = {tensor.name for tensor in graph.initializer}
        weights |= {sparse.values.name for sparse in graph.sparse_initializer}
        entries = [entry for entry in graph.input if entry.name not in weights]
        self.inputs: Sequence[OpenInput] = [open_input(entry) for entry in entries]
        self.outputs: Sequence[str] = [output.name for output in graph.output]
        self.needs_host = any(node.op_type in KINDS for node in all_nodes(graph))

    def run(self, inputs: Mapping[str, Given], decide: Decide) -> list[RelayExpr]:
        """The outputs for inputs of these shapes; decide runs the parts that decide about others.

        They are over variables by the inputs' names (those of a sequence with numbers behind), and
        over those of stages.
        """
        given = tensors_of(inputs)
        here = {name: on_host(each) for name, each in given.items()}
        feeds = StagedFeeds(here, decide=decide)
        shapes = {name: each.shape for name, each in given.items() if name in inputs}
        with limited_folding() as room:
            importer = Importer(self.loaded, Inputs(shapes), None, True, room, feeds, inputs)
            results = importer.results()
        return feeds.replaced(results)

    def symbolic(self) -> Function:
        """The whole model over symbols for its open dimensions; a ValueError says why not."""
        symbols = Symbols()
        shapes: dict[str, Any] = {}
        for each in self.inputs:
            if each.shape is None or each.is_sequence or each.is_optional or each.dtype is None:
                raise ValueError(f"input {each} is no tensor of a known number of dimensions")
            shapes[each.name] = [symbols.of_dim(open_dim(dim)) for dim in each.shape]
        with limited_folding() as room:
            importer = Importer(self.loaded, Inputs(shapes), None, True, room, ProgramFeeds())
            results = importer.results()
        for name, result in zip(self.outputs, results, strict=True):
            if result is ABSENT or not isinstance(result.checked_type, TensorType):
                raise ValueError(f"output '{name}' is no tensor")
        body = results[0] if len(results) == 1 else Tuple(tuple(results))
        return Function(tuple(importer.inputs), body)

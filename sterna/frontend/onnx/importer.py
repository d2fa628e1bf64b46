"""from_onnx: a model's graph walked once, node by node, each converted as its operands are known.

Calls of known operands are computed as they are made, so what a model computes from shapes turns
into numbers, and operators that want numbers get them.
"""

import importlib
import pkgutil
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
)

import sterna.frontend.onnx as package
from sterna.frontend import limits
from sterna.frontend.calls import Room, call, dtype_of, limited_folding, type_of
from sterna.frontend.format import Graph, ImportOptions
from sterna.frontend.graph_importer import ABSENT, UNMADE, GraphImporter, NodeFacts
from sterna.frontend.inputs import Inputs, Shape
from sterna.frontend.names import Names
from sterna.frontend.node import Feeds, Result
from sterna.frontend.onnx.attributes import attributes_of, expect_declared, graphs_of
from sterna.frontend.onnx.declared_inputs import declared_inputs, input_dtype
from sterna.frontend.onnx.format import FORMAT
from sterna.frontend.onnx.functions import (
    definition,
    expect_moderate_calls,
    functions_of,
    is_composed,
    local_definition,
    nodes_written,
)
from sterna.frontend.onnx.host_nodes import (
    KINDS,
    TEXT,
    host_function,
    runs_on_host,
    takes_text,
    text_of,
)
from sterna.frontend.onnx.if_conditions import BranchesDiffer, are_alike, chosen
from sterna.frontend.onnx.model import (
    KnownReads,
    LoadedModel,
    Source,
    load_model,
    reads,
    sorted_nodes,
)
from sterna.frontend.onnx.node import Node, find_converter
from sterna.frontend.onnx.open_graph import OpenGraph, tensor_entry
from sterna.frontend.onnx.tensors import array_of, dense_of, element_type
from sterna.frontend.open_inputs import Given, is_tensor
from sterna.frontend.open_shapes import UndecidedError
from sterna.frontend.stages import StagedFeeds
from sterna.ir.module import IRModule
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr, Tuple, Var
from sterna.relay.steps import Refuse
from sterna.relay.symbolic_values import symbolic_value
from sterna.runtime import NDArray
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented
from sterna.support.write_aside import write_aside

for _module in pkgutil.iter_modules(package.__path__):
    if _module.name.startswith("convert_"):
        importlib.import_module(f"{package.__name__}.{_module.name}")

# The newest version of ONNX's operator set whose meaning the converters know.
NEWEST_OPSET = max(28, onnx.defs.onnx_opset_version())


def from_onnx(
    model: Source,
    shape: Mapping[str, Shape | int] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, Any] | None = None,
    export_node_renamed_model_path: str | None = None,
) -> tuple[IRModule, dict[str, NDArray]]:
    """A model's graph as the function main of a module, and its weights.

    shape: where the model leaves dimensions open, the inputs' shapes by input, or extents by the
        dimensions' own names: {"image": (1, 3, 224, 224)}, {"batch": 1}.
    dtype: the element types of inputs by name; those that are not named are as the model says.
    opset: the version of the operator set by which to read it, if not the one that it names.
    freeze_params: whether weights become constants; if not they are parameters and come back.
    convert_config: {"use_nt_batch_matmul": ...} and such are accepted; the compiler decides these.
    export_node_renamed_model_path: where to write the model with a name for every node.
    """
    _expect_config(convert_config)
    inputs = Inputs(shape, dtype)
    loaded = load_model(model)
    if export_node_renamed_model_path is not None:
        write_aside(
            Path(export_node_renamed_model_path), lambda aside: onnx.save(loaded.proto, aside)
        )
    with limited_folding() as room:
        return Importer(loaded, inputs, opset, freeze_params, room).run()


def load(model: Source, options: ImportOptions) -> Graph:
    """A model's graph as the function main of a module, and its weights."""
    loaded = load_model(model)
    with limited_folding() as room:
        return Importer(loaded, options.inputs(), None, options.freeze_params, room).run()


def _expect_config(config: Mapping[str, Any] | None) -> None:
    known = {"use_nt_batch_matmul", "use_welford"}
    for name in config or {}:
        if name not in known:
            raise ValueError(f"convert_config knows {', '.join(sorted(known))}, not '{name}'")


def _opsets(model: ModelProto | FunctionProto) -> dict[str, int]:
    """The versions of the operator sets by domain; that of ONNX itself is empty."""
    found = {
        "" if entry.domain == "ai.onnx" else entry.domain: int(entry.version)
        for entry in model.opset_import
    }
    for domain, version in found.items():
        if not 0 < version < 1 << 31:
            raise ValueError(f"version {version} of the operator set '{domain or 'ai.onnx'}'")
    return found


class Importer(GraphImporter):
    """One model on its way to a graph."""

    def __init__(
        self, loaded: LoadedModel, given: Inputs, opset: int | None, freeze: bool, room: Room,
        feeds: Feeds | None = None, present: Mapping[str, Given] | None = None,
    ) -> None:
        super().__init__(FORMAT.name, given, freeze, room)
        self.feeds = feeds or Feeds()
        self.present = present
        """The inputs that are at hand, if any are."""
        self.open_graphs: list[OpenGraph] = []
        if isinstance(feeds, StagedFeeds):
            feeds.live = self._live
        model, self.folder = loaded.proto, loaded.folder
        self.graph = model.graph
        self.names = Names(entry.name for entry in model.graph.input)
        self.opsets = _opsets(model)
        if opset is not None:
            self.opsets[""] = opset
        self.functions = functions_of(model.functions)
        self.around: list[str] = []
        self.nodes = self.bytes = 0
        self.most_nodes = limits.most_nodes(nodes_written(self.graph.node, self.functions))
        self.known_reads: KnownReads = {}

    def run(self) -> Graph:
        """The module and the weights that are no constants."""
        self._convert_all()
        return self.finish([output.name for output in self.graph.output])

    def results(self) -> list[RelayExpr]:
        """The outputs, if everything has a converter."""
        self._convert_all()
        self.unsupported.expect_none()
        return [self.result(output.name) for output in self.graph.output]

    def _convert_all(self) -> None:
        if not self.graph.output:
            raise ValueError("the ONNX model has no output")
        newest = self.opsets.get("", 1)
        if newest > NEWEST_OPSET:
            raise OpNotImplemented(
                f"the ONNX model is of opset {newest}; the newest that is known is {NEWEST_OPSET}"
            )
        expect_moderate_calls(self.graph.node, self.functions, self.most_nodes)
        try:
            self._add_weights(self.graph)
            self._add_inputs()
            self._add_nodes(self.graph.node, self.graph.output)
            self._expect_declared()
        except UndecidedError:
            self.unsupported.expect_none()
            raise
        except ValueError:
            for node in self.graph.node:
                if not self._converts(node):
                    self.unsupported.add(self._operator(node), node.name)
            self.unsupported.expect_none()
            raise

    def _expect_declared(self) -> None:
        """Results are of the element types that the model says they are."""
        for output in self.graph.output:
            result = self.result(output.name)
            number = output.type.tensor_type.elem_type
            if self.given.dtypes or result in (UNMADE, ABSENT) or number in (0, TensorProto.STRING):
                continue
            what = f"output '{output.name}'"
            if not isinstance(result.checked_type, TensorType):
                raise ValueError(
                    f"{what} is declared as a tensor; the model computes {result.checked_type}"
                )
            wanted = element_type(number, what)
            if dtype_of(result) != wanted:
                raise ValueError(
                    f"{what} is declared as {wanted}; the model computes {dtype_of(result)}"
                )

    # ---- what is not supported ----

    def _converts(self, node: NodeProto) -> bool:
        """Whether there is a way to convert a node's operator."""
        version = self._version(node)
        return (
            (node.op_type == "If" and node.domain in ("", "ai.onnx"))
            or (node.domain, node.op_type, node.overload) in self.functions
            or find_converter(node.domain, node.op_type, version) is not None
            or is_composed(node, version)
            or (self.feeds.can_measure and (node.op_type in KINDS or takes_text(node, version)))
        )

    def _version(self, node: NodeProto) -> int:
        return self.opsets.get("" if node.domain == "ai.onnx" else node.domain, 1)

    def _operator(self, node: NodeProto) -> str:
        """How a list of unsupported operators names that of a node."""
        kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        return f"{kind} (opset {self._version(node)})"

    # ---- what there is before the first node ----

    def _add_weights(self, graph: GraphProto) -> None:
        for tensor in graph.initializer:
            if tensor.data_type == TensorProto.STRING and isinstance(self.feeds, StagedFeeds):
                texts = text_of(tensor, f"weight '{tensor.name}'")
                held = self.feeds.by_host(partial(_always, [texts]), [], 1, TEXT)
                self.values[tensor.name] = held[0]
                continue
            self.add_weight(tensor.name, partial(array_of, tensor, folder=self.folder))
        for sparse in graph.sparse_initializer:
            read = partial(dense_of, sparse, folder=self.folder)
            self.add_weight(sparse.values.name, read)

    def _add_inputs(self) -> None:
        declared = declared_inputs(self.graph.input)
        self.given.expect_fitting(declared, self.values.keys())
        for entry in self.graph.input:
            if entry.name in self.weight_names:
                continue
            given = None if self.present is None else self.present[entry.name]
            if isinstance(given, np.ndarray) and given.dtype.kind == "O":
                self.values[entry.name] = Var(entry.name, TensorType(given.shape, TEXT))
                self.inputs.append(self.values[entry.name])  # type: ignore[arg-type]
            elif self.present is not None and not is_tensor(given):
                self._add_sequence(entry.name, given)
            else:
                own = tensor_entry(entry)
                self.add_input(entry.name, declared[entry.name], partial(input_dtype, own))

    def _add_sequence(self, name: str, given: Given) -> None:
        """A sequence that is at hand, or an optional input that is not there."""
        if given is None:
            self.values[name] = ABSENT
            return
        assert isinstance(given, list)
        parts = [
            Var(f"{name}.{place}", TensorType(np.shape(each), DataType(str(each.dtype))))
            for place, each in enumerate(given)
        ]
        self.inputs += parts
        self.values[name] = Tuple(tuple(parts))

    # ---- nodes ----

    def _live(self) -> list[RelayExpr]:
        """What nodes that are yet to be converted read."""
        return [value for graph in self.open_graphs for value in graph.live()]

    def _add_nodes(
        self, nodes: Sequence[NodeProto], outputs: Sequence[ValueInfoProto | str] = ()
    ) -> None:
        self.nodes += len(nodes) if self.around else 0
        if self.nodes > self.most_nodes:
            raise UndecidedError(
                f"the model's functions and loops make more than {self.most_nodes} nodes"
            )
        order = list(sorted_nodes(nodes, self.values, self.known_reads))
        names = [entry if isinstance(entry, str) else entry.name for entry in outputs]
        opened = OpenGraph(self.values, [*(reads(n, self.known_reads) for n in order), names])
        self.open_graphs.append(opened)
        for place, node in enumerate(order):
            operator, read = self._operator(node), reads(node, self.known_reads)
            facts = NodeFacts(node.name, node.op_type, read, list(node.output), operator)
            try:
                self.add_node(facts, partial(self._convert, node) if self._converts(node) else None)
            except BranchesDiffer as choice:
                rest = order[place + 1 :]
                self.values.update(zip(names, self._forked(choice, rest, names), strict=True))
                break
            opened.at += 1
        self.open_graphs.pop()

    def _convert(self, proto: NodeProto) -> Result:
        function = self.functions.get((proto.domain, proto.op_type, proto.overload))
        if function is not None:
            return self._called(proto, local_definition(proto, function), {})
        version = self._version(proto)
        expect_declared(proto, version)
        if proto.op_type == "If":
            return self._choice(proto)
        convert = find_converter(proto.domain, proto.op_type, version)
        if isinstance(self.feeds, StagedFeeds):
            given = [self._operand(proto, name) for name in proto.input]
            if runs_on_host(proto, given, version):
                known = [each for each in given if each is not None]
                run = host_function(proto, version)
                return self.feeds.by_host(run, known, len(proto.output), TEXT)
        if convert is None:
            operands = [self._operand(proto, name) for name in proto.input]
            made = definition(proto, version, self.opsets.get("", version), operands)
            return self._called(proto, made, self.opsets)
        node = Node(
            kind=proto.op_type,
            name=proto.name,
            opset=version,
            inputs=[self._operand(proto, name) for name in proto.input],
            attrs=attributes_of(proto, f"node '{proto.name}' ({proto.op_type})", self.folder),
            outputs=list(proto.output),
            weights=self.weights,
            feeds=self.feeds,
            graphs={part.name: _whole(self._inner(proto, part.g)) for part in graphs_of(proto)},
        )
        return convert(node)

    def _operand(self, node: NodeProto, name: str) -> RelayExpr | None:
        if not name:
            return None
        if name not in self.values:
            raise ValueError(
                f"node '{node.name}' ({node.op_type}) reads '{name}', which its maker leaves out"
            )
        found = self.values[name]
        return None if found is ABSENT else found

    def _called(
        self, node: NodeProto, made: FunctionProto, opsets: Mapping[str, int]
    ) -> list[RelayExpr | None]:
        """The results of the nodes for which one stands."""
        self.bytes += made.ByteSize()
        if self.bytes > limits.MOST_BYTES:
            raise ValueError(f"the ONNX model's functions make more than {limits.MOST_BYTES} bytes")
        operands = [self._operand(node, name) for name in node.input]
        given = zip(made.input, operands, strict=False)
        own = {name: operand for name, operand in given if operand is not None}
        values, outside = self.values, self.opsets
        self._enter(f"{made.domain}.{made.name}.{made.overload}", node)
        self.values, self.opsets = own, {**opsets, **_opsets(made)}
        self._add_nodes(made.node, made.output)
        wanted = zip(made.output, node.output, strict=False)
        results = [self.result(name) if asked else None for name, asked in wanted]
        self.values, self.opsets = values, outside
        self.around.pop()
        return results

    def _enter(self, what: str, node: NodeProto) -> None:
        if what and what in self.around:
            raise ValueError(
                f"node '{node.name}' ({node.op_type}): the function '{node.op_type}' calls itself"
            )
        if len(self.around) >= limits.DEEPEST:
            raise ValueError(
                f"node '{node.name}' ({node.op_type}) lies more than {limits.DEEPEST} functions "
                "and graphs deep"
            )
        self.around.append(what)

    # ---- choices ----

    def _choice(self, node: NodeProto) -> list[RelayExpr]:
        """If: the branch that a known condition takes, or both as branches of the graph's If."""
        condition = self._operand(node, node.input[0])
        assert condition is not None
        if dtype_of(condition) != "bool" or type_of(condition).shape not in ((), (1,)):
            raise ValueError(f"its condition is {type_of(condition)}, not one of bool")
        graphs = {attribute.name: attribute.g for attribute in node.attribute}
        known = self.feeds.value_of(condition)
        if known is None:
            known = symbolic_value(condition)  # what holds for all extents
        if known is not None:
            taken = bool(known.reshape(-1)[0])
            return self._branch(node, graphs["then_branch" if taken else "else_branch"])
        depth = len(self.around), len(self.open_graphs), self.values
        try:
            yes = self._branch(node, graphs["then_branch"])
            no = self._branch(node, graphs["else_branch"])
        except OpNotImplemented:
            raise
        except ValueError as error:  # a branch that is not for inputs of these shapes perhaps
            del self.around[depth[0] :], self.open_graphs[depth[1] :]
            self.values = depth[2]
            raise UndecidedError(
                f"node '{node.name}' (If): only a run tells which branch it takes, and one of them "
                f"does not go with these shapes: {error}\nthe value of an input may decide: "
                "fixed={name: value}, or --fix NAME=VALUE on the command line"
            ) from error
        if any(result is UNMADE for result in (*yes, *no)):
            return [UNMADE] * len(node.output)
        flag = call("reshape", condition, ()) if type_of(condition).shape else condition
        if not are_alike(yes, no):
            raise BranchesDiffer(node, flag, yes, no)
        return chosen(flag, yes, no)

    def _forked(
        self, choice: BranchesDiffer, rest: Sequence[NodeProto], outputs: Sequence[str]
    ) -> list[RelayExpr]:
        """The outputs of a graph, of which what follows an If is there once for each branch.

        Where it does not go with the results of one of them, runs that take that one are refused.
        """
        around, depth = self.values, (len(self.around), len(self.open_graphs))
        outer = around.maps if isinstance(around, ChainMap) else [around]
        made: list[list[RelayExpr] | None] = []
        for results in (choice.yes, choice.no):
            own = dict(zip(choice.node.output, results, strict=True))
            self.values = ChainMap(own, *outer)
            try:
                self.nodes += len(rest)
                self._add_nodes(rest, outputs)
                made.append([self.result(name) for name in outputs])
            except OpNotImplemented:
                raise
            except ValueError:
                made.append(None)
                del self.around[depth[0] :], self.open_graphs[depth[1] :]
            finally:
                self.values = around
        yes, no = made
        known = yes or no
        if known is None or UNMADE in known or ABSENT in known:
            raise UndecidedError(str(choice))
        refused = [Refuse(each.checked_type, choice.refusal) for each in known]
        first, second = yes or refused, no or refused
        if not are_alike(first, second):
            raise UndecidedError(str(choice))
        return chosen(choice.flag, first, second)

    def _branch(self, node: NodeProto, graph: GraphProto) -> list[RelayExpr]:
        if len(graph.output) != len(node.output):
            raise ValueError(
                f"it has {len(node.output)} results and a branch with {len(graph.output)}"
            )
        return self._inner(node, graph)()

    def _inner(self, node: NodeProto, graph: GraphProto) -> Callable[..., list[RelayExpr]]:
        """What a graph in a node gives for its inputs, as often as that is asked."""
        weights: dict[str, RelayExpr] = {}
        outer, taken = self.values, self.weight_names
        self.values, self.weight_names = weights, set()
        self._add_weights(graph)
        self.values, self.weight_names = outer, taken

        def run(*operands: RelayExpr) -> list[RelayExpr]:
            if len(graph.input) != len(operands):
                raise ValueError(
                    f"it has {len(operands)} values for the {len(graph.input)} inputs of its graph"
                )
            own = {entry.name: value for entry, value in zip(graph.input, operands, strict=True)}
            around = self.values
            self._enter("", node)
            further = outer.maps if isinstance(outer, ChainMap) else [outer]
            self.values = ChainMap(own, *([weights] if weights else []), *further)
            self._add_nodes(graph.node, graph.output)
            results = [self.result(output.name) for output in graph.output]
            self.values = around
            self.around.pop()
            return results

        return run


def _always(results: list[Array], operands: list[Array]) -> list[Array]:
    return results


def _whole(run: Callable[..., list[RelayExpr]]) -> Callable[..., list[RelayExpr]]:
    """A graph all of whose results can be made."""

    def checked(*operands: RelayExpr) -> list[RelayExpr]:
        results = run(*operands)
        if any(result is UNMADE for result in results):
            raise OpNotImplemented("its graph has parts without a converter")
        return results

    return checked

"""from_onnx: a model's graph walked once, node by node, each converted as its operands are known.

Calls of known operands are computed as they are made, so what a model computes from shapes turns
into numbers, and operators that want numbers get them.
"""

import importlib
import pkgutil
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

import onnx
import onnx.defs
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

import sterna.frontend.onnx as package
from sterna.frontend.onnx.attributes import attributes_of, expect_declared, graphs_of
from sterna.frontend.onnx.functions import (
    definition,
    functions_of,
    is_composed,
    local_definition,
)
from sterna.frontend.onnx.inputs import Inputs, Shape
from sterna.frontend.onnx.model import DEEPEST, LoadedModel, Source, load_model, reads, sorted_nodes
from sterna.frontend.onnx.node import (
    Feeds,
    Node,
    Room,
    call,
    dtype_of,
    fields_of,
    find_converter,
    is_sequence,
    limited_folding,
    type_of,
)
from sterna.frontend.onnx.tensors import array_of, count_of, dense_of, element_type
from sterna.ir.module import OUTPUT_NAMES, IRModule
from sterna.ir.types import TensorType, flatten_type
from sterna.relay.analysis import free_vars
from sterna.relay.arrays import Array, from_numpy
from sterna.relay.expr import Constant, Function, If, RelayExpr, Tuple, Var
from sterna.relay.op import find
from sterna.relay.traverse import rewrite
from sterna.runtime import NDArray
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError, OpNotImplemented

for _module in pkgutil.iter_modules(package.__path__):
    if _module.name.startswith("convert_"):
        importlib.import_module(f"{package.__name__}.{_module.name}")

# The newest version of ONNX's operator set whose meaning the converters know.
NEWEST_OPSET = max(28, onnx.defs.onnx_opset_version())

# What functions that call functions and loops in loops may grow to: nodes, and bytes.
MOST_NODES, MOST_BYTES = 200_000, 1 << 31

# What stands for a result that could not be converted; what reads it is passed over.
UNMADE = Var("unmade")


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
    find("add")
    _expect_config(convert_config)
    inputs = Inputs(shape, dtype)
    loaded = load_model(model)
    if export_node_renamed_model_path is not None:
        onnx.save(loaded.proto, export_node_renamed_model_path)
    with limited_folding() as room:
        return Importer(loaded, inputs, opset, freeze_params, room).run()


def import_for(model: ModelProto, inputs: Mapping[str, Array]) -> tuple[IRModule, set[str]]:
    """A model as the graph that these inputs need, and the names of those that decided about it.

    Inputs of the same shapes can run the same graph, but for inputs whose values an operator must
    know beforehand, such as the shape for Reshape: they are named, and must have the same values.
    """
    find("add")
    loaded = load_model(model)
    shapes = Inputs({name: array.shape for name, array in inputs.items()}, {})
    feeds = Feeds(dict(inputs))
    with limited_folding() as room:
        module, _ = Importer(loaded, shapes, None, True, room, feeds).run()
    return module, feeds.decisive


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


class Importer:
    """One model on its way to a graph."""

    def __init__(
        self, loaded: LoadedModel, given: Inputs, opset: int | None, freeze: bool, room: Room,
        feeds: Feeds | None = None,
    ) -> None:
        self.room, self.feeds = room, feeds or Feeds()
        model, self.folder = loaded.proto, loaded.folder
        self.graph, self.given, self.freeze = model.graph, given, freeze
        self.opsets = _opsets(model)
        if opset is not None:
            self.opsets[""] = opset
        self.functions = functions_of(model.functions)
        self.values: MutableMapping[str, RelayExpr] = {}
        self.inputs: list[Var] = []
        self.weights: dict[Var, NDArray] = {}
        self.held: dict[Constant, str] = {}
        self.taken: set[str] = set()
        self.names: set[str] = {entry.name for entry in model.graph.input}
        self.missing: dict[str, list[str]] = {}
        self.around: list[str] = []
        self.nodes = self.bytes = 0

    def run(self) -> tuple[IRModule, dict[str, NDArray]]:
        """The module and the weights that are no constants."""
        if not self.graph.output:
            raise ValueError("the ONNX model has no output")
        newest = self.opsets.get("", 1)
        if newest > NEWEST_OPSET:
            raise OpNotImplemented(
                f"the ONNX model is of opset {newest}; the newest that is known is {NEWEST_OPSET}"
            )
        try:
            results = self._results()
        except ValueError:
            for node in self.graph.node:
                if not self._converts(node):
                    self._note(node)
            self._expect_all()
            raise
        self._expect_all()
        named = _tensors(self.graph.output, results)
        body = named[0][1] if len(named) == 1 else Tuple(tuple(result for _, result in named))
        if not self.freeze:
            body = self._with_variables(body)
        used = set(free_vars(body))
        weights = [var for var in self.weights if var in used]
        module = IRModule.from_expr(Function((*self.inputs, *weights), body))
        module.attrs[OUTPUT_NAMES] = tuple(name for name, _ in named)
        return module, {var.name_hint: self.weights[var] for var in weights}

    def _results(self) -> list[RelayExpr]:
        self._add_weights(self.graph)
        self._add_inputs()
        self._convert_nodes(self.graph.node)
        results = [self._result(output.name) for output in self.graph.output]
        if not self.given.dtypes:
            for output, result in zip(self.graph.output, results, strict=True):
                self._expect_declared(output, result)
        return results

    def _expect_declared(self, output: onnx.ValueInfoProto, result: RelayExpr) -> None:
        """A result is of the element type that the model says it is."""
        number = output.type.tensor_type.elem_type
        if result is UNMADE or not number:
            return
        if not isinstance(result.checked_type, TensorType):
            raise ValueError(
                f"output '{output.name}' is declared as a tensor; the model computes "
                f"{result.checked_type}"
            )
        wanted = element_type(number, f"output '{output.name}'")
        if dtype_of(result) != wanted:
            raise ValueError(
                f"output '{output.name}' is declared as {wanted}; the model computes "
                f"{dtype_of(result)}"
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
        )

    def _version(self, node: NodeProto) -> int:
        return self.opsets.get("" if node.domain == "ai.onnx" else node.domain, 1)

    def _note(self, node: NodeProto, reason: str = "") -> None:
        kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        what = f"{kind} (opset {self._version(node)})"
        names = self.missing.setdefault(f"{what}: {reason}" if reason else what, [])
        if node.name not in names:
            names.append(node.name)

    def _expect_all(self) -> None:
        if self.missing:
            lines = [f"  {kind}: {_some(names)}" for kind, names in sorted(self.missing.items())]
            raise OpNotImplemented(
                "these parts of the ONNX model have no converter:\n" + "\n".join(lines)
            )

    # ---- what there is before the first node ----

    def _add_weights(self, graph: GraphProto) -> None:
        for tensor in graph.initializer:
            self._add_weight(tensor.name, partial(array_of, tensor, folder=self.folder))
        for sparse in graph.sparse_initializer:
            read = partial(dense_of, sparse, folder=self.folder)
            self._add_weight(sparse.values.name, read)

    def _add_weight(self, name: str, read: Callable[[str], Array]) -> None:
        what = f"weight '{name}'"
        if not name:
            raise ValueError("the ONNX model has a weight without a name")
        if name in self.taken:
            raise ValueError(f"{what} is there twice")
        self.taken.add(name)
        try:
            held = Constant(from_numpy(read(what)))
        except OpNotImplemented as error:
            self.missing.setdefault(str(error), []).append(name)
            self.values[name] = UNMADE
            return
        held.span = name
        self.room.add_weight(held.data.nbytes)
        self.values[name] = held
        if self.freeze:
            return
        if DataType(dtype_of(held)).kind not in ("float", "bfloat"):
            self.held[held] = name  # a shape perhaps: a constant until nothing needs it known
            return
        self.values[name] = self._variable(name, held.data)

    def _variable(self, name: str, data: NDArray) -> Var:
        own, number = name, 1
        while own in self.names:  # graphs in a model may have weights of one name
            own, number = f"{name}_{number}", number + 1
        self.names.add(own)
        var = Var(own, TensorType(tuple(data.shape), DataType(data.dtype)))
        var.span = name
        self.weights[var] = data
        return var

    def _add_inputs(self) -> None:
        self.given.expect_known(self.graph.input, self.values.keys())
        for entry in self.graph.input:
            if entry.name in self.taken:
                continue
            if not entry.name or entry.name in self.values:
                raise ValueError(f"the ONNX model has two inputs of the name '{entry.name}'")
            try:
                var = Var(entry.name, self.given.type_of(entry))
            except OpNotImplemented as error:
                self.missing.setdefault(str(error), []).append(entry.name)
                self.values[entry.name] = UNMADE
                continue
            var.span = entry.name
            self.values[entry.name] = var
            self.inputs.append(var)

    # ---- nodes ----

    def _convert_nodes(self, nodes: Sequence[NodeProto]) -> None:
        self.nodes += len(nodes) if self.around else 0
        if self.nodes > MOST_NODES:
            raise ValueError(f"the model's functions and loops make more than {MOST_NODES} nodes")
        for node in sorted_nodes(nodes, self.values):
            results = self._convert_or_note(node)
            for name, result in zip(node.output, results, strict=False):
                if name and result is not None:
                    if result is not UNMADE:
                        _expect_size(node, result)
                        _mark(result, node.name)
                    self.values[name] = result

    def _convert_or_note(self, node: NodeProto) -> Sequence[RelayExpr | None]:
        """The results of a node; where something is not supported, what stands for results."""
        unmade = [UNMADE] * len(node.output)
        if not self._converts(node):
            self._note(node)
            return unmade
        if any(self.values.get(name) is UNMADE for name in reads(node)):
            return unmade
        try:
            return self._convert(node)
        except OpNotImplemented as error:
            self._note(node, str(error))
            return unmade
        except ValueError as error:
            text = str(error)
            if text.startswith("node '"):
                raise
            raise ValueError(f"node '{node.name}' ({node.op_type}): {text}") from error
        except InternalError:
            raise
        except Exception as error:
            # Operands and attributes that do not fit fail in many ways; a file causes one kind.
            kind = type(error).__name__
            raise ValueError(f"node '{node.name}' ({node.op_type}): {kind}: {error}") from error

    def _convert(self, proto: NodeProto) -> Sequence[RelayExpr | None]:
        function = self.functions.get((proto.domain, proto.op_type, proto.overload))
        if function is not None:
            return self._called(proto, local_definition(proto, function), {})
        version = self._version(proto)
        expect_declared(proto, version)
        if proto.op_type == "If":
            return self._choice(proto)
        convert = find_converter(proto.domain, proto.op_type, version)
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
        converted = convert(node)
        results = [converted] if isinstance(converted, RelayExpr) else list(converted)
        for place in range(len(results), len(proto.output)):
            if proto.output[place]:
                raise OpNotImplemented(f"its result {place}")
        return results

    def _operand(self, node: NodeProto, name: str) -> RelayExpr | None:
        if not name:
            return None
        if name not in self.values:
            raise ValueError(
                f"node '{node.name}' ({node.op_type}) reads '{name}', which its maker leaves out"
            )
        return self.values[name]

    def _called(
        self, node: NodeProto, made: FunctionProto, opsets: Mapping[str, int]
    ) -> list[RelayExpr | None]:
        """The results of the nodes for which one stands."""
        self.bytes += made.ByteSize()
        if self.bytes > MOST_BYTES:
            raise ValueError(f"the ONNX model's functions make more than {MOST_BYTES} bytes")
        operands = [self._operand(node, name) for name in node.input]
        given = zip(made.input, operands, strict=False)
        own = {name: operand for name, operand in given if operand is not None}
        values, outside = self.values, self.opsets
        self._enter(f"{made.domain}.{made.name}.{made.overload}", node)
        self.values, self.opsets = own, {**opsets, **_opsets(made)}
        self._convert_nodes(made.node)
        wanted = zip(made.output, node.output, strict=False)
        results = [self._result(name) if asked else None for name, asked in wanted]
        self.values, self.opsets = values, outside
        self.around.pop()
        return results

    def _enter(self, what: str, node: NodeProto) -> None:
        if what and what in self.around:
            raise ValueError(
                f"node '{node.name}' ({node.op_type}): the function '{node.op_type}' calls itself"
            )
        if len(self.around) >= DEEPEST:
            raise ValueError(
                f"node '{node.name}' ({node.op_type}) lies more than {DEEPEST} functions and "
                "graphs deep"
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
        if known is not None:
            taken = bool(known.reshape(-1)[0])
            return self._branch(node, graphs["then_branch" if taken else "else_branch"])
        yes = self._branch(node, graphs["then_branch"])
        no = self._branch(node, graphs["else_branch"])
        if any(result is UNMADE for result in (*yes, *no)):
            return [UNMADE] * len(node.output)
        flag = call("reshape", condition, ()) if type_of(condition).shape else condition
        return [If(flag, a, b) for a, b in zip(yes, no, strict=True)]

    def _branch(self, node: NodeProto, graph: GraphProto) -> list[RelayExpr]:
        if len(graph.output) != len(node.output):
            raise ValueError(
                f"it has {len(node.output)} results and a branch with {len(graph.output)}"
            )
        return self._inner(node, graph)()

    def _inner(self, node: NodeProto, graph: GraphProto) -> Callable[..., list[RelayExpr]]:
        """What a graph in a node gives for its inputs, as often as that is asked."""
        weights: dict[str, RelayExpr] = {}
        outer, taken = self.values, self.taken
        self.values, self.taken = weights, set()
        self._add_weights(graph)
        self.values, self.taken = outer, taken

        def run(*operands: RelayExpr) -> list[RelayExpr]:
            if len(graph.input) != len(operands):
                raise ValueError(
                    f"it has {len(operands)} values for the {len(graph.input)} inputs of its graph"
                )
            own = {entry.name: value for entry, value in zip(graph.input, operands, strict=True)}
            around = self.values
            self._enter("", node)
            self.values = ChainMap(own, weights, outer)
            self._convert_nodes(graph.node)
            results = [self._result(output.name) for output in graph.output]
            self.values = around
            self.around.pop()
            return results

        return run

    def _result(self, name: str) -> RelayExpr:
        if name not in self.values:
            raise ValueError(f"the model's output '{name}' is the result of no node")
        return self.values[name]

    def _with_variables(self, body: RelayExpr) -> RelayExpr:
        """The graph with variables for the weights that were constants while it was built."""
        named = {held: self._variable(name, held.data) for held, name in self.held.items()}
        return rewrite(
            body, lambda new, old: named.get(new, new) if isinstance(new, Constant) else new
        )


def _tensors(
    outputs: Sequence[onnx.ValueInfoProto], results: Sequence[RelayExpr]
) -> list[tuple[str, RelayExpr]]:
    """Results by name; of a sequence one by one, numbered."""
    named: list[tuple[str, RelayExpr]] = []
    for output, result in zip(outputs, results, strict=True):
        if is_sequence(result):
            many = enumerate(fields_of(result))
            named += [(f"{output.name}.{place}", part) for place, part in many]
        else:
            named.append((output.name, result))
    if not named:
        raise ValueError("the ONNX model gives empty sequences and nothing else")
    return named


def _whole(run: Callable[..., list[RelayExpr]]) -> Callable[..., list[RelayExpr]]:
    """A graph all of whose results can be made."""

    def checked(*operands: RelayExpr) -> list[RelayExpr]:
        results = run(*operands)
        if any(result is UNMADE for result in results):
            raise OpNotImplemented("its graph has parts without a converter")
        return results

    return checked


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _expect_size(node: NodeProto, result: RelayExpr) -> None:
    """A result is one that memory could hold."""
    for kind in flatten_type(result.checked_type):
        known = (extent for extent in kind.shape if isinstance(extent, int))
        count_of(known, kind.dtype.bits, f"node '{node.name}' ({node.op_type}): its result")


def _mark(expr: RelayExpr, name: str) -> None:
    """Name the node that expressions come from, as far as they have no name yet."""
    stack = [expr]
    while stack:
        part = stack.pop()
        if part.span is None:
            part.span = name
            stack.extend(part.operands())  # type: ignore[attr-defined]

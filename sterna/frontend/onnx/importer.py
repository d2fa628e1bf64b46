"""from_onnx: a model's graph walked once, node by node, each converted as its operands are known.

Calls of known operands are computed as they are made, so what a model computes from shapes turns
into numbers, and operators that want numbers get them.
"""

import importlib
import os
import pkgutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    numpy_helper,
)

import sterna.frontend.onnx as package
from sterna.frontend.onnx.functions import all_nodes, definition, is_composed, reads
from sterna.frontend.onnx.node import Feeds, Node, dtype_of, find_converter
from sterna.ir.module import OUTPUT_NAMES, IRModule
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType
from sterna.relay.analysis import free_vars
from sterna.relay.arrays import Array, from_numpy
from sterna.relay.expr import Constant, Function, If, RelayExpr, Tuple, Var
from sterna.relay.op import find
from sterna.relay.traverse import rewrite
from sterna.runtime import NDArray
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented

for _module in pkgutil.iter_modules(package.__path__):
    if _module.name.startswith("convert_"):
        importlib.import_module(f"{package.__name__}.{_module.name}")

Shape = Sequence[Dim]

# Operators that hold graphs themselves; the importer converts them.
CONTROL = {"If"}


def from_onnx(
    model: ModelProto | str | os.PathLike[str] | bytes,
    shape: Mapping[str, Shape] | None = None,
    dtype: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    freeze_params: bool = True,
    convert_config: Mapping[str, Any] | None = None,
    export_node_renamed_model_path: str | None = None,
) -> tuple[IRModule, dict[str, NDArray]]:
    """A model's graph as the function main of a module, and its weights.

    shape: the inputs' shapes by name, where the model leaves dimensions open.
    dtype: the element types of inputs by name; those that are not named are as the model says.
    opset: the version of the operator set by which to read it, if not the one that it names.
    freeze_params: whether weights become constants; if not they are parameters and come back.
    convert_config: {"use_nt_batch_matmul": ...} and such are accepted; the compiler decides these.
    export_node_renamed_model_path: where to write the model with a name for every node.
    """
    find("add")
    loaded = _load(model)
    _name_nodes(loaded)
    if export_node_renamed_model_path is not None:
        onnx.save(loaded, export_node_renamed_model_path)
    _expect_config(convert_config)
    dtypes = {} if isinstance(dtype, str) else dict(dtype)
    importer = Importer(loaded, dict(shape or {}), dtypes, opset, freeze_params)
    return importer.run()


def import_for(model: ModelProto, inputs: Mapping[str, Array]) -> tuple[IRModule, set[str]]:
    """A model as the graph that these inputs need, and the names of those that decided about it.

    Inputs of the same shapes can run the same graph, but for inputs whose values an operator must
    know beforehand, such as the shape for Reshape: they are named, and must have the same values.
    """
    find("add")
    loaded = _load(model)
    _name_nodes(loaded)
    shapes: dict[str, Shape] = {name: array.shape for name, array in inputs.items()}
    importer = Importer(loaded, shapes, {}, None, True, Feeds(dict(inputs)))
    module, _ = importer.run()
    return module, importer.feeds.decisive


def _expect_config(config: Mapping[str, Any] | None) -> None:
    known = {"use_nt_batch_matmul", "use_welford"}
    for name in config or {}:
        if name not in known:
            raise ValueError(f"convert_config knows {', '.join(sorted(known))}, not '{name}'")


# ---- reading ----


def load_model(model: ModelProto | str | os.PathLike[str] | bytes) -> ModelProto:
    """A model of the caller's own, from another one, a file or its bytes."""
    if isinstance(model, ModelProto):
        loaded = ModelProto()
        loaded.CopyFrom(model)
    elif isinstance(model, bytes | bytearray | memoryview):
        try:
            loaded = onnx.load_model_from_string(bytes(model))
        except DecodeError as error:
            raise ValueError(f"these bytes are no ONNX model: {error}") from None
    elif isinstance(model, str | os.PathLike):
        try:
            loaded = onnx.load(os.fspath(model))
        except DecodeError as error:
            raise ValueError(f"{os.fspath(model)} is no ONNX model: {error}") from None
    else:
        raise TypeError(
            f"from_onnx takes a model, the path of one or its bytes, not {type(model).__name__}"
        )
    if not loaded.HasField("graph"):
        raise ValueError("the ONNX model has no graph")
    return loaded


def _load(model: ModelProto | str | os.PathLike[str] | bytes) -> ModelProto:
    """The same without functions of its own; what the checker says of it is a warning."""
    loaded = load_model(model)
    try:
        onnx.checker.check_model(loaded)
    except (onnx.checker.ValidationError, ValueError) as error:
        warnings.warn(f"the ONNX checker says: {error}", stacklevel=3)
    return onnx.inliner.inline_local_functions(loaded) if loaded.functions else loaded


def _opsets(model: ModelProto | FunctionProto) -> dict[str, int]:
    """The versions of the operator sets by domain; that of ONNX itself is empty."""
    return {
        "" if entry.domain == "ai.onnx" else entry.domain: int(entry.version)
        for entry in model.opset_import
    }


def _opset(node: NodeProto, versions: Mapping[str, int]) -> int:
    return versions.get("" if node.domain == "ai.onnx" else node.domain, 1)


def _converts(node: NodeProto, versions: Mapping[str, int]) -> bool:
    """Whether there is a converter for a node, or for what ONNX defines it by."""
    if node.op_type in CONTROL and node.domain in ("", "ai.onnx"):
        return True
    version = _opset(node, versions)
    found = find_converter(node.domain, node.op_type, version) is not None
    return found or is_composed(node, version)


def _name_nodes(model: ModelProto) -> None:
    """A name for every node: its own or that of its first result, numbered if it is taken."""
    taken: set[str] = set()
    for node in all_nodes(model.graph):
        own = node.name or next((name for name in node.output if name), node.op_type)
        name, number = own, 1
        while name in taken:
            name, number = f"{own}_{number}", number + 1
        taken.add(name)
        node.name = name


def _sorted_nodes(
    graph: GraphProto | FunctionProto, known: Iterable[str]
) -> list[NodeProto]:
    """Every node behind those whose results it reads."""
    makers: dict[str, NodeProto] = {}
    for node in graph.node:
        for name in node.output:
            if name in makers:
                raise ValueError(
                    f"tensor '{name}' is made by node '{makers[name].name}' and by '{node.name}'"
                )
            if name:
                makers[name] = node
    ready = set(known)
    order: list[NodeProto] = []
    done: set[str] = set()
    for first in graph.node:
        stack = [(first, False)]
        opened: set[str] = set()
        while stack:
            node, expanded = stack.pop()
            if node.name in done:
                continue
            if expanded:
                done.add(node.name)
                order.append(node)
                continue
            if node.name in opened:
                raise ValueError(f"node '{node.name}' ({node.op_type}) depends on itself")
            opened.add(node.name)
            stack.append((node, True))
            for name in reads(node):
                maker = makers.get(name)
                if maker is not None and maker.name not in done:
                    stack.append((maker, False))
                elif maker is None and name not in ready and name in node.input:
                    raise ValueError(
                        f"node '{node.name}' ({node.op_type}) reads '{name}', which is no input, "
                        "no weight and no result of a node"
                    )
    return order


def _element_type(number: int, what: str) -> str:
    try:
        found = onnx.helper.tensor_dtype_to_np_dtype(number)
    except KeyError:
        raise ValueError(f"{what} has the element type {number}, which ONNX lacks") from None
    if found == np.dtype(object) or number == TensorProto.STRING:
        raise ValueError(f"{what} holds text; graphs compute with numbers")
    return str(found)


def _value(attribute: AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type == AttributeProto.STRINGS:
        return [part.decode("utf-8", "replace") for part in value]
    if attribute.type == AttributeProto.TENSOR:
        return numpy_helper.to_array(value)
    return value


# ---- converting ----


class Importer:
    """One model on its way to a graph."""

    def __init__(
        self, model: ModelProto, shapes: dict[str, Shape], dtypes: dict[str, str],
        opset: int | None, freeze: bool, feeds: Feeds | None = None,
    ) -> None:  # fmt: skip
        self.model, self.graph = model, model.graph
        self.shapes, self.dtypes, self.freeze = shapes, dtypes, freeze
        self.feeds = feeds or Feeds()
        self.opsets = _opsets(model)
        if opset is not None:
            self.opsets[""] = opset
        self.values: dict[str, RelayExpr] = {}
        self.inputs: list[Var] = []
        self.weights: dict[Var, NDArray] = {}
        self.held: dict[Constant, str] = {}

    def run(self) -> tuple[IRModule, dict[str, NDArray]]:
        """The module and the weights that are no constants."""
        self._expect_operators(self.graph, "the ONNX model")
        self._add_weights(self.graph)
        self._add_inputs()
        self._convert_nodes(self.graph)
        results = [self._result(output.name) for output in self.graph.output]
        if not results:
            raise ValueError("the ONNX model has no output")
        body = results[0] if len(results) == 1 else Tuple(tuple(results))
        if not self.freeze:
            body = self._with_variables(body)
        used = set(free_vars(body))
        weights = [var for var in self.weights if var in used]
        module = IRModule.from_expr(Function((*self.inputs, *weights), body))
        module.attrs[OUTPUT_NAMES] = tuple(output.name for output in self.graph.output)
        return module, {var.name_hint: self.weights[var] for var in weights}

    def _expect_operators(self, graph: GraphProto | FunctionProto, what: str) -> None:
        """Every operator can be converted; if not, all that cannot are named."""
        missing: dict[str, list[str]] = {}
        for node in all_nodes(graph):
            if not _converts(node, self.opsets):
                kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
                version = _opset(node, self.opsets)
                missing.setdefault(f"{kind} (opset {version})", []).append(node.name)
        if missing:
            lines = [f"  {kind}: {_some(names)}" for kind, names in sorted(missing.items())]
            raise OpNotImplemented(
                f"these operators of {what} have no converter:\n" + "\n".join(lines)
            )

    # ---- what there is before the first node ----

    def _add_weights(self, graph: GraphProto) -> None:
        for tensor in graph.initializer:
            what = f"weight '{tensor.name}'"
            _element_type(tensor.data_type, what)
            try:
                array = numpy_helper.to_array(tensor)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{what} cannot be read: {error}") from None
            self._add_weight(tensor.name, array)
        for sparse in graph.sparse_initializer:
            self._add_weight(sparse.values.name, dense_array(sparse))

    def _add_weight(self, name: str, array: Array) -> None:
        held = Constant(from_numpy(np.asarray(array)))
        held.span = name
        self.values[name] = held
        if self.freeze:
            return
        if DataType(dtype_of(held)).kind not in ("float", "bfloat"):
            self.held[held] = name  # a shape perhaps: a constant until nothing needs it known
            return
        self.values[name] = self._variable(name, held.data)

    def _variable(self, name: str, data: NDArray) -> Var:
        var = Var(name, TensorType(tuple(data.shape), DataType(data.dtype)))
        var.span = name
        self.weights[var] = data
        return var

    def _add_inputs(self) -> None:
        names = {entry.name for entry in self.graph.input}
        for given, what in ((self.shapes, "shape"), (self.dtypes, "dtype")):
            for name in given:
                if name not in names:
                    free = [e.name for e in self.graph.input if e.name not in self.values]
                    raise ValueError(
                        f"{what} names '{name}', which is no input of the model; its inputs are "
                        f"{', '.join(free)}"
                    )
        for entry in self.graph.input:
            if entry.name not in self.values:
                self._add_input(entry)

    def _add_input(self, entry: onnx.ValueInfoProto) -> None:
        what = f"input '{entry.name}'"
        if not entry.type.HasField("tensor_type"):
            kind = entry.type.WhichOneof("value") or "nothing"
            raise ValueError(f"{what} is a {kind}; graphs take tensors")
        tensor = entry.type.tensor_type
        own = self.dtypes.get(entry.name) or _element_type(tensor.elem_type, what)
        shape = self.shapes.get(entry.name)
        declared = list(tensor.shape.dim) if tensor.HasField("shape") else None
        if shape is None:
            if declared is None:
                raise ValueError(f"{what} has no shape in the model; give it by shape=")
            shape = [_dim(dim) for dim in declared]
        elif declared is not None and len(declared) != len(shape):
            raise ValueError(
                f"{what} has {len(declared)} dimensions in the model; shape= gives it {len(shape)}"
            )
        else:
            for place, (have, want) in enumerate(zip(shape, declared or [], strict=False)):
                if not isinstance(have, int | np.integer | AnyDim) or (
                    not isinstance(have, AnyDim) and have < 0
                ):
                    raise ValueError(f"{what}: dimension {place} of shape= is {have!r}")
                if want.dim_value > 0 and isinstance(have, int) and have != want.dim_value:
                    warnings.warn(
                        f"{what}: dimension {place} is {want.dim_value} in the model and {have} "
                        "by shape=", stacklevel=5,
                    )  # fmt: skip
        var = Var(entry.name, TensorType(_dims(shape), DataType(own)))
        var.span = entry.name
        self.values[entry.name] = var
        self.inputs.append(var)

    # ---- nodes ----

    def _convert_nodes(self, graph: GraphProto | FunctionProto) -> None:
        for node in _sorted_nodes(graph, self.values):
            results = self._convert(node)
            for name, result in zip(node.output, results, strict=False):
                if name and result is not None:
                    _mark(result, node.name)
                    self.values[name] = result

    def _convert(self, proto: NodeProto) -> Sequence[RelayExpr | None]:
        if proto.op_type in CONTROL:
            return self._choice(proto)
        version = _opset(proto, self.opsets)
        convert = find_converter(proto.domain, proto.op_type, version)
        if convert is None:
            return self._composed(proto)
        node = Node(
            kind=proto.op_type,
            name=proto.name,
            opset=version,
            inputs=[self._operand(proto, name) for name in proto.input],
            attrs={attribute.name: _value(attribute) for attribute in proto.attribute},
            outputs=list(proto.output),
            weights=self.weights,
            feeds=self.feeds,
        )
        try:
            made = convert(node)
        except (ValueError, TypeError) as error:
            text = str(error)
            own = text if text.startswith("node '") else f"{node}: {text}"
            raise type(error)(own) if type(error) in (ValueError, TypeError) else ValueError(
                own
            ) from error
        results = [made] if isinstance(made, RelayExpr) else list(made)
        for place in range(len(results), len(proto.output)):
            if proto.output[place]:
                raise OpNotImplemented(f"{node}: its result {place} is not supported")
        return results

    def _composed(self, node: NodeProto) -> list[RelayExpr | None]:
        """The results of the operators by which ONNX defines a node's."""
        operands = [self._operand(node, name) for name in node.input]
        version = _opset(node, self.opsets)
        made = definition(node, version, self.opsets.get("", version), operands)
        values, opsets = self.values, self.opsets
        given = zip(made.input, operands, strict=False)
        self.values = {name: operand for name, operand in given if operand is not None}
        self.opsets = {**opsets, **_opsets(made)}
        self._expect_operators(made, f"node '{node.name}' ({node.op_type})")
        self._convert_nodes(made)
        wanted = zip(made.output, node.output, strict=False)
        results = [self._result(name) if own else None for name, own in wanted]
        self.values, self.opsets = values, opsets
        return results

    def _operand(self, node: NodeProto, name: str) -> RelayExpr | None:
        if not name:
            return None
        if name not in self.values:
            raise ValueError(
                f"node '{node.name}' ({node.op_type}) reads '{name}', which its maker leaves out"
            )
        return self.values[name]

    def _choice(self, node: NodeProto) -> list[RelayExpr]:
        """If: the branch that a known condition takes, or both as branches of the graph's If."""
        condition = self._operand(node, node.input[0])
        assert condition is not None
        graphs = {attribute.name: attribute.g for attribute in node.attribute}
        if isinstance(condition, Constant):
            taken = bool(condition.data.numpy().reshape(-1)[0])
            return self._branch(graphs["then_branch" if taken else "else_branch"])
        yes = self._branch(graphs["then_branch"])
        no = self._branch(graphs["else_branch"])
        return [If(condition, a, b) for a, b in zip(yes, no, strict=True)]

    def _branch(self, graph: GraphProto) -> list[RelayExpr]:
        outer = dict(self.values)
        self._add_weights(graph)
        self._convert_nodes(graph)
        results = [self._result(output.name) for output in graph.output]
        self.values = outer
        return results

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


def dense_array(sparse: onnx.SparseTensorProto) -> Array:
    """All elements of a sparse tensor."""
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    made = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        made.reshape(-1)[indices] = values
    else:
        made[tuple(indices.T)] = values
    return made


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _dim(dim: Any) -> Dim:
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else AnyDim()


def _dims(shape: Shape) -> tuple[Dim, ...]:
    return tuple(int(dim) if isinstance(dim, np.integer) else dim for dim in shape)


def _mark(expr: RelayExpr, name: str) -> None:
    """Name the node that expressions come from, as far as they have no name yet."""
    stack = [expr]
    while stack:
        part = stack.pop()
        if part.span is None:
            part.span = name
            stack.extend(part.operands())  # type: ignore[attr-defined]



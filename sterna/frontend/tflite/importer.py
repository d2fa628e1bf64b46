"""from_tflite: a TensorFlow Lite model as a graph."""

import importlib
import os
import pkgutil
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sterna.frontend.tflite as package
from sterna.frontend.calls import Room, limited_folding
from sterna.frontend.converters import Converter
from sterna.frontend.files import read_whole
from sterna.frontend.format import Graph, ImportOptions
from sterna.frontend.graph_importer import UNMADE, GraphImporter, NodeFacts
from sterna.frontend.inputs import Inputs, Shape
from sterna.frontend.limits import DEEPEST, count_of
from sterna.frontend.node import Result
from sterna.frontend.open_shapes import OPEN, NamedDim
from sterna.frontend.tflite.format import FORMAT
from sterna.frontend.tflite.node import ROUNDINGS, TFLM, XNNPACK, Node, Part, find_converter
from sterna.frontend.tflite.schema import (
    ABSENT,
    OperatorInfo,
    Signature,
    Subgraph,
    TensorInfo,
    TFLiteModel,
    read_model,
)
from sterna.frontend.tflite.variables import Variables
from sterna.frontend.tflite.weights import constant_of, held_type
from sterna.ir.module import IRModule
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr, Var
from sterna.runtime import NDArray
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented

for _module in pkgutil.iter_modules(package.__path__):
    if _module.name.startswith("convert_"):
        importlib.import_module(f"{package.__name__}.{_module.name}")

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | Any
# What the output of a variable has behind its name.
NEXT = ":next"
# How often subgraphs are put in the place of operators: branches and loops multiply.
MOST_PARTS = 2_000
EMPTY: Mapping[str, RelayExpr] = {}

OwnConverters = Mapping[str, Converter[Node]]


def from_tflite(
    model: Source,
    shape_dict: Mapping[str, Shape] | None = None,
    dtype_dict: Mapping[str, str] | None = None,
    op_converter: OwnConverters | None = None,
    rounding: str = XNNPACK,
    signature: str | None = None,
    freeze_params: bool = True,
) -> tuple[IRModule, dict[str, NDArray]]:
    """A model's graph as the function main of a module, and its weights.

    model: the path or the bytes of a file, or what the package tflite makes of them.
    shape_dict: shapes of inputs by name, where they are others than those in the file.
    dtype_dict: the element types of inputs by name, for which the same holds.
    op_converter: functions from a Node to an expression, by the operators that they convert; custom
        operators go by their own names.
    rounding: "xnnpack" computes what LiteRT does on processors, "tflm" what TensorFlow Lite for
        Microcontrollers does, to the last bit of every whole number.
    signature: the one of the model's signatures to import; inputs and outputs then have its names.
    freeze_params: whether weights become constants; if not they are parameters and come back.
    """
    given = Inputs(shape_dict, dtype_dict or {}, "shape_dict")
    loaded = _read(model)
    with limited_folding() as room:
        return Importer(
            loaded, given, rounding, signature, freeze_params, room, op_converter or {}
        ).run()


def load(model: Source, options: ImportOptions) -> Graph:
    """A model's graph as the function main of a module, and its weights."""
    loaded = _read(model)
    with limited_folding() as room:
        return Importer(
            loaded, options.inputs(), TFLM if options.for_microcontroller else XNNPACK, None,
            options.freeze_params, room, {},
        ).run()


def _read(model: Source) -> TFLiteModel:
    """A model; what is wrong with a file is said with its name."""
    data = bytes_of(model)
    try:
        return read_model(data)
    except ValueError as error:
        if isinstance(model, str | os.PathLike):
            raise ValueError(f"'{os.fspath(model)}': {error}") from None
        raise


def bytes_of(model: Source) -> bytes | memoryview:
    """The bytes of a model that is given in any of the ways."""
    if isinstance(model, str | os.PathLike):
        return read_whole(model)
    if isinstance(model, bytes | bytearray | memoryview):
        return memoryview(model)
    if FORMAT.takes(model):
        return memoryview(model._tab.Bytes)
    raise TypeError(
        "a TensorFlow Lite model is the path or the bytes of a file or a tflite.Model, not "
        f"{type(model).__name__}"
    )


def _chosen(model: TFLiteModel, name: str | None) -> Signature | None:
    """The signature that is asked for."""
    if name is None:
        return None
    for signature in model.signatures:
        if signature.key == name:
            return signature
    known = ", ".join(signature.key for signature in model.signatures) or "none"
    raise ValueError(f"the model has no signature '{name}'; it has {known}")


class Importer(GraphImporter):
    """One model on its way to a graph."""

    def __init__(
        self, model: TFLiteModel, given: Inputs, rounding: str, signature: str | None,
        freeze: bool, room: Room, own: OwnConverters,
    ) -> None:
        super().__init__(FORMAT.name, given, freeze, room)
        if rounding not in ROUNDINGS:
            raise ValueError(f"rounding is one of {', '.join(ROUNDINGS)}, not {rounding!r}")
        self.model, self.rounding, self.own = model, rounding, own
        self.signature = _chosen(model, signature)
        self.graph = model.subgraphs[self.signature.subgraph if self.signature else 0]
        self.variables = Variables(self._add_state)
        self.around: list[int] = []
        """The numbers of graphs that are converted inside of one another."""
        self.parts = 0
        """How often one was."""
        self._weights_of: dict[int, dict[str, RelayExpr]] = {}

    def run(self) -> Graph:
        """The module and the weights that are no constants."""
        graph = self.graph
        if not graph.outputs:
            raise ValueError("the TensorFlow Lite model has no output")
        inputs, outputs = self._names()
        self._add_inputs(inputs)
        self._add_weights(graph)
        self._add_nodes(graph)
        for place, name in outputs.items():
            self.values.setdefault(name, self.result(graph.tensors[place].key))
        states = self.variables.written()
        for name, value in states.items():
            self.values[f"{name}{NEXT}"] = value
        return self.finish([*(outputs[place] for place in graph.outputs),
                            *(f"{name}{NEXT}" for name in states)])

    def _add_state(self, name: str, shape: Sequence[int], dtype: str) -> RelayExpr:
        """A variable as an input of the graph."""
        what = f"variable '{name}'"
        kind = DataType(held_type(dtype, what))
        count_of(shape, kind.bits, what)
        var = Var(self.names.unique(name), TensorType(tuple(shape), kind))
        self.inputs.append(var)
        return var

    def _names(self) -> tuple[dict[int, str], dict[int, str]]:
        """The names of inputs and of outputs by tensor: their own, or those of a signature."""
        graph = self.graph
        inputs = {place: graph.tensors[place].key for place in graph.inputs}
        outputs = {place: graph.tensors[place].key for place in graph.outputs}
        if self.signature is not None:
            inputs |= {
                place: name for name, place in self.signature.inputs.items() if place in inputs
            }
            outputs |= {
                place: name for name, place in self.signature.outputs.items() if place in outputs
            }
        return inputs, outputs

    # ---- what there is before the first node ----

    def _add_inputs(self, names: Mapping[int, str]) -> None:
        tensors = {name: self.graph.tensors[place] for place, name in names.items()}
        declared = {name: self._declared(name, tensor) for name, tensor in tensors.items()}
        self.given.expect_fitting(declared)
        for name, tensor in tensors.items():
            self.add_input(name, declared[name], partial(held_type, tensor.dtype))
            self.names.unique(name)
            self.values[tensor.key] = self.values[name]

    def _declared(self, name: str, tensor: TensorInfo) -> Sequence[NamedDim]:
        """The shape in the file; what is open has the extent that stands there unless it is given.
        """
        if name not in self.given.shapes:
            return tensor.shape
        return [OPEN if extent < 0 else extent for extent in tensor.signature]

    def _add_weights(self, graph: Subgraph) -> None:
        """The constants that something reads."""
        read = [*graph.outputs, *(place for one in graph.operators for place in one.inputs)]
        for place in dict.fromkeys(read):
            tensor = graph.tensors[place] if place != ABSENT else None
            if tensor is None or tensor.key in self.values:
                continue
            if self.model.bytes_of(tensor) is not None:
                self.add_weight(tensor.key, partial(self._constant, tensor))

    def _constant(self, tensor: TensorInfo, what: str) -> Array:
        return constant_of(self.model, tensor)

    # ---- nodes ----

    def _add_nodes(self, graph: Subgraph) -> None:
        for operator in graph.operators:
            self._expect_made(graph, operator)
            reads = [graph.tensors[place].key for place in operator.inputs if place != ABSENT]
            outputs = [graph.tensors[place].key for place in operator.outputs]
            name = outputs[0] if outputs else f"operator {operator.place}"
            facts = NodeFacts(name, operator.kind, reads, outputs, operator.called)
            found = self.own.get(operator.custom or operator.kind) or find_converter(
                operator.kind, operator.custom
            )
            convert = partial(self._convert, graph, operator, name, found) if found else None
            self.add_node(facts, convert)

    def _expect_made(self, graph: Subgraph, operator: OperatorInfo) -> None:
        """Operands were computed by nodes before this one."""
        for place in operator.inputs:
            if place == ABSENT or graph.tensors[place].key in self.values:
                continue
            if graph.tensors[place].is_variable:
                continue
            raise ValueError(
                f"operator {operator.place} ({operator.called}) reads tensor "
                f"'{graph.tensors[place].name}', which no operator before it makes"
            )

    def _convert(
        self, graph: Subgraph, operator: OperatorInfo, name: str, convert: Converter[Node]
    ) -> Result:
        tensors = [None if i == ABSENT else graph.tensors[i] for i in operator.inputs]
        return convert(Node(
            kind=operator.kind,
            name=name,
            inputs=[None if t is None else self.values.get(t.key) for t in tensors],
            attrs=operator.options(),
            outputs=[graph.tensors[place].key for place in operator.outputs],
            weights=self.weights,
            rounding=self.rounding,
            operands_as=tensors,
            results_as=[graph.tensors[place] for place in operator.outputs],
            intermediates=[graph.tensors[i] for i in operator.intermediates if i != ABSENT],
            custom_options=operator.custom_options,
            variables=self.variables,
            run_part=partial(self._run_part, operator, graph),
            read_tensor=partial(self._read_tensor, graph),
        ))

    def _read_tensor(self, graph: Subgraph, place: int) -> Array:
        if not 0 <= place < len(graph.tensors):
            raise ValueError(f"there is no tensor {place} among {len(graph.tensors)}")
        tensor = graph.tensors[place]
        if self.model.bytes_of(tensor) is None:
            raise ValueError(f"tensor '{tensor.name}' is no constant")
        return constant_of(self.model, tensor)

    # ---- other graphs ----

    def _run_part(
        self, operator: OperatorInfo, outer: Subgraph, place: int, operands: Sequence[RelayExpr],
        first: int, holding: Mapping[str, RelayExpr] = EMPTY,
    ) -> Part:
        """What another graph of the model makes of an operator's operands from one on."""
        named = [outer.tensors[i].key for i in operator.inputs[first:]]
        return self.part(place, operands, list(map(self.variables.handles.get, named)), holding)

    def part(
        self, place: int, operands: Sequence[RelayExpr], handles: Sequence[str | None] = (),
        holding: Mapping[str, RelayExpr] = EMPTY,
    ) -> Part:
        """What another graph of the model makes of operands, some of which stand for variables."""
        graph = self._part(place)
        if len(graph.inputs) != len(operands):
            raise ValueError(
                f"it has {len(operands)} values for the {len(graph.inputs)} inputs of subgraph "
                f"{place}"
            )
        values = self.values
        self.around.append(place)
        try:
            with self.variables.branch(holding) as assigned:
                self.values = dict(self._part_weights(place, graph))
                for own, value, variable in zip(graph.inputs, operands, handles, strict=True):
                    key = graph.tensors[own].key
                    self.values[key] = value
                    if variable is not None:
                        self.variables.handles[key] = variable
                self._add_nodes(graph)
                results = [self.result(graph.tensors[own].key) for own in graph.outputs]
            if any(result is UNMADE for result in results):
                raise OpNotImplemented(f"what subgraph {place} computes")
        finally:
            self.values = values
            self.around.pop()
        return Part(results, assigned)

    def _part(self, place: int) -> Subgraph:
        if not 0 <= place < len(self.model.subgraphs):
            raise ValueError(f"it runs subgraph {place} of {len(self.model.subgraphs)}")
        graph = self.model.subgraphs[place]
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise ValueError(f"the model runs other subgraphs more than {MOST_PARTS} times")
        if place in self.around or graph is self.graph:
            raise ValueError(f"subgraph {place} runs itself")
        if len(self.around) >= DEEPEST:
            raise ValueError(f"it lies more than {DEEPEST} subgraphs deep")
        return graph

    def _part_weights(self, place: int, graph: Subgraph) -> Mapping[str, RelayExpr]:
        """The constants of another graph, which are read once."""
        if place not in self._weights_of:
            taken, self.weight_names, self.values = self.weight_names, set(), {}
            self._add_weights(graph)
            self.weight_names = taken
            self._weights_of[place] = dict(self.values)
        return self._weights_of[place]

"""What the variables of a model hold before its first call."""

from collections.abc import Mapping, Sequence

import numpy as np

from sterna.frontend.calls import limited_folding
from sterna.frontend.inputs import Inputs
from sterna.frontend.tflite.importer import Importer, Source, bytes_of
from sterna.frontend.tflite.node import XNNPACK
from sterna.frontend.tflite.schema import ABSENT, TensorInfo, TFLiteModel, read_model
from sterna.frontend.tflite.weights import held_type
from sterna.relay.analysis import free_vars
from sterna.relay.arrays import Array
from sterna.relay.expr import Function
from sterna.relay.interpreter import interpret
from sterna.support.errors import OpNotImplemented


def initial_state(model: Source) -> dict[str, Array]:
    """The first values of all states, by the names of the inputs that take them.

    Layers begin with what stands for 0; variables with what the model gives them before the first
    call, else with 0.
    """
    loaded = read_model(bytes_of(model))
    main = loaded.subgraphs[0]
    found = {tensor.key: _empty(tensor) for tensor in main.tensors if tensor.is_variable}
    for name, tensor in _variables(loaded, 0, {}, ()).items():
        found.setdefault(name, np.zeros(tensor.shape, held_type(tensor.dtype, name)))
    for operator in main.operators:
        if operator.kind == "CALL_ONCE":
            place = int(operator.options()["init_subgraph"])
            if not 0 < place < len(loaded.subgraphs):
                raise ValueError(f"CALL_ONCE runs subgraph {place} of {len(loaded.subgraphs)}")
            found |= _assigned(loaded, place)
    return found


def _empty(tensor: TensorInfo) -> Array:
    zero = tensor.quantization.zero[0] if tensor.quantization and tensor.dtype == "int8" else 0
    return np.full(tensor.shape, zero, held_type(tensor.dtype, f"variable '{tensor.name}'"))


# The options that name other graphs, and the operand that is their first input.
PARTS = {"IF": (("then_subgraph", "else_subgraph"), 1),
         "WHILE": (("cond_subgraph", "body_subgraph"), 0)}


def _variables(
    model: TFLiteModel, place: int, given: Mapping[str, str], around: Sequence[int]
) -> dict[str, TensorInfo]:
    """What a graph and those that it runs read and write, by the names of variables.

    given: the names of variables by the tensors that stand for them.
    """
    if not 0 <= place < len(model.subgraphs) or place in around:
        return {}  # the importer refuses it
    graph, handles = model.subgraphs[place], dict(given)
    found: dict[str, TensorInfo] = {}
    for operator in graph.operators:
        tensors = [graph.tensors[i] for i in operator.inputs if i != ABSENT]
        if operator.kind == "VAR_HANDLE":
            key = graph.tensors[operator.outputs[0]].key
            handles[key] = operator.options()["shared_name"] or key
        elif operator.kind == "READ_VARIABLE":
            found.setdefault(handles[tensors[0].key], graph.tensors[operator.outputs[0]])
        elif operator.kind == "ASSIGN_VARIABLE" and around:
            found.setdefault(handles[tensors[0].key], tensors[1])
        elif operator.kind in PARTS:
            options, first = PARTS[operator.kind]
            for option in options:
                inner = int(operator.options()[option])
                own = _bound(model, inner, tensors[first:], handles)
                found = {**_variables(model, inner, own, (*around, place)), **found}
    return found


def _bound(
    model: TFLiteModel, place: int, operands: Sequence[TensorInfo], handles: Mapping[str, str]
) -> dict[str, str]:
    """The names of variables by the inputs of another graph."""
    if not 0 <= place < len(model.subgraphs):
        return {}
    graph = model.subgraphs[place]
    pairs = zip(graph.inputs, operands, strict=False)
    return {graph.tensors[own].key: handles[tensor.key]
            for own, tensor in pairs if tensor.key in handles}


def _assigned(model: TFLiteModel, place: int) -> dict[str, Array]:
    """What a graph without inputs gives to variables, computed here."""
    with limited_folding() as room:
        importer = Importer(model, Inputs(None, {}, "shape_dict"), XNNPACK, None, True, room, {})
        assigned = importer.part(place, []).assigned
        importer.unsupported.expect_none()
    made = {}
    for name, value in assigned.items():
        if free_vars(value):
            raise OpNotImplemented(f"a first value of variable '{name}' that inputs decide")
        made[name] = np.asarray(interpret(Function((), value)))
    return made

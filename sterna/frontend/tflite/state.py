"""What the variables of a model hold before its first call."""

import numpy as np

from sterna.frontend.tflite.importer import Source, bytes_of
from sterna.frontend.tflite.schema import Subgraph, TensorInfo, TFLiteModel, read_model
from sterna.frontend.tflite.weights import constant_of, held_type
from sterna.relay.arrays import Array
from sterna.support.errors import OpNotImplemented


def initial_state(model: Source) -> dict[str, Array]:
    """The first values of all states, by the names of the inputs that take them.

    Layers begin with what stands for 0; variables with what the model gives them before the first
    call, else with 0.
    """
    loaded = read_model(bytes_of(model))
    main = loaded.subgraphs[0]
    found = {tensor.key: _empty(tensor) for tensor in main.tensors if tensor.is_variable}
    handles = _handles(main)
    for operator in main.operators:
        if operator.kind == "READ_VARIABLE":
            tensor = main.tensors[operator.outputs[0]]
            name = handles[main.tensors[operator.inputs[0]].key]
            found.setdefault(name, np.zeros(tensor.shape, held_type(tensor.dtype, name)))
        if operator.kind == "CALL_ONCE":
            place = int(operator.options()["init_subgraph"])
            if not 0 < place < len(loaded.subgraphs):
                raise ValueError(f"CALL_ONCE runs subgraph {place} of {len(loaded.subgraphs)}")
            found |= _assigned(loaded, loaded.subgraphs[place])
    return found


def _empty(tensor: TensorInfo) -> Array:
    zero = tensor.quantization.zero[0] if tensor.quantization and tensor.dtype == "int8" else 0
    return np.full(tensor.shape, zero, held_type(tensor.dtype, f"variable '{tensor.name}'"))


def _handles(graph: Subgraph) -> dict[str, str]:
    """The names of variables by the tensors that stand for them."""
    made = {}
    for operator in graph.operators:
        if operator.kind == "VAR_HANDLE":
            key = graph.tensors[operator.outputs[0]].key
            made[key] = operator.options()["shared_name"] or key
    return made


def _assigned(model: TFLiteModel, graph: Subgraph) -> dict[str, Array]:
    """What a subgraph gives to variables, which are constants of it."""
    handles, made = _handles(graph), {}
    for operator in graph.operators:
        if operator.kind == "ASSIGN_VARIABLE":
            handle, value = (graph.tensors[place] for place in operator.inputs)
            if model.bytes_of(value) is None:
                raise OpNotImplemented("first values of variables that are computed")
            made[handles[handle.key]] = constant_of(model, value)
        elif operator.kind != "VAR_HANDLE":
            raise OpNotImplemented(f"{operator.called} before the first call")
    return made

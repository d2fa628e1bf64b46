"""Small models of TensorFlow Lite for tests, and what LiteRT computes of them."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from sterna.frontend.tflite.schema import read_model
from sterna.relay.arrays import Array
from sterna.relay.frontend import from_tflite
from sterna.relay.interpreter import interpret

TYPES = {
    name.lower(): code for name, code in vars(schema.TensorType).items() if name[0] != "_"
}

MICRO_ARENA = 1 << 22

# The first versions of operators that LiteRT knows, where they are not 1.
VERSIONS = {"BROADCAST_TO": 2}


@dataclass
class T:
    """A tensor: its shape, type, elements if it is a constant, scales, zero points and their axis.
    """

    shape: Sequence[int]
    dtype: str = "float32"
    data: Any = None
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    is_variable: bool = False
    sparsity: Any = None
    blocks: tuple[int, int] | None = None
    """The tensor that holds scales of blocks, and their length."""


@dataclass
class Op:
    """An operator over tensors that are known by their places; options: its table, if it has one.
    """

    kind: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: tuple[str, Mapping[str, Any]] | None = None
    custom_options: bytes = b""
    intermediates: Sequence[int] = ()


@dataclass
class Graph:
    """A graph; constants are neither inputs nor outputs."""

    tensors: Sequence[T]
    operators: Sequence[Op]
    inputs: Sequence[int]
    outputs: Sequence[int]
    name: str = "main"
    signature: tuple[str, Mapping[str, int], Mapping[str, int]] | None = None
    names: Mapping[int, str] = field(default_factory=dict)


def constant(array: Any, **more: Any) -> T:
    """A constant tensor."""
    made = np.asarray(array)
    return T(made.shape, str(made.dtype), made, **more)


def model(*graphs: Graph) -> bytes:
    """The file of a model."""
    made = schema.ModelT()
    made.version = 3
    made.buffers = [schema.BufferT()]
    made.operatorCodes, made.subgraphs, made.signatureDefs = [], [], []
    for place, graph in enumerate(graphs):
        made.subgraphs.append(_subgraph(made, graph))
        if graph.signature is not None:
            made.signatureDefs.append(_signature(graph.signature, place))
    builder = flatbuffers.Builder(1024)
    builder.Finish(made.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _subgraph(made: Any, graph: Graph) -> Any:
    sub = schema.SubGraphT()
    sub.name = graph.name
    sub.tensors = [
        _tensor(made, one, graph.names.get(place, f"t{place}"))
        for place, one in enumerate(graph.tensors)
    ]
    sub.inputs, sub.outputs = list(graph.inputs), list(graph.outputs)
    sub.operators = [_operator(made, one) for one in graph.operators]
    return sub


def _tensor(made: Any, tensor: T, name: str) -> Any:
    one = schema.TensorT()
    one.name, one.shape, one.type = name, list(tensor.shape), TYPES[tensor.dtype]
    one.isVariable, one.sparsity = tensor.is_variable, tensor.sparsity
    if tensor.data is not None:
        buffer = schema.BufferT()
        raw = tensor.data if isinstance(tensor.data, bytes) else np.asarray(tensor.data).tobytes()
        buffer.data = np.frombuffer(raw, np.uint8)
        made.buffers.append(buffer)
        one.buffer = len(made.buffers) - 1
    if tensor.blocks is not None:
        one.quantization = schema.QuantizationParametersT()
        one.quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
        details = schema.BlockwiseQuantizationT()
        details.scales, details.blockSize = tensor.blocks
        details.zeroPoints = -1
        one.quantization.details = details
    if tensor.scale is not None:
        quantization = schema.QuantizationParametersT()
        scales = np.atleast_1d(np.asarray(tensor.scale, np.float32))
        quantization.scale = scales
        quantization.zeroPoint = np.broadcast_to(np.asarray(tensor.zero, np.int64), scales.shape)
        quantization.quantizedDimension = tensor.axis
        one.quantization = quantization
    return one


def _operator(made: Any, op: Op) -> Any:
    code = schema.OperatorCodeT()
    number = getattr(schema.BuiltinOperator, op.kind, None)
    code.builtinCode = schema.BuiltinOperator.CUSTOM if number is None else number
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    code.version = VERSIONS.get(op.kind, 1)
    if number is None:
        code.customCode = op.kind
    made.operatorCodes.append(code)
    one = schema.OperatorT()
    one.opcodeIndex = len(made.operatorCodes) - 1
    one.inputs, one.outputs = list(op.inputs), list(op.outputs)
    if op.intermediates:
        one.intermediates = list(op.intermediates)
    if op.options is not None:
        name, given = op.options
        number = getattr(schema.BuiltinOptions, name, None)
        table = getattr(schema, f"{name}T")()
        for key, value in given.items():
            assert hasattr(table, key), f"{name} has no {key}"
            setattr(table, key, value)
        if number is None:  # of later operators, which have a union of their own
            one.builtinOptions2Type = getattr(schema.BuiltinOptions2, name)
            one.builtinOptions2 = table
        else:
            one.builtinOptionsType, one.builtinOptions = number, table
    if op.custom_options:
        one.customOptions = np.frombuffer(op.custom_options, np.uint8)
    return one


def _signature(given: tuple[str, Mapping[str, int], Mapping[str, int]], place: int) -> Any:
    key, inputs, outputs = given
    made = schema.SignatureDefT()
    made.signatureKey, made.subgraphIndex = key, place
    made.inputs, made.outputs = [], []
    for named, into in ((inputs, made.inputs), (outputs, made.outputs)):
        for name, tensor in named.items():
            one = schema.TensorMapT()
            one.name, one.tensorIndex = name, tensor
            into.append(one)
    return made


def one_operator(
    kind: str, operands: Sequence[T | None], results: Sequence[T],
    options: tuple[str, Mapping[str, Any]] | None = None, **more: Any,
) -> bytes:
    """A model of a single operator; operands that are no constants are its inputs."""
    tensors = [operand for operand in operands if operand is not None]
    places = iter(range(len(tensors)))
    reads = [-1 if operand is None else next(places) for operand in operands]
    writes = list(range(len(tensors), len(tensors) + len(results)))
    free = [i for i, one in enumerate(tensors) if one.data is None and not one.is_variable]
    op = Op(kind, reads, writes, options, **more)
    return model(Graph([*tensors, *results], [op], free, writes))


def run_litert(data: bytes, *inputs: Array, reference: bool = False) -> list[Array]:
    """What LiteRT computes: by default, or by its reference kernels."""
    kind = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]


def run_imported(data: bytes, *inputs: Array, **options: Any) -> list[Array]:
    """What the graph of a model computes."""
    module, params = from_tflite(data, **options)
    main = module["main"]
    assert len(main.params) == len(inputs) + len(params)
    given = [*inputs, *(params[var.name_hint].numpy() for var in main.params[len(inputs) :])]
    made = interpret(main, *given)
    return [np.asarray(one) for one in made] if isinstance(made, tuple | list) else [
        np.asarray(made)
    ]


def run_micro(data: bytes, *inputs: Array) -> list[Array] | None:
    """What TFLite Micro computes, which is there for x86-64 alone; None if it refuses a model."""
    runtime = importlib.import_module("tflite_micro").runtime
    try:
        interpreter = runtime.Interpreter.from_bytes(data, [], MICRO_ARENA)
        for place, array in enumerate(inputs):
            interpreter.set_input(array, place)
        interpreter.invoke()
    except RuntimeError:
        return None
    count = len(read_model(data).subgraphs[0].outputs)
    return [interpreter.get_output(place) for place in range(count)]

"""A float model made ready: a version of the operators with QuantizeLinear, constants folded,
factors and sums for each channel folded into the layers before them."""

import os

import numpy as np
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    external_data_helper,
    helper,
    version_converter,
)
from onnx.reference import ReferenceEvaluator

from sterna.frontend.onnx.model import Source, inner_graphs, load_model
from sterna.quantization.onnx_graph import OnnxGraph, attribute
from sterna.relay.arrays import Array

# The first version in which QuantizeLinear takes a scale for each channel.
OPSET = 13
# Results of folded nodes that are larger than this stay computed.
MOST_FOLDED_BYTES = 1 << 26
UNCHANGING = ("Identity", "Dropout")
QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger",
             "MatMulInteger")


def prepare(model: Source) -> OnnxGraph:
    """The graph of a float model, ready to be quantised."""
    loaded = load_model(model)
    proto = ModelProto()
    proto.CopyFrom(loaded.proto)
    if loaded.folder is not None:
        external_data_helper.load_external_data_for_model(proto, os.path.abspath(loaded.folder))
    _expect_floats(proto)
    graph = OnnxGraph(_of_known_version(proto))
    _fold_constants(graph)
    _skip_unchanging(graph)
    _fold_affine(graph)
    _fold_gemm_factors(graph)
    return graph


def _expect_floats(model: ModelProto) -> None:
    done = sorted({node.op_type for node in model.graph.node if node.op_type in QUANTIZED})
    if done:
        raise ValueError(
            f"the model is quantised already, it has {', '.join(done)}; quantise the float model "
            "that it was made from"
        )
    halves = [t.name for t in model.graph.initializer
              if t.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)]
    if halves:
        kinds = sorted({TensorProto.DataType.Name(t.data_type).lower()
                        for t in model.graph.initializer if t.name in halves})
        raise ValueError(
            f"weight '{halves[0]}' and {len(halves) - 1} others are {', '.join(kinds)}; "
            "quantisation takes models of float32: export the model as such"
        )


def _of_known_version(model: ModelProto) -> ModelProto:
    """The same with operators of at least the version that quantisation needs."""
    version = max((entry.version for entry in model.opset_import
                   if entry.domain in ("", "ai.onnx")), default=1)
    if version >= OPSET:
        return model
    try:
        made = version_converter.convert_version(model, OPSET)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"the model uses version {version} of ONNX's operators, QuantizeLinear for channels "
            f"needs {OPSET}, and it cannot be brought there: {reason}; export it anew with "
            f"opset_version={OPSET} or later"
        ) from None
    made.ir_version = max(made.ir_version, 7)
    return load_model(made).proto


def _fold_constants(graph: OnnxGraph) -> None:
    """Compute what depends on constants alone."""
    kept = []
    for node in graph.nodes:
        value = None if inner_graphs(node) else _folded(graph, node)
        if value is None:
            kept.append(node)
        else:
            graph.constants[node.output[0]] = value
    graph.nodes = kept


def _folded(graph: OnnxGraph, node: NodeProto) -> Array | None:
    """The value of a node with one result and constant operands."""
    if node.domain not in ("", "ai.onnx"):
        return None
    if len(node.output) != 1 or node.output[0] in graph.outputs:
        return None
    if node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial"):
        return None
    if not all(name in graph.constants for name in node.input if name):
        return None
    feeds = {name: graph.constants[name] for name in node.input if name}
    inner = helper.make_graph(
        [node], "constant", [ValueInfoProto(name=name) for name in feeds],
        [ValueInfoProto(name=node.output[0])],
    )
    whole = helper.make_model(inner, opset_imports=graph.model.opset_import)
    try:
        (made,) = ReferenceEvaluator(whole).run(None, feeds)
    except (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError):
        return None  # what onnx itself cannot compute stays a node
    value = np.asarray(made)
    return value if value.nbytes <= MOST_FOLDED_BYTES else None


def _skip_unchanging(graph: OnnxGraph) -> None:
    """Let readers of what passes a tensor on read that tensor."""
    readers, gone = graph.readers(), []
    for node in graph.nodes:
        out = node.output[0] if node.output else ""
        plain = not any(name in readers or name in graph.outputs for name in node.output[1:])
        if node.op_type not in UNCHANGING or out in graph.outputs or not plain:
            continue
        if any(inner_graphs(reader) for reader in readers.get(out, [])):
            continue
        graph.rename_reads(readers.get(out, []), out, node.input[0])
        readers.setdefault(node.input[0], []).extend(readers.get(out, []))
        gone.append(node)
    graph.drop(gone)


# ---- factors and sums for each channel ----


def _fold_affine(graph: OnnxGraph) -> None:
    """BatchNormalization, and Mul and Add by constants for each channel, into Conv before them."""
    readers, makers = graph.readers(), graph.makers()
    gone = []
    for node in graph.nodes:
        data = _data_of(graph, node)
        layer = makers.get(data) if data else None
        if layer is None or layer.op_type != "Conv" or data in graph.outputs:
            continue
        if len(readers[data]) > 1 or layer.input[1] not in graph.constants:
            continue
        weight = graph.constants[layer.input[1]]
        bias = _bias_of(graph, layer, weight.shape[0])
        change = None if bias is None else _scale_and_shift(graph, node, data, weight)
        if change is None or bias is None:
            continue
        scale, shift = change
        wide = scale.reshape(-1, *(1,) * (weight.ndim - 1))
        own = graph.add_constant(layer.input[1], (weight * wide).astype(np.float32))
        total = (bias.astype(np.float64) * scale + shift).astype(np.float32)
        inputs = [layer.input[0], own, graph.add_constant(f"{layer.name}_bias", total)]
        del layer.input[:]
        layer.input.extend(inputs)
        layer.output[0] = node.output[0]
        makers[node.output[0]] = layer
        gone.append(node)
    graph.drop(gone)


def _data_of(graph: OnnxGraph, node: NodeProto) -> str:
    """The operand of a node that is no constant, if it may be folded into a layer."""
    if node.op_type == "BatchNormalization" and len([name for name in node.output if name]) == 1:
        return str(node.input[0])
    if node.op_type in ("Add", "Mul", "Sub", "Div") and len(node.input) == 2:
        if node.input[1] in graph.constants:
            return str(node.input[0])
        if node.op_type in ("Add", "Mul") and node.input[0] in graph.constants:
            return str(node.input[1])
    return ""


def _bias_of(graph: OnnxGraph, layer: NodeProto, units: int) -> Array | None:
    if len(layer.input) < 3 or not layer.input[2]:
        return np.zeros(units, np.float32)
    return graph.constants.get(layer.input[2])


def _scale_and_shift(
    graph: OnnxGraph, node: NodeProto, data: str, weight: Array
) -> tuple[Array, Array] | None:
    """What each channel is multiplied by, and what is then added to it."""
    units = weight.shape[0]
    if node.op_type == "BatchNormalization":
        if not all(name in graph.constants for name in node.input[1:5]):
            return None
        scale, shift, mean, variance = (
            graph.constants[name].astype(np.float64) for name in node.input[1:5])
        epsilon = attribute(node, "epsilon", 1e-5)
        factor = scale / np.sqrt(variance + float(epsilon))  # type: ignore[arg-type]
        return factor, shift - mean * factor
    other = next(name for name in node.input if name != data)
    value = _by_channel(graph.constants[other], units, weight.ndim)
    if value is None:
        return None
    ones, zeros = np.ones(units), np.zeros(units)
    match node.op_type:
        case "Add":
            return ones, value
        case "Sub":
            return ones, -value
        case "Mul":
            return value, zeros
    return (1 / value, zeros) if np.all(value != 0) else None


def _by_channel(value: Array, units: int, rank: int) -> Array | None:
    """A constant as one number for each channel of (N, C, ...), if it is that."""
    if value.dtype != np.float32 or value.ndim > rank:
        return None
    shape = (1,) * (rank - value.ndim) + value.shape
    if any(extent != 1 for axis, extent in enumerate(shape) if axis != 1):
        return None
    if shape[1] not in (1, units):
        return None
    return np.broadcast_to(value.reshape(-1), (units,)).astype(np.float64)


def _fold_gemm_factors(graph: OnnxGraph) -> None:
    """The factors alpha and beta of Gemm into its constants."""
    for node in graph.nodes:
        if node.op_type != "Gemm" or node.input[1] not in graph.constants:
            continue
        has_bias = len(node.input) > 2 and bool(node.input[2])
        if has_bias and node.input[2] not in graph.constants:
            continue
        for place, name in ((1, "alpha"), (2, "beta")):
            factor = float(attribute(node, name, 1.0))  # type: ignore[arg-type]
            if factor != 1 and place < len(node.input):
                value = graph.constants[node.input[place]] * np.float32(factor)
                node.input[place] = graph.add_constant(node.input[place], value)
        kept = [entry for entry in node.attribute if entry.name not in ("alpha", "beta")]
        del node.attribute[:]
        node.attribute.extend(kept)

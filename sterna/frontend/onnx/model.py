"""A model as it is read: its nodes with a name each and in the order of their results."""

import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from sterna.frontend.files import HEAD_BYTES, read_whole
from sterna.frontend.formats import sniffed
from sterna.frontend.limits import DEEPEST
from sterna.frontend.names import Names
from sterna.frontend.onnx.format import FORMAT

# What protocol buffers can read; larger models keep their weights in files beside.
MOST_FILE_BYTES = (1 << 31) - 1
BESIDE = "a larger ONNX model keeps its weights in files beside it (onnx.save_model(..., " \
    "save_as_external_data=True))"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that was read, with names for all nodes, and the folder in which its file lies."""

    proto: ModelProto
    folder: str | None = None


Source = LoadedModel | ModelProto | str | os.PathLike[str] | bytes


def load_model(model: Source) -> LoadedModel:
    """A model of the caller's own, from another one, a file or its bytes."""
    if isinstance(model, LoadedModel):
        return model
    folder = None
    if isinstance(model, ModelProto):
        if not model.HasField("graph"):
            raise ValueError("this is no ONNX model: there is no graph in it")
        _expect_shallow(model)
        proto = ModelProto()
        proto.CopyFrom(model)
    elif isinstance(model, bytes | bytearray | memoryview):
        proto = _parse(bytes(model), "these bytes are")
    elif isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        folder = os.path.dirname(path) or "."
        proto = _parse(read_whole(path, MOST_FILE_BYTES, BESIDE), f"{path} is")
    else:
        raise TypeError(
            f"from_onnx takes a model, the path of one or its bytes, not {type(model).__name__}"
        )
    _expect_text(proto)
    _name_nodes(proto)
    return LoadedModel(proto, folder)


def lies_in_one_file(path: str | os.PathLike[str]) -> bool:
    """Whether none of the model in a file has its numbers in other files."""
    model = _parse(read_whole(path, MOST_FILE_BYTES, BESIDE), f"{os.fspath(path)} is")
    held = [
        tensor
        for graph in (model.graph, *model.functions)
        for node in all_nodes(graph)
        for attribute in node.attribute
        for tensor in (attribute.t, *attribute.tensors)
    ]
    return not any(
        tensor.data_location == TensorProto.EXTERNAL
        for tensor in (*_initializers(model.graph), *held)
    )


def _initializers(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from _initializers(inner)


def _parse(data: bytes, what: str) -> ModelProto:
    loaded = ModelProto()
    try:
        loaded.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"{what} no ONNX model: {_other(data) or error}") from None
    if not loaded.HasField("graph"):
        raise ValueError(
            f"{what} no ONNX model: {_other(data) or 'there is no graph in it'}"
        )
    return loaded


def _other(data: bytes) -> str:
    """What bytes are that are no ONNX model, if some other format knows them."""
    found = sniffed(data[:HEAD_BYTES])
    return "" if found is None or found is FORMAT else f"it is {found.called}"


def _expect_text(model: ModelProto) -> None:
    """Names are text; protobuf gives those that are not as bytes."""
    names: list[str] = [entry.domain for entry in model.opset_import]
    graphs: list[GraphProto | FunctionProto] = [model.graph, *model.functions]
    for function in model.functions:
        names += [function.name, function.domain, function.overload, *function.input]
        names += [*function.output, *function.attribute]
        names += [entry.name for entry in function.attribute_proto]
        names += [entry.domain for entry in function.opset_import]
    while graphs:
        graph = graphs.pop()
        if isinstance(graph, GraphProto):
            names += [tensor.name for tensor in graph.initializer]
            names += [sparse.values.name for sparse in graph.sparse_initializer]
            for entry in (*graph.input, *graph.output):
                names.append(entry.name)
                names += [dim.dim_param for dim in entry.type.tensor_type.shape.dim]
        for node in graph.node:
            names += [node.name, node.op_type, node.domain, node.overload]
            names += [*node.input, *node.output]
            for attribute in node.attribute:
                names += [attribute.name, attribute.ref_attr_name]
            graphs += inner_graphs(node)
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"the ONNX model has the name {name!r}, which is no text")


def _expect_shallow(model: ModelProto) -> None:
    """Graphs lie in each other only so deep that they can be walked."""
    stack: list[tuple[GraphProto | FunctionProto, int]] = [(model.graph, 0)]
    stack += [(function, 0) for function in model.functions]
    while stack:
        graph, depth = stack.pop()
        for node in graph.node:
            for inner in inner_graphs(node):
                if depth >= DEEPEST:
                    raise ValueError(
                        f"node '{node.name}' ({node.op_type}) lies {depth} graphs deep, more than "
                        f"{DEEPEST}"
                    )
                stack.append((inner, depth + 1))


def inner_graphs(node: NodeProto) -> list[GraphProto]:
    """The graphs that a node holds in its attributes."""
    found: list[GraphProto] = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            found.append(attribute.g)
        found.extend(attribute.graphs)
    return found


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """The nodes of a graph and of the graphs in them."""
    for node in graph.node:
        yield node
        for inner in inner_graphs(node):
            yield from all_nodes(inner)


def _name_nodes(model: ModelProto) -> None:
    """A name for every node: its own or that of its first result, numbered if it is taken."""
    names = Names()
    for node in all_nodes(model.graph):
        own = node.name or next((name for name in node.output if name), node.op_type)
        name = names.unique(own)
        if node.name != name:
            node.name = name


# What nodes with graphs in them read, by the nodes' identity; each is held with its names.
KnownReads = dict[int, tuple[NodeProto, list[str]]]


def reads(node: NodeProto, known: KnownReads | None = None) -> list[str]:
    """The names that a node reads, or a graph in it from around itself.

    known: answers for nodes that have graphs, so that graphs in graphs are walked once.
    """
    names = [name for name in node.input if name]
    graphs = inner_graphs(node)
    if not graphs:
        return names
    if known is not None and id(node) in known:
        return known[id(node)][1]
    for graph in graphs:
        used = [name for inner in graph.node for name in reads(inner, known)]
        used += [output.name for output in graph.output]
        own = {name for inner in graph.node for name in inner.output}
        own.update(tensor.name for tensor in graph.initializer)
        own.update(sparse.values.name for sparse in graph.sparse_initializer)
        own.update(entry.name for entry in graph.input)
        names += [name for name in used if name not in own]
    names = list(dict.fromkeys(names))
    if known is not None:
        known[id(node)] = (node, names)
    return names


def sorted_nodes(
    nodes: Sequence[NodeProto], known: Container[str], known_reads: KnownReads | None = None
) -> list[NodeProto]:
    """Every node behind those whose results it reads; known is what there is before the first."""
    makers = _makers(nodes)
    order: list[NodeProto] = []
    done, opened = [False] * len(nodes), [False] * len(nodes)
    for first in range(len(nodes)):
        stack = [(first, False)]
        while stack:
            place, is_behind = stack.pop()
            node = nodes[place]
            if done[place]:
                continue
            if is_behind:
                done[place] = True
                order.append(node)
                continue
            if opened[place]:
                raise ValueError(f"node '{node.name}' ({node.op_type}) depends on itself")
            opened[place] = True
            stack.append((place, True))
            for name in reads(node, known_reads):
                maker = makers.get(name)
                if maker is not None and not done[maker]:
                    stack.append((maker, False))
                elif maker is None and name not in known and name in node.input:
                    raise ValueError(
                        f"node '{node.name}' ({node.op_type}) reads '{name}', which is no input, "
                        "no weight and no result of a node"
                    )
    return order


def _makers(nodes: Sequence[NodeProto]) -> dict[str, int]:
    """Which node makes each tensor."""
    makers: dict[str, int] = {}
    for place, node in enumerate(nodes):
        for name in node.output:
            if name in makers:
                raise ValueError(
                    f"tensor '{name}' is made by node '{nodes[makers[name]].name}' and by "
                    f"'{node.name}'"
                )
            if name:
                makers[name] = place
    return makers

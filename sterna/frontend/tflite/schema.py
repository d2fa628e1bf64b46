"""What stands in a TensorFlow Lite file: subgraphs, tensors, operators and signatures."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sterna.frontend.tflite.flatbuffer import Flatbuffer, Table
from sterna.frontend.tflite.operator_names import OPERATORS
from sterna.frontend.tflite.operator_options import read_options
from sterna.relay.arrays import Array

IDENTIFIER = b"TFL3"
NEWEST_SCHEMA = 3
ABSENT = -1

# Element types by their codes.
TYPES = (
    "float32", "float16", "int32", "uint8", "int64", "string", "bool", "int16", "complex64", "int8",
    "float64", "complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4",
    "bfloat16", "int2", "uint4", "float8_e4m3fn", "float8_e5m2",
)


@dataclass(frozen=True, slots=True)
class Blockwise:
    """Scales for blocks of elements: the tensors that hold them, and how long blocks are."""

    scales: int
    zeros: int
    size: int


@dataclass(frozen=True, slots=True)
class Quantization:
    """What whole numbers stand for: scale * (number - zero), one of each or one for a channel."""

    scale: Array
    zero: Array
    axis: int
    blocks: Blockwise | None = None

    @property
    def is_single(self) -> bool:
        """Whether one scale is that of the whole tensor."""
        return self.scale.size == 1


@dataclass(frozen=True, slots=True)
class SparseDim:
    """How one dimension of sparse weights is held."""

    dense_size: int
    segments: Array | None
    indices: Array | None


@dataclass(frozen=True, slots=True)
class Sparsity:
    """How sparse weights are held."""

    order: list[int]
    block_map: list[int]
    dims: list[SparseDim]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor as its subgraph declares it; key is a name that no other tensor there has."""

    key: str
    name: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    """The shape with -1 for what is open."""
    dtype: str
    buffer: int
    quantization: Quantization | None
    is_variable: bool
    sparsity: Sparsity | None


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """An operator and the places of its operands among the tensors."""

    place: int
    kind: str
    custom: str
    inputs: list[int]
    outputs: list[int]
    intermediates: list[int]
    table: Table
    custom_options: bytes

    @property
    def called(self) -> str:
        """The operator as messages name it."""
        return f"custom operator {self.custom}" if self.kind == "CUSTOM" else self.kind

    def options(self) -> dict[str, Any]:
        """The options by name, those of later operators from a union of their own."""
        union = 11 if self.kind.startswith("STABLEHLO_") else 3
        return read_options(
            self.kind, int(self.table.number(union, "B")), self.table.table(union + 1))


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A graph of operators over tensors."""

    name: str
    tensors: list[TensorInfo]
    inputs: list[int]
    outputs: list[int]
    operators: list[OperatorInfo]


@dataclass(frozen=True, slots=True)
class Signature:
    """A way to call a model: a subgraph whose inputs and outputs have names of their own."""

    key: str
    inputs: dict[str, int]
    outputs: dict[str, int]
    subgraph: int


@dataclass(frozen=True, slots=True)
class TFLiteModel:
    """A file."""

    data: memoryview
    subgraphs: list[Subgraph]
    signatures: list[Signature]
    _buffers: list[Table] = field(repr=False)

    def bytes_of(self, tensor: TensorInfo) -> memoryview | None:
        """The bytes of a constant tensor; None for one that is computed."""
        if tensor.buffer == 0:
            return None
        if not 0 < tensor.buffer < len(self._buffers):
            raise ValueError(
                f"tensor '{tensor.name}' is in buffer {tensor.buffer} of {len(self._buffers)}"
            )
        table = self._buffers[tensor.buffer]
        offset, size = int(table.number(1, "Q")), int(table.number(2, "Q"))
        if offset > 1:  # it lies behind the flatbuffer
            if offset + size > len(self.data):
                raise ValueError(
                    f"tensor '{tensor.name}' ends at byte {offset + size} of a file of "
                    f"{len(self.data)}"
                )
            return self.data[offset : offset + size]
        found = table.array(0, "uint8")
        return None if found is None or not found.size else found.data.cast("B")


def read_model(data: bytes | memoryview) -> TFLiteModel:
    """The model in the bytes of a file."""
    flatbuffer = Flatbuffer(data, IDENTIFIER)
    root = flatbuffer.root()
    version = root.number(0, "I")
    if version != NEWEST_SCHEMA:
        raise ValueError(
            f"the TensorFlow Lite model is of schema {version}; the one that is known is "
            f"{NEWEST_SCHEMA}"
        )
    codes = [_operator_code(code) for code in root.tables(1)]
    graphs = [_subgraph(graph, codes) for graph in root.tables(2)]
    if not graphs:
        raise ValueError("the TensorFlow Lite model has no subgraph")
    signatures = [_signature(one, graphs) for one in root.tables(7)]
    return TFLiteModel(flatbuffer.data, graphs, signatures, list(root.tables(4)))


def _operator_code(table: Table) -> tuple[str, str]:
    code = max(int(table.number(0, "b")), int(table.number(3, "i")))
    name = OPERATORS[code] if 0 <= code < len(OPERATORS) else f"operator {code}"
    return name, table.text(1)


def _ints(table: Table, slot: int) -> list[int]:
    found = table.array(slot, "int32")
    return [] if found is None else [int(number) for number in found]


def _subgraph(table: Table, codes: Sequence[tuple[str, str]]) -> Subgraph:
    inputs, outputs = _ints(table, 1), _ints(table, 2)
    raw = list(table.tables(0))
    names = [tensor.text(3) or f"tensor{place}" for place, tensor in enumerate(raw)]
    what = f"subgraph '{table.text(4) or 'main'}'"
    for place in (*inputs, *outputs):
        if not 0 <= place < len(raw):
            raise ValueError(f"{what} names tensor {place} of {len(raw)}")
    keys = _keys(names, [*inputs, *outputs])
    tensors = [_tensor(one, name, key) for one, name, key in zip(raw, names, keys, strict=True)]
    operators = [
        _operator(one, place, codes, len(tensors)) for place, one in enumerate(table.tables(3))
    ]
    return Subgraph(table.text(4), tensors, inputs, outputs, operators)


def _keys(names: Sequence[str], first: Sequence[int]) -> list[str]:
    """Names that are each there once; those of inputs and outputs stay what they are."""
    taken: dict[str, int] = {}
    keys = list(names)
    for place in (*dict.fromkeys(first), *range(len(names))):
        owner = taken.setdefault(keys[place], place)
        if owner != place:
            keys[place] = f"{names[place]}#{place}"
            taken[keys[place]] = place
    return keys


def _tensor(table: Table, name: str, key: str) -> TensorInfo:
    code = int(table.number(1, "b"))
    if not 0 <= code < len(TYPES):
        raise ValueError(f"tensor '{name}' has elements of type {code}, which is none")
    shape = tuple(_ints(table, 0))
    quantization = table.table(4)
    return TensorInfo(
        key, name, shape, tuple(_ints(table, 7)) or shape, TYPES[code],
        int(table.number(2, "I")),
        None if quantization is None else _quantization(quantization, name),
        bool(table.number(5, "?")), _sparsity(table.table(6)),
    )


def _quantization(table: Table, name: str) -> Quantization | None:
    blocks = table.table(5) if table.number(4, "B") == 2 else None
    scale = table.array(2, "float32")
    if blocks is not None:
        held = Blockwise(
            int(blocks.number(0, "i")), int(blocks.number(1, "i")), int(blocks.number(2, "i"))
        )
        return Quantization(np.ones(1, np.float32), np.zeros(1, np.int64),
                            int(table.number(6, "i")), held)
    if scale is None or not scale.size:
        return None
    zero = table.array(3, "int64")
    zero = np.zeros(1, np.int64) if zero is None or not zero.size else zero
    if zero.size == 1:
        zero = np.repeat(zero, scale.size)
    if zero.size != scale.size:
        raise ValueError(
            f"tensor '{name}' has {scale.size} scales and {zero.size} zero points"
        )
    if not np.all(np.isfinite(scale)) or np.any(scale < 0):
        raise ValueError(f"tensor '{name}' has a scale that is negative or no number")
    return Quantization(scale, zero, int(table.number(6, "i")))


def _sparsity(table: Table | None) -> Sparsity | None:
    if table is None:
        return None
    dims = [
        SparseDim(int(dim.number(1, "i")), _indices(dim, 2), _indices(dim, 4))
        if dim.number(0, "b") else SparseDim(int(dim.number(1, "i")), None, None)
        for dim in table.tables(2)
    ]
    return Sparsity(_ints(table, 0), _ints(table, 1), dims)


def _indices(table: Table, slot: int) -> Array:
    held = table.table(slot + 1)
    kind = {1: "int32", 2: "uint16", 3: "uint8"}.get(int(table.number(slot, "B")))
    found = None if held is None or kind is None else held.array(0, kind)
    if found is None:
        raise ValueError("a sparse dimension has no indices")
    return found.astype(np.int64)


def _operator(
    table: Table, place: int, codes: Sequence[tuple[str, str]], tensors: int
) -> OperatorInfo:
    index = int(table.number(0, "I"))
    if index >= len(codes):
        raise ValueError(f"operator {place} is of code {index} of {len(codes)}")
    kind, custom = codes[index]
    inputs, outputs, inner = _ints(table, 1), _ints(table, 2), _ints(table, 8)
    for number in (*inputs, *outputs, *inner):
        if not ABSENT <= number < tensors:
            raise ValueError(f"operator {place} ({kind}) names tensor {number} of {tensors}")
    given = table.array(5, "uint8")
    return OperatorInfo(place, kind, custom, inputs, outputs, inner, table,
                        b"" if given is None else given.tobytes())


def _signature(table: Table, graphs: Sequence[Subgraph]) -> Signature:
    key, index = table.text(2), int(table.number(4, "I"))
    if index >= len(graphs):
        raise ValueError(f"signature '{key}' is of subgraph {index} of {len(graphs)}")
    count = len(graphs[index].tensors)
    named: list[dict[str, int]] = []
    for slot in (0, 1):
        named.append({one.text(0): int(one.number(1, "I")) for one in table.tables(slot)})
        if any(place >= count for place in named[-1].values()):
            raise ValueError(f"signature '{key}' names a tensor that its subgraph does not have")
    return Signature(key, named[0], named[1], index)

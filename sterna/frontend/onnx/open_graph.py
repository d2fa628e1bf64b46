"""A graph that is being converted, and what an ONNX model says of inputs that only runs know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx import TensorProto, ValueInfoProto

from sterna.frontend.onnx.declared_inputs import declared_inputs, input_dtype
from sterna.frontend.open_inputs import OpenInput
from sterna.relay.expr import RelayExpr


@dataclass(slots=True)
class OpenGraph:
    """How far the conversion of a graph is, and what its nodes read."""

    values: Mapping[str, RelayExpr]
    reads: Sequence[Sequence[str]]
    """By node; behind the last one the outputs."""
    at: int = 0
    last: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.last = {name: place for place, names in enumerate(self.reads) for name in names}

    def live(self) -> list[RelayExpr]:
        """The values that this node or later ones read."""
        names = [name for name, place in self.last.items() if place >= self.at]
        return [self.values[name] for name in names if name in self.values]


def tensor_entry(entry: ValueInfoProto) -> ValueInfoProto:
    """An input as it is if it is there."""
    while entry.type.HasField("optional_type"):
        entry = ValueInfoProto(name=entry.name, type=entry.type.optional_type.elem_type)
    return entry


def open_input(entry: ValueInfoProto) -> OpenInput:
    """What a model says of an input."""
    own = tensor_entry(entry)
    is_optional = own is not entry
    if own.type.HasField("sequence_type"):
        return OpenInput(entry.name, None, None, is_sequence=True, is_optional=is_optional)
    shape = declared_inputs([own])[entry.name]
    if own.type.tensor_type.elem_type == TensorProto.STRING:
        return OpenInput(entry.name, shape, None, is_optional=is_optional)
    dtype = input_dtype(own, f"input '{entry.name}'")
    return OpenInput(entry.name, shape, dtype, is_optional=is_optional)

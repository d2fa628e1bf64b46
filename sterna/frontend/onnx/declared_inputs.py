"""What an ONNX model says about its inputs."""

from collections.abc import Iterable

from onnx import ValueInfoProto

from sterna.frontend.onnx.tensors import element_type
from sterna.frontend.open_shapes import OPEN, NamedDim
from sterna.support.errors import OpNotImplemented


def declared_inputs(inputs: Iterable[ValueInfoProto]) -> dict[str, list[NamedDim] | None]:
    """The dimensions of each input; of one without a shape, or that is no tensor, None."""
    return {entry.name: _shape(entry) for entry in inputs}


def _shape(entry: ValueInfoProto) -> list[NamedDim] | None:
    """Extents; 0 and -1 are how some exporters write one that is open."""
    tensor = entry.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.dim_value not in (0, -1) else dim.dim_param or OPEN
        for dim in tensor.shape.dim
    ]


def input_dtype(entry: ValueInfoProto, what: str) -> str:
    """The element type of an input, which must be a tensor."""
    if not entry.type.HasField("tensor_type"):
        kind = entry.type.WhichOneof("value")
        if kind is None:
            raise ValueError(f"{what} has no type")
        raise OpNotImplemented(f"{what} is a {kind.removesuffix('_type')}, no tensor")
    return element_type(entry.type.tensor_type.elem_type, what)

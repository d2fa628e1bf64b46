"""What an ONNX model says about its inputs."""

from onnx import ModelProto


def declared_inputs(model: ModelProto) -> dict[str, list[int | str] | None]:
    """The dimensions of each input that is no weight: a size, or a name or ? where it is open.

    An input without a shape has None.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, list[int | str] | None] = {}
    for entry in model.graph.input:
        if entry.name in weights or not entry.type.HasField("tensor_type"):
            continue
        tensor = entry.type.tensor_type
        dims: list[int | str] = [
            dim.dim_value if dim.dim_value > 0 else dim.dim_param or "?"
            for dim in tensor.shape.dim
        ]
        found[entry.name] = dims if tensor.HasField("shape") else None
    return found

"""A .pt2 file as torch.export.save writes it, made without PyTorch."""

import io
import json
import zipfile
from typing import Any

import numpy as np

FLOAT = 7


def _meta(sizes: list[int]) -> dict[str, Any]:
    steps = [int(np.prod(sizes[at + 1 :])) for at in range(len(sizes))]
    return {
        "dtype": FLOAT, "sizes": [{"as_int": size} for size in sizes], "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": step} for step in steps], "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def _node(target: str, result: str, **arguments: Any) -> dict[str, Any]:
    return {
        "target": f"torch.ops.aten.{target}",
        "inputs": [{"name": name, "arg": value, "kind": 1} for name, value in arguments.items()],
        "outputs": [{"as_tensor": {"name": result}}],
        "metadata": {"stack_trace": 'File "net.py", line 7, in forward\n    return x'},
        "name": result,
    }


def tensor(name: str) -> dict[str, Any]:
    """An argument that is a tensor."""
    return {"as_tensor": {"name": name}}


def program() -> dict[str, Any]:
    """linear, a change in place of a part, and a reduction."""
    nodes = [
        _node("linear.default", "made", input=tensor("x"), weight=tensor("w")),
        _node("select.int", "part", self=tensor("made"), dim={"as_int": 0}, index={"as_int": 1}),
        _node("fill_.Scalar", "filled", self=tensor("part"), value={"as_float": 2.5}),
        _node("cat.default", "both", tensors={"as_tensors": [{"name": "made"}, {"name": "made"}]},
              dim={"as_int": 1}),
        _node("sum.dim_IntList", "y", self=tensor("both"), dim={"as_ints": [0]},
              keepdim={"as_bool": True}),
    ]
    specs = [
        {"parameter": {"arg": {"name": "w"}, "parameter_name": "layer.weight"}},
        {"user_input": {"arg": tensor("x")}},
    ]
    graph = {
        "inputs": [tensor("w"), tensor("x")], "outputs": [tensor("y")], "nodes": nodes,
        "tensor_values": {"w": _meta([3, 4]), "x": _meta([2, 4])},
    }
    signature = {"input_specs": specs, "output_specs": [{"user_output": {"arg": tensor("y")}}]}
    return {
        "graph_module": {"graph": graph, "signature": signature},
        "schema_version": {"major": 8, "minor": 20}, "range_constraints": {},
    }


def weights_config() -> dict[str, Any]:
    """Where the weights lie."""
    about = {
        "path_name": "weight_0", "is_param": True, "use_pickle": False,
        "tensor_meta": _meta([3, 4]),
    }
    return {"config": {"layer.weight": about}}


def archive(model: Any, config: Any, weight: bytes | None = None) -> bytes:
    """The bytes of a file that holds these."""
    made = io.BytesIO()
    data = np.arange(12, dtype="<f4").tobytes() if weight is None else weight
    entries = {
        "data/weights/weight_0": data,
        "data/weights/model_weights_config.json": json.dumps(config).encode(),
        "models/model.json": json.dumps(model).encode(),
        "archive_format": b"pt2", "byteorder": b"little",
    }
    with zipfile.ZipFile(made, "w") as file:
        for name, content in entries.items():
            file.writestr(zipfile.ZipInfo(f"net/{name}"), content)
    return made.getvalue()

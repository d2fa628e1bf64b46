"""Small networks as ONNX models, and what they compute by NumPy."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]

WEIGHT = np.linspace(-1, 1, 4 * 6, dtype="float32").reshape(6, 4)
BIAS = np.linspace(0, 1, 4, dtype="float32")


def made(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    weights: dict[str, Array] | None = None,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model of these nodes."""
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def dense(rows: Any = 2) -> onnx.ModelProto:
    """scores = relu(image @ WEIGHT + BIAS)"""
    return made(
        [
            helper.make_node("Gemm", ["image", "weight", "bias"], ["sum"], name="dense"),
            helper.make_node("Relu", ["sum"], ["scores"], name="activation"),
        ],
        {"image": [rows, 6]},
        {"scores": [rows, 4]},
        {"weight": WEIGHT, "bias": BIAS},
    )


def dense_by_numpy(image: Array) -> Array:
    """What dense computes."""
    result: Array = np.maximum(image @ WEIGHT + BIAS, 0)
    return result


def two_inputs() -> onnx.ModelProto:
    """sum = left + right, difference = left - right"""
    return made(
        [
            helper.make_node("Add", ["left", "right"], ["sum"], name="add"),
            helper.make_node("Sub", ["left", "right"], ["difference"], name="sub"),
        ],
        {"left": [2, 3], "right": [2, 3]},
        {"sum": [2, 3], "difference": [2, 3]},
    )


def unsupported() -> onnx.ModelProto:
    """A model with an operator that nobody knows."""
    node = helper.make_node("Flutter", ["x"], ["y"], name="wing", domain="birds")
    model = made([node], {"x": [2]}, {"y": [2]})
    model.opset_import.append(helper.make_opsetid("birds", 1))
    return model


def by_rate() -> onnx.ModelProto:
    """Frames of 8 numbers, or of 4 at half the rate, each with a product of its own."""
    def branch(size: int) -> onnx.GraphProto:
        weight = np.full((size, 2), size, "float32")
        result = helper.make_tensor_value_info(f"y{size}", TensorProto.FLOAT, [1, 2])
        return helper.make_graph(
            [helper.make_node("MatMul", ["frame", f"w{size}"], [f"y{size}"], name=f"dense{size}")],
            f"of_{size}", [], [result], [numpy_helper.from_array(weight, f"w{size}")],
        )

    whole = helper.make_tensor("whole", TensorProto.INT64, [], [16000])
    graph = helper.make_graph(
        [helper.make_node("Equal", ["rate", "whole"], ["is_whole"], name="compare"),
         helper.make_node("If", ["is_whole"], ["y"], name="by_rate", then_branch=branch(8),
                          else_branch=branch(4))],
        "network",
        [helper.make_tensor_value_info("frame", TensorProto.FLOAT, [1, "n"]),
         helper.make_tensor_value_info("rate", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])], [whole],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

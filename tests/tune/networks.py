"""Small networks to tune."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Large enough that every processor takes it with its channels last.
LAYER = "1x20x20x32 * 64x3x3x32 -> 1x20x20x64 float32"
INPUT = (1, 32, 20, 20)


def two_convolutions(folder: Path) -> Path:
    """A convolution and a pointwise one, as a file."""
    rng = np.random.default_rng(0)
    weights = {"w": (64, 32, 3, 3), "v": (48, 64, 1, 1)}
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4),
         helper.make_node("Relu", ["y"], ["r"]), helper.make_node("Conv", ["r", "v"], ["z"])],
        "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, INPUT)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(rng.standard_normal(s).astype("float32") / 8, n)
         for n, s in weights.items()],
    )
    path = folder / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path

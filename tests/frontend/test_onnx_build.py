"""Imported models, compiled and run."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from tests.frontend.support import compare, model_of, run_reference

RNG = np.random.default_rng(7)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def convolutional() -> Any:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["p", "", "scales"], ["u"], mode="nearest"),
        helper.make_node("Concat", ["u", "r"], ["j"], axis=1),
        helper.make_node("GlobalAveragePool", ["j"], ["a"]),
        helper.make_node("Flatten", ["a"], ["f"]),
        helper.make_node("Gemm", ["f", "fc"], ["y"], transB=1),
    ]
    weights = {
        "w": floats(6, 3, 3, 3), "g": floats(6), "b": floats(6), "m": floats(6),
        "v": np.abs(floats(6)) + 1, "scales": np.array([1, 1, 2, 2], "float32"),
        "fc": floats(5, 12),
    }
    return nodes, {"x": floats(1, 3, 8, 8)}, weights


def attention() -> Any:
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"]),
        helper.make_node("Reshape", ["q", "split"], ["qs"]),
        helper.make_node("Transpose", ["qs"], ["qh"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["qs"], ["kh"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["qh", "kh"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "qh"], ["h"]),
        helper.make_node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "join"], ["o"]),
        helper.make_node("LayerNormalization", ["o", "g", "b"], ["y"]),
    ]
    weights = {
        "wq": floats(8, 8) / 3, "split": np.array([0, 0, 2, 4]), "join": np.array([0, 0, -1]),
        "g": floats(8), "b": floats(8),
    }
    return nodes, {"x": floats(1, 5, 8)}, weights


@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize("network", [convolutional, attention])
def test_a_network_runs(network: Any, freeze: bool) -> None:
    nodes, feeds, weights = network()
    model = model_of(nodes, feeds, weights, ["y"], 17)
    mod, params = relay.frontend.from_onnx(model, freeze_params=freeze)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm -mcpu=native", params=params)
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(**feeds)
    compare([m.get_output(0).numpy()], run_reference(model, feeds), 1e-4)

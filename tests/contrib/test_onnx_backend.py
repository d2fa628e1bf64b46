"""The backend behind ONNX's interface."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from sterna.contrib import onnx_backend


def model(shape: tuple[int | str, ...]) -> ModelProto:
    """y = reshape(x, s) + w."""
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["r"]),
        helper.make_node("Add", ["r", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("s", TensorProto.INT64, (2,)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("a", "b"))],
        [helper.make_tensor("w", TensorProto.FLOAT, (1,), [1.0])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_model_runs_for_the_shapes_that_its_inputs_have_and_name() -> None:
    prepared: Any = onnx_backend.prepare(model(("n",)))
    for count, wanted in ((6, (2, 3)), (6, (3, 2)), (6, (2, 3)), (8, (2, -1))):
        x = np.arange(count, dtype="float32")
        found = prepared.run([x, np.array(wanted)])
        np.testing.assert_array_equal(found[0], x.reshape(wanted) + 1)
        np.testing.assert_array_equal(found["y"], found[0])
    assert prepared.model.compiled == 1
    by_name = prepared.run({"s": np.array([1, 6]), "x": np.zeros(6, "float32")})
    np.testing.assert_array_equal(by_name.y, np.ones((1, 6)))


def test_one_node_runs() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    x = np.array([-3, 5], "float32")
    (found,) = onnx_backend.run_node(node, [x, np.float32(2)], opset_version=13)
    np.testing.assert_array_equal(found, [-3, 2])


def test_sequences_of_one_and_beside_tensors() -> None:
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["one"]),
             helper.make_node("SequenceConstruct", ["x", "x"], ["two"]),
             helper.make_node("Neg", ["x"], ["y"])]
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, (2,))
    whole = helper.make_sequence_type_proto(kind)
    outputs = [helper.make_value_info("one", whole), helper.make_value_info("y", kind),
               helper.make_value_info("two", whole)]
    graph = helper.make_graph(nodes, "g", [helper.make_value_info("x", kind)], outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = np.array([1, 2], "float32")
    one, y, two = onnx_backend.prepare(made).run([x])
    np.testing.assert_array_equal(one, [x])
    np.testing.assert_array_equal(y, -x)
    np.testing.assert_array_equal(two, [x, x])


def test_only_processors_are_supported() -> None:
    assert onnx_backend.supports_device("CPU") and onnx_backend.supports_device("CPU:0")
    assert not onnx_backend.supports_device("CUDA") and not onnx_backend.supports_device("TPU")
    with pytest.raises(ValueError, match="on CPU, not on 'CUDA'"):
        onnx_backend.prepare(model((2,)), "CUDA")


def test_inputs_that_do_not_belong_to_the_model_are_named() -> None:
    prepared = onnx_backend.prepare(model((2,)))
    x, s = np.zeros(2, "float32"), np.array([1, 2])
    with pytest.raises(ValueError, match="has the inputs x, s; 1 were given"):
        prepared.run([x])
    with pytest.raises(ValueError, match="inputs s are missing"):
        prepared.run({"x": x})
    with pytest.raises(ValueError, match="no input 'z', but x, s"):
        prepared.run({"x": x, "s": s, "z": s})
    with pytest.raises(ValueError, match="input 's' is a list, not an array"):
        prepared.run({"x": x, "s": [1, 2]})
    with pytest.raises(ValueError, match="reads x; 2 inputs were given"):
        onnx_backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [x, x])


def test_sequences_come_out_as_lists() -> None:
    node = helper.make_node("SplitToSequence", ["x"], ["y"], axis=0, keepdims=0)
    x = np.arange(6, dtype="float32").reshape(3, 2)
    (found,) = onnx_backend.run_node(node, [x])
    assert isinstance(found, list)
    np.testing.assert_array_equal(np.stack(found), x)

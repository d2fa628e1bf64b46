"""If nodes whose branches differ in rank, and which extents decide: one program for all shapes."""

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import sterna
from sterna.model.open_model import OpenModel


def _squeezed(behind: list[NodeProto], rank: int) -> ModelProto:
    """x with its last axis squeezed if that is one element, and nodes that read z and make y."""
    squeeze = helper.make_graph(
        [helper.make_node("Squeeze", ["x", "last"], ["s"])], "then", [],
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, None)])
    keep = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["k"])], "else", [],
        [helper.make_tensor_value_info("k", TensorProto.FLOAT, None)])
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["extent"]),
        helper.make_node("Equal", ["extent", "one"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["z"], "choice", then_branch=squeeze, else_branch=keep),
        *behind,
    ]
    numbers = [helper.make_tensor(name, TensorProto.INT64, [1], [number])
               for name, number in (("last", -1), ("one", 1))]
    graph = helper.make_graph(
        nodes, "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "columns"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)], numbers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_what_follows_goes_with_both_branches() -> None:
    total = helper.make_node("ReduceSum", ["z"], ["y"], keepdims=0)
    model = sterna.compile(_squeezed([total], 0))
    assert isinstance(model, OpenModel) and model.is_symbolic, model
    for shape in ((2, 1), (3, 4), (5, 1)):
        x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        np.testing.assert_allclose(model(x), x.sum())
    assert model.compiled == 1


def test_what_follows_goes_with_one_branch() -> None:
    """Shapes that take the other are compiled by themselves: an error there is the model's own."""
    turned = helper.make_node("Transpose", ["z"], ["y"], "turn", perm=[0])
    model = sterna.compile(_squeezed([turned], 1))
    assert isinstance(model, OpenModel) and model.is_symbolic, model
    for rows in (1, 2, 7):
        x = np.arange(rows, dtype="float32").reshape(rows, 1)
        np.testing.assert_array_equal(model(x), x[:, 0])
    assert model.compiled == 1
    with pytest.raises(ValueError, match="'turn'"):
        model(np.zeros((2, 3), "float32"))
    np.testing.assert_array_equal(model(np.ones((4, 1), "float32")), np.ones(4))


def test_a_program_in_a_file_refuses_the_other_branch(tmp_path: Path) -> None:
    turned = helper.make_node("Transpose", ["z"], ["y"], "turn", perm=[0])
    path = f"{tmp_path}/model.so"
    sterna.compile(_squeezed([turned], 1)).export(path)
    loaded = sterna.load(path)
    np.testing.assert_array_equal(loaded(np.ones((4, 1), "float32")), np.ones(4))
    with pytest.raises(ValueError, match=r"'choice' \(If\): what follows is not compiled"):
        loaded(np.zeros((2, 3), "float32"))

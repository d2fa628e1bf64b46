"""Operators that ask for some extents of their operands leave the batch open."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import sterna as tvm
from sterna import relay
from sterna.frontend.open_shapes import UndecidedError
from sterna.relay.arrays import Array
from tests.frontend.support import bare_model, compare, run_imported, run_reference

DRAWN = np.random.default_rng(5)


def drawn(*shape: int) -> Array:
    return DRAWN.standard_normal(shape).astype("float32")


def open_model(
    nodes: list[NodeProto], shape: tuple[int, ...], weights: dict[str, Array], opset: int
) -> ModelProto:
    """A model of one input, whose first extent has a name instead of a number."""
    model = bare_model(nodes, {"x": drawn(*shape)}, weights, ["y"], opset)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


def node(kind: str, *more: str, **attrs: Any) -> NodeProto:
    return helper.make_node(kind, ["x", *more], ["y"], **attrs)


SCALES = {"s": np.array([1, 1, 2, 1.5], "float32")}
CASES: list[tuple[NodeProto, tuple[int, ...], dict[str, Array], int]] = [
    (node("Softmax", axis=1), (3, 4, 5), {}, 11),
    (node("LogSoftmax", axis=2), (3, 4, 5, 2), {}, 9),
    (node("Hardmax"), (3, 4, 5), {}, 11),
    (node("Flatten", axis=2), (3, 4, 5), {}, 13),
    (node("Flatten", axis=0), (3, 4, 5), {}, 13),
    (node("Upsample", "s", mode="linear"), (2, 3, 4, 4), SCALES, 9),
    (node("Resize", "", "s", mode="nearest"), (2, 3, 4, 4), SCALES, 13),
    (node("Resize", "", "", "z", mode="cubic", axes=[2, 3]), (2, 3, 4, 4),
     {"z": np.array([7, 3])}, 18),
    (node("Conv", "w", auto_pad="SAME_LOWER", strides=[2]), (2, 3, 11), {"w": drawn(4, 3, 4)}, 13),
    (node("MaxPool", kernel_shape=[3], auto_pad="SAME_UPPER", strides=[2]), (2, 3, 8), {}, 13),
    (node("ConvTranspose", "w", strides=[2], output_shape=[9]), (2, 3, 4),
     {"w": drawn(3, 2, 3)}, 13),
    (node("LayerNormalization", "w", axis=-2), (2, 3, 4), {"w": drawn(3, 4)}, 17),
    (node("GroupNormalization", "w", "b", num_groups=2), (2, 4, 5),
     {"w": drawn(4), "b": drawn(4)}, 21),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].op_type}-{case[3]}")
def test_any_batch_is_computed(case: Any) -> None:
    made, shape, weights, opset = case
    model = open_model([made], shape, weights, opset)
    for batch in (1, 3):
        feeds = {"x": drawn(batch, *shape[1:])}
        compare(run_imported(model, feeds), run_reference(model, feeds), 1e-4)


def test_masks_of_dropout_have_any_batch() -> None:
    dropout = helper.make_node("Dropout", ["x"], ["y", "mask"], ratio=0.3)
    model = open_model([dropout], (2, 3), {}, 9)
    (got,) = run_imported(model, {"x": np.full((4, 3), 2, "float32")})
    np.testing.assert_array_equal(got, np.full((4, 3), 2, "float32"))


def test_they_run_compiled_for_any_batch() -> None:
    nodes = [
        helper.make_node("Resize", ["x", "roi", "s"], ["r"], mode="linear"),
        helper.make_node("Softmax", ["r"], ["p"], axis=1),
        helper.make_node("Flatten", ["p"], ["y"], axis=2),
    ]
    weights = {**SCALES, "roi": np.zeros(0, "float32")}
    model = open_model(nodes, (2, 3, 4, 4), weights, 11)
    mod, params = relay.frontend.from_onnx(model)
    run = relay.create_executor("vm", mod, tvm.cpu(), "llvm", params).evaluate()
    for batch in (1, 5):
        feeds = {"x": drawn(batch, 3, 4, 4)}
        compare([run(feeds["x"]).numpy()], run_reference(model, feeds), 1e-4)


def test_what_asks_for_the_batch_itself_says_so() -> None:
    made = node("Resize", "", "t", mode="nearest")
    weights = {"t": np.array([2, 1, 1, 1], "float32")}
    with pytest.raises(UndecidedError, match=r"whole shape .* give the inputs' shapes by shape="):
        relay.frontend.from_onnx(open_model([made], (2, 3, 4, 4), weights, 18))


def test_a_constant_may_be_sparse() -> None:
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [3.0, 4.0])
    places = helper.make_tensor("p", TensorProto.INT64, [2], [1, 5])
    sparse = helper.make_sparse_tensor(values, places, [2, 3])
    nodes = [
        helper.make_node("Constant", [], ["k"], sparse_value=sparse),
        helper.make_node("Add", ["x", "k"], ["y"]),
    ]
    (got,) = run_imported(bare_model(nodes, {"x": drawn(2, 3)}, {}, ["y"], 13),
                          {"x": np.zeros((2, 3), "float32")})
    np.testing.assert_array_equal(got, [[0, 3, 0], [0, 0, 4]])

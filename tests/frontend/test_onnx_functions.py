"""Operators of ONNX that are converted by their definitions, held against ONNX's evaluator."""

import time
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from sterna.frontend import from_onnx
from tests.frontend.support import check, model_of, run_evaluator

RNG = np.random.default_rng(11)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def test_a_definition_that_depends_on_types() -> None:
    """With operands that are left out and attributes that are not given."""
    how: dict[str, Any] = {
        "opset": 27, "reference": run_evaluator, "tolerance": 1e-4, "outputs": 2
    }
    data, weight = floats(2, 3, 7), floats(3, 1, 4)
    check("CausalConvWithState", data, weight, **how)
    check("CausalConvWithState", data, weight, None, floats(2, 3, 3), **how)
    check("CausalConvWithState", data, weight, floats(3), activation="silu", **how)


def test_a_definition_for_all_types() -> None:
    check("SwiGLU", floats(2, 8), floats(2, 8), opset=28, reference=run_evaluator, alpha=1.3)


def test_operators_of_another_set() -> None:
    query, key, value = floats(1, 2, 3, 8), floats(1, 2, 5, 8), floats(1, 2, 5, 8)
    check("FlexAttention", query, key, value, domain="ai.onnx.preview", opset=26,
          reference=run_evaluator)


def test_nodes_of_a_definition_are_named_by_their_node() -> None:
    node = helper.make_node("SwiGLU", ["a", "b"], ["y"], name="gate")
    feeds = {"a": floats(2, 4), "b": floats(2, 4)}
    mod, _ = from_onnx(model_of([node], feeds, {}, ["y"], 28))
    assert str(mod["main"].body.span).startswith("gate")


def test_a_wrong_operand_is_told_by_the_node() -> None:
    node = helper.make_node("SwiGLU", ["a", "b"], ["y"], name="gate")
    feeds = {"a": floats(2, 4), "b": floats(3, 4)}
    with pytest.raises(ValueError, match=r"node 'gate.*do not broadcast"):
        from_onnx(model_of([node], feeds, {}, ["y"], 28))


def test_functions_that_grow_are_refused_before_they_are_written_out() -> None:
    """Each calls the next one twice: a file of 2 KB, and 2 to the power of 40 nodes."""
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    made = []
    for i in range(40):
        kinds = [(f"f{i + 1}", "own")] * 2 if i < 39 else [("Relu", "")] * 2
        nodes = [
            helper.make_node(kind, [source], [result], domain=domain)
            for (kind, domain), source, result in zip(kinds, "xa", "ay", strict=True)
        ]
        made.append(helper.make_function("own", f"f{i}", ["x"], ["y"], nodes, versions))
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    call = helper.make_node("f0", ["x"], ["y"], domain="own")
    model = helper.make_model(
        helper.make_graph([call], "g", [x], [y]), functions=made, opset_imports=versions
    )
    start = time.perf_counter()
    with pytest.raises(ValueError, match="functions make more than 18100 nodes"):
        from_onnx(model)
    assert time.perf_counter() - start < 10  # it took minutes

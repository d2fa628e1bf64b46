"""Operators of ONNX that are converted by their definitions, held against ONNX's evaluator."""

from typing import Any

import numpy as np
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

"""One program for all shapes: hot shapes, files, state that stays inside."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest

import sterna
from tests.model.test_open import dense, floats

relay: Any = sterna.relay


def growing() -> Any:
    """A step that appends a row to its state and gives the sum of all."""
    row, past = relay.var("row", shape=(1, 4)), relay.var("past", shape=(relay.Any("past"), 4))
    now = relay.concatenate([past, relay.exp(row)], axis=0)
    return relay.Function([row, past], relay.Tuple([relay.sum(now, axis=0), now]))


def test_hot_shapes_get_programs_of_their_own() -> None:
    with sterna.transform.PassContext(config={"model.specialise_after": 3}):
        model: Any = sterna.compile(dense())
    inputs = floats(5, 8), floats(5, 1)
    wanted = model(*inputs)
    for _ in range(3):
        np.testing.assert_allclose(model(*inputs), wanted, rtol=1e-5, atol=1e-6)
    model.wait_for_specialising()
    assert model.compiled == 2
    np.testing.assert_allclose(model(*inputs), wanted, rtol=1e-5, atol=1e-6)
    model.cancel_specialising()
    for _ in range(4):
        model(floats(6, 8), floats(6, 1))
    model.wait_for_specialising()
    assert model.compiled == 2


def test_a_file_takes_any_shapes(tmp_path: Path) -> None:
    model: Any = sterna.compile(dense(), shapes={"batch": (1, 64)})
    model.export(tmp_path / "dense.so")
    loaded: Any = sterna.load(tmp_path / "dense.so")
    assert repr(loaded) == repr(model)
    for batch in (1, 9):
        inputs = floats(batch, 8), floats(batch, 1)
        np.testing.assert_array_equal(loaded(*inputs), model(*inputs))
    with pytest.raises(ValueError, match="'batch', which was compiled for 1 to 64"):
        loaded(floats(65, 8), floats(65, 1))
    with pytest.raises(ValueError, match=r"written as \.so or \.tar"):
        model.export(tmp_path / "dense.o")


def test_state_stays_inside() -> None:
    model: Any = sterna.compile(growing())
    step = model.session({"output1": "past"}, {"past": np.zeros((0, 4), "float32")})
    total = np.zeros(4, "float32")
    for number in range(5):
        row = np.full((1, 4), number / 10, "float32")
        total = total + np.exp(row[0])
        np.testing.assert_allclose(step(row), total, rtol=1e-5)
    assert step.steps == 5 and model.compiled == 1
    with pytest.raises(ValueError, match="initial says no first value of past"):
        model.session({"output1": "past"}, {})
    with pytest.raises(ValueError, match="a step takes row"):
        step(row, row)


def test_a_model_says_why_it_is_specialised() -> None:
    """Without axes, Squeeze has a result whose rank depends on an open extent."""
    node = onnx.helper.make_node("Squeeze", ["x"], ["y"])
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "squeeze", [given], [made])
    model: Any = sterna.compile(onnx.helper.make_model(graph, ir_version=9))
    assert not model.is_symbolic and model.why_not_symbolic
    assert model(floats(2, 3)).shape == (2, 3) and model(floats(1, 3)).shape == (3,)

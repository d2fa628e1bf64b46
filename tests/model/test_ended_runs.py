"""Runs that are ended from outside: Ctrl-C, another thread, limits; the model goes on serving."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sterna

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
X = np.ones(3, "float32")
ON, OFF = np.array(True), np.array(False)


def info(name: str, shape: Any, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def endless() -> onnx.ModelProto:
    """A loop that goes on for ever if its input says so."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["on"]), helper.make_node("Mul", ["s", "s"], ["t"])],
        "body", [info("i", [], TensorProto.INT64), info("c", [], BOOL), info("s", ["n"])],
        [info("on", [], BOOL), info("t", ["n"])])
    graph = helper.make_graph(
        [helper.make_node("Loop", ["", "go", "x"], ["y"], body=body)], "graph",
        [info("go", [], BOOL), info("x", ["n"])], [info("y", ["n"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.fixture(scope="module")
def model() -> Any:
    return sterna.compile(endless())


@pytest.fixture(params=["compiled", "from a file"])
def served(request: pytest.FixtureRequest, model: Any, tmp_path: Path) -> Any:
    if request.param == "compiled":
        return model
    model.export(tmp_path / "loop.so")
    return sterna.load(tmp_path / "loop.so")


@pytest.fixture
def heard() -> Iterator[None]:
    """Ctrl-C is heard: a process that began in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_ctrl_c_ends_an_endless_loop(served: Any) -> None:
    for _ in range(2):
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            served(ON, X)
        timer.join()
        assert time.monotonic() - begun < 30
        np.testing.assert_array_equal(served(OFF, X), X)


def test_another_thread_cancels_a_run(served: Any) -> None:
    threading.Timer(0.3, served.cancel).start()
    with pytest.raises(RuntimeError, match="the run was cancelled"):
        served(ON, X)
    with pytest.raises(RuntimeError, match="the run was cancelled"):
        served(OFF, X)  # until it is said that new ones may run
    served.cancel(False)
    np.testing.assert_array_equal(served(OFF, X), X)


def test_a_cancelled_model_compiles_no_further_part() -> None:
    """Sequences are arranged by the host, between programs."""
    nodes = [helper.make_node("SequenceAt", ["s", "i"], ["y"])]
    graph = helper.make_graph(
        nodes, "graph",
        [helper.make_tensor_sequence_value_info("s", FLOAT, None),
         info("i", [], TensorProto.INT64)], [info("y", None)])
    model: Any = sterna.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    given = [X, X + 1], np.array(1)
    np.testing.assert_array_equal(model(*given), X + 1)
    model.cancel()
    with pytest.raises(RuntimeError, match="the run was cancelled"):
        model(*given)
    model.cancel(False)
    np.testing.assert_array_equal(model(*given), X + 1)


def test_a_run_in_a_thread_ends_when_it_is_cancelled(model: Any) -> None:
    said: list[str] = []

    def run() -> None:
        with pytest.raises(RuntimeError) as error:
            model(ON, X)
        said.append(str(error.value))

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.2)
    model.cancel()
    thread.join(30)
    model.cancel(False)
    assert said == ["the run was cancelled"]


def test_a_symbol_has_one_value() -> None:
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"])], "graph",
        [info("a", ["n", 2]), info("b", ["n", 1])], [info("y", ["n", 2])])
    model: Any = sterna.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]),
        shapes={"n": (2, 5)})
    a, b = np.ones((3, 2), "float32"), np.ones((3, 1), "float32")
    with pytest.raises(ValueError, match=r"'n'.*3.*4|'n'.*4.*3"):
        model(a, np.ones((4, 1), "float32"))
    with pytest.raises(ValueError, match="'n', which was compiled for 2 to 5"):
        model(np.ones((6, 2), "float32"), np.ones((6, 1), "float32"))
    np.testing.assert_array_equal(model(a, b), a + b)

"""Control flow on an OpenCL device: kernels and tensors are there, the host reads conditions."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper as h

import sterna as tvm
from sterna import relay
from sterna.runtime.vm import VirtualMachine
from sterna.testing import requires_opencl

pytestmark = requires_opencl.marks()

FOUR = np.full(4, 4, "float32")


def branches() -> tvm.IRModule:
    """One branch computes, one hands an input and a constant on, as they are."""
    x, y = relay.var("x", shape=()), relay.var("y", shape=(4,))
    factors = relay.const(np.arange(4).astype("float32"))
    computed = relay.Tuple((relay.exp(y) * factors, y))
    chosen = relay.If(relay.greater(x, relay.const(0.0)), computed, relay.Tuple((y, factors)))
    return tvm.IRModule.from_expr(relay.Function((x, y), chosen))


def check_branches(machine: VirtualMachine) -> None:
    first, second = machine.invoke("main", np.float32(1), FOUR)
    assert first.device == second.device == tvm.opencl()
    np.testing.assert_allclose(first.numpy(), np.exp(4) * np.arange(4), rtol=1e-5)
    np.testing.assert_array_equal(second.numpy(), FOUR)
    first, second = machine.invoke("main", np.float32(-1), tvm.nd.array(FOUR, tvm.opencl()))
    np.testing.assert_array_equal(first.numpy(), FOUR)
    np.testing.assert_array_equal(second.numpy(), np.arange(4))


def test_branches_and_files(tmp_path: Path) -> None:
    made = relay.vm.compile(branches(), "opencl")
    check_branches(VirtualMachine(made, tvm.opencl()))
    with pytest.raises(RuntimeError, match="has run on a device already; load it anew"):
        VirtualMachine(made, tvm.opencl(1))
    made.mod.export_library(tmp_path / "branches.so")
    loaded = tvm.runtime.load_module(tmp_path / "branches.so")
    check_branches(VirtualMachine(loaded, tvm.opencl()))


def test_results_that_are_an_input_or_given_twice() -> None:
    """A block of its own in the loop: results are memory that kernels write."""
    x = relay.var("x", shape=(4,))
    twice = relay.exp(x)
    body = relay.Tuple((twice, twice, relay.reshape(x, (2, 2)), relay.const(FOUR)))
    module = tvm.IRModule.from_expr(relay.Function((x,), body))
    machine = VirtualMachine(relay.vm.compile(module, "opencl"), tvm.opencl())
    results = [each.numpy() for each in machine.run(FOUR)]
    for result, wanted in zip(results, [np.exp(FOUR), np.exp(FOUR), FOUR.reshape(2, 2), FOUR],
                              strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5)


def loop() -> onnx.ModelProto:
    """Doubles until the sum reaches a limit, and collects what it saw."""
    body = h.make_graph(
        [
            h.make_node("Add", ["s", "s"], ["doubled"]),
            h.make_node("ReduceSum", ["doubled"], ["sum"], keepdims=0),
            h.make_node("Less", ["sum", "limit"], ["go_on"]),
            h.make_node("Identity", ["doubled"], ["seen"]),
        ], "body",
        [h.make_tensor_value_info("i", T.INT64, []), h.make_tensor_value_info("c", T.BOOL, []),
         h.make_tensor_value_info("s", T.FLOAT, [4])],
        [h.make_tensor_value_info("go_on", T.BOOL, []),
         h.make_tensor_value_info("doubled", T.FLOAT, [4]),
         h.make_tensor_value_info("seen", T.FLOAT, [4])],
    )
    graph = h.make_graph(
        [h.make_node("Loop", ["most", "begin", "x"], ["y", "all"], body=body)], "doubling",
        [h.make_tensor_value_info("x", T.FLOAT, [4]),
         h.make_tensor_value_info("limit", T.FLOAT, [])],
        [h.make_tensor_value_info("y", T.FLOAT, [4]),
         h.make_tensor_value_info("all", T.FLOAT, [None, 4])],
        [h.make_tensor("most", T.INT64, [], [100]), h.make_tensor("begin", T.BOOL, [], [True])],
    )
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 13)])


def test_a_loop_of_a_model() -> None:
    model = tvm.compile(loop(), target="opencl")
    for limit, steps in ((100.0, 5), (10.0, 2)):
        y, seen = model(np.ones(4, "float32"), np.float32(limit))
        np.testing.assert_array_equal(y, np.full(4, 2.0**steps))
        np.testing.assert_array_equal(seen[:, 0], 2.0 ** np.arange(1, steps + 1))


def test_results_as_long_as_a_run_counts() -> None:
    x = relay.var("x", shape=(3, 4))
    module = tvm.IRModule.from_expr(relay.Function((x,), relay.argwhere(x)))
    machine = VirtualMachine(relay.vm.compile(module, "opencl"), tvm.opencl())
    given: Any = np.array([[0, 1, 0, 0], [2, 0, 0, 3], [0, 0, 0, 0]], "float32")
    np.testing.assert_array_equal(machine.run(given).numpy(), np.argwhere(given))


def test_models_whose_results_data_decide(tmp_path: Path) -> None:
    graph = h.make_graph(
        [h.make_node("Compress", ["x", "chosen"], ["y"], axis=0)], "compress",
        [h.make_tensor_value_info("x", T.FLOAT, [3, 2]),
         h.make_tensor_value_info("chosen", T.BOOL, [3])],
        [h.make_tensor_value_info("y", T.FLOAT, [None, 2])],
    )
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 13)])
    given, chosen = np.arange(6, dtype="float32").reshape(3, 2), np.array([True, False, True])
    model = tvm.compile(proto, target="opencl")
    np.testing.assert_array_equal(model(given, chosen), given[chosen])
    model.export(tmp_path / "compress.so")
    np.testing.assert_array_equal(
        tvm.load(tmp_path / "compress.so")(given, chosen), given[chosen]
    )


def test_open_dimensions_are_told_at_the_launch() -> None:
    """One program for all sizes: the host computes grids, memory and results' shapes."""
    x = relay.var("x", shape=(relay.Any("rows"), 8))
    weight = np.random.default_rng(0).standard_normal((6, 8)).astype("float32")
    made = relay.nn.softmax(relay.nn.dense(x, relay.const(weight)))
    results = relay.Tuple((made, relay.sum(made, axis=0)))
    module = tvm.IRModule.from_expr(relay.Function((x,), results))
    machine = VirtualMachine(relay.vm.compile(module, "opencl"), tvm.opencl())
    for rows in (1, 5, 33, 0):
        given = np.random.default_rng(rows).standard_normal((rows, 8)).astype("float32")
        exponents = np.exp(given @ weight.T)
        wanted = exponents / exponents.sum(1, keepdims=True)
        found, sums = machine.invoke("main", given)
        assert found.device == tvm.opencl()
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(sums.numpy(), wanted.sum(0), rtol=1e-5, atol=1e-6)

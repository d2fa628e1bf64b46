"""Whole models on a server: what runs them here runs them there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, rpc, te
from sterna.contrib import graph_executor
from sterna.contrib.debugger import debug_executor
from sterna.runtime.executor.aot_executor import AotModule
from tests.rpc.support import TestServer
from tests.support import absent_feature, require_program

WEIGHTS = np.random.default_rng(0).random((10, 64), dtype="float32")
INPUT = np.random.default_rng(1).random((1, 64), dtype="float32")
EXPECTED = np.maximum(INPUT @ WEIGHTS.T, 0)


def network(executor: str) -> Any:
    """relu(x @ w.T), compiled."""
    x = relay.var("x", shape=(1, 64), dtype="float32")
    w = relay.var("w", shape=(10, 64), dtype="float32")
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, w)))
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(
            mod, "llvm", params={"w": WEIGHTS}, executor=relay.backend.Executor(executor)
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_program("cc")
    made = tmp_path_factory.mktemp("models")
    for executor in ("graph", "aot"):
        network(executor).export_library(made / f"{executor}.tar")
    return made


@pytest.mark.parametrize("given", ["numpy", "local", "remote", "converted"])
def test_inputs_go_over_by_themselves(remote: rpc.RPCSession, folder: Path, given: str) -> None:
    remote.upload(folder / "graph.tar")
    module = graph_executor.GraphModule(remote.load_module("graph.tar")["default"](remote.cpu(0)))
    value: Any = {
        "numpy": INPUT,
        "local": tvm.nd.array(INPUT),
        "remote": tvm.nd.array(INPUT, remote.cpu(0)),
        "converted": INPUT.astype("float64"),
    }[given]
    module.set_input("x", value)
    module.run()
    output = module.get_output(0)
    assert output.device == remote.cpu(0)
    np.testing.assert_allclose(output.numpy(), EXPECTED, rtol=1e-5)
    here = module.get_output(0, tvm.nd.empty((1, 10), "float32"))
    np.testing.assert_allclose(here.numpy(), EXPECTED, rtol=1e-5)
    module.run(x=value)
    there = module.get_output(0, tvm.nd.empty((1, 10), "float32", remote.cpu(0)))
    np.testing.assert_allclose(there.numpy(), EXPECTED, rtol=1e-5)


def test_the_graph_executor_is_whole_there(remote: rpc.RPCSession, folder: Path) -> None:
    remote.upload(folder / "graph.tar")
    library = remote.load_module("graph.tar")
    module = graph_executor.GraphModule(library["default"](remote.cpu(0)))
    assert module.get_num_outputs() == 1 and module.get_input_index("x") >= 0
    assert module.get_input_info() == ({"x": (1, 64)}, {"x": "float32"})
    assert module.get_input("x").shape == (1, 64)
    with pytest.raises(RuntimeError, match="Could not find 'none' in graph's inputs"):
        module.set_input("none", INPUT)
    with pytest.raises(ValueError, match="the shape"):
        module.set_input("x", np.zeros((2, 2)))
    shared = tvm.nd.array(INPUT, remote.cpu(0))
    module.set_input_zero_copy("x", shared)
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-5)
    results = module.module.time_evaluator("run", remote.cpu(0), repeat=4, number=3)().results
    assert len(results) == 4 and min(results) > 0
    assert module.benchmark(remote.cpu(0), repeat=2, number=2).min > 0
    assert module.benchmark(remote.cpu(0), repeat=2, number=2, end_to_end=True, x=INPUT).min > 0


def test_a_graph_and_its_parameters_apart(remote: rpc.RPCSession, tmp_path: Path) -> None:
    require_program("cc")
    built = network("graph")
    built.get_lib().export_library(tmp_path / "lib.so")
    remote.upload(tmp_path / "lib.so")
    library = remote.load_module("lib.so")
    module = graph_executor.create(built.get_graph_json(), library, remote.cpu(0))
    module.load_params(tvm.runtime.save_param_dict(built.get_params()))
    module.run(x=INPUT)
    np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-5)
    module = graph_executor.create(built.get_graph_json(), library, remote.cpu(0))
    module.set_input(**built.get_params())
    module.run(x=INPUT)
    np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-5)


def test_the_debug_executor_looks_inside(remote: rpc.RPCSession, folder: Path) -> None:
    remote.upload(folder / "graph.tar")
    built = network("graph")
    executor = remote.load_module("graph.tar")["default"](remote.cpu(0))
    module = debug_executor.GraphModuleDebug(executor, remote.cpu(0), built.get_graph_json())
    report = module.profile(repeat=3, x=INPUT)
    assert report.nodes and report.seconds > 0
    timed = module.run_individual(number=2, repeat=2)
    assert len(timed) == len(module.nodes) and min(each.min for each in timed) >= 0
    last = len(module.nodes) - 1
    np.testing.assert_allclose(module.debug_get_output(last).numpy(), EXPECTED, rtol=1e-5)


def test_a_network_that_is_one_function(remote: rpc.RPCSession, folder: Path) -> None:
    remote.upload(folder / "aot.tar")
    module = AotModule(remote.load_module("aot.tar")["default"](remote.cpu(0)))
    assert module.get_input_name(0) == "x"
    module.set_input("x", tvm.nd.array(INPUT))
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-5)


def test_timing_there_is_timing_here(server: TestServer, tmp_path: Path) -> None:
    require_program("cc")
    n = te.size_var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: te.exp(a[i]), name="B")
    built = tvm.build(te.create_schedule(b.op), [a, b], name="exp")
    built.export_library(tmp_path / "exp.so")
    values = np.random.default_rng(0).random(1 << 14, dtype="float32")
    local = tvm.runtime.load_module(tmp_path / "exp.so")
    arrays = tvm.nd.array(values), tvm.nd.empty(values.shape, "float32")
    with server.connect(key="board") as remote:
        remote.upload(tmp_path / "exp.so")
        module = remote.load_module("exp.so")
        there = tuple(each.copyto(remote.cpu(0)) for each in arrays)
        ours, theirs = [], []
        for _ in range(8):  # in turns, since the machine is busy now and then
            ours.append(local.time_evaluator("exp", tvm.cpu(0), 10, 5)(*arrays).min)
            theirs.append(module.time_evaluator("exp", remote.cpu(0), 10, 5)(*there).min)
        assert 0.5 < min(theirs) / min(ours) < 2
        np.testing.assert_allclose(there[1].numpy(), np.exp(values), rtol=1e-5)


def test_code_for_another_machine_is_refused_before_it_travels(
    remote: rpc.RPCSession, tmp_path: Path
) -> None:
    triple = "aarch64-linux-gnu"
    if remote._peer.architecture().processor == "aarch64":  # type: ignore[union-attr]
        triple = "x86_64-linux-gnu"
    n = te.size_var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    built = tvm.build(te.create_schedule(b.op), [a, b], f"llvm -mtriple={triple}", name="f")
    built.export_library(tmp_path / "other.o")
    with pytest.raises(ValueError, match=r"other\.o' is built for .*build it for that machine"):
        remote.upload(tmp_path / "other.o")
    assert remote.listdir() == []


def test_code_that_the_server_cannot_run_is_refused(
    remote: rpc.RPCSession, tmp_path: Path
) -> None:
    absent = absent_feature()
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1, name="B")
    module = tvm.build(te.create_schedule(b.op), [a, b], f"llvm -mattr=+{absent}", name="plus")
    for name in ("plus.so", "plus.tar"):
        module.export_library(tmp_path / name)
        remote.upload(tmp_path / name)
        with pytest.raises(ValueError, match=f"this processor lacks .*{absent}"):
            remote.load_module(name)
    assert remote.cpu(0).exist

"""Graphs on the processor and on an OpenCL device at once: devices planned, values copied once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, rpc
from sterna.contrib import graph_executor
from sterna.contrib.debugger import debug_executor
from sterna.relay.expr import RelayExpr
from sterna.relay.op import _RECORDS, OpRecord, call, register
from sterna.testing import requires_opencl
from tests.support import ROOT

pytestmark = requires_opencl.marks()

BOTH = {"cpu": "llvm", "gpu": "opencl"}
W = np.random.default_rng(0).standard_normal((5, 8)).astype("float32")


def network() -> tvm.IRModule:
    """One sum on the processor that both devices read, twice on the GPU."""
    a, b, c = (relay.var(name, shape=(4, 8)) for name in "abc")
    shared = relay.annotation.on_device(relay.exp(a + b), "cpu")
    rest = shared - c
    outs = (
        relay.nn.dense(rest, relay.const(W)),
        relay.nn.relu(rest) * shared,
        relay.annotation.on_device(relay.nn.dense(shared, relay.const(W)), tvm.cpu()),
    )
    return tvm.IRModule.from_expr(relay.Function((a, b, c), relay.Tuple(outs)))


def values() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {name: rng.standard_normal((4, 8)).astype("float32") for name in "abc"}


def expected() -> list[Any]:
    given = values()
    shared = np.exp(given["a"] + given["b"])
    rest = shared - given["c"]
    return [rest @ W.T, np.maximum(rest, 0) * shared, shared @ W.T]


def check(executor: Any) -> None:
    executor.run(**values())
    for place, wanted in enumerate(expected()):
        np.testing.assert_allclose(executor.get_output(place).numpy(), wanted, rtol=1e-4, atol=1e-5)


def nodes_of(lib: Any) -> tuple[list[dict[str, Any]], list[int]]:
    graph = json.loads(lib.get_graph_json())
    return graph["nodes"], graph["attrs"]["device_index"][1]


def test_each_part_runs_on_its_device_and_values_cross_once() -> None:
    lib = relay.build(network(), target=BOTH)
    nodes, devices = nodes_of(lib)
    copies = [n for n in nodes if n.get("attrs", {}).get("func_name") == "__copy"]
    assert len(copies) == 1
    assert devices[:3] == [1, 1, 4]  # inputs lie where they are read
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu(), tvm.opencl()))
    check(executor)
    assert [executor.get_output(i).device for i in range(3)] == [
        tvm.opencl(), tvm.opencl(), tvm.cpu()
    ]
    check(graph_executor.GraphModule(lib["default"](tvm.opencl(), tvm.cpu())))
    created = graph_executor.create(lib.get_graph_json(), lib.lib, [tvm.cpu(), tvm.opencl()])
    created.set_input(**lib.params)
    check(created)


def test_memory_is_planned_on_each_device() -> None:
    lib = relay.build(network(), target=BOTH)
    attrs = json.loads(lib.get_graph_json())["attrs"]
    _, devices = nodes_of(lib)
    offsets, ids = attrs["storage_offset"][1], attrs["storage_id"][1]
    on_gpu = [place for place, device in enumerate(devices) if device == 4 and offsets[place] >= 0]
    assert len({ids[place] for place in on_gpu}) == 1
    assert len(on_gpu) > len({offsets[place] for place in on_gpu})  # memory is used again


def test_in_one_library(tmp_path: Path) -> None:
    relay.build(network(), target=BOTH).export_library(tmp_path / "both.so")
    loaded = tvm.runtime.load_module(tmp_path / "both.so")
    check(graph_executor.GraphModule(loaded["default"](tvm.cpu(), tvm.opencl())))
    with pytest.raises(ValueError, match="needs a device of type cpu, which was not given"):
        loaded["default"](tvm.opencl())


@pytest.mark.parametrize("target", [
    ["llvm", "opencl"],
    [tvm.target.Target("opencl", host="llvm"), tvm.target.Target("llvm")],
    {1: "llvm", 4: "opencl"},
    {tvm.cpu(): "llvm", tvm.opencl(): "opencl"},
    {"opencl": "opencl", "cpu": "llvm"},
])
def test_targets_in_all_their_forms(target: Any) -> None:
    config = tvm.target.make_compilation_config(None, target)
    assert sorted(config.device_types) == [1, 4]
    assert config.fallback == 4
    host = config.by_device[4].host
    assert host is not None and host.kind.name == "llvm"


def test_targets_that_do_not_fit() -> None:
    for target, why in [
        (["llvm", "llvm -mcpu=generic"], "two targets are for cpu"),
        (["opencl", "cuda -arch=sm_80"], "one kind of GPU"),
        ({"cpu": "opencl"}, "given for another device, 'cpu'"),
        ({}, "is empty"),
        ({"cup": "llvm"}, "not 'cup'"),
    ]:
        with pytest.raises(ValueError, match=why):
            relay.build(network(), target=target)


def test_the_fallback_device() -> None:
    x = relay.var("x", shape=(4,))
    made = relay.exp(relay.annotation.on_device(relay.sqrt(x), "opencl"))
    module = tvm.IRModule.from_expr(relay.Function((x,), made))
    for fallback, wanted in ((0, [4, 4]), (1, [4, 4, 1, 1]), (4, [4, 4])):
        with tvm.transform.PassContext(config={"relay.fallback_device_type": fallback}):
            lib = relay.build(module, target=BOTH)
        assert nodes_of(lib)[1] == wanted
        executor = graph_executor.GraphModule(lib["default"](tvm.cpu(), tvm.opencl()))
        executor.run(x=np.full(4, 4, "float32"))
        np.testing.assert_allclose(executor.get_output(0).numpy(), np.exp(2), rtol=1e-5)
    with (tvm.transform.PassContext(config={"relay.fallback_device_type": 2}),
          pytest.raises(ValueError, match="fallback_device_type is 2")):
        relay.build(module, target=BOTH)


def test_copies_that_users_write() -> None:
    x = relay.var("x", shape=(4,))
    there = relay.device_copy(relay.sqrt(x), tvm.cpu(), tvm.opencl())
    back = relay.device_copy(relay.exp(there), "opencl", "cpu")
    module = tvm.IRModule.from_expr(relay.Function((x,), back))
    lib = relay.build(module, target=BOTH)
    names = [n.get("attrs", {}).get("func_name", "") for n in nodes_of(lib)[0]]
    assert names.count("__copy") == 2
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu(), tvm.opencl()))
    executor.run(x=np.full(4, 4, "float32"))
    assert executor.get_output(0).device == tvm.cpu()
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.exp(2), rtol=1e-5)


def test_tuples_cross_by_their_items() -> None:
    x = relay.var("x", shape=(6, 4))
    parts = relay.annotation.on_device(relay.split(x, 3, axis=0).astuple(), "cpu")
    joined = relay.concatenate(relay.Tuple((
        relay.exp(relay.TupleGetItem(parts, 2)), relay.TupleGetItem(parts, 0)
    )), axis=0)
    module = tvm.IRModule.from_expr(relay.Function((x,), joined))
    lib = relay.build(module, target=BOTH)
    given = np.random.default_rng(3).standard_normal((6, 4)).astype("float32")
    executor = graph_executor.GraphModule(lib["default"](tvm.cpu(), tvm.opencl()))
    executor.run(x=given)
    wanted = np.concatenate([np.exp(given[4:]), given[:2]])
    np.testing.assert_allclose(executor.get_output(0).numpy(), wanted, rtol=1e-5)


def test_annotations_in_a_build_for_one_target() -> None:
    x = relay.var("x", shape=(4,))
    on_cpu = relay.annotation.on_device(relay.sqrt(x), "cpu", constrain_result=True)
    module = tvm.IRModule.from_expr(relay.Function((x,), relay.exp(on_cpu)))
    executor = graph_executor.GraphModule(relay.build(module, "llvm")["default"](tvm.cpu()))
    executor.run(x=np.full(4, 4, "float32"))
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.exp(2), rtol=1e-5)
    built = relay.build(module, "opencl")  # a GPU's host is a processor
    assert nodes_of(built)[1] == [1, 1]
    there = relay.annotation.on_device(relay.sqrt(x), "cuda")
    module = tvm.IRModule.from_expr(relay.Function((x,), relay.exp(there)))
    for target, known in (("llvm", "cpu"), ("opencl", "opencl, cpu")):
        wanted = f"on_device of sqrt wants the device cuda, and the build has targets for {known};"
        with pytest.raises(ValueError, match=wanted):
            relay.build(module, target)


def test_contradicting_annotations() -> None:
    x = relay.var("x", shape=(4,))
    on_cpu = relay.annotation.on_device(relay.sqrt(x), "cpu", constrain_result=True)
    both = relay.annotation.on_device(relay.exp(on_cpu), "opencl")
    module = tvm.IRModule.from_expr(relay.Function((x,), both))
    with pytest.raises(ValueError, match="cannot be on two devices: on_device of sqrt wants cpu"):
        relay.build(module, target=BOTH)


# ---- what a device cannot run ----


def _calls_host(attrs: Any, out: Any, data: Any) -> Any:
    """Twice the data, by a function of this process."""
    return tvm.te.extern(
        data.shape, [data], dtype=data.dtype, name="host_double",
        fcompute=lambda ins, outs: tvm.tir.call_packed("test.host_double", ins[0], outs[0]),
    )


@pytest.fixture
def host_double() -> Any:
    """An operator that calls a function of the process, which no kernel on a device can."""
    def double(data: Any, out: Any) -> None:
        out.copyfrom(data.numpy() * 2)

    tvm.register_func("test.host_double", double, override=True)
    register(OpRecord(
        "test.host_double", inputs=("data",), infer=lambda attrs, data: data, compute=_calls_host,
    ))

    def build(data: RelayExpr) -> RelayExpr:
        return call("test.host_double", data)

    yield build
    del _RECORDS["test.host_double"]


def test_what_a_gpu_cannot_run_is_planned_on_the_processor(host_double: Any) -> None:
    x, y = relay.var("x", shape=(4, 8)), relay.var("y", shape=(4, 8))
    root = relay.exp(x)
    doubled = host_double(root)
    outs = relay.Tuple((relay.nn.dense(doubled, relay.const(W)) + relay.const(1.0),
                        doubled * root, host_double(y)))
    module = tvm.IRModule.from_expr(relay.Function((x, y), outs))
    model = tvm.compile(module, target="opencl")
    given = np.random.default_rng(5).standard_normal((2, 4, 8)).astype("float32")
    e = np.exp(given[0])
    for made, wanted in zip(model(*given), [2 * e @ W.T + 1, 2 * e * e, 2 * given[1]], strict=True):
        np.testing.assert_allclose(made, wanted, rtol=1e-4)
    report = model.report()
    assert [(c.source, c.target, c.bytes) for c in report.copies] == [
        ("opencl", "cpu", 128), ("cpu", "opencl", 128)
    ]
    (hosted,) = [kernel for kernel in report.kernels if kernel.host_only]
    assert hosted.device == "cpu" and hosted.calls == 2
    assert "cannot call_packed" in hosted.host_only
    assert "On the processor: " in str(report) and "Copied from opencl to cpu" in str(report)
    table = str(model.profile(repeat=1, bounds=False))
    assert "device_copy" in table


def test_debug_executor() -> None:
    lib = relay.build(network(), target=BOTH)
    devices = [tvm.cpu(), tvm.opencl()]
    debug = debug_executor.create(lib.get_graph_json(), lib.lib, devices)
    debug.set_input(**lib.params, **values())
    copy = next(n for n in debug.nodes if n["name"] == "device_copy")
    wanted = np.exp(values()["a"] + values()["b"])
    np.testing.assert_allclose(debug.debug_get_output(copy["name"]).numpy(), wanted, rtol=1e-5)
    assert "device_copy" in str(debug.profile())


def test_through_rpc(tmp_path: Path) -> None:
    relay.build(network(), target=BOTH).export_library(tmp_path / "both.so")
    server = rpc.Server(port=0, silent=True)
    try:
        with rpc.connect("127.0.0.1", server.port) as remote:
            remote.upload(tmp_path / "both.so")
            loaded = remote.load_module("both.so")
            check(graph_executor.GraphModule(loaded["default"](remote.cpu(), remote.cl())))
    finally:
        server.terminate()


TWO_DEVICES = """
import numpy as np
import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from tests.gpu.test_heterogeneous import BOTH, check, network

assert tvm.opencl(1).exist
both = relay.build(network(), target=BOTH)
for index in (1, 0):
    executor = graph_executor.GraphModule(both["default"](tvm.cpu(), tvm.opencl(index)))
    check(executor)
    assert executor.get_output(0).device == tvm.opencl(index)
"""


def test_any_device_of_a_kind() -> None:
    """PoCL shows a processor as two devices, if it is told to when it is loaded."""
    environment = {**os.environ, "POCL_DEVICES": "pthread basic"}
    subprocess.run([sys.executable, "-c", TWO_DEVICES], env=environment, cwd=ROOT, check=True)

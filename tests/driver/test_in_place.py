"""Results written over what they are computed from: less memory, and the same numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.lowering import storage
from sterna.relay.backend import Executor, Runtime
from sterna.runtime.executor import AotModule
from tests.driver.c_network import C_INTERFACE, CNetwork
from tests.driver.test_aot import results
from tests.relay.agreement import flat, hold, tolerance_of, value
from tests.relay.random_graphs import Drawn, draw_network, draw_shapes

SHAPE = (1, 8, 24, 24)
BYTES = 4 * 8 * 24 * 24


def network() -> tuple[tvm.IRModule, dict[str, Any]]:
    """Pools, which are not elementwise, with elementwise operators behind them that end lives."""
    x = relay.var("x", shape=SHAPE)
    a = relay.nn.avg_pool2d(x, (3, 3), padding=(1, 1, 1, 1))
    b = relay.nn.max_pool2d(a, (3, 3), padding=(1, 1, 1, 1))
    c = relay.exp(relay.negative(b))
    d = relay.add(c, relay.tanh(a))
    e = relay.nn.max_pool2d(relay.multiply(d, d), (3, 3), padding=(1, 1, 1, 1))
    values = np.random.default_rng(5).standard_normal(SHAPE).astype("float32")
    return tvm.IRModule.from_expr(relay.nn.avg_pool2d(e, (3, 3))), {"x": values}


def together(**options: Any) -> Any:
    """The network with a kernel for each operator."""
    config = {"tir.usmp.enable": True, "tir.usmp.algorithm": options.pop("algorithm", "auto")}
    with tvm.transform.PassContext(opt_level=0, config=config):
        return relay.build(network()[0], **options)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds with no memory taken over, where the others take it over."""

    def build(**options: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(storage, "_heirs", lambda *_: {})
            patch.setattr(storage, "_overlapping", lambda *_: None)
            return together(**options)

    return build


def test_graphs(apart: Any) -> None:
    _, inputs = network()
    free, shared = apart(target="llvm"), together(target="llvm")
    bytes_of = [json.loads(lib.graph_json)["attrs"]["arena_bytes"][1] for lib in (free, shared)]
    assert bytes_of[0] - bytes_of[1] >= BYTES
    got = [
        results(graph_executor.GraphModule(lib["default"](tvm.cpu(0))), inputs)[0]
        for lib in (free, shared)
    ]
    np.testing.assert_array_equal(got[0], got[1])


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_functions(target: str, apart: Any) -> None:
    _, inputs = network()
    options = {"target": target, "executor": Executor("aot")}
    free, shared = apart(**options), together(**options)
    reports = [lib.memory_report() for lib in (free, shared)]
    assert reports[0].workspace_bytes - reports[1].workspace_bytes >= BYTES
    assert reports[1].in_place > reports[0].in_place == 0
    got = [results(AotModule(lib["default"](tvm.cpu(0))), inputs)[0] for lib in (free, shared)]
    np.testing.assert_array_equal(got[0], got[1])


@pytest.mark.parametrize("algorithm", ["optimal", "linear_scan"])
def test_programs(algorithm: str, apart: Any, tmp_path: Path) -> None:
    _, inputs = network()
    options = {"target": "c", "executor": Executor("aot", C_INTERFACE), "runtime": Runtime("crt"),
               "algorithm": algorithm}
    free, shared = apart(**options), together(mod_name="shared", **options)
    reports = [lib.memory_report() for lib in (free, shared)]
    assert reports[0].workspace_bound - reports[1].workspace_bound >= BYTES
    if algorithm == "optimal":
        assert reports[1].workspace_bytes == reports[1].workspace_bound
    like = [np.empty((*SHAPE[:2], 22, 22), "float32")]
    got = [CNetwork(lib, tmp_path)(list(inputs.values()), like)[0] for lib in (free, shared)]
    np.testing.assert_array_equal(got[0], got[1])


def test_what_others_read_stays() -> None:
    """An operand that is read again, read at other places, or given out keeps its memory."""
    x = relay.var("x", shape=(64, 64))
    a = relay.exp(x)
    b = relay.transpose(relay.sqrt(a))
    c = relay.add(b, a)
    d = relay.subtract(c, relay.sum(c, axis=1, keepdims=True))
    body = relay.Tuple((c, relay.nn.softmax(d)))
    values = np.random.default_rng(1).uniform(0, 1, (64, 64)).astype("float32")
    with tvm.transform.PassContext(opt_level=0):
        lib = relay.build(tvm.IRModule.from_expr(body), target="llvm")
    first = np.exp(values)
    second = np.sqrt(first).T + first
    third = second - second.sum(1, keepdims=True)
    third = np.exp(third - third.max(1, keepdims=True))
    got = results(graph_executor.GraphModule(lib["default"](tvm.cpu(0))), {"x": values})
    np.testing.assert_allclose(got[0], second, rtol=1e-5)
    np.testing.assert_allclose(got[1], third / third.sum(1, keepdims=True), rtol=1e-4)


@pytest.mark.parametrize("draw,seed", [(draw_shapes, 1000), (draw_network, 1004)])
def test_random_graphs(draw: Any, seed: int, tmp_path: Path) -> None:
    """Kernels for each operator, and inputs that may be written over too."""
    drawn: Drawn = draw(seed, 8)
    want, near = value(drawn, drawn.function), value(drawn, drawn.function, 1e-5)
    mod = tvm.IRModule({"main": drawn.function})
    inputs = {p.name_hint: v for p, v in zip(drawn.function.params, drawn.values, strict=True)}
    with tvm.transform.PassContext(opt_level=0, config={"tir.usmp.use_workspace_io": True}):
        program = relay.build(mod, target="c", executor=Executor("aot", C_INTERFACE),
                              runtime=Runtime("crt"))
    with tvm.transform.PassContext(opt_level=0):
        lib = relay.build(mod, target="llvm")
    assert program.memory_report().in_place > 0
    got = results(graph_executor.GraphModule(lib["default"](tvm.cpu(0))), inputs)
    hold(tuple(got), tuple(flat(want)), near, tolerance_of(drawn))
    got = CNetwork(program, tmp_path)(list(inputs.values()), got)
    hold(tuple(got), tuple(flat(want)), near, tolerance_of(drawn))

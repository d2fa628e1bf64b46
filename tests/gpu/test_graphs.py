"""Whole networks on an OpenCL device: memory, parameters, files."""

from pathlib import Path
from typing import Any

import numpy as np

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.testing import requires_opencl

pytestmark = requires_opencl.marks()


def network() -> tuple[tvm.IRModule, dict[str, Any]]:
    """A kernel of each class: tiles, a window, a product with one row, rows."""
    x = relay.var("x", shape=(1, 4, 12, 12))
    w = relay.var("w", shape=(8, 4, 3, 3))
    b = relay.var("b", shape=(8,))
    d = relay.var("d", shape=(40, 8 * 36))
    y = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(x, w, padding=(1, 1)), b))
    y = relay.nn.batch_flatten(relay.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2)))
    y = relay.nn.softmax(relay.nn.dense(y, d))
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype("float32")
        for name, shape in {"w": (8, 4, 3, 3), "b": (8,), "d": (40, 288)}.items()
    }
    return tvm.IRModule.from_expr(relay.Function((x, w, b, d), y)), weights


def run(module: Any, device: Any, x: Any) -> Any:
    executor = graph_executor.GraphModule(module["default"](device))
    executor.set_input("x", x)
    executor.run()
    return executor.get_output(0).numpy()


def test_a_network_gives_what_it_gives_on_the_cpu(tmp_path: Path) -> None:
    module, weights = network()
    x = np.random.default_rng(1).standard_normal((1, 4, 12, 12)).astype("float32")
    wanted = run(relay.build(module, "llvm", params=weights), tvm.cpu(), x)
    built = relay.build(module, "opencl", params=weights)
    notes = {note.anchor: note for note in built.kernel_notes.values()}
    assert "a thread" in notes["nn.conv2d"].choices["tile"]
    np.testing.assert_allclose(run(built, tvm.opencl(), x), wanted, rtol=1e-4, atol=1e-5)
    built.export_library(tmp_path / "network.so")
    loaded = tvm.runtime.load_module(tmp_path / "network.so")
    np.testing.assert_allclose(run(loaded, tvm.opencl(), x), wanted, rtol=1e-4, atol=1e-5)
    model = tvm.load(tmp_path / "network.so")
    assert model.device == tvm.opencl()
    np.testing.assert_allclose(model(x), wanted, rtol=1e-4, atol=1e-5)


def test_operators_of_statements_run_on_the_device() -> None:
    """Sorting, searching and running sums: loops of their own, in threads where they allow it."""
    x = relay.var("x", shape=(5, 9))
    outs = relay.Tuple((relay.argsort(x, axis=1, dtype="int32"), relay.cumsum(x, axis=0)))
    module = tvm.IRModule.from_expr(relay.Function((x,), outs))
    given = np.random.default_rng(2).standard_normal((5, 9)).astype("float32")
    executor = graph_executor.GraphModule(relay.build(module, "opencl")["default"](tvm.opencl()))
    executor.set_input("x", given)
    executor.run()
    np.testing.assert_array_equal(executor.get_output(0).numpy(), given.argsort(1))
    np.testing.assert_allclose(executor.get_output(1).numpy(), given.cumsum(0), rtol=1e-5)


def test_blocks_that_are_partly_idle() -> None:
    """Barriers between tiles whose last block has threads without columns."""
    a, b = relay.var("a", shape=(6, 4, 6)), relay.var("b", shape=(6, 6, 10))
    product = relay.nn.batch_matmul(a, b, transpose_b=False)
    lib = relay.build(tvm.IRModule.from_expr(relay.Function((a, b), product)), target="opencl")
    module = graph_executor.GraphModule(lib["default"](tvm.opencl(0)))
    rng = np.random.default_rng(5)
    left, right = (rng.random(shape).astype("float32") for shape in ((6, 4, 6), (6, 6, 10)))
    module.run(a=left, b=right)
    np.testing.assert_allclose(module.get_output(0).numpy(), left @ right, rtol=1e-5)

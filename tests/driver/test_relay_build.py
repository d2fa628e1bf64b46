"""Networks from builders to numbers: every level, every way to run them."""

# mypy: disable-error-code="arg-type, attr-defined"

import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.relay.interpreter import interpret

NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"image_shape": (1, 8, 8)},
    "resnet": {"num_layers": 18, "image_shape": (3, 32, 32), "num_classes": 10},
    "mobilenet": {"image_shape": (3, 64, 64), "num_classes": 10},
    "squeezenet": {"image_shape": (3, 40, 40), "num_classes": 10},
}

LEVELS = {"mlp": (0, 1, 2, 3), "resnet": (0, 1, 2, 3), "mobilenet": (0, 3),
          "squeezenet": (1, 3)}


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STERNA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def workload(name: str) -> tuple[Any, Any, Any, Any]:
    """A network, its weights, an input, and what the references make of it."""
    mod, params = getattr(relay.testing, name).get_workload(**NETWORKS[name])
    main = mod["main"]
    data = np.random.default_rng(1).standard_normal(main.params[0].checked_type.shape)
    values = {"data": data.astype("float32")} | {n: p.numpy() for n, p in params.items()}
    return mod, params, values["data"], interpret(main, *[values[p.name_hint] for p in main.params])


@pytest.mark.parametrize("name", NETWORKS)
def test_every_level_gives_the_same_numbers(name: str) -> None:
    mod, params, data, want = workload(name)
    for level in LEVELS[name]:
        with tvm.transform.PassContext(opt_level=level):
            lib = relay.build(mod, target="llvm -mcpu=native", params=params)
        m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
        m.run(data=data)
        np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-4, atol=1e-6)


def test_c_code_gives_the_same_numbers() -> None:
    mod, params, data, want = workload("mlp")
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="c", params=params)
    assert "tvmgen_default_fused" in lib.get_lib().get_source()
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(data=data)
    np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-4, atol=1e-6)


RUN = """
import sys, numpy as np, sterna as tvm
from sterna.contrib import graph_executor
lib = tvm.runtime.load_module(sys.argv[1])
m = graph_executor.GraphModule(lib["other"](tvm.cpu(0)))
m.set_input("data", np.load(sys.argv[2]))
m.run()
np.save(sys.argv[3], m.get_output(0).numpy())
assert sys.argv[1].endswith((".o", ".a")) or "llvmlite" not in sys.modules
"""


def test_a_file_holds_everything(tmp_path: Path) -> None:
    mod, params, data, want = workload("mlp")
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm -mcpu=native", params=params, mod_name="other")
    np.save(tmp_path / "x.npy", data)
    for form in ("so", "tar", "a"):
        lib.export_library(tmp_path / f"m.{form}")
        result = tmp_path / f"{form}.npy"
        arguments = [str(tmp_path / f"m.{form}"), str(tmp_path / "x.npy"), str(result)]
        subprocess.run([sys.executable, "-c", RUN, *arguments], check=True)
        np.testing.assert_allclose(np.load(result), want, rtol=1e-4, atol=1e-6)
    first = (tmp_path / "m.so").read_bytes()
    with tvm.transform.PassContext(opt_level=3):
        again = relay.build(mod, target="llvm -mcpu=native", params=params, mod_name="other")
    again.export_library(tmp_path / "again.so")
    assert (tmp_path / "again.so").read_bytes() == first, "builds are repeatable"


def test_threads_share_the_weights() -> None:
    mod, params, data, want = workload("mlp")
    lib = relay.build(mod, target="llvm", params=params)
    wrong: list[float] = []

    def work(scale: float) -> None:
        m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
        for _ in range(20):
            m.run(data=data * scale)
            if scale == 1.0 and not np.allclose(m.get_output(0).numpy(), want, rtol=1e-4):
                wrong.append(scale)

    threads = [threading.Thread(target=work, args=(s,)) for s in (1.0, 0.5, 1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_threads_need_one_copy_of_the_weights() -> None:
    x, weights = relay.var("x", shape=(1, 4096)), np.ones((2048, 4096), "float32")
    lib = relay.build(tvm.IRModule.from_expr(relay.nn.dense(x, relay.const(weights))), "llvm")
    results = [0.0] * 8

    def work(number: int) -> None:
        m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
        m.run(x=np.full((1, 4096), number, "float32"))
        results[number] = float(m.get_output(0).numpy()[0, -1])

    work(0)  # what the first run touches is not what more of them need
    before = resident_bytes()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [4096.0 * number for number in range(8)]
    assert resident_bytes() - before < weights.nbytes / 2


def test_tuples_views_and_constants_as_results() -> None:
    x = relay.var("x", shape=(2, 6))
    left, right = relay.split(relay.nn.relu(x), 2, axis=1)
    results = [left, relay.reshape(x, (12,)), right, x, relay.const(np.arange(3.0, dtype="f"))]
    mod = tvm.IRModule.from_expr(relay.Tuple(results))
    value = np.random.default_rng(0).standard_normal((2, 6)).astype("float32")
    want = interpret(mod["main"], value)
    for level in (0, 3):
        with tvm.transform.PassContext(opt_level=level):
            m = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu(0)))
        m.run(x=value)
        assert m.get_num_outputs() == 5
        for place, part in enumerate(want):
            np.testing.assert_array_equal(m.get_output(place).numpy(), part)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"params": {"w": np.ones((2, 3), "f")}}, r"the parameter w is .*, but its value is"),
        ({"target": "vulkan"}, "llvm"),
        ({"executor": "woof"}, 'Executor "woof" is not defined'),
        ({"mod_name": "a-b"}, "mod_name 'a-b' is no name"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    x, w = relay.var("x", shape=(1, 4)), relay.var("w", shape=(3, 4))
    mod = tvm.IRModule.from_expr(relay.nn.dense(x, w))
    with pytest.raises(ValueError, match=message):
        relay.build(mod, **options)


def test_dynamic_shapes_are_refused_by_name() -> None:
    x = relay.var("picture", shape=(relay.Any(), 4))
    with pytest.raises(ValueError, match="picture"):
        relay.build(tvm.IRModule.from_expr(relay.nn.relu(x)), target="llvm")


def test_inputs_may_be_named_key_and_value() -> None:
    key, value = relay.var("key", shape=(2,)), relay.var("value", shape=(2,))
    lib = relay.build(tvm.IRModule.from_expr(key - value), target="llvm")
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    a, b = np.array([5, 7], "float32"), np.array([1, 2], "float32")
    m.run(key=a, value=b)
    np.testing.assert_array_equal(m.get_output(0).numpy(), [4, 5])
    m.set_input(value=a)
    m.set_input_zero_copy(key=tvm.nd.array(b))
    m.run()
    np.testing.assert_array_equal(m.get_output(0).numpy(), [-4, -5])

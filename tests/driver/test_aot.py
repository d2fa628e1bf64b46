"""Networks as one compiled function, with the runtime and without it."""

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.relay.arrays import from_numpy, to_numpy
from sterna.relay.backend import Executor, Runtime
from sterna.runtime.executor import AotModule
from tests.driver.test_random_graphs import is_static_and_certain
from tests.relay.agreement import flat, hold, tolerance_of, value
from tests.relay.random_graphs import Drawn, draw_network, draw_shapes
from tests.support import require_program

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]
C_INTERFACE = {"unpacked-api": True, "interface-api": "c"}
DRAWN = [(draw_shapes, 0, 6), (draw_shapes, 1, 6), (draw_shapes, 3, 6), (draw_network, 100, 6),
         (draw_network, 101, 6)]


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_CACHE", "off")


def keywords() -> tuple[tvm.IRModule, dict[str, Any], Any]:
    """A small network that hears words."""
    data = relay.var("data", shape=(1, 1, 49, 10), dtype="float32")
    weight = relay.var("w1", shape=(16, 1, 3, 3))
    conv = relay.nn.conv2d(data, weight, padding=(1, 1), channels=16, kernel_size=(3, 3))
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(conv)))
    out = relay.nn.softmax(relay.nn.dense(pooled, relay.var("w2", shape=(12, 16))))
    rng = np.random.default_rng(0)
    params = {
        "w1": rng.standard_normal((16, 1, 3, 3)).astype("float32"),
        "w2": rng.standard_normal((12, 16)).astype("float32"),
    }
    x = rng.standard_normal((1, 1, 49, 10)).astype("float32")
    return tvm.IRModule.from_expr(out), params, x


def results(module: Any, inputs: dict[str, Any]) -> list[Any]:
    for name, array in inputs.items():
        module.set_input(name, from_numpy(np.asarray(array, order="C")))
    module.run()
    return [to_numpy(module.get_output(place)) for place in range(module.get_num_outputs())]


def by_graph(mod: Any, inputs: dict[str, Any], **options: Any) -> list[Any]:
    lib = relay.build(mod, target="llvm", **options)
    return results(graph_executor.GraphModule(lib["default"](tvm.cpu(0))), inputs)


class Program:
    """A network in C, compiled into this process."""

    def __init__(self, mod: Any, folder: Path, name: str = "default", **options: Any) -> None:
        cc = require_program("gcc")
        self.built = relay.build(
            mod, target="c", executor=Executor("aot", C_INTERFACE), runtime=Runtime("crt"),
            mod_name=name, **options,
        )
        source, library = folder / f"{name}.c", folder / f"{name}.so"
        source.write_text(self.built.get_lib().get_source())
        command = [cc, *STRICT, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.run = getattr(ctypes.CDLL(str(library)), f"tvmgen_{name}_run")

    def __call__(self, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        held = [np.require(array, requirements=["C", "W"]) for array in inputs]
        made = [np.full_like(array, 77) for array in outputs]
        tables = [
            (ctypes.c_void_p * max(1, len(group)))(*(array.ctypes.data for array in group))
            for group in (held, made)
        ]
        assert self.run(*tables) == 0
        return made


def test_it_gives_what_the_graph_gives() -> None:
    mod, params, x = keywords()
    want = by_graph(mod, {"data": x}, params=params)
    lib = relay.build(mod, target="llvm", params=params, executor=Executor("aot"))
    module = AotModule(lib["default"](tvm.cpu(0)))
    assert module.get_input_name(0) == "data"
    with pytest.raises(IndexError, match="there are 1 inputs"):
        module.get_input_name(1)
    np.testing.assert_array_equal(results(module, {"data": x})[0], want[0])
    assert lib.memory_report().workspace_bytes == lib.memory_report().workspace_bound
    assert "tvmgen_default___tvm_main__" in lib.get_lib().get_source()


def test_comments_name_the_nodes_of_a_model() -> None:
    x = relay.var("x", shape=(4,))
    y = relay.nn.relu(x)
    y.span = "activation /* of a model */"
    executor = Executor("aot", {"interface-api": "c", "unpacked-api": True})
    built = relay.build(
        tvm.IRModule.from_expr(relay.Function((x,), y)), "c", executor=executor,
        runtime=Runtime("crt"),
    )
    comment = "/* Computes activation / * of a model * /. */"
    assert comment in built.lib.get_source()
    graph = relay.build(tvm.IRModule.from_expr(relay.Function((x,), y)), "c")
    assert graph.get_lib().get_source().count(comment) == 1


@pytest.mark.parametrize("suffix", [".so", ".tar"])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_file_carries_it(suffix: str, target: str, tmp_path: Path) -> None:
    mod, params, x = keywords()
    want = by_graph(mod, {"data": x}, params=params)
    lib = relay.build(mod, target=target, params=params, executor=Executor("aot"), mod_name="kws")
    lib.export_library(tmp_path / f"m{suffix}")
    loaded = tvm.runtime.load_module(tmp_path / f"m{suffix}")
    got = results(AotModule(loaded["kws"](tvm.cpu(0))), {"data": x})
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)


@pytest.mark.parametrize("draw,seed,size", DRAWN)
def test_random_graphs(draw: Any, seed: int, size: int, tmp_path: Path) -> None:
    drawn: Drawn = draw(seed, size)
    assert is_static_and_certain(drawn.function)
    want, near = value(drawn, drawn.function), value(drawn, drawn.function, 1e-5)
    mod = tvm.IRModule({"main": drawn.function})
    names = [param.name_hint for param in drawn.function.params]
    inputs = dict(zip(names, drawn.values, strict=True))
    lib = relay.build(mod, target="llvm", executor=Executor("aot"))
    got = results(AotModule(lib["default"](tvm.cpu(0))), inputs)
    hold(tuple(got), tuple(flat(want)), near, tolerance_of(drawn))
    program = Program(mod, tmp_path)
    got = program(list(inputs.values()), got)
    hold(tuple(got), tuple(flat(want)), near, tolerance_of(drawn))


def test_outputs_that_no_kernel_writes(tmp_path: Path) -> None:
    x = relay.var("x", shape=(2, 3))
    held = relay.const(np.arange(4, dtype="int32"))
    twice = relay.add(x, x)
    turned = relay.reshape(twice, (3, 2))
    body = relay.Tuple((x, twice, turned, held, relay.reshape(x, (6,)), twice))
    mod = tvm.IRModule.from_expr(body)
    given = np.arange(6, dtype="float32").reshape(2, 3)
    want = [given, given * 2, (given * 2).reshape(3, 2), np.arange(4, dtype="int32"),
            given.ravel(), given * 2]
    lib = relay.build(mod, target="llvm", executor=Executor("aot"))
    for got, wanted in zip(results(AotModule(lib["default"](tvm.cpu(0))), {"x": given}), want,
                           strict=True):
        np.testing.assert_array_equal(got, wanted)
    for got, wanted in zip(Program(mod, tmp_path)([given], want), want, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16",
                                   "float64", "float8_e4m3fn"])
def test_constants_of_any_type(dtype: str, tmp_path: Path) -> None:
    numbers = np.array([0, 1, 1, 0.5]) if "float" in dtype else np.array([0, 1, 1, 0])
    held = from_numpy(numbers, dtype)
    mod = tvm.IRModule.from_expr(relay.Tuple((relay.var("x", shape=(1,)), relay.const(held))))
    got = Program(mod, tmp_path)([np.ones(1, "float32")], [np.ones(1, "float32"), held.numpy()])
    np.testing.assert_array_equal(got[1], held.numpy())


def test_a_program_uses_nothing_of_the_system(tmp_path: Path) -> None:
    mod, params, x = keywords()
    want = by_graph(mod, {"data": x}, params=params)
    program = Program(mod, tmp_path, params=params)
    np.testing.assert_allclose(program([x], want)[0], want[0], rtol=1e-5)
    text = program.built.get_lib().get_source()
    for word in ("malloc", "__sterna__host", "sterna_allocate", "__tvm_ffi_"):
        assert word not in text
    assert program.built.get_c_header() in text
    report = program.built.memory_report()
    assert f"TVMGEN_DEFAULT_WORKSPACE_SIZE {report.workspace_bytes}\n" in text
    assert "TVMGEN_DEFAULT_DATA_SIZE 1960\n" in text and "OUTPUT_SIZE 48\n" in text
    assert report.constant_bytes == 4 * (16 * 9 + 12 * 16) and "least possible" in str(report)


@pytest.mark.parametrize(
    "algorithm", ["greedy_by_size", "greedy_by_conflicts", "linear_scan", "hill_climb", "optimal"]
)
def test_algorithms(algorithm: str) -> None:
    mod, params, _ = keywords()
    config = {"tir.usmp.enable": True, "tir.usmp.algorithm": algorithm}
    with tvm.transform.PassContext(opt_level=3, config=config):
        built = relay.build(mod, target="c", params=params, runtime=Runtime("crt"),
                            executor=Executor("aot", C_INTERFACE))
    report = built.memory_report()
    assert report.algorithm == algorithm and report.workspace_bytes >= report.workspace_bound


def test_several_models_in_one_program(tmp_path: Path) -> None:
    cc = require_program("gcc")
    x = relay.var("x", shape=(4,))
    sources = []
    for name, body in (("first", x + relay.const(1.0)), ("second", relay.exp(x))):
        built = relay.build(
            tvm.IRModule.from_expr(body), target="c", mod_name=name, runtime=Runtime("crt"),
            executor=Executor("aot", C_INTERFACE),
        )
        built.export_library(tmp_path / f"{name}.c")
        (tmp_path / f"tvmgen_{name}.h").write_text(built.get_c_header())
        sources.append(str(tmp_path / f"{name}.c"))
    (tmp_path / "main.c").write_text("""
#include <stdio.h>
#include "tvmgen_first.h"
#include "tvmgen_second.h"
int main(void) {
  float x[4] = {0, 1, 2, 3}, y[4], z[4];
  struct tvmgen_first_inputs a = {x};
  struct tvmgen_first_outputs b = {y};
  struct tvmgen_second_inputs c = {y};
  struct tvmgen_second_outputs d = {z};
  if (tvmgen_first_run(&a, &b) || tvmgen_second_run(&c, &d)) return 1;
  for (int i = 0; i < 4; i++) printf("%.9g\\n", z[i]);
  return 0;
}
""")
    program = str(tmp_path / "program")
    subprocess.run([cc, *STRICT, str(tmp_path / "main.c"), *sources, "-o", program, "-lm"],
                   check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    want = np.exp(np.arange(4, dtype="float32") + 1)
    np.testing.assert_allclose(np.array(done.stdout.split(), "float32"), want, rtol=1e-6)


def test_plain_addresses_have_a_header_unless_it_is_said_otherwise() -> None:
    mod, params, _ = keywords()
    built = relay.build(mod, target="c", params=params, runtime=Runtime("crt"),
                        executor=Executor("aot", {"unpacked-api": True}))
    assert "struct tvmgen_default_inputs" in built.get_c_header()


def test_a_packed_interface_without_a_runtime() -> None:
    mod, params, x = keywords()
    want = by_graph(mod, {"data": x}, params=params)
    built = relay.build(
        mod, target="c", params=params, runtime=Runtime("crt"),
        executor=Executor("aot", {"unpacked-api": True, "interface-api": "packed"}),
    )
    out = tvm.nd.array(np.zeros((1, 12), "float32"))
    built.get_lib()["tvmgen_default___tvm_main__"](tvm.nd.array(x), out)
    np.testing.assert_allclose(out.numpy(), want[0], rtol=1e-5)
    with pytest.raises(ValueError, match="has no header"):
        built.get_c_header()
    with pytest.raises(ValueError, match="without a runtime"):
        built["default"]


@pytest.mark.parametrize(
    "executor,runtime,target,words",
    [
        (Executor("aot", C_INTERFACE), "cpp", "c", "Need unpacked-api == false .got: 1. and inter"),
        (Executor("aot", {"interface-api": "c"}), "crt", "c",
         'interface_api == "packed" .got: c. or unpacked-api == true'),
        (Executor("aot", {"interface-api": "d"}), "crt", "c", '"packed" or "c", not "d"'),
        (Executor("aot", C_INTERFACE), "crt", "llvm", 'build for the target "c"'),
        (Executor("aot", {"workspace-byte-alignment": 12}), "crt", "c", "power of two, not 12"),
        (Executor("graph"), "crt", "c", 'needs Executor\\("aot"\\)'),
    ],
)
def test_choices_that_mean_nothing(
    executor: Executor, runtime: str, target: str, words: str
) -> None:
    mod, params, _ = keywords()
    with pytest.raises(ValueError, match=words):
        relay.build(mod, target=target, params=params, executor=executor, runtime=runtime)


def test_inputs_of_one_name_in_c() -> None:
    body = relay.var("a.b", shape=(2,)) + relay.var("a_b", shape=(2,))
    with pytest.raises(ValueError, match=r"'a\.b' and 'a_b' of default would both be a_b in C"):
        relay.build(
            tvm.IRModule.from_expr(body), target="c", runtime=Runtime("crt"),
            executor=Executor("aot", C_INTERFACE),
        )


PAIRS = [(False, "packed"), (True, "packed"), (False, "c"), (True, "c")]


@pytest.mark.parametrize("runtime", ["cpp", "crt"])
@pytest.mark.parametrize("unpacked,interface", PAIRS)
def test_every_combination_builds_or_is_refused(
    unpacked: bool, interface: str, runtime: str
) -> None:
    """The runtime calls packed functions only; without it, a C interface passes addresses only."""
    fits = (not unpacked and interface == "packed") if runtime == "cpp" else (
        unpacked or interface == "packed"
    )
    executor = Executor("aot", {"unpacked-api": unpacked, "interface-api": interface})
    mod, params, _ = keywords()

    def build() -> Any:
        return relay.build(mod, target="c", params=params, executor=executor,
                           runtime=Runtime(runtime, {"system-lib": True}))

    if not fits:
        with pytest.raises(ValueError, match="when targeting c"):
            build()
        return
    built = build()
    assert getattr(built, "has_header", False) == (interface == "c")


def test_parameters_that_a_graphs_code_carries(tmp_path: Path) -> None:
    mod, params, x = keywords()
    want = by_graph(mod, {"data": x}, params=params)
    linked = Executor("graph", {"link-params": True})
    built = relay.build(mod, target="llvm", params=params, executor=linked)
    assert built.get_params() == {} and built.params == {}
    with pytest.warns(DeprecationWarning, match="is the old way"):
        graph, lib, rest = built
    assert rest == {}
    got = results(graph_executor.GraphModule(built["default"](tvm.cpu(0))), {"data": x})
    np.testing.assert_array_equal(got[0], want[0])
    got = results(graph_executor.create(graph, lib, tvm.cpu(0)), {"data": x})
    np.testing.assert_array_equal(got[0], want[0])
    lib.export_library(tmp_path / "kernels.so")
    loaded = tvm.runtime.load_module(tmp_path / "kernels.so")
    got = results(graph_executor.create(graph, loaded, tvm.cpu(0)), {"data": x})
    np.testing.assert_array_equal(got[0], want[0])
    apart = relay.build(mod, target="llvm", params=params)
    # Weights of 16 x 1 x 3 x 3 and 12 x 16, and what packing adds to fill a register tile.
    assert 1344 <= sum(array.nbytes for array in apart.get_params().values()) < 1.1 * 1344

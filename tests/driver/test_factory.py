"""Built graphs: in memory, and in files of every form that fresh processes run."""

import gc
import json
import os
import subprocess
import sys
import tarfile
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna.codegen.model_data import ModelData
from sterna.contrib import graph_executor
from sterna.driver.factory import GraphExecutorFactoryModule
from tests.runtime.graphs import SHAPE, Graph, kernels, sample, small_graph
from tests.support import require_module, require_program

CPU = tvm.cpu(0)

RUN = """
import sys
import numpy as np
import sterna as tvm
from sterna.contrib import graph_executor
lib = tvm.runtime.load_module(sys.argv[1])
m = graph_executor.GraphModule(lib["{name}"](tvm.cpu(0)))
x = np.arange(15, dtype="float32").reshape(3, 5)
w = np.load(sys.argv[2])
m.run(x=x)
np.testing.assert_array_equal(m.get_output(1).numpy(), x + w)
a = np.empty((3, 5), "float32")
lib["add"](x, w, a)                     # the kernels are there too
np.testing.assert_array_equal(a, x + w)
assert "onnx" not in sys.modules
assert "{suffix}" in (".o", ".a", ".c") or "llvmlite" not in sys.modules
"""


def make(
    target: str = "llvm", name: str = "default", graph: Graph | None = None, **params: Any
) -> GraphExecutorFactoryModule:
    module = kernels(target)
    text = (graph or small_graph()).planned_json()
    return GraphExecutorFactoryModule(
        module.code, text, params or {"w": sample(2)}, name, module.target, None
    )


def check(executor: tvm.Module, x: Any, w: Any) -> None:
    m = graph_executor.GraphModule(executor)
    m.run(x=x)
    np.testing.assert_array_equal(m.get_output(1).numpy(), x + w)


# ---- in memory ----


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_executors_are_made_without_files(target: str) -> None:
    lib = make(target)
    check(lib["default"](CPU), sample(1), sample(2))
    check(lib.get_function("default")(CPU), sample(3), sample(2))
    check(lib["debug_create"]("default", CPU), sample(4), sample(2))
    check(lib.module["default"](CPU), sample(5), sample(2))
    out = np.empty(SHAPE, "float32")
    lib["halve"](sample(1), out)
    np.testing.assert_array_equal(out, sample(1) * np.float32(0.5))
    with pytest.raises(AttributeError, match="no function 'nothing'"):
        lib["nothing"]


def test_executors_share_one_copy_of_the_parameters() -> None:
    lib = make()
    first, second = (graph_executor.GraphModule(lib["default"](CPU)) for _ in range(2))
    place = lib.params["w"].data_ptr()
    assert first.get_input("w").data_ptr() == second.get_input("w").data_ptr() == place
    first.set_input("w", sample(9))
    check(second.module, sample(1), sample(2))
    check(first.module, sample(1), sample(9))
    np.testing.assert_array_equal(lib.params["w"].numpy(), sample(2))


def test_its_parts() -> None:
    lib = make(name="net")
    assert lib.get_graph_json() == lib.graph_json == lib.get_executor_config()
    assert lib["get_graph_json"]() == lib.graph_json
    assert json.loads(lib.graph_json)["arg_nodes"] == [0, 1]
    assert list(lib.get_params()) == ["w"] == [name for name, _ in lib["get_graph_params"]()]
    assert lib.get_lib() is lib.lib and lib.libmod_name == "net"
    assert lib.target.kind.name == "llvm" and lib.ir_mod.functions == {}
    m = graph_executor.create(lib.get_graph_json(), lib.get_lib(), CPU)
    m.load_params(tvm.runtime.save_param_dict(lib.get_params()))
    check(m.module, sample(1), sample(2))


def test_the_old_way_of_three_parts_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="the old way"):
        graph, lib, params = make()
    m = graph_executor.create(graph, lib, CPU)
    m.set_input(**params)
    check(m.module, sample(1), sample(2))


def test_parameters_are_removed() -> None:
    bare: GraphExecutorFactoryModule = make()["remove_params"]()
    assert bare.params == {}
    check(bare["default"](CPU), sample(1), np.zeros(SHAPE, "float32"))


def test_what_is_wrong_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="mod_name 'my-net'"):
        make(name="my-net")
    with pytest.raises(ValueError, match=r"parameter 'w' is float32\[3, 5\], but float32\[2\]"):
        make(w=np.zeros(2, "float32"))["default"](CPU)
    with pytest.raises(RuntimeError, match="Could not find 'v' in graph's inputs"):
        make(v=np.zeros(2, "float32"))["default"](CPU)
    with pytest.raises(TypeError, match="a device"):
        make()["default"]("cpu")


def test_a_factory_ends() -> None:
    lib = make()
    alive = weakref.ref(lib._built.params["w"])
    executor = lib["default"](CPU)
    del lib
    gc.collect()
    check(executor, sample(1), sample(2))
    del executor
    gc.collect()
    assert alive() is None


# ---- in files ----


def run_fresh(path: Path, name: str = "default") -> None:
    weights = path.parent / "w.npy"
    np.save(weights, sample(2))
    code = RUN.format(name=name, suffix=path.suffix)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(weights)], capture_output=True, text=True,
        timeout=120, check=False,
    )
    assert done.returncode == 0, done.stderr


FORMS = [("llvm", s) for s in (".so", ".tar", ".o", ".a")] + [
    ("c", s) for s in (".so", ".tar", ".o", ".a", ".c")
]


@pytest.mark.parametrize(("target", "suffix"), FORMS)
def test_a_fresh_process_runs_it(target: str, suffix: str, tmp_path: Path) -> None:
    require_program("cc")
    path = tmp_path / f"model{suffix}"
    make(target, "net").export_library(path)
    assert list(tmp_path.iterdir()) == [path]
    run_fresh(path, "net")


@pytest.mark.parametrize(("target", "suffix"), FORMS)
def test_the_same_input_gives_the_same_bytes(target: str, suffix: str, tmp_path: Path) -> None:
    require_program("cc")
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    make(target).export_library(first)
    make(target).export_library(second)
    assert first.read_bytes() == second.read_bytes()


def test_the_library_has_the_functions_of_a_factory(tmp_path: Path) -> None:
    require_program("cc")
    lib = make()
    lib.export_library(tmp_path / "model.so")
    loaded = tvm.runtime.load_module(tmp_path / "model.so")
    assert loaded["get_graph_json"]() == lib.graph_json
    params = dict(loaded["get_graph_params"]())
    np.testing.assert_array_equal(params["w"].numpy(), sample(2))
    assert params["w"].is_read_only and params["w"].data_ptr() % 64 == 0
    check(loaded["debug_create"]("default", CPU), sample(1), sample(2))
    bare = loaded["remove_params"]()
    assert bare["get_graph_params"]() == []
    check(bare["default"](CPU), sample(1), np.zeros(SHAPE, "float32"))
    with pytest.raises(AttributeError, match="no function 'other'"):
        loaded["other"]


def test_parts_alone_make_an_executor(tmp_path: Path) -> None:
    require_program("cc")
    lib = make()
    lib.get_lib().export_library(tmp_path / "kernels.so")
    loaded = tvm.runtime.load_module(tmp_path / "kernels.so")
    assert not loaded.implements_function("default")
    m = graph_executor.create(lib.get_graph_json(), loaded, CPU)
    m.load_params(bytearray(tvm.runtime.save_param_dict(lib.get_params())))
    check(m.module, sample(1), sample(2))


def test_tvm_ffi_loads_its_kernels(tmp_path: Path) -> None:
    require_program("cc")
    require_module("tvm_ffi")
    make().export_library(tmp_path / "model.so")
    code = """
import sys, numpy as np, tvm_ffi
x, out = np.ones((3, 5), "float32"), np.empty((3, 5), "float32")
tvm_ffi.load_module(sys.argv[1])["halve"](x, out)
assert (out == 0.5).all() and "sterna" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model.so")], check=True)


def test_the_archive_holds_the_library_and_its_parts(tmp_path: Path) -> None:
    require_program("cc")
    make().export_library(tmp_path / "model.tar")
    with tarfile.open(tmp_path / "model.tar") as archive:
        assert archive.getnames() == ["lib.so", "lib0.o", "model.o"]


def test_fcompile_gets_all_files(tmp_path: Path) -> None:
    given: list[str] = []
    make().export_library(tmp_path / "x.so", fcompile=lambda out, files: given.extend(files))
    assert [Path(file).name for file in given] == ["lib0.o", "model.o"]
    given.clear()
    make("c").export_library(tmp_path / "x.so", fcompile=lambda out, files: given.extend(files))
    assert [Path(file).name for file in given] == ["lib0.c", "model.c"]


@pytest.mark.parametrize(
    "target",
    ["llvm -mtriple=aarch64-linux-gnu", "llvm -mtriple=x86_64-windows-gnu",
     "llvm -mtriple=arm64-apple-macos", "llvm -mtriple=riscv64-linux-gnu"],
)
def test_other_systems_get_their_objects(target: str, tmp_path: Path) -> None:
    files: dict[str, bytes] = {}

    def keep(out: str, paths: list[str]) -> None:
        files.update({Path(path).name: Path(path).read_bytes() for path in paths})

    lib = make(target)
    lib.export_library(tmp_path / "x.o", fcompile=keep)
    assert set(files) == {"lib0.o", "model.o", "linked.o"}
    data = ModelData("default", lib.graph_json, lib.params).to_bytes()
    assert bytes(data) in files["model.o"]
    assert b"sterna_register_model" in files["linked.o"]


def test_many_kinds_of_parameters_pass_through_files(tmp_path: Path) -> None:
    require_program("cc")
    graph = Graph()
    values: dict[str, Any] = {
        "a": np.arange(7, dtype="int8"), "b": np.float64(3.5), "empty": np.zeros((0, 4), "int32"),
        "flags": np.array([True, False]), "wide": sample(3, (2, 3, 4)), "ä": np.arange(3),
    }
    small = tvm.nd.empty((3,), "int4")
    small._copy_from_buffer(np.array([0x21, 0x03], "uint8"))
    values = {name: tvm.nd.array(value) for name, value in values.items()} | {"small": small}
    for name, array in values.items():
        graph.heads.append(graph.input(name, array.shape, array.dtype))
    lib = make("llvm", "default", graph, **values)
    lib.export_library(tmp_path / "model.so")
    for source in (lib, tvm.runtime.load_module(tmp_path / "model.so")):
        m = graph_executor.GraphModule(source["default"](CPU))
        m.run()
        for i, array in enumerate(values.values()):
            np.testing.assert_array_equal(m.get_output(i).numpy(), array.numpy())


def test_threads_load_and_run_at_once(tmp_path: Path) -> None:
    require_program("cc")
    make().export_library(tmp_path / "model.so")
    failures: list[Exception] = []

    def work(seed: int) -> None:
        try:
            for _ in range(10):
                loaded = tvm.runtime.load_module(tmp_path / "model.so")
                check(loaded["default"](CPU), sample(seed), sample(2))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ---- large ones ----

LOAD_LARGE = """
import json, resource, sys, time
import sterna as tvm
from sterna.contrib import graph_executor

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()

tvm.cpu(0)
before, start = resident(), time.process_time()
lib = tvm.runtime.load_module(sys.argv[1])
m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
m.run()
seconds, grown = time.process_time() - start, resident() - before
big = m.get_input("big")
assert big.shape == (25_000_000,) and big.is_read_only
print(json.dumps([seconds, grown]))
"""


def test_a_hundred_megabytes_load_in_no_time(tmp_path: Path) -> None:
    require_program("cc")
    graph = small_graph()
    graph.input("big", (25_000_000,))
    big = tvm.nd.empty((25_000_000,), "float32")
    lib = make(graph=graph, w=sample(2), big=big)
    lib.export_library(tmp_path / "large.so")
    assert (tmp_path / "large.so").stat().st_size > 100_000_000

    def load(checked: str) -> list[tuple[float, int]]:
        results = []
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, "-c", LOAD_LARGE, str(tmp_path / "large.so")], text=True,
                capture_output=True, timeout=60, check=False,
                env={**os.environ, "STERNA_CHECK_SEALS": checked},
            )
            assert done.returncode == 0, done.stderr
            results.append(json.loads(done.stdout))
        assert max(grown for _, grown in results) < 4_000_000
        return results

    assert min(seconds for seconds, _ in load("0")) < 0.05
    assert min(seconds for seconds, _ in load("1")) < 2  # a digest without SHA instructions

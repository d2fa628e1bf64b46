"""A network as a WebAssembly module gives the host's numbers, in Node and in wasmtime."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import cc
from sterna.contrib.graph_executor import GraphModule
from tests.contrib.test_cross import build, check, network, tiny
from tests.support import ROOT, require_module, require_program

EXAMPLES = ROOT / "examples" / "wasm"
PLAIN, VECTORS = "llvm -mtriple=wasm32-wasi", "llvm -mtriple=wasm32-wasi -mattr=+simd128"


def node() -> list[str | Path]:
    return [require_program("node"), EXAMPLES / "run_model.mjs"]


def wasmtime() -> list[str | Path]:
    require_module("wasmtime")
    return [sys.executable, EXAMPLES / "run_model.py"]


@pytest.mark.parametrize("target", [PLAIN, VECTORS, "c -mtriple=wasm32-wasi"])
def test_the_hosts_numbers(target: str, tmp_path: Path) -> None:
    require_module("ziglang")
    build(target).export_library(tmp_path / "model.wasm")
    check([*node(), tmp_path / "model.wasm"])
    check([*wasmtime(), tmp_path / "model.wasm"])


class Exports:
    """A module's functions and memory, under wasmtime."""

    def __init__(self, path: Path) -> None:
        from wasmtime import Engine, Instance, Module, Store

        self.store = Store(Engine())
        module = Module.from_file(self.store.engine, str(path))
        assert module.imports == []
        self.names = {export.name for export in module.exports}
        self._all = Instance(self.store, module, []).exports(self.store)
        self.memory: Any = self._all["memory"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function: Any = self._all[name]
        return lambda *args: function(self.store, *args)

    def text(self, at: int) -> str:
        return bytes(self.memory.read(self.store, at, at + 500)).split(b"\0")[0].decode()

    def array(self, at: int, dtype: str, count: int) -> Any:
        size = np.dtype(dtype).itemsize * count
        return np.frombuffer(bytes(self.memory.read(self.store, at, at + size)), dtype)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """Two inputs of unlike types, a parameter, two outputs."""
    require_module("ziglang")
    require_module("wasmtime")
    a, b = relay.var("a", shape=(2, 3)), relay.var("b", shape=(3,), dtype="int8")
    sums = relay.add(a, relay.cast(b, "float32")) * relay.var("w", shape=(3,))
    mod = tvm.IRModule.from_expr(relay.Tuple((sums, relay.cast(relay.argmax(sums, 1), "int64"))))
    params = {"w": np.array([1, -2, 3], "float32")}
    path = tmp_path_factory.mktemp("wasm") / "model.wasm"
    relay.build(mod, target=PLAIN, params=params).export_library(path)
    made = Exports(path)
    made._initialize()
    return made


def test_it_says_what_it_takes_and_gives(exports: Exports) -> None:
    assert exports.input_count() == 2 and exports.output_count() == 2
    found = []
    for kind, count in (("input", 2), ("output", 2)):
        for i in range(count):
            name, dtype, rank, shape, size = (
                getattr(exports, f"{kind}_{what}")(i)
                for what in ("name", "type", "rank", "shape", "bytes")
            )
            dims = exports.array(shape, "int64", rank).tolist()
            found.append((exports.text(name), exports.text(dtype), dims, size))
    assert found[:2] == [("a", "float32", [2, 3], 24), ("b", "int8", [3], 3)]
    assert [row[1:] for row in found[2:]] == [("float32", [2, 3], 24), ("int64", [2], 16)]


def test_it_runs_again_and_again(exports: Exports) -> None:
    rng = np.random.default_rng(3)
    for _ in range(3):
        a, b = rng.standard_normal((2, 3)).astype("float32"), rng.integers(-9, 9, 3, "int8")
        for i, value in enumerate((a, b)):
            exports.memory.write(exports.store, value.tobytes(), exports.input_data(i))
        assert exports.run() == 0
        want = (a + b) * np.array([1, -2, 3], "float32")
        got = exports.array(exports.output_data(0), "float32", 6).reshape(2, 3)
        np.testing.assert_array_equal(got, want)
        most = exports.array(exports.output_data(1), "int64", 2)
        np.testing.assert_array_equal(most, want.argmax(1))


def test_what_is_wrong_is_said(exports: Exports) -> None:
    assert exports.input_data(2) == 0
    assert exports.text(exports.last_error()) == "there is no input 2; the model has 2"
    assert exports.output_bytes(-1) == -1
    assert "there is no output -1" in exports.text(exports.last_error())


def test_the_interface_is_documented(exports: Exports) -> None:
    source = (ROOT / "runtime" / "wasm" / "interface.c").read_text()
    written = set(re.findall(r"[a-z_]+(?=\()|memory", source.split("*/")[0]))
    page = (ROOT / "docs" / "cross_compiling.md").read_text()
    for name in exports.names:
        documented = name.replace("output_", "input_")
        assert documented in written and f"`{documented}" in page, name


def test_vectors_are_used_where_they_are_allowed() -> None:
    assert "f32x4.mul" in build(VECTORS).lib.get_source("asm")
    assert "f32x4" not in build(PLAIN).lib.get_source("asm")


def test_other_forms(tmp_path: Path) -> None:
    require_module("ziglang")
    lib = tiny(VECTORS)
    lib.export_library(tmp_path / "model.o")
    lib.export_library(tmp_path / "model.tar")
    for name in ("model.o", "model.tar"):
        with pytest.raises(ValueError, match="run it in Node, a browser or wasmtime"):
            tvm.runtime.load_module(tmp_path / name)
    with pytest.raises(ValueError, match=r"no shared libraries; export a model as a whole module"):
        lib.export_library(tmp_path / "model.so")
    with pytest.raises(ValueError, match=r"holds a whole model, as relay\.build makes it"):
        lib.lib.export_library(tmp_path / "kernels.wasm")
    with pytest.raises(ValueError, match=r'build it for the target "llvm -mtriple=wasm32-wasi"'):
        tiny("llvm").export_library(tmp_path / "model.wasm")


def test_an_object_is_linked_into_a_program_of_wasi(tmp_path: Path) -> None:
    """What joins objects keeps what announces the model."""
    require_module("ziglang")
    require_program("node")
    build(PLAIN).export_library(tmp_path / "model.o")
    example = ROOT / "examples" / "c" / "run_model.c"
    program = tmp_path / "program.wasm"
    cc.cross_compile([example, tmp_path / "model.o"], program, target=PLAIN, static=True)
    script = tmp_path / "wasi.mjs"
    script.write_text(
        'import { readFileSync } from "node:fs"; import { WASI } from "node:wasi";\n'
        'const wasi = new WASI({ version: "preview1", args: ["program"] });\n'
        "const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]),\n"
        "  wasi.getImportObject());\n"
        "process.exitCode = wasi.start(instance);\n"
    )
    check([require_program("node"), "--no-warnings", script, program])


def test_a_larger_network_needs_more_memory_than_a_module_begins_with(tmp_path: Path) -> None:
    require_module("ziglang")
    x = relay.var("x", shape=(1, 8, 160, 160))
    conv = relay.nn.conv2d(x, relay.var("w", shape=(32, 8, 3, 3)), padding=(1, 1))
    mod = tvm.IRModule.from_expr(relay.nn.global_avg_pool2d(relay.nn.relu(conv)))
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((32, 8, 3, 3)).astype("float32")}
    data = rng.standard_normal((1, 8, 160, 160)).astype("float32")
    host = GraphModule(relay.build(mod, target="llvm", params=params)["default"](tvm.cpu()))
    host.run(x=data)
    relay.build(mod, target=VECTORS, params=params).export_library(tmp_path / "model.wasm")
    done = subprocess.run(
        [*node(), tmp_path / "model.wasm"], input=data.tobytes(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    want = host.get_output(0).numpy().ravel()
    np.testing.assert_allclose(np.frombuffer(done.stdout, "float32"), want, rtol=2e-5)


def test_the_module_is_small(tmp_path: Path) -> None:
    require_module("ziglang")
    _, params, _, _ = network()
    build(PLAIN).export_library(tmp_path / "model.wasm")
    weights = sum(value.nbytes for value in params.values())
    assert (tmp_path / "model.wasm").stat().st_size < 140_000 + weights

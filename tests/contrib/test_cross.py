"""A network compiled here runs elsewhere, in C programs: linked into them, and loaded by them."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import cc, ndk
from sterna.contrib.graph_executor import GraphModule
from sterna.support import cross
from sterna.target import Target
from sterna.testing import require
from tests.support import ROOT, require_module, require_program

EXAMPLE = ROOT / "examples" / "c" / "run_model.c"

# The target, its emulator, and where Debian's libc6-*-cross packages put its C library.
MACHINES = [
    ("llvm -mtriple=aarch64-linux-gnu -mattr=+neon", "qemu-aarch64", "/usr/aarch64-linux-gnu"),
    ("llvm -mtriple=armv7l-linux-gnueabihf", "qemu-arm", "/usr/arm-linux-gnueabihf"),
    ("llvm -mtriple=riscv64-linux-gnu", "qemu-riscv64", "/usr/riscv64-linux-gnu"),
    ("llvm -mtriple=x86_64-linux-gnu", "qemu-x86_64", "/usr/x86_64-linux-gnu"),
]
ELSEWHERE = [row for row in MACHINES if not cross.is_here(row[0].split("=")[1].split()[0])]


@cache
def network() -> tuple[tvm.IRModule, dict[str, Any], Any, Any]:
    """A small network, its parameters, an input, and what it gives here."""
    data = relay.var("data", shape=(1, 3, 9, 7))
    conv = relay.nn.conv2d(data, relay.var("w1", shape=(5, 3, 3, 3)), padding=(1, 1))
    pooled = relay.nn.batch_flatten(relay.nn.max_pool2d(relay.nn.relu(conv), (2, 2), (2, 2)))
    out = relay.nn.softmax(relay.nn.dense(pooled, relay.var("w2", shape=(6, 60))))
    mod = tvm.IRModule.from_expr(out)
    rng = np.random.default_rng(5)
    params = {
        "w1": rng.standard_normal((5, 3, 3, 3)).astype("float32"),
        "w2": rng.standard_normal((6, 60)).astype("float32") * 0.1,
    }
    x = rng.standard_normal((1, 3, 9, 7)).astype("float32")
    module = GraphModule(relay.build(mod, target="llvm", params=params)["default"](tvm.cpu(0)))
    module.run(data=x)
    return mod, params, x, module.get_output(0).numpy()


def build(target: str) -> Any:
    mod, params, _, _ = network()
    return relay.build(mod, target=target, params=params)


def check(command: list[str | Path]) -> None:
    _, _, x, want = network()
    done = subprocess.run(command, input=x.tobytes(), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    np.testing.assert_allclose(np.frombuffer(done.stdout, "float32"), want.ravel(), rtol=1e-5)


@pytest.mark.parametrize("target,emulator,root", ELSEWHERE, ids=lambda text: text.split("=")[-1])
def test_it_runs_elsewhere(target: str, emulator: str, root: str, tmp_path: Path) -> None:
    require_module("ziglang")
    qemu = require_program(emulator)
    require(None if Path(root).is_dir() else f"{root} is not there: install libc6-*-cross")
    lib = build(target)
    lib.export_library(tmp_path / "model.a")
    program = tmp_path / "linked"
    cc.cross_compile([EXAMPLE, tmp_path / "model.a"], program, target=target, static=True)
    check([qemu, program])
    lib.export_library(tmp_path / "model.so")
    cc.cross_compile(EXAMPLE, tmp_path / "loads", target=target)
    check([qemu, "-L", root, tmp_path / "loads", tmp_path / "model.so"])
    with pytest.raises((RuntimeError, ValueError, OSError), match=r"model\.so"):
        tvm.runtime.load_module(tmp_path / "model.so")


def test_a_program_for_this_machine(tmp_path: Path) -> None:
    require_program("cc")
    build("llvm").export_library(tmp_path / "model.a")
    cc.cross_compile([EXAMPLE, tmp_path / "model.a"], tmp_path / "program", target="llvm")
    check([tmp_path / "program"])


@pytest.mark.parametrize(
    "triple,form",
    [
        ("aarch64-apple-macos11", b"\xcf\xfa\xed\xfe"),
        ("x86_64-windows-gnu", b"MZ"),
    ],
)
def test_libraries_for_other_systems(triple: str, form: bytes, tmp_path: Path) -> None:
    require_module("ziglang")
    suffix = ".dylib" if "apple" in triple else ".dll"
    path = tmp_path / f"model{suffix}"
    build(f"llvm -mtriple={triple}").export_library(path)
    assert path.read_bytes().startswith(form)


def test_a_compiler_that_export_library_is_given(tmp_path: Path) -> None:
    gcc = require_program("gcc")
    build("llvm").export_library(tmp_path / "one.so", fcompile=cc.cross_compile(gcc, ["-lm"]))
    called = []

    def compile_func(output: str, objects: list[str], options: list[str]) -> None:
        called.append((output, len(objects), options))

    made = cc.cross_compile(compile_func, ["-lm"], add_files=["more.o"])
    assert made.output_format == "so"
    build("llvm").export_library(tmp_path / "two.so", fcompile=made)
    assert (tmp_path / "one.so").exists() and called[0][0] == str(tmp_path / "two.so")
    assert called[0][2] == ["-lm"]


def test_machines_by_their_triples() -> None:
    find = cross.Machine.of
    assert find("arm64-apple-darwin") == cross.Machine("aarch64", "macos")
    assert find("armv7a-linux-gnueabi") == cross.Machine("arm", "linux", False)
    arm = find("armv7l-unknown-linux-gnueabihf")
    assert arm is not None and arm.gcc == "arm-linux-gnueabihf-gcc"
    assert arm.zig(True) == "arm-linux-musleabihf" and arm.zig(False) == "arm-linux-gnueabihf"
    wasm = find("wasm32-unknown-unknown")
    assert wasm is not None and wasm.zig(True) == "wasm32-wasi"
    assert find("hexagon-unknown-elf") is None


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no C library to link for thumbv7em-none-eabi"):
        cross.compiler_for("thumbv7em-none-eabi")
    monkeypatch.delenv("TVM_NDK_CC", raising=False)
    with pytest.raises(RuntimeError, match="set TVM_NDK_CC"):
        cross.compiler_for("aarch64-linux-android")
    with pytest.raises(RuntimeError, match="set TVM_NDK_CC"):
        ndk.create_shared(tmp_path / "m.so", [EXAMPLE])
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"install riscv64-linux-gnu-gcc \(Debian: gcc-riscv64"):
        cross.compiler_for("riscv64-linux-gnu")
    with pytest.raises(ValueError, match="needs inputs, an output and target="):
        cc.cross_compile([EXAMPLE], tmp_path / "program")


def test_riscv_under_linux_has_what_its_libraries_count_on() -> None:
    def features(words: str) -> set[str]:
        return set(tvm.target.machine_of(Target(f"llvm -mtriple={words}")).features.split(","))

    assert features("riscv64-linux-gnu") == {"+m", "+a", "+f", "+d", "+c"}
    assert "+d" not in features("riscv64-unknown-elf")
    assert features("riscv64-linux-gnu -mattr=+v") >= {"+d", "+v"}


def test_objects_for_machines_without_a_c_library_are_joined(tmp_path: Path) -> None:
    require_module("ziglang")
    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.Function((x,), relay.nn.relu(x)))
    lib = relay.build(mod, target="llvm -mcpu=cortex-m4 -mtriple=thumb-none-eabi")
    lib.export_library(tmp_path / "model.o")
    head = (tmp_path / "model.o").read_bytes()[:20]
    assert head[:4] == b"\x7fELF" and head[4] == 1 and head[18:20] == b"\x28\x00"  # 32 bits, ARM
    with pytest.raises(RuntimeError, match="no C library to link for thumb"):
        lib.export_library(tmp_path / "model.so")

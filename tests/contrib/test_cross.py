"""A network compiled here runs elsewhere, in C programs: linked into them, and loaded by them."""

import platform
import shlex
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
from sterna.support.architecture import Architecture, architecture_of
from sterna.support.emulators import runner_for
from sterna.support.toolchain import MissingToolError
from sterna.target import Target
from sterna.testing import require
from tests.support import ROOT, require_module, require_program

EXAMPLE = ROOT / "examples" / "c" / "run_model.c"

# Targets whose programs are run: here, or by an emulator with the C library from Debian's packages.
MACHINES = (
    "aarch64-linux-gnu -mattr=+neon", "armv7l-linux-gnueabihf", "riscv64-linux-gnu",
    "riscv64-linux-gnu -mattr=+v", "x86_64-linux-gnu",
)
ELSEWHERE = [options for options in MACHINES if not cross.is_here(options.split()[0])]


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


def tiny(target: str) -> Any:
    """A network of one operator."""
    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.Function((x,), relay.nn.relu(x)))
    return relay.build(mod, target=target)


def check(command: list[str | Path]) -> None:
    _, _, x, want = network()
    done = subprocess.run(command, input=x.tobytes(), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    np.testing.assert_allclose(np.frombuffer(done.stdout, "float32"), want.ravel(), rtol=1e-5)


@pytest.mark.parametrize("options", ELSEWHERE)
def test_it_runs_elsewhere(options: str, tmp_path: Path) -> None:
    require_module("ziglang")
    target = Target(f"llvm -mtriple={options}")
    machine = tvm.target.machine_of(target)
    require_program(f"qemu-{machine.triple.partition('-')[0].replace('armv7l', 'arm')}")
    try:
        qemu = shlex.split(runner_for(machine.triple, machine.emulator_options))
    except MissingToolError as error:
        require(str(error))
    lib = build(str(target))
    lib.export_library(tmp_path / "model.a")
    program = tmp_path / "linked"
    cc.cross_compile([EXAMPLE, tmp_path / "model.a"], program, target=target, static=True)
    check([*qemu[: qemu.index("-L")], program])
    lib.export_library(tmp_path / "model.so")
    cc.cross_compile(EXAMPLE, tmp_path / "loads", target=target)
    check([*qemu, tmp_path / "loads", tmp_path / "model.so"])
    with pytest.raises(ValueError, match=r"model\.so': it is built for .*, and this machine is"):
        tvm.runtime.load_module(tmp_path / "model.so")


def test_vectors_of_riscv_are_used(tmp_path: Path) -> None:
    text = build("llvm -mtriple=riscv64-linux-gnu -mattr=+v").lib.get_source("asm")
    assert "vfmacc" in text or "vfmadd" in text


def test_a_program_for_this_machine(tmp_path: Path) -> None:
    require_program("cc")
    build("llvm").export_library(tmp_path / "model.a")
    cc.cross_compile([EXAMPLE, tmp_path / "model.a"], tmp_path / "program", target="llvm")
    check([tmp_path / "program"])


@pytest.mark.parametrize(
    "triple,suffix",
    [("aarch64-apple-macos11", ".dylib"), ("x86_64-windows-gnu", ".dll")],
)
def test_libraries_for_other_systems(triple: str, suffix: str, tmp_path: Path) -> None:
    require_module("ziglang")
    path = tmp_path / f"model{suffix}"
    lib = build(f"llvm -mtriple={triple}")
    lib.export_library(path)
    lib.export_library(tmp_path / "model.a")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.a", path.name]
    form, processor = ("macho", "aarch64") if "apple" in triple else ("coff", "x86")
    assert architecture_of(path) == Architecture(form, processor, 64)
    assert architecture_of(tmp_path / "model.a") == Architecture(form, processor, 64)
    if form == "coff":
        with pytest.raises(ValueError, match=r"cannot be joined; export an archive \(\.a\)"):
            lib.export_library(tmp_path / "model.o")
        return
    lib.export_library(tmp_path / "model.o")
    for linked in ("model.a", "model.o"):
        cc.cross_compile([EXAMPLE, tmp_path / linked], tmp_path / "program", target=lib.target)
        assert b"fused_nn_conv2d" in (tmp_path / "program").read_bytes()


def test_libraries_for_android(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_module("ziglang")
    monkeypatch.delenv("TVM_NDK_CC", raising=False)
    lib = tiny("llvm -mtriple=aarch64-linux-android")
    for name in ("model.so", "model.o", "model.a", "model.tar"):
        lib.export_library(tmp_path / name)
        assert architecture_of(tmp_path / name) == Architecture("elf", "aarch64", 64)
    readelf = require_program("readelf")
    words = [readelf, "-dW", "-lW", str(tmp_path / "model.so")]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "[libm.so]" in shown and "[libc.so]" in shown and "libc.so.6" not in shown
    assert [line for line in shown.splitlines() if " LOAD " in line and "0x4000" in line]
    called = tmp_path / "clang"
    called.write_text("#!/bin/sh\necho the NDK is called; exit 3\n")
    called.chmod(0o755)
    monkeypatch.setenv("TVM_NDK_CC", str(called))
    with pytest.raises(RuntimeError, match="the NDK is called"):
        lib.export_library(tmp_path / "model.so")


@pytest.mark.parametrize(
    "triple,name",
    [("armv7a-linux-androideabi", "arm"), ("x86_64-linux-android", "x86"),
     ("x86_64-apple-macos", "x86")],
)
def test_archives_need_no_compiler(
    triple: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "apple" in triple:
        require_module("ziglang")
    monkeypatch.setattr(cross, "compiler_for", None)
    tiny(f"llvm -mtriple={triple}").export_library(tmp_path / "model.a")
    assert architecture_of(tmp_path / "model.a").processor == name


def test_objects_for_hexagon(tmp_path: Path) -> None:
    require_module("ziglang")
    lib = tiny("llvm -mtriple=hexagon-unknown-elf -mcpu=hexagonv68")
    for suffix in (".o", ".a", ".tar"):
        path = tmp_path / f"model{suffix}"
        lib.export_library(path)
        assert architecture_of(path) == Architecture("elf", "hexagon", 32)
        with pytest.raises(ValueError, match=r"it is built for Hexagon \(ELF\), and this machine"):
            tvm.runtime.load_module(path)
    with pytest.raises(RuntimeError, match="name the Hexagon SDK's hexagon-clang with cc="):
        lib.export_library(tmp_path / "model.so")


def test_c_is_compiled_for_its_own_machine(tmp_path: Path) -> None:
    require_module("ziglang")
    other = "riscv64" if "aarch64" in platform.machine() else "aarch64"
    lib = tiny(f"c -mtriple={other}-linux-gnu")
    for suffix in (".a", ".so"):
        lib.export_library(tmp_path / f"model{suffix}")
        assert other.startswith(architecture_of(tmp_path / f"model{suffix}").processor)


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
    assert find("hexagon-unknown-elf") == cross.Machine("hexagon", "none")
    assert find("avr-unknown-unknown") is None
    android = find("armv7a-linux-androideabi")
    assert android is not None and android.zig() == "arm-linux-androideabi" and not android.gcc


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
    with pytest.raises(RuntimeError, match=r"\(Debian: gcc-x86-64-linux-gnu\)"):
        cross.compiler_for("x86_64-linux-gnu")
    with pytest.raises(RuntimeError, match=r"pip install 'sterna\[cross\]'"):
        cross.linker_for("aarch64-linux-android")
    missing = (("s390x-linux-gnu", "qemu-s390x"), ("wasm32-wasi", "pip install wasmtime"))
    for triple, what in missing:
        with pytest.raises(MissingToolError, match=what):
            runner_for(triple)
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
    lib = tiny("llvm -mcpu=cortex-m4 -mtriple=thumb-none-eabi")
    lib.export_library(tmp_path / "model.o")
    head = (tmp_path / "model.o").read_bytes()[:20]
    assert head[:4] == b"\x7fELF" and head[4] == 1 and head[18:20] == b"\x28\x00"  # 32 bits, ARM
    with pytest.raises(RuntimeError, match="no C library to link for thumb"):
        lib.export_library(tmp_path / "model.so")

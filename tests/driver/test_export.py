"""Modules in files: every form loads in a fresh process and elsewhere."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import sterna as tvm
from sterna import te
from sterna.contrib import cc
from sterna.driver import OperatorModule
from sterna.support.toolchain import MissingToolError
from tests.support import require_module, require_program

LOAD = """
import sys
import numpy as np
import sterna as tvm
module = tvm.runtime.load_module(sys.argv[1])
a, b, c = np.ones(16, "float32"), np.arange(16, dtype="float32"), np.empty(16, "float32")
module["vecadd"](a, b, c)
assert (c == a + b).all()
c[:] = 0
module(a, b, c)
assert (c == a + b).all()
try:
    module["vecadd"](a, b)
    raise SystemExit("a bad call was accepted")
except TypeError as e:
    assert "expected 3 arguments" in str(e), e
"""

ELSEWHERE = """
import sys
import numpy as np
import tvm_ffi
module = tvm_ffi.load_module(sys.argv[1])
a, b, c = np.ones(16, "float32"), np.arange(16, dtype="float32"), np.empty(16, "float32")
module["vecadd"](a, b, c)
assert (c == a + b).all()
try:
    module["vecadd"](a, b)
    raise SystemExit("a bad call was accepted")
except TypeError as e:
    assert "expected 3 arguments" in str(e), e
try:
    import torch
except ImportError:
    torch = None
if torch:
    x, y, z = torch.ones(16), torch.arange(16.0), torch.empty(16)
    module["vecadd"](x, y, z)
    assert torch.equal(z, x + y)
assert "sterna" not in sys.modules
"""


def run_python(code: str, path: Path, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120,
        env=environment or None,
    )
    assert done.returncode == 0, done.stderr


def build(target: str = "llvm") -> OperatorModule:
    a, b = te.placeholder((16,), name="A"), te.placeholder((16,), name="B")
    c = te.compute((16,), lambda i: a[i] + b[i], name="C")
    schedule = te.create_schedule(c.op)
    outer, _ = schedule[c].split(c.op.axis[0], factor=4)
    schedule[c].parallel(outer)
    return tvm.build(schedule, [a, b, c], target=target, name="vecadd")


@pytest.fixture(autouse=True)
def compiler() -> None:
    require_program("cc")


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("suffix", [".so", ".tar", ".o", ".a"])
def test_a_fresh_process_loads_it(target: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"vecadd{suffix}"
    build(target).export_library(path)
    assert list(tmp_path.iterdir()) == [path]
    run_python(LOAD, path)


def test_c_source_is_exported_and_loaded(tmp_path: Path) -> None:
    build("c").export_library(tmp_path / "vecadd.c")
    run_python(LOAD, tmp_path / "vecadd.c")
    with pytest.raises(ValueError, match='for the target "c"'):
        build("llvm").export_library(tmp_path / "other.c")


@pytest.mark.parametrize("suffix", [".so", ".tar", ".o", ".a"])
def test_the_loader_needs_no_linker(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"vecadd{suffix}"
    build().export_library(path)
    run_python(LOAD, path, PATH=str(tmp_path), CC="")


def test_ziglang_links_where_there_is_no_linker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    build().export_library(tmp_path / "vecadd.so")
    run_python(LOAD, tmp_path / "vecadd.so")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_tvm_ffi_loads_it(target: str, tmp_path: Path) -> None:
    require_module("tvm_ffi")
    build(target).export_library(tmp_path / "vecadd.so")
    run_python(ELSEWHERE, tmp_path / "vecadd.so")


@pytest.mark.parametrize("suffix", [".so", ".tar", ".o", ".a"])
def test_the_same_input_gives_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    build().export_library(first)
    build().export_library(second)
    assert first.read_bytes() == second.read_bytes()


IN_C = r"""
#include <stdio.h>
#include "sterna.h"

int main(int argc, char **argv) {
  int64_t shape[] = {16};
  sterna_ndarray *arrays[3];
  sterna_any args[3], ret = {0};
  sterna_module *module;
  sterna_function *function;
  if (argc != 2 || sterna_module_load(argv[1], &module) ||
      sterna_module_get_function(module, "vecadd", 0, &function) || !function)
    return puts(sterna_last_error()), 1;
  for (int i = 0; i < 3; i++) {
    if (sterna_ndarray_empty(shape, 1, (DLDataType){kDLFloat, 32, 1}, (DLDevice){kDLCPU, 0},
                             &arrays[i]))
      return 1;
    for (int k = 0; k < 16; k++) ((float *)arrays[i]->tensor.data)[k] = (float)(k * (i + 1));
    args[i] = sterna_any_object(arrays[i]);
  }
  if (sterna_function_call(function, args, 3, &ret)) return puts(sterna_last_error()), 1;
  for (int k = 0; k < 16; k++)
    if (((float *)arrays[2]->tensor.data)[k] != (float)(3 * k)) return 1;
  if (sterna_function_call(function, args, 2, &ret) == 0) return 1;
  puts(sterna_last_error());
  return 0;
}
"""


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_c_program_runs_it_without_python(target: str, tmp_path: Path) -> None:
    build(target).export_library(tmp_path / "vecadd.so")
    (tmp_path / "main.c").write_text(IN_C)
    cc.create_executable(tmp_path / "main", tmp_path / "main.c")
    done = subprocess.run(
        [tmp_path / "main", tmp_path / "vecadd.so"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout
    assert "expected 3 arguments" in done.stdout


def test_save_writes_each_form(tmp_path: Path) -> None:
    module = build()
    for name in ("vecadd.o", "vecadd.ll", "vecadd.s"):
        module.save(str(tmp_path / name))
        assert (tmp_path / name).stat().st_size > 0
    run_python(LOAD, tmp_path / "vecadd.o")


def test_an_archive_holds_the_library_and_its_parts(tmp_path: Path) -> None:
    build().export_library(tmp_path / "vecadd.tar")
    with tarfile.open(tmp_path / "vecadd.tar") as archive:
        assert archive.getnames() == ["lib.so", "lib0.o"]


@pytest.mark.parametrize("suffix", [".so", ".tar", ".o", ".a"])
def test_truncated_files_are_refused_by_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"vecadd{suffix}"
    build().export_library(path)
    content = path.read_bytes()
    for keep in (0, 1, 40, len(content) // 3, len(content) // 2):
        cut = tmp_path / f"cut{keep}{suffix}"
        cut.write_bytes(content[:keep])
        with pytest.raises(ValueError, match=f"cut{keep}"):
            tvm.runtime.load_module(cut)


@pytest.mark.parametrize("suffix", [".so", ".tar", ".o", ".a", ".c"])
def test_files_that_are_something_else_are_refused_by_name(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"text{suffix}"
    path.write_text("this is no library, but it is long enough to look at " * 20)
    with pytest.raises(ValueError, match="text"):
        tvm.runtime.load_module(path)


def test_objects_for_another_machine_are_refused_by_name(tmp_path: Path) -> None:
    module = build("llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic-rv64")
    module.save(tmp_path / "riscv.o")
    with pytest.raises(ValueError, match=r"riscv\.o"):
        tvm.runtime.load_module(tmp_path / "riscv.o")


def test_unknown_suffixes_and_compilers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.so, \.tar"):
        build().export_library(tmp_path / "vecadd.zip")
    with pytest.raises(MissingToolError, match="no-such-cc"):
        build().export_library(tmp_path / "vecadd.so", cc="no-such-cc")
    assert list(tmp_path.iterdir()) == []


def test_cc_is_honoured(tmp_path: Path) -> None:
    compiler = require_program("cc")
    build().export_library(tmp_path / "vecadd.tar", cc=compiler)
    run_python(LOAD, tmp_path / "vecadd.tar")

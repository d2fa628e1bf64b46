"""Models in C programs without Python: loaded from libraries, and linked into the program."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sterna.contrib import cc
from sterna.driver.factory import GraphExecutorFactoryModule
from sterna.support import native
from sterna.support.cross import Machine
from tests.runtime.graphs import Graph, kernels, sample, small_graph
from tests.support import LEAKS, ROOT, require_program

EXAMPLE = ROOT / "examples" / "c" / "run_model.c"
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
SANITIZERS = ["-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SYSTEM = ["-lpthread", "-ldl", "-lm"]




def build(name: str = "default", target: str = "llvm", seed: int = 2) -> GraphExecutorFactoryModule:
    module = kernels(target)
    params = {"w": sample(seed)}
    return GraphExecutorFactoryModule(
        module.code, small_graph().planned_json(), params, name, module.target
    )


def run(command: list[str | Path], given: bytes = b"") -> bytes:
    done = subprocess.run(command, input=given, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0 and not done.stderr, f"{command}\n{done.stderr.decode()}"
    return done.stdout


def check_program(command: list[str | Path], seed: int = 2) -> None:
    """The program gives (x + w) / 2 in a row."""
    x = sample(1)
    got = np.frombuffer(run(command, x.tobytes()), "float32")
    np.testing.assert_array_equal(got, (x + sample(seed)).ravel() * np.float32(0.5))


@cache
def one_file_runtime() -> str:
    return run([sys.executable, ROOT / "runtime" / "amalgamate.py"]).decode()


@pytest.fixture
def gcc() -> str:
    return require_program("gcc")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_program_loads_a_library(target: str, tmp_path: Path) -> None:
    require_program("cc")
    build(target=target).export_library(tmp_path / "model.so")
    cc.create_executable(tmp_path / "program", EXAMPLE, WARNINGS)
    check_program([tmp_path / "program", tmp_path / "model.so"])


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("suffix", [".o", ".a"])
def test_a_model_is_linked_into_a_program(target: str, suffix: str, tmp_path: Path) -> None:
    require_program("cc")
    path = tmp_path / f"model{suffix}"
    build(target=target).export_library(path)
    cc.create_executable(tmp_path / "program", [EXAMPLE, path], [*WARNINGS, "-lm"])
    check_program([tmp_path / "program"])


def test_a_source_is_compiled_into_a_program(tmp_path: Path) -> None:
    require_program("cc")
    build(target="c").export_library(tmp_path / "model.c")
    cc.create_executable(tmp_path / "program", [EXAMPLE, tmp_path / "model.c"], ["-lm"])
    check_program([tmp_path / "program"])


@pytest.mark.parametrize("suffix", [".o", ".a"])
def test_a_static_program_holds_everything(gcc: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    build().export_library(path)
    whole = ["-Wl,--whole-archive", path, "-Wl,--no-whole-archive"] if suffix == ".a" else [path]
    library = native.library_folder() / "libsterna.a"
    include = f"-I{native.include_folder()}"
    program, here = tmp_path / "program", Machine.here()
    small = ["-Os", "-s", "-Wl,--gc-sections", *(here.compact if here else ())]
    run([gcc, *WARNINGS, *small, include, EXAMPLE, *whole, library, "-o", program, *SYSTEM])
    check_program([program])
    assert program.stat().st_size < 130_000
    run([gcc, *WARNINGS, "-static", include, EXAMPLE, *whole, library, "-o", program,
         *SYSTEM, "-Wl,--no-warnings"])
    check_program([program])


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_sanitizers_find_nothing(gcc: str, target: str, tmp_path: Path) -> None:
    (tmp_path / "sterna.c").write_text(one_file_runtime())
    build(target=target).export_library(tmp_path / "model.o")
    build(target=target).export_library(tmp_path / "model.so")
    include = f"-I{ROOT / 'runtime'}"
    sources = [EXAMPLE, LEAKS, tmp_path / "sterna.c", tmp_path / "model.o"]
    run([gcc, *WARNINGS, *SANITIZERS, include, *sources, "-o", tmp_path / "program", *SYSTEM])
    check_program([tmp_path / "program"])
    check_program([tmp_path / "program", tmp_path / "model.so"])


TWO = r"""
#include <stdio.h>
#include "sterna.h"
int main(void) {
  static const char *const names[] = {"one", "two"};
  float x[15], y[15];
  sterna_model *m[3];
  if (fread(x, 4, 15, stdin) != 15) return 2;
  if (sterna_model_load(NULL, &m[0]) == 0) return 3; /* which one? */
  for (int i = 0; i < 2; i++) {
    if (sterna_model_load_named(NULL, names[i], &m[i]) || sterna_model_share(m[i], &m[2]) ||
        sterna_model_set_input(m[2], "x", x, sizeof x) || sterna_model_run(m[2]) ||
        sterna_model_get_output(m[2], 0, y, sizeof y)) {
      puts(sterna_last_error());
      return 4;
    }
    fwrite(y, 4, 15, stdout);
    sterna_model_free(m[2]);
    sterna_model_free(m[i]);
  }
  return 0;
}
"""


def halves() -> Graph:
    """y = x / 2 + w as a row; other kernels than those of the small graph."""
    graph = Graph()
    x, w = graph.input("x"), graph.input("w")
    (half,) = graph.call("halve", x)
    (total,) = graph.call("subtract", half, w)
    graph.heads = graph.call("__nop", total, outputs=[(15,)])
    return graph


def test_two_models_live_in_one_program(tmp_path: Path) -> None:
    require_program("cc")
    (tmp_path / "main.c").write_text(TWO)
    build("one").export_library(tmp_path / "one.o")
    # Its kernels are in the first file already.
    other = GraphExecutorFactoryModule(
        kernels().code, halves().planned_json(), {"w": sample(7)}, "two", kernels().target
    )
    files: list[Path] = []

    def keep(output: str, paths: list[str]) -> None:
        for path in paths[1:]:
            files.append(tmp_path / f"two_{Path(path).name}")
            files[-1].write_bytes(Path(path).read_bytes())

    other.export_library(tmp_path / "two.o", fcompile=keep)
    inputs = [tmp_path / "main.c", tmp_path / "one.o", *files]
    cc.create_executable(tmp_path / "program", inputs, ["-lm"])
    x = sample(1)
    got = np.frombuffer(run([tmp_path / "program"], x.tobytes()), "float32").reshape(2, 15)
    np.testing.assert_array_equal(got[0], (x + sample(2)).ravel() * np.float32(0.5))
    np.testing.assert_array_equal(got[1], (x * np.float32(0.5) - sample(7)).ravel())


def test_a_program_without_a_model_says_so(tmp_path: Path) -> None:
    require_program("cc")
    cc.create_executable(tmp_path / "program", EXAMPLE)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no model is linked into this program" in done.stderr
    done = subprocess.run(
        [tmp_path / "program", EXAMPLE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "run_model.c" in done.stderr

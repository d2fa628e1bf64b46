"""The CUDA back end on a machine without a GPU: over a stand-in for NVIDIA's driver.

The checks run in a process of their own, since a process finds one driver or none.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sterna as tvm
from tests.support import LEAKS, ROOT, require_program

STANDIN = ROOT / "tests" / "gpu" / "standin"
RUNTIME = ROOT / "runtime"
C = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g1"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def make(words: list[str | Path]) -> None:
    done = subprocess.run([require_program("gcc"), *C, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def make_driver(folder: Path, *options: str) -> None:
    make([*options, "-DCUDA_DRIVER_ITSELF", "-fPIC", "-shared", "-fvisibility=hidden",
          f"-I{RUNTIME / 'gpu'}", STANDIN / "standin.c", "-Wl,-soname,libcuda.so.1", "-o",
          folder / "libcuda.so.1", "-lpthread"])


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "STANDIN_DEVICES": "2"}


def test_the_back_end_over_a_stand_in(tmp_path: Path) -> None:
    make_driver(tmp_path)
    words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", STANDIN / "cuda_checks.py"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_back_end_under_sanitizers(tmp_path: Path) -> None:
    make_driver(tmp_path, *SANITIZED)
    program = tmp_path / "program"
    sources = [*RUNTIME.glob("src/*.c"), *RUNTIME.glob("gpu/cuda*.c"), RUNTIME / "gpu" / "kernels.c"]
    make([*SANITIZED, "-fvisibility=hidden", "-DSTERNA_BUILD=1", f"-I{RUNTIME}", f"-I{RUNTIME / 'src'}",
          f"-I{RUNTIME / 'gpu'}", *sources, STANDIN / "program.c", LEAKS, "-o", program,
          "-lpthread", "-ldl", "-lm"])
    done = subprocess.run([program], env=environment(tmp_path), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


def test_a_machine_without_a_driver_says_so() -> None:
    code = "import sterna as tvm; tvm.nd.empty((1,), 'float32', tvm.cuda(0))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if tvm.cuda(0).exist:
        assert done.returncode == 0
        return
    assert "there is no device cuda(0): " in done.stderr
    assert "libcuda.so.1; install NVIDIA's driver" in done.stderr or "driver" in done.stderr


def test_a_driver_that_lacks_a_function_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.c"
    empty.write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    make(["-fPIC", "-shared", empty, "-Wl,-soname,libcuda.so.1", "-o", tmp_path / "libcuda.so.1"])
    code = "import sterna as tvm; assert not tvm.cuda(0).exist; tvm.nd.empty((1,), device=tvm.cuda(0))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True
    )
    assert "there is no device cuda(0): the driver's libcuda.so.1 lacks cuDriverGetVersion" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads the names that a library needs")
def test_nothing_is_linked_with_the_driver() -> None:
    library = ROOT / "sterna" / "native" / "lib" / "libsterna_cuda.so"
    shown = subprocess.run(
        [require_program("readelf"), "-d", library], capture_output=True, text=True, check=True
    )
    assert "libsterna.so" in shown.stdout and "libcuda" not in shown.stdout

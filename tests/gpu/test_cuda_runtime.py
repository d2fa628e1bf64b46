"""The CUDA back end on a machine without a GPU: over a stand-in for NVIDIA's driver.

The checks run in a process of their own, since a process finds one driver or none.
"""

import os
import subprocess
import sys
from pathlib import Path

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
          f"-I{RUNTIME / 'gpu'}", *STANDIN.glob("standin*.c"), "-Wl,-soname,libcuda.so.1", "-o",
          folder / "libcuda.so.1", "-lpthread"])


def run(words: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """A program that finds the driver of a folder."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "STANDIN_DEVICES": "2",
           "STANDIN_SECOND": "8.6"}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)


def test_the_back_end_over_a_stand_in(tmp_path: Path) -> None:
    make_driver(tmp_path)
    words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    checks = [STANDIN / "cuda_checks.py", STANDIN / "cuda_model_checks.py"]
    done = run([sys.executable, *words, *checks], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_back_end_under_sanitizers(tmp_path: Path) -> None:
    make_driver(tmp_path, *SANITIZED)
    own = [*RUNTIME.glob("src/*.c"), *RUNTIME.glob("gpu/cuda*.c"), RUNTIME / "gpu" / "kernels.c"]
    folders = [f"-I{folder}" for folder in (RUNTIME, RUNTIME / "src", RUNTIME / "gpu")]
    make([*SANITIZED, "-fvisibility=hidden", "-DSTERNA_BUILD=1", *folders, *own,
          STANDIN / "program.c", LEAKS, "-o", tmp_path / "program", "-lpthread", "-ldl", "-lm"])
    done = run([tmp_path / "program"], tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr


ASK = "import sterna as tvm; tvm.nd.empty((1,), 'float32', tvm.cuda(0))"


def test_a_machine_without_a_driver_says_so(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library\n")
    done = run([sys.executable, "-c", ASK], tmp_path)
    assert "there is no device cuda(0): the system has no libcuda.so.1; install" in done.stderr


def test_a_driver_that_lacks_a_function_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.c"
    empty.write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    make(["-fPIC", "-shared", empty, "-Wl,-soname,libcuda.so.1", "-o", tmp_path / "libcuda.so.1"])
    done = run([sys.executable, "-c", ASK], tmp_path)
    assert "cuda(0): the driver's libcuda.so.1 lacks cuDriverGetVersion" in done.stderr


def test_nothing_is_linked_with_the_driver() -> None:
    library = ROOT / "sterna" / "native" / "lib" / "libsterna_cuda.so"
    shown = subprocess.run(
        [require_program("readelf"), "-d", library], capture_output=True, text=True, check=True
    )
    assert "libsterna.so" in shown.stdout and "libcuda" not in shown.stdout

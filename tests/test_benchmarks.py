"""The benchmarks and examples run; whether their bounds hold is for a quiet machine to say."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, require_module, require_program


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("name", ["runtime", "kernels", "networks"])
def test_benchmark_measures_everything(name: str) -> None:
    require_program("cc")
    require_module("tvm_ffi")
    done = run(ROOT / "benchmarks" / f"{name}.py")
    # 1 says that a bound was missed, which a loaded machine may do; a crash says something else.
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    assert "holds" in done.stdout


@pytest.mark.parametrize("size", ["1", "37", "256"])
def test_gemm_example_is_right_at_any_size(size: str) -> None:
    done = run(ROOT / "examples" / "gemm.py", size)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("GFLOP/s") == 2

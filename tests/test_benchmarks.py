"""The benchmarks and examples run; whether their bounds hold is for a quiet machine to say."""

import importlib
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.support import ROOT, require_module, require_program


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=300
    )


NAMES = ["runtime_costs", "kernels", "networks", "firmware_sizes", "rpc"]


@pytest.mark.parametrize("name", NAMES)
def test_benchmark_measures_everything(name: str) -> None:
    require_program("cc")
    require_module("tvm_ffi")
    done = run(ROOT / "benchmarks" / f"{name}.py")
    # 1 says that a bound was missed, which a loaded machine may do; a crash says something else.
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    assert "holds" in done.stdout


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A small model for one picture."""
    model = onnx.load(ROOT / "sterna" / "cli" / "digits" / "digits.onnx")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, tmp_path / "digits.onnx")
    return tmp_path / "digits.onnx"


def test_engines_race_over_a_model(digits: Path) -> None:
    require_module("onnxruntime")
    turns = ("--threads", "1", "--rounds", "1", "--seconds", "0.01")
    done = run(ROOT / "benchmarks" / "engines.py", str(digits), *turns)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    assert "digits" in done.stdout and "Geometric mean" in done.stdout


def test_operators_are_shown_by_class(digits: Path) -> None:
    done = run(ROOT / "benchmarks" / "operators.py", str(digits), "--markdown")
    assert done.returncode == 0, done.stderr
    assert "| digits | nn.conv2d, direct |" in done.stdout


def test_a_processor_can_be_seen_without_avx512(tmp_path: Path) -> None:
    script = tmp_path / "lanes.py"
    script.write_text(
        "from sterna.target import Target, machine_of\n"
        "print(machine_of(Target('llvm -mcpu=native')).lanes(32))"
    )
    done = run(ROOT / "benchmarks" / "without_avx512.py", str(script))
    told = Path("/proc/cpuinfo")
    if told.is_file() and "cpuid_fault" in told.read_text().split():
        assert done.returncode == 0 and int(done.stdout) <= 8, done.stderr
    else:
        assert done.returncode == 2 and "does not let CPUID fault" in done.stderr


def test_a_machine_replaces_only_what_it_measured_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    require_module("tvm_ffi")
    performance = importlib.import_module("performance")
    page = performance.put("# Page\n", "one", "old")
    page = performance.put(page, "other", "kept")
    page = performance.put(page, "one", "new")
    assert "old" not in page and page.index("# Page") < page.index("new") < page.index("kept")


@pytest.mark.parametrize("size", ["1", "37", "256"])
def test_gemm_example_is_right_at_any_size(size: str) -> None:
    done = run(ROOT / "examples" / "gemm.py", size)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("GFLOP/s") == 2

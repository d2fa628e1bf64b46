"""The benchmarks and examples run; whether their bounds hold is for a quiet machine to say."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import sterna
from sterna import te
from sterna.tir.stmt import PrimFunc
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


@pytest.mark.parametrize("name", ["tiny_layers", "tiny_networks"])
def test_networks_that_boards_refuse_are_named(name: str, tmp_path: Path) -> None:
    refused, told = tmp_path / "broken.tflite", "broken is refused: sterna: "
    refused.write_bytes(b"TFL3")
    done = run(ROOT / "benchmarks" / f"{name}.py", str(refused))
    assert done.returncode == 0 and told in done.stdout and not done.stderr


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


def test_levels_are_a_ladder(digits: Path) -> None:
    done = run(ROOT / "benchmarks" / "levels.py", str(digits), "--turns", "2", "--markdown")
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    assert "| digits, level 2 over 3 |" in done.stdout


def test_tuning_loses_nothing(digits: Path) -> None:
    done = run(ROOT / "benchmarks" / "tuning.py", str(digits), "--trials", "1", "--markdown")
    assert done.returncode == 0, done.stderr
    assert "| digits, untuned over tuned |" in done.stdout


def test_large_weights_are_written_and_run() -> None:
    sizes = ("--layers", "2", "--rows", "64", "--markdown")
    done = run(ROOT / "benchmarks" / "large_weights.py", *sizes)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    assert "| peak memory of compiling and exporting |" in done.stdout


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


# ---- the replay of kernels ----


def replay(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run(ROOT / "benchmarks" / "replay.py", *map(str, arguments))


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay's modules can be imported."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def save_layers(folder: Path, only: str, machines: dict[str, str], code: bool = True) -> None:
    save = importlib.import_module("kernel_replay.save")
    layers = [n for n in importlib.import_module("kernel_replay.layers").LAYERS if only in n]
    for done in save.save(save.tasks_of(folder, machines, [], layers, {}, code, None), 1):
        assert done.compiled and not done.failed and not done.error


def test_a_replay_of_the_same_compiler_is_the_same(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    layers = ("--layers", "--only", "softmax", "--machines", "vnni", "cortex-m4")
    for folder in (before, after):
        done = replay("save", folder, *layers, "--level", "object")
        assert done.returncode == 0 and "4 kernels compiled" in done.stdout, done.stderr
    done = replay("compare", before, after)
    assert done.returncode == 0, done.stdout
    assert "vnni: 2 unchanged" in done.stdout and "cortex-m4: 2 unchanged" in done.stdout
    again = replay("save", before, *layers)
    assert "0 kernels compiled" in again.stdout, "what is there is not compiled again"
    assert "nn.softmax" in replay("show", before, "vnni/layer-softmax/0").stdout
    assert "ret" in replay("show", before, "vnni/layer-softmax/0", "--code").stdout
    assert "is the same" in replay("diff", before, after, "vnni/layer-softmax/0").stdout


@pytest.mark.usefixtures("importable")
def test_a_replay_sees_and_names_another_schedule(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    own = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=1"
    save_layers(before, "dense_4_rows", {"machine": own}, code=False)
    save_layers(after, "dense_4_rows", {"machine": f"{own} -vector-width=128"}, code=False)
    done = replay("compare", before, after)
    assert done.returncode == 1, done.stderr
    (place,) = re.findall(r"^machine/layer-dense_4_rows/(\d+): changed", done.stdout, re.MULTILINE)
    old, new = re.findall(r"^  [-+] nn.dense Tensor.*", done.stdout, re.MULTILINE)
    assert old[4:] != new[4:], "both schedules are told"
    done = replay("diff", before, after, f"machine/layer-dense_4_rows/{place}")
    assert done.returncode == 1 and "\n-" in done.stdout and "\n+" in done.stdout


@pytest.mark.usefixtures("importable")
def test_names_are_no_difference_in_a_replay() -> None:
    kernels = importlib.import_module("kernel_replay.kernels")

    def text(data: str, out: str) -> str:
        x = te.placeholder((8,), name=data)
        y = te.compute((8,), lambda i: x[i] * 2.0, name=out)
        schedule = te.create_schedule(y.op)
        schedule[y].split(y.op.axis[0], 4)
        loops = sterna.lower(schedule, [x, y], name="f")["f"]
        assert isinstance(loops, PrimFunc)
        kernels.rename(loops)
        made: str = kernels.loops_text(loops)
        return made

    assert text("a", "b") == text("b", "other")


@pytest.mark.usefixtures("importable")
def test_a_replay_finds_kernels_that_moved_came_and_went() -> None:
    records = importlib.import_module("kernel_replay.records")
    compare = importlib.import_module("kernel_replay.compare")

    def kernels(*described: tuple[str, str, int]) -> list[object]:
        """Loops, a result and operations of each."""
        return [
            compare.Kernel(
                "machine", "network", place, records.CallRecord(str(place), result, flops, ""),
                records.KernelRecord(loops=loops),
            )
            for place, (loops, result, flops) in enumerate(described)
        ]

    before = kernels(("a", "8", 1), ("b", "8", 2), ("c", "8", 3), ("d", "9", 1), ("gone", "7", 1))
    after = kernels(("new", "6", 1), ("b", "8", 2), ("a", "8", 1), ("other", "8", 3), ("e", "9", 2))
    found = {
        (pair.before and pair.before.record.loops, pair.after and pair.after.record.loops):
            pair.status
        for pair in compare.aligned(before, after)
    }
    assert found == {
        ("a", "a"): "unchanged", ("b", "b"): "unchanged", ("c", "other"): "changed",
        ("d", "e"): "changed", ("gone", None): "vanished", (None, "new"): "appeared",
    }


def test_a_replay_says_what_is_wrong(tmp_path: Path) -> None:
    for arguments, told in {
        ("save", "f", "--machines", "z80"): "there is no machine 'z80'; choose from avx2",
        ("save", "f"): "give --layers or --networks",
        ("save", "f", "--networks", "none.onnx"): "there is no ONNX file at 'none.onnx'",
        ("compare", "f", "f"): "is no folder that 'replay.py save' made",
        ("show", "f", "vnni/softmax"): "a key is MACHINE/NETWORK/PLACE",
    }.items():
        done = replay(*(tmp_path / "f" if a == "f" else a for a in arguments))
        assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr

"""Importing is quick, and running a model does not load the compiler."""

import json
import subprocess
import sys

from tests.test_layering import RANKS

REPORT = """
import json, sys, time
before = set(sys.modules)
start = time.process_time()
import {module}
seconds = time.process_time() - start
print(json.dumps([seconds, sorted(set(sys.modules) - before)]))
"""


def import_in_fresh_process(module: str) -> tuple[float, list[str]]:
    """Seconds of a processor that an import takes, and the modules that it loads."""
    code = REPORT.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    seconds, modules = json.loads(done.stdout)
    return seconds, modules


def test_import_takes_under_300_ms() -> None:
    # The first run may read files from a cold disk; the best of three is the import itself.
    best = min(import_in_fresh_process("sterna")[0] for _ in range(3))
    assert best < 0.3


def test_import_of_the_runtime_takes_under_300_ms() -> None:
    best = min(import_in_fresh_process("sterna.runtime")[0] for _ in range(3))
    assert best < 0.3


def test_import_loads_nothing_but_itself() -> None:
    _, modules = import_in_fresh_process("sterna")
    assert [m for m in modules if m.startswith("sterna.")] == ["sterna.version"]
    assert not {"numpy", "llvmlite", "rich"} & set(modules)


def test_the_runtime_needs_no_compiler() -> None:
    _, modules = import_in_fresh_process("sterna.runtime")
    assert not [m for m in modules if m.split(".")[0] in ("llvmlite", "rich", "onnx")]
    folders = {m.split(".")[1] for m in modules if m.startswith("sterna.")}
    assert folders <= {"runtime", "support", "version"}
    assert {f for f in folders if f in RANKS} == {"runtime", "support"}


def test_a_compiled_model_runs_without_the_compiler() -> None:
    for module in ("sterna.model.compiled_model", "sterna.cli.run"):
        _, modules = import_in_fresh_process(module)
        assert not [m for m in modules if m.split(".")[0] in ("llvmlite", "onnx", "PIL")]
        assert not {"sterna.driver", "sterna.codegen"} & set(modules)


def test_kernels_of_a_processor_load_no_schedules_of_gpus() -> None:
    _, modules = import_in_fresh_process("sterna.driver.kernel_worker")
    assert "sterna.lowering.lower_kernel" in modules
    assert not [m for m in modules if m.startswith("sterna.schedule.gpu")]

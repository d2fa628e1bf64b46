"""sterna compile, and what all commands have in common."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sterna as package
from sterna.driver.export import _WRITERS
from sterna.model.import_model import COMPILED
from sterna.support import toolchain
from tests.cli.conftest import Sterna
from tests.model.networks import dense_by_numpy
from tests.support import require_program


def test_a_model_becomes_a_file(sterna: Sterna, folder: Path) -> None:
    require_program("cc")
    done = sterna("compile", "dense.onnx", "-o", "dense.so")
    assert done.status == 0 and not done.err
    assert done.out.startswith("dense.so: ") and "1 call of 1 kernel for llvm" in done.out
    image = np.ones((2, 6), "float32")
    np.testing.assert_allclose(package.load("dense.so")(image), dense_by_numpy(image), rtol=1e-5)


def test_json_has_the_whole_report(sterna: Sterna, folder: Path) -> None:
    require_program("cc")
    done = sterna(
        "compile", "open.onnx", "-o", "open.c", "--shape", "image:2,6", "--target", "c",
        "--opt-level", "1", "--json",
    )
    assert done.status == 0 and not done.err
    assert done.data["output"] == "open.c" and done.data["opt_level"] == 1
    assert done.data["bytes"] == (folder / "open.c").stat().st_size
    assert done.data["kernels"] and done.data["memory"]["weights"]


def test_the_report_is_shown_on_request(sterna: Sterna) -> None:
    require_program("cc")
    done = sterna("compile", "dense.onnx", "-o", "dense.o", "--report")
    assert "Fused" in done.out and "nn.dense" in done.out and "Memory: " in done.out


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["dense.onnx"], 2, "required: -o"),
        (["dense.onnx", "-o", "dense.tern"], 2, "must end in .a"),
        (["dense.onnx", "-o", "dense.c"], 2, "--target c"),
        (["dense.onnx", "-o", "nowhere/dense.so"], 2, "no folder 'nowhere'"),
        (["dense.onnx", "-o", "a.so", "--shape", "image"], 2, "no NAME:1,3,224,224"),
        (["dense.onnx", "-o", "a.so", "--opt-level", "9"], 2, "--opt-level"),
        (["dense.onnx", "-o", "a.so", "--precision", "int4"], 2, "--precision"),
        (["missing.onnx", "-o", "a.so"], 3, "No such file or directory: 'missing.onnx'"),
        (["broken.onnx", "-o", "a.so"], 3, "broken.onnx is no ONNX model"),
        (["open.onnx", "-o", "a.o"], 3, "open shapes is written as .so or .tar"),
        (["dense.onnx", "-o", "a.so", "--shape", "img:1,6"], 3, "'img', which is no input"),
        (["unsupported.onnx", "-o", "a.so"], 4, "birds.Flutter (opset 1): wing"),
        (["dense.onnx", "-o", "a.so", "--target", "lvm"], 4, "Cannot recognize 'lvm'"),
        (["dense.onnx", "-o", "a.so", "--cc", "tern"], 5, "the compiler 'tern' was not found"),
        (["dense.onnx", "-o", "a.so", "--target", "vulkan"], 4, "can be described but not built"),
    ],
)
def test_mistakes_are_one_message_and_leave_no_file(
    sterna: Sterna, folder: Path, words: list[str], status: int, message: str
) -> None:
    before = sorted(folder.iterdir())
    done = sterna("compile", *words)
    assert (done.status, done.out) == (status, "")
    assert message in done.err and "Traceback" not in done.err
    assert sorted(folder.iterdir()) == before


def test_names_of_files_are_those_that_can_be_written() -> None:
    assert set(_WRITERS) == COMPILED


def test_a_machine_without_a_linker_says_what_to_install(
    sterna: Sterna, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "find_c_compiler", lambda: None)
    done = sterna("compile", "dense.onnx", "-o", "dense.so", "--json")
    assert done.status == 5 and "pip install ziglang" in done.err
    assert done.data["exit_status"] == 5 and "ziglang" in done.data["error"]


def test_an_interrupted_command_leaves_no_file(
    sterna: Sterna, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    before = sorted(folder.iterdir())
    monkeypatch.setattr(toolchain, "run_compiler", interrupt)
    done = sterna("compile", "dense.onnx", "-o", "dense.so")
    assert done.status == 130 and done.err == "sterna: interrupted\n"
    assert sorted(folder.iterdir()) == before


def test_a_failure_of_our_own_says_how_to_see_where(
    sterna: Sterna, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **named: object) -> None:
        raise AssertionError("a wing is missing")

    monkeypatch.setattr("sterna.model.compile_model.compile", fail)
    done = sterna("compile", "dense.onnx", "-o", "dense.so")
    assert done.status == 1
    assert done.err == "sterna: AssertionError: a wing is missing\n(--debug shows where)\n"
    done = sterna("compile", "dense.onnx", "-o", "dense.so", "--debug")
    assert done.status == 1 and "Traceback" in done.err


def test_help_is_quick_and_lists_every_command() -> None:
    code = (
        "import sys; from sterna import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: print(sorted(set(sys.modules) & {'llvmlite', 'onnx', 'numpy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
    for name in ("compile", "run", "bench", "profile", "inspect", "targets", "demo"):
        assert f"    {name} " in done.stdout


def test_the_command_runs_in_a_process_of_its_own(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sterna", "compile", "missing.onnx", "-o", "a.so"],
        capture_output=True, text=True, timeout=60, cwd=folder,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "sterna: No such file or directory: 'missing.onnx'\n"

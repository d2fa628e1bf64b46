"""What commands refuse before they compile: nobody waits a minute for a word that is wrong."""

from pathlib import Path
from typing import NoReturn

import pytest

from sterna.driver import relay_build
from sterna.model import open_build
from tests.cli.conftest import Sterna

WASM = ["--target", "llvm -mtriple=wasm32-wasi"]


@pytest.fixture(autouse=True)
def _nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*args: object, **options: object) -> NoReturn:
        pytest.fail("the model was compiled first")

    monkeypatch.setattr(relay_build, "build", compiled)
    monkeypatch.setattr(open_build, "symbolic_program", compiled)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["compile", "open.onnx", "-o", "a.o"], 3, "say the shapes, such as --shape image:1,6"),
        (["compile", "open.onnx", "-o", "a.c", "--target", "c"], 3, "written as .so or .tar"),
        (["compile", "open.onnx", "-o", "a.so", "--portable"], 3, "--shape image:1,6"),
        (["compile", "dense.onnx", "-o", "a.tar", "--portable"], 3, "let the name end in .so"),
        (["compile", "dense.onnx", "-o", "a.wasm"], 3, "llvm -mtriple=wasm32-wasi"),
        (["compile", "dense.onnx", "-o", "a.so", *WASM], 3, "no shared libraries"),
        (["compile", "dense.onnx", "-o", "taken.so"], 2, "-o 'taken.so' is a folder"),
        (["compile", "dense.onnx", "-o", "/proc/a.so"], 2, "written in the folder '/proc'"),
        (["inspect", "dense.onnx", "--draw", "/proc/a.svg"], 2, "written in the folder '/proc'"),
        (["profile", "open.onnx"], 3, "say which sizes to compile for"),
        (["profile", "dense.onnx", "--trace", "taken.so"], 2, "is a folder"),
        (["profile", "dense.onnx", "-i", "missing.npy"], 3, "directory: 'missing.npy'"),
        (["run", "dense.onnx", "-i", "image=missing.npy"], 3, "directory: 'missing.npy'"),
        (["run", "dense.onnx", "-i", "image=broken.onnx"], 2, "an .npy, an .npz or a picture"),
        (["bench", "dense.onnx", "--beside", "dense.pt"], 2, "ONNX Runtime reads .onnx"),
        (["micro", "dense.onnx", "--board", "mps2_an386", "-o", "full"], 2, "exists already"),
        (["micro", "dense.onnx", "--board", "mps2_an386", "--option", "wings=2"], 3,
         "there is no option 'wings'"),
    ],
)
def test_nothing_is_compiled_for_what_cannot_be_done(
    sterna: Sterna, folder: Path, words: list[str], status: int, message: str
) -> None:
    (folder / "taken.so").mkdir()
    (folder / "full" / "inside").mkdir(parents=True)
    done = sterna(*words)
    assert (done.status, done.out) == (status, "")
    assert message in done.err and "Traceback" not in done.err


def test_c_is_not_signed(sterna: Sterna, folder: Path) -> None:
    assert sterna("key", "secret.key").status == 0
    done = sterna("compile", "dense.onnx", "-o", "a.c", "--target", "c", "--sign", "secret.key")
    assert done.status == 3 and "C has no seal" in done.err

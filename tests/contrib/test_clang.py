"""LLVM's text from C."""

from pathlib import Path

import pytest

from sterna.contrib import clang
from sterna.support.toolchain import CompileError, find_clang
from tests.support import require_module

SOURCE = 'extern "C" int twice(int x) { return 2 * x; }\n'


@pytest.fixture(autouse=True)
def _compiler() -> None:
    if find_clang() is None:
        require_module("ziglang")


def test_text_and_files(tmp_path: Path) -> None:
    text = clang.create_llvm(SOURCE, output=tmp_path / "twice.ll")
    assert "i32 @twice(i32" in text and (tmp_path / "twice.ll").read_text("utf-8") == text
    (tmp_path / "twice.c").write_text("int twice(int x) { return N * x; }\n", "utf-8")
    assert "i32 @twice(i32" in clang.create_llvm(str(tmp_path / "twice.c"), options=["-DN=2"])


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="error"):
        clang.create_llvm("this is no C\n")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        clang.create_llvm(str(tmp_path / "none.c"))
    with pytest.raises(ValueError, match="one source at a time, not 2"):
        clang.create_llvm([SOURCE, SOURCE])

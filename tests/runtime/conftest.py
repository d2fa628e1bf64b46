"""What the tests of the runtime share: a library of C functions, and names that go away again."""

import ctypes
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sterna
from sterna.contrib import cc
from sterna.testing import require
from tests.support import require_module

LIBS = Path(__file__).parent / "libs"


@pytest.fixture(scope="session")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C files of libs as one shared library."""
    require(None if cc.get_cc() else "no C compiler is installed")
    path = tmp_path_factory.mktemp("libs") / "helpers.so"
    cc.create_shared(path, sorted(LIBS.glob("*.c")), ["-Wall", "-Wextra", "-Werror", "-lpthread"])
    return path


@pytest.fixture(scope="session")
def library(library_path: Path) -> sterna.Module:
    """The functions of libs."""
    return sterna.runtime.load_module(library_path)


@pytest.fixture(scope="session")
def probe(library: sterna.Module, library_path: Path) -> ctypes.CDLL:
    """The plain C functions of libs/arrays.c."""
    loaded = ctypes.CDLL(str(library_path))
    loaded.probe_plain.restype = ctypes.c_void_p
    loaded.probe_versioned.restype = ctypes.c_void_p
    loaded.probe_flags.restype = ctypes.c_uint64
    loaded.probe_flags.argtypes = [ctypes.c_void_p]
    return loaded


@pytest.fixture
def build(tmp_path: Path) -> Callable[[str, str], Path]:
    """A function that compiles C text into a shared library of a name."""
    require(None if cc.get_cc() else "no C compiler is installed")

    def compile_it(name: str, text: str) -> Path:
        source, output = tmp_path / f"{name}.c", tmp_path / f"{name}.so"
        source.write_text(text)
        cc.create_shared(output, source)
        return output

    return compile_it


@pytest.fixture
def registry() -> Iterator[None]:
    """Forgets the functions that a test registers."""
    before = set(sterna.list_global_func_names())
    yield
    for name in set(sterna.list_global_func_names()) - before:
        sterna.remove_global_func(name)


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch."""
    require_module("torch")
    return importlib.import_module("torch")

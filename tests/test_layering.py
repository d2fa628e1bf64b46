"""Folders import only from lower ranks, and imports stand at the top of a file."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

# The way of the data: a folder may import from folders of a lower rank and from itself.
RANKS = {
    "support": 0,
    "ir": 1,
    "runtime": 1,
    "arith": 2,
    "rpc": 2,
    "tir": 3,
    "relay": 3,
    "te": 4,
    "codegen": 4,
    "frontend": 4,
    "op": 5,
    "target": 5,
    "lowering": 6,
    "driver": 7,
    "tune": 8,
    "micro": 8,
    "model": 8,
    "as_tvm": 9,
    "cli": 9,
    "exec": 9,
    "contrib": 9,
    "testing": 9,
}

# Files beside the folders: the package itself, which loads names lazily, and what it consists of.
TOP_FILES = {"__init__", "__main__", "error", "version"}

PACKAGE = ROOT / "sterna"
FILES = sorted(PACKAGE.rglob("*.py"))


def folder_of(path: Path) -> str | None:
    """The folder under sterna/ that a file lies in; None for the files beside the folders."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


def imported_names(node: ast.AST) -> list[str]:
    """The dotted names of sterna that an import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        names = []
    return [name for name in names if name.split(".")[0] == "sterna"]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of every import of sterna in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        for name in imported_names(node):
            yield getattr(node, "lineno", 0), name


def local_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of the imports of sterna inside functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                for name in imported_names(node):
                    yield getattr(node, "lineno", 0), name


def violation(importer: str, name: str) -> str | None:
    """Why a folder must not import a name, or None if it may."""
    parts = name.split(".")
    imported = parts[1] if len(parts) > 1 else "__init__"
    if imported == importer or imported == "version":
        return None
    if imported not in RANKS:
        return f"'{name}' is outside the ranks; import from the folder that defines it"
    if RANKS[imported] < RANKS[importer]:
        return None
    return f"{importer} (rank {RANKS[importer]}) imports {imported} (rank {RANKS[imported]})"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_follow_the_ranks(path: Path) -> None:
    folder = folder_of(path)
    if folder is None:
        assert path.stem in TOP_FILES, f"{path.name}: put it in a folder"
        return
    assert folder in RANKS, f"sterna/{folder} has no rank"
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {reason}"
        for line, name in imports(path)
        if (reason := violation(folder, name))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_hides_in_a_function(path: Path) -> None:
    found = [f"line {line}: {name}" for line, name in local_imports(ast.parse(path.read_text()))]
    assert not found, "\n".join(found)


def test_the_rule_sees_a_violation() -> None:
    assert violation("support", "sterna.runtime.ndarray") is not None
    assert violation("runtime", "sterna.ir") is not None
    assert violation("cli", "sterna.error") is not None
    assert violation("cli", "sterna.runtime") is None
    assert violation("runtime", "sterna.runtime.device") is None

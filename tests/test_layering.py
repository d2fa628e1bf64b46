"""Folders import only from lower ranks, and imports stand at the top of a file."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import ROOT

# The way of the data: a folder may import from folders of a lower rank and from itself.
RANKS = {
    "support": 0,
    "ir": 1,
    "runtime": 1,
    "arith": 2,
    "isa": 2,
    "rpc": 2,
    "tir": 3,
    "relay": 3,
    "te": 4,
    "codegen": 4,
    "frontend": 4,
    "schedule": 5,
    "target": 5,
    "op": 6,
    "lowering": 7,
    "driver": 8,
    "tune": 9,
    "micro": 9,
    "model": 9,
    "as_tvm": 10,
    "cli": 10,
    "exec": 10,
    "contrib": 10,
    "testing": 10,
}

# Files beside the folders: the package itself, which loads names lazily, and what it consists of.
TOP_FILES = {"__init__", "__main__", "error", "version"}

PACKAGE = ROOT / "sterna"
HOLD_OTHERS = (ast.stmt, ast.ExceptHandler, ast.match_case)  # statements, and what holds some


def folder_of(path: Path) -> str:
    """The folder under sterna/ that a file lies in; none for the files beside the folders."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


FILES: dict[str, list[Path]] = {}
for file in sorted(PACKAGE.rglob("*.py")):
    FILES.setdefault(folder_of(file), []).append(file)


@cache
def statements(path: Path) -> list[tuple[ast.AST, bool]]:
    """All statements of a file, each with whether it is inside a function."""
    found: list[tuple[ast.AST, bool]] = []
    stack: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text("utf-8")), False)]
    while stack:
        node, is_inside = stack.pop()
        found.append((node, is_inside))
        is_inside |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        stack += [(n, is_inside) for n in ast.iter_child_nodes(node) if isinstance(n, HOLD_OTHERS)]
    return found


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


def imports(path: Path, only_inside: bool = False) -> Iterator[tuple[str, str]]:
    """Place and name of every import of sterna in a file, or of those inside functions."""
    for node, is_inside in statements(path):
        if is_inside or not only_inside:
            for name in imported_names(node):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", name


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


def test_every_file_has_its_place() -> None:
    assert {path.stem for path in FILES[""]} <= TOP_FILES, "put it in a folder"
    assert set(FILES) - {""} <= set(RANKS), "a folder has no rank"


@pytest.mark.parametrize("folder", sorted(set(FILES) & set(RANKS)))
def test_imports_follow_the_ranks(folder: str) -> None:
    wrong = [
        f"{where}: {reason}"
        for path in FILES[folder]
        for where, name in imports(path)
        if (reason := violation(folder, name))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", sorted(FILES))
def test_no_import_hides_in_a_function(folder: str) -> None:
    found = [f"{where}: {name}" for path in FILES[folder] for where, name in imports(path, True)]
    assert not found, "\n".join(found)


def test_the_rule_sees_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    text = "import sterna.ir\ntry:\n def f():\n  with x:\n   from sterna import a\n"
    (tmp_path / "x.py").write_text(f"{text}finally:\n import sterna.te\n")
    assert sorted(imports(tmp_path / "x.py")) == [
        ("x.py:1", "sterna.ir"), ("x.py:5", "sterna.a"), ("x.py:7", "sterna.te"),
    ]
    assert list(imports(tmp_path / "x.py", True)) == [("x.py:5", "sterna.a")]
    assert violation("support", "sterna.runtime.ndarray") is not None
    assert violation("runtime", "sterna.ir") is not None
    assert violation("cli", "sterna.error") is not None
    assert violation("cli", "sterna.runtime") is None
    assert violation("runtime", "sterna.runtime.device") is None

"""Folders import only from lower ranks, and imports stand at the top of a file.

Modules that are loaded by their names as text, such as importlib.import_module("sterna.op") or a
table of names that are loaded when they are first used, follow the same ranks, but for those of one
table below.
"""

import ast
import re
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
    "topi": 8,
    "quantization": 9,
    "micro": 9,
    "tune": 10,
    "autotvm": 11,
    "auto_scheduler": 12,
    "meta_schedule": 13,
    "model": 11,
    "as_tvm": 12,
    "cli": 12,
    "exec": 12,
    "contrib": 12,
    "testing": 14,
}

# Texts that name modules of a higher rank, by file or folder: the folders that they name, and why
# it is so. What must flow up flows in records; these are the seams where a name that users know
# stands below its meaning, and where a record names what is loaded when it is first needed.
UPWARD = {
    "sterna/relay/__init__.py": (
        {"driver", "quantization"},
        "relay.build, relay.quantize and their kin are known by these names; folders above this "
        "one define them",
    ),
    "sterna/relay/frontend.py": (
        {"frontend"}, "relay.frontend.from_onnx is known by this name; importers lie above graphs",
    ),
    "sterna/relay/op.py": (
        {"op"}, "operators register their records; they are loaded when one is first asked for",
    ),
    "sterna/runtime/device.py": (
        {"target"}, "devices of kinds that others declare, where the compiler is installed",
    ),
    "sterna/runtime/module.py": (
        {"driver"},
        "Module.export_library and load_module take the compiler where it is installed",
    ),
    "sterna/support/classic.py": (
        {"auto_scheduler", "autotvm", "contrib", "driver", "frontend", "ir", "meta_schedule",
         "micro", "relay", "rpc", "runtime", "target", "te", "testing", "tir", "topi"},
        "where names of the classic API are found: one table for attributes and imports",
    ),
    "sterna/target/kinds/": (
        {"schedule"}, "a kind's record names its schedules, which are loaded when it is built for",
    ),
}

# Files that load modules whose names are computed elsewhere, and whose names those are.
COMPUTED = {
    "sterna/as_tvm/finder.py": "what a program imports as tvm, under its own name",
    "sterna/frontend/__init__.py": "the functions that formats offer, as their records name them",
    "sterna/frontend/format.py": "a format's loader, as its record names it",
    "sterna/frontend/onnx/importer.py": "the converters in its own folder, by listing",
    "sterna/frontend/tflite/importer.py": "the converters in its own folder, by listing",
    "sterna/frontend/torch/importer.py": "the converters in its own folder, by listing",
    "sterna/ir/config.py": "config.py of every folder: the settings that its passes declare",
    "sterna/ir/transform.py": "transform.py of every folder: the passes that it registers",
    "sterna/op/__init__.py": "the operators in its own folders, by listing",
    "sterna/target/kind.py": "code generators and schedules, as kinds and packages name them",
    "sterna/testing/fuzz/fuzzer.py": "a fuzzer's module, as the command line names it",
    "sterna/support/discovery.py": "what its callers name: this file is how modules are listed",
}

# What loads a module by its name, and the places of its arguments that are names.
LOADS = {"import_module": 0, "__import__": 0, "load_name": 0, "modules_of": 0, "load_everywhere": 1}

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
def tree_of(path: Path) -> ast.Module:
    """A file's syntax."""
    return ast.parse(path.read_text("utf-8"))


@cache
def statements(path: Path) -> list[tuple[ast.AST, bool]]:
    """All statements of a file, each with whether it is inside a function."""
    found: list[tuple[ast.AST, bool]] = []
    stack: list[tuple[ast.AST, bool]] = [(tree_of(path), False)]
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


# ---- imports by text ----

MODULE_NAME = re.compile(r"sterna\.(\w+)(\.\w+)*(:\w+)?")


@cache
def texts(path: Path) -> list[tuple[int, str]]:
    """Line and text of what names a module of sterna: whole strings, and where f-strings begin."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree_of(path)):
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            text = str(node.values[0].value).rstrip(".")
        match = MODULE_NAME.fullmatch(text)
        if match is not None and match[1] in RANKS:
            found.append((node.lineno, text))  # type: ignore[attr-defined]
    return found


def computed_loads(path: Path) -> list[str]:
    """The places where a file loads a module whose name no text in the file says."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).removeprefix("_").removeprefix("importlib.")
            if name in LOADS and not _is_said(node.args[LOADS[name] :][:1]):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    return found


def _is_said(args: list[ast.expr]) -> bool:
    """Whether a name is a text, begins with one or with the module's own name, or is in a table."""
    match args:
        case [ast.Constant()]:
            return True
        case [ast.JoinedStr(values=[ast.Constant(), *_])]:
            return True
        case [ast.JoinedStr(values=[ast.FormattedValue(value=ast.Name(id="__name__")), *_])]:
            return True
        case [ast.Name(id=name)] | [ast.Subscript(value=ast.Name(id=name))]:
            return name.isupper()
    return False


def _covers(place: str, path: Path) -> bool:
    """Whether a file is the one that a row of a table names, or lies in the folder."""
    name = str(path.relative_to(ROOT))
    return name == place or (place.endswith("/") and name.startswith(place))


def upward(path: Path) -> dict[str, list[str]]:
    """The folders that a file names as text and must not import, with the places."""
    found: dict[str, list[str]] = {}
    for line, text in texts(path):
        reason = violation(folder_of(path), text.partition(":")[0])
        if reason:
            place = f"{path.relative_to(ROOT)}:{line}: {reason}, by text"
            found.setdefault(text.split(".")[1].partition(":")[0], []).append(place)
    return found


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


@pytest.mark.parametrize("folder", sorted(set(FILES) & set(RANKS)))
def test_imports_by_text_follow_the_ranks(folder: str) -> None:
    wrong, computed = [], []
    for path in FILES[folder]:
        name = str(path.relative_to(ROOT))
        allowed = {up for place, (ups, _) in UPWARD.items() if _covers(place, path) for up in ups}
        wrong += [place for up, places in upward(path).items() if up not in allowed
                  for place in places]
        computed += [] if name in COMPUTED else computed_loads(path)
    assert not wrong, "\n".join(wrong)
    assert not computed, "\n".join(["names that are computed need a line in COMPUTED:", *computed])


def test_the_tables_hold_nothing_that_is_gone() -> None:
    every = [path for files in FILES.values() for path in files]
    for name, (folders, reason) in UPWARD.items():
        named = {up for path in every if _covers(name, path) for up in upward(path)}
        assert named == folders and reason, name
    for name, reason in COMPUTED.items():
        assert computed_loads(ROOT / name) and reason, name


def test_the_rule_sees_imports_by_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "sterna")
    path = tmp_path / "sterna" / "ir" / "x.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        '"""Says sterna.relay in a sentence."""\n'
        "import_module('sterna.te.lower')\n"
        "_WHERE = {'build': 'sterna.driver:build', 'a': 'sterna.c'}\n"
        "import_module(f'sterna.cli.{name}')\n"
        "import_module(f'{__name__}.{name}')\n"
        "import_module('sterna.support.' + name)\n"
        "log(f'sterna.{name}', 'sterna.support.errors')\n"
    )
    assert [text for _, text in texts(path)] == [
        "sterna.te.lower", "sterna.driver:build", "sterna.cli", "sterna.support.errors",
    ]
    assert {up: len(places) for up, places in upward(path).items()} == {
        "te": 1, "driver": 1, "cli": 1,
    }
    assert computed_loads(path) == ["sterna/ir/x.py:6: import_module('sterna.support.' + name)"]


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

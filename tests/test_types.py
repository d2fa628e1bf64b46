"""Operators have types, and a record of what is known about them in which every field is explained.

A parameter counts as untyped where `Any` stands anywhere in its annotation (`Any`, `list[Any]`,
`Callable[..., Any]`, `Any | None`) or where the annotation names an alias that says so. The one
alias that does not count is `Array`: the element type of NumPy's arrays is known when a graph is
compiled, and mypy cannot know it. The receiver of a method does not count as a parameter.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sterna.relay.op import Case, ContractionRules, OpRecord
from tests.support import ROOT

RECORDS = ROOT / "sterna" / "relay" / "op.py"
# What any operator may have; what one family alone has belongs into a record of that family.
MOST_FIELDS = 33
FOLDER = ROOT / "sterna" / "op"
LARGEST_FRACTION = 0.05
ARRAYS = {"Array"}


@cache
def modules() -> dict[Path, ast.Module]:
    """The package's modules, parsed."""
    return {path: ast.parse(path.read_text("utf-8")) for path in (ROOT / "sterna").rglob("*.py")}


def names_in(annotation: ast.expr) -> set[str]:
    """The names that an annotation consists of; those in quotes too."""
    found = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(re.findall(r"\w+", node.value))
    return found


@cache
def untyped_aliases() -> dict[Path, set[str]]:
    """By module, the aliases among its names that stand for something with Any."""
    found: dict[Path, set[str]] = {}
    for path, tree in modules().items():
        found[path] = {
            node.targets[0].id for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Subscript | ast.BinOp | ast.Name)
            and "Any" in names_in(node.value)
        } - ARRAYS
    for path, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sterna."):
                source = ROOT.joinpath(*(node.module or "").split(".")).with_suffix(".py")
                found[path] |= {each.name for each in node.names} & found.get(source, set())
    return found


def parameters(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.arg]]:
    """The parameters of all functions of a module."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            given = function.args
            every = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
            yield from ((function, arg) for arg in every if arg is not None and arg.annotation)


def test_few_parameters_of_operators_are_anything() -> None:
    untyped, count = [], 0
    for path, tree in modules().items():
        if FOLDER in path.parents:
            loose = untyped_aliases()[path] | {"Any"}
            for function, arg in parameters(tree):
                count += 1
                if arg.annotation is not None and names_in(arg.annotation) & loose:
                    where = f"{path.relative_to(ROOT)}:{arg.lineno}"
                    untyped.append(f"{where}: {arg.arg} of {function.name}")
    assert len(untyped) <= LARGEST_FRACTION * count, (
        f"{len(untyped)} of {count} parameters may be anything; give some of them a type:\n"
        + "\n".join(untyped)
    )


def test_a_record_holds_what_any_operator_may_have() -> None:
    assert len(OpRecord.__dataclass_fields__) <= MOST_FIELDS


@pytest.mark.parametrize(
    "record", [OpRecord, ContractionRules, Case], ids=lambda record: record.__name__
)
def test_every_field_of_a_record_is_explained(record: type) -> None:
    (made,) = (
        node for node in modules()[RECORDS].body
        if isinstance(node, ast.ClassDef) and node.name == record.__name__
    )
    for field, behind in zip(made.body, made.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign):
            explained = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
            assert explained, f"{record.__name__}.{ast.unparse(field.target)} has no explanation"

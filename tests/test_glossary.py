"""docs/glossary.md says what the words of the code mean, and the code uses what it lists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support import ROOT

PAGE = ROOT / "docs" / "glossary.md"
VOCABULARY = Path(__file__).with_name("vocabulary.txt")
PACKAGE = ROOT / "sterna"
MADE = PACKAGE / "native"  # what the build copies there


def rows(title: str) -> list[str]:
    """The first cells of the table under a heading."""
    section = PAGE.read_text("utf-8").split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)[1:]


TERMS, OURS = rows("The field's terms"), rows("Our words")


@cache
def sources() -> list[Path]:
    """The modules of the package, and the runtime in C."""
    modules = [path for path in PACKAGE.rglob("*.py") if "templates" not in path.parts]
    in_c = [*(ROOT / "runtime").rglob("*.[ch]"), *PACKAGE.rglob("*.[ch]")]
    return [path for path in (*modules, *in_c) if MADE not in path.parents]


def plain(text: str) -> str:
    """Letters and digits, with one blank between words, so that split_k is split-K."""
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))


@cache
def all_text() -> str:
    """Everything that is written in the sources."""
    return "\n".join(plain(path.read_text("utf-8")) for path in sources())


@cache
def identifiers() -> str:
    """The names of folders and modules, and all that they define, each between blanks."""
    found = {part for path in sources() for part in path.with_suffix("").parts}
    for path in sources():
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    found.add(node.name)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    found.add(node.id)
                elif isinstance(node, ast.arg):
                    found.add(node.arg)
        else:
            found.update(re.findall(r"[a-z]\w+", path.read_text("utf-8")))
    return " ".join(f" {' '.join(words_of(name))} " for name in sorted(found))


def words_of(name: str) -> list[str]:
    """The words of an identifier: CachedModel and cached_model are two each."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*", name)]


@pytest.mark.parametrize("term", TERMS)
def test_a_term_of_the_field_is_used(term: str) -> None:
    assert plain(term) in all_text(), f"nothing in sterna/ or runtime/ speaks of {term}"


@pytest.mark.parametrize("word", OURS)
def test_a_word_of_ours_is_part_of_a_name(word: str) -> None:
    assert f" {' '.join(words_of(word))} " in identifiers(), f"nothing is named by '{word}'"


def test_terms_are_listed_once_and_in_order() -> None:
    for listed in (TERMS, OURS):
        assert listed == sorted(set(listed), key=str.lower)


def test_every_word_that_names_a_module_is_known() -> None:
    known = set(VOCABULARY.read_text("utf-8").split())
    known |= {word for term in (*TERMS, *OURS) for word in plain(term).split()}
    for path in sources():
        if path.suffix != ".py" or path.stem.startswith("__"):
            continue
        for part in path.with_suffix("").relative_to(PACKAGE).parts:
            for word in words_of(part):
                assert word in known or word.removesuffix("s") in known, (
                    f"'{word}' in the name of {path.relative_to(ROOT)}: take a word that people "
                    "would search for, or list it in docs/glossary.md with the field's term "
                    f"beside it, or, if everybody knows it, in {VOCABULARY.relative_to(ROOT)}"
                )

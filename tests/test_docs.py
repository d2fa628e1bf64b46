"""The programs in the README and in docs/ run, print what the pages say, and links lead somewhere.

Blocks of a page are run in their order, in one folder. A page's `python` blocks are one program; a
`text` block right behind one is what it prints. In a `console` block lines after `$` are commands,
the others what they print. A `c` block begins with a comment that names its file, for the commands
that follow. In what is printed `...` stands for anything; --update-golden writes it anew.
"""

import contextlib
import importlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sterna.relay.describe_operators import describe
from tests.support import ROOT, clean_environment, require_program

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = ("python", "console", "c")
NEEDS = {"firmware.md": ("qemu-system-arm", "arm-none-eabi-gcc")}
"""Programs beside a shell and a C compiler."""
END = "=== end of command ==="

ALL_PAGES = [*PAGES, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY"))]
FOLDERS = ("sterna", "runtime", "tests", "benchmarks", "examples", "docs", "build_tools", ".ci")
FILE = re.compile(rf"(?<![\w/.-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./*-]*[\w*/]")
MODULE = re.compile(r"`((?:\w+/)*\w+\.py)`")
NAME = re.compile(r"(?<![\w/.-])sterna(?:\.[A-Za-z_]\w*)+")
CLASS = re.compile(r"`[\w.]*?\b([A-Z][a-z]+[A-Z]\w*)[^`\n]*`")
TO_BE_ADDED = {"sterna/op/nn/squared_distance.py", "sterna/isa/name.py"}
"""Files that pages tell their readers to write."""


@dataclass(slots=True)
class Block:
    """A block of a page, and where in the page what it prints stands."""

    language: str
    text: str
    output: tuple[int, int] | None = None


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page that are run."""
    found = []
    for match in BLOCK.finditer(page):
        behind = OUTPUT.match(page, match.end())
        found.append(Block(match[1], match[2], behind.span(1) if behind else None))
    return [block for block in found if block.language in RUN]


def programs_of(blocks: list[Block]) -> set[str]:
    """Emulators and engines that a page's commands start."""
    texts = "".join(block.text for block in blocks if block.language == "console")
    return set(re.findall(r"^\$ (qemu-\w+|node)\b", texts, re.MULTILINE))


def agrees(expected: str, printed: str) -> bool:
    """Whether a program printed what a page says."""
    pattern = ".*?".join(map(re.escape, expected.rstrip().split("...")))
    lines = "\n".join(line.rstrip() for line in printed.rstrip().splitlines())
    return re.fullmatch(pattern, lines, re.DOTALL) is not None


def run_python(text: str, names: dict[str, Any], where: str) -> str:
    """What a program prints that goes on where the page's last one ended."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, where, "exec"), names)
    return out.getvalue()


def run_console(text: str, folder: Path, variables: str) -> None:
    """Run commands in one shell, in which variables are set, and compare what each prints."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    commands, expected = [], []
    for part in parts:
        command = re.match(r"(?:.*\\\n)*.*\n", part)
        assert command, part
        commands.append(command[0])
        expected.append(part[command.end() :])
    script = variables + "".join(f"{command}\necho '{END}'\n" for command in commands)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, capture_output=True, text=True, timeout=120,
        env=clean_environment(PATH=path),
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    outputs = [output.lstrip("\n") for output in done.stdout.split(END)]
    for ran, wanted, printed in zip(commands, expected, outputs, strict=False):
        assert agrees(wanted, printed), f"{ran} printed\n{printed}\nnot\n{wanted}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_programs_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    text = page.read_text("utf-8")
    blocks = blocks_of(text)
    if any(block.language == "console" for block in blocks):
        require_program("bash")
        require_program("cc")
        for program in programs_of(blocks):
            require_program(program)
    for program in NEEDS.get(page.name, ()):
        require_program(program)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed: dict[tuple[int, int], str] = {}
    for place, block in enumerate(blocks):
        where = f"block {place + 1} of {page.name}"
        if block.language == "c":
            file = re.match(r"/\* ([\w.]+\.c)\b", block.text)
            assert file, f"{where} begins with no comment that names its file"
            assert any(file[1] in later.text for later in blocks[place + 1 :]), f"{where}: unused"
            (tmp_path / file[1]).write_text(block.text)
        elif block.language == "console":
            earlier = "".join(b.text for b in blocks[:place] if b.language == "console")
            variables = "".join(re.findall(r"^\$ (\w+=.*\n)", earlier, re.MULTILINE))
            run_console(block.text, tmp_path, variables)
        else:
            out = run_python(block.text, names, where)
            if block.output:
                printed[block.output] = out
    if request.config.getoption("--update-golden"):
        update(page, text, printed)
        return
    for (start, end), out in printed.items():
        assert agrees(text[start:end], out), f"{page.name} says\n{text[start:end]}\nnot\n{out}"


def update(page: Path, text: str, printed: dict[tuple[int, int], str]) -> None:
    """Write what programs print into a page, where it does not agree."""
    for (start, end), out in sorted(printed.items(), reverse=True):
        if not agrees(text[start:end], out):
            text = f"{text[:start]}{out.rstrip()}\n{text[end:]}"
    page.write_text(text, "utf-8")


def test_the_list_of_operators_is_current() -> None:
    page = (ROOT / "docs" / "operators.md").read_text("utf-8")
    assert page == describe(), "run python -m sterna.relay.describe_operators > docs/operators.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", BLOCK.sub("", page.read_text("utf-8"))):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    linked = re.findall(r"\]\((\w+\.md)\)", index)
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert len(linked) == len(set(linked)) and set(linked) == pages


@cache
def files() -> list[Path]:
    """All files that pages speak of."""
    return [*ROOT.glob("*.*"), *(path for name in FOLDERS for path in (ROOT / name).rglob("*"))]


@cache
def sources() -> str:
    """All text of code."""
    texts = [path for path in files() if path.suffix in (".py", ".pyi", ".c", ".h", ".hpp")]
    return "\n".join(path.read_text("utf-8") for path in texts)


@cache
def words() -> set[str]:
    """The words of all code."""
    return set(re.findall(r"\w+", sources()))


def is_known(name: str) -> bool:
    """Whether a dotted name leads to something, or is one that code asks for by its text."""
    found: object = importlib.import_module("sterna")
    path = "sterna"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(path)
            except ImportError:
                return f'"{name}"' in sources()
    return True


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text("utf-8")
    for name in set(FILE.findall(text)) - TO_BE_ADDED:
        assert list(ROOT.glob(name.rstrip("/"))), f"{page.name} names {name}, which is not there"
    for name in set(MODULE.findall(text)) - TO_BE_ADDED:
        found = any(path.as_posix().endswith(f"/{name}") for path in files())
        assert found, f"{page.name} names {name}, and no file ends so"


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_code_that_a_page_mentions_are_there(page: Path) -> None:
    text = page.read_text("utf-8")
    for name in set(NAME.findall(text)):
        if not name.endswith((".h", ".hpp", ".c")):
            assert is_known(name), f"{page.name} mentions {name}, which is not there"
    for name in CLASS.findall(BLOCK.sub("", text)):
        assert name in words(), f"{page.name} mentions {name}, and no code has such a name"

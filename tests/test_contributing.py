"""CONTRIBUTING.md shows the programs of examples/contributing as they are, and they run.

In front of a block stands the name of its file, behind it what the program prints, where `...`
stands for anything. --update-golden writes both anew.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sterna.version import __version__
from tests.support import ROOT, clean_environment
from tests.test_docs import agrees

PAGE = ROOT / "CONTRIBUTING.md"
FOLDER = ROOT / "examples" / "contributing"
SHOWN = re.compile(
    r"<!-- (examples/contributing/[\w/.]+) -->\n```\w+\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
PROGRAMS = sorted(FOLDER.glob("*.py"))


def shown(path: Path, update: bool) -> tuple[str, str]:
    """What the page shows of a file, and what it says that the file prints."""
    page = PAGE.read_text("utf-8")
    name = path.relative_to(ROOT).as_posix()
    found = next((match for match in SHOWN.finditer(page) if match[1] == name), None)
    assert found, f"CONTRIBUTING.md does not show {name}"
    text = path.read_text("utf-8")
    if update and found[2] != text:
        PAGE.write_text(page[: found.start(2)] + text + page[found.end(2) :], "utf-8")
        return shown(path, False)
    return found[2], found[3] or ""


def run(command: list[str], folder: Path) -> str:
    """What a program prints, with a cache of its own: the common one knows no file of examples."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = clean_environment(STERNA_CACHE=str(folder / "cache"), PYTHONPATH=paths)
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER))
)
def test_the_page_shows_the_file(path: Path, request: pytest.FixtureRequest) -> None:
    text, _ = shown(path, request.config.getoption("--update-golden"))
    assert text == path.read_text("utf-8"), "run pytest with --update-golden"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_program_prints_what_the_page_says(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    _, expected = shown(path, False)
    printed = run([str(path)], tmp_path)
    if request.config.getoption("--update-golden") and not agrees(expected, printed):
        page = PAGE.read_text("utf-8")
        assert expected and page.count(expected) == 1, printed
        PAGE.write_text(page.replace(expected, printed.rstrip() + "\n"), "utf-8")
        return
    assert agrees(expected, printed), f"{path.name} printed\n{printed}\nnot\n{expected}"


def test_the_cases_of_the_operator_hold(tmp_path: Path) -> None:
    path = FOLDER / "add_an_operator.py"
    (name,) = re.findall(r'OpRecord\(\n    "([\w.]+)"', path.read_text("utf-8"))
    program = (
        f"import runpy; runpy.run_path({str(path)!r})\n"
        "from sterna.relay.op import find\n"
        "from tests.op.harness import check_case\n"
        f"record = find({name!r})\n"
        "for case in record.cases:\n"
        "    check_case(record, case)\n"
        "print(len(record.cases), 'cases hold')\n"
    )
    assert run(["-c", program], tmp_path).endswith("2 cases hold\n")


def test_nothing_else_is_shown_and_headings_are_listed() -> None:
    page = PAGE.read_text("utf-8")
    for match in SHOWN.finditer(page):
        assert (ROOT / match[1]).is_file(), match[1]
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    listed = re.findall(r"^\d+\. \[(.*)\]\(#(.*)\)$", page, re.MULTILINE)
    assert [title for title, _ in listed] == headings
    for title, anchor in listed:
        assert anchor == re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def test_the_forge_runs_what_everyone_runs_on_both_processors() -> None:
    workflow = (ROOT / ".github" / "workflows" / "check.yml").read_text("utf-8")
    assert "bash .ci/run" in workflow
    assert "runner: [ubuntu-24.04, ubuntu-24.04-arm]" in workflow


def test_the_changelog_begins_with_what_comes_next() -> None:
    versions = re.findall(r"^## \[(.*)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert versions[0] == "Unreleased" and len(set(versions)) == len(versions)
    assert not versions[1:] or versions[1].split()[0] <= __version__


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_lead_somewhere(name: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text("utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert "://" in link or (ROOT / link).exists(), f"{name}: {link}"

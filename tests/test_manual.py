"""The documentation as a site: it builds, its links lead somewhere, and its search finds things."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from sterna.cli.commands import COMMANDS
from tests.support import ROOT, require_program


@pytest.fixture(scope="module")
def manual() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "build_tools"))
    try:
        import manual

        yield manual
    finally:
        sys.path.remove(str(ROOT / "build_tools"))


@pytest.fixture(scope="module")
def site(manual: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manual") / "site"
    manual.build(folder)
    return folder


def test_links_lead_somewhere(manual: ModuleType, site: Path) -> None:
    assert manual.dead_links(site) == []
    page = site / "vm.html"
    page.write_text(page.read_text("utf-8") + '<a href="vm.html#nowhere">x</a>', "utf-8")
    assert manual.dead_links(site) == ["vm.html: vm.html#nowhere"]


def test_every_page_and_every_command_is_there(site: Path) -> None:
    sources = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"}
    commands = {f"command_{name.replace('-', '_')}" for name in COMMANDS}
    listed = re.findall(r'<li><a href="(\w+)\.html"', (site / "index.html").read_text("utf-8"))
    assert sources | commands <= set(listed) and len(listed) == len(set(listed))
    compiling = (site / "command_compile.html").read_text("utf-8")
    assert "<code>--size {small,balanced,fast}" in compiling


def test_pictures_are_whole(manual: ModuleType, site: Path) -> None:
    pictures = sorted((site / "pictures").iterdir())
    for picture in pictures:
        ElementTree.parse(picture)
    table = "## here\n\n| model | threads | ratio |\n| --- | --- | --- |\n| net | 2 | 1.50 |\n"
    (plot,) = manual.plots_of(table)
    assert "net" in plot.svg and "1.50" in plot.svg and table[plot.place] == "|"
    tables = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert len(pictures) == 1 + len(manual.plots_of(tables)) > 3


def test_the_search_finds_sections(site: Path) -> None:
    require_program("node")
    page = 'const page = {addEventListener() {}, innerHTML: "", querySelector() {}, value: ""};'
    script = f"""{page} globalThis.addEventListener = () => {{}};
    globalThis.document = {{getElementById: () => page, querySelector: () => page}};
    {(site / "search.js").read_text("utf-8")}
    page.value = "winograd growth"; search(); console.log(JSON.stringify(page.innerHTML));"""
    path = site.parent / "search.mjs"
    path.write_text(script, "utf-8")
    done = subprocess.run(["node", path], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found.count("<li>") > 2 and "pass_settings.html#" in found


def test_a_folder_of_others_is_kept(manual: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(SystemExit, match="holds something that is no site"):
        manual.build(tmp_path)
    assert (tmp_path / "letter.txt").exists()

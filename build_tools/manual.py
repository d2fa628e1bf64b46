"""Builds the documentation as a site of plain files: python build_tools/manual.py --output site

Pages of docs/ and of the root, a page for each command of the command line from its own parser, the
plots of docs/performance.md, the graph of a network, and a search that needs no server. Nothing is
fetched: markdown-it and Pygments come with rich, which the package needs anyway. One tree gives one
sequence of bytes.
"""

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from manual_commands import command_pages
from manual_links import dead_links
from manual_markdown import Rendered, render
from manual_plots import plots_of
from manual_template import SCRIPT, style, wrap
from manual_words import search_index

from sterna.model.draw import to_svg
from sterna.model.import_model import import_model
from sterna.model.stages import Stages
from sterna.target import Target

ROOT = Path(__file__).resolve().parent.parent
# Pages beside docs/: their files, by their names on the site.
ROOT_PAGES = {
    "README.md": "index", "CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog",
    "SECURITY.md": "reporting",
}
NETWORK = ROOT / "sterna" / "cli" / "digits" / "digits.onnx"
NETWORK_TEXT = """
## The graph of a network

`sterna inspect digits.onnx --draw graph.svg` draws a network as it runs, a box for each kernel.
This is the network of `sterna demo`:

![The kernels of the classifier of digits](pictures/network.svg)
"""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the site before it is rendered."""

    name: str
    source: Path
    """Where its links start from."""
    text: str


def main() -> None:
    """Build the site, and look for links that lead nowhere."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "site", help="the folder to write")
    output: Path = parser.parse_args().output
    count = build(output)
    dead = dead_links(output)
    if dead:
        sys.exit("\n".join(dead))
    print(f"{output / 'index.html'}: {count} pages, and no link that leads nowhere")


def build(output: Path) -> int:
    """Write the site into a folder, in the place of one that is there; returns how many pages."""
    if output.exists() and any(output.iterdir()) and not (output / "search.js").is_file():
        sys.exit(f"{output} holds something that is no site; name an empty folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix="manual-") as scratch:
        made = Path(scratch) / "site"
        count = _write(made)
        shutil.rmtree(output, ignore_errors=True)
        made.rename(output)
    return count


def _write(folder: Path) -> int:
    (folder / "pictures").mkdir(parents=True)
    pages = _pages()
    names = {page.source: page.name for page in pages}
    rendered = {page.name: _render(page, names, folder) for page in pages}
    groups = _groups(rendered)
    for name, made in rendered.items():
        (folder / f"{name}.html").write_text(wrap(name, made, groups), "utf-8")
    (folder / "style.css").write_text(style(), "utf-8")
    (folder / "search.js").write_text(f"{search_index(rendered)}\n{SCRIPT}", "utf-8")
    return len(rendered)


def _pages() -> list[Page]:
    """All pages, those of docs/ in the order of its index."""
    found = [Page(name, ROOT / file, (ROOT / file).read_text("utf-8"))
             for file, name in ROOT_PAGES.items()]
    for path in sorted((ROOT / "docs").glob("*.md")):
        name = "docs" if path.name == "README.md" else path.stem
        found.append(Page(name, path, path.read_text("utf-8")))
    for name, text in command_pages().items():
        found.append(Page(name, ROOT / "docs" / f"{name}.md", text))
    return found


def _render(page: Page, names: dict[Path, str], output: Path) -> Rendered:
    """A page's body, with the pictures that belong to it."""
    text = page.text
    if page.name == "performance":
        for plot in reversed(plots_of(text)):
            (output / "pictures" / plot.file).write_text(plot.svg, "utf-8")
            shown = f"![{plot.caption}](pictures/{plot.file})"
            text = f"{text[: plot.place]}{shown}\n\n{text[plot.place :]}"
    if page.name == "journey":
        (output / "pictures" / "network.svg").write_text(_network(), "utf-8")
        text += NETWORK_TEXT
    return render(text, page.source, names)


def _network() -> str:
    """The picture of the demo's network, as it runs on a processor with AVX2."""
    module, params = import_model(NETWORK, {"picture": (1, 1, 28, 28)}, None)
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
    return to_svg(Stages.of(module, params, target, opt_level=3).boxes(), NETWORK.name)


def _groups(rendered: dict[str, Rendered]) -> list[tuple[str, list[tuple[str, str]]]]:
    """What the list beside each page holds: headings, and under them names and titles."""
    commands = [name for name in rendered if name.startswith("command_") and name != "command_line"]
    order = [link for link in rendered["docs"].links if link in rendered]
    manual = list(dict.fromkeys(n for n in order if n not in ROOT_PAGES.values()))
    lists = [("", ["index", "docs"]), ("Manual", manual), ("Commands", commands),
             ("Project", ["contributing", "changelog", "reporting"])]
    return [(head, [(name, rendered[name].title) for name in names]) for head, names in lists]


if __name__ == "__main__":
    main()

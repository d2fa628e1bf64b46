"""A page of the manual from Markdown to HTML: anchors of headings, links, highlighted code."""

import re
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

# What blocks are called here, as Pygments calls it.
LANGUAGES = {"py": "python", "sh": "bash", "relay": "rust", "js": "javascript"}
FORMATTER = HtmlFormatter(nowrap=True)


@dataclass(slots=True)
class Section:
    """A heading, and the words under it."""

    level: int
    title: str
    anchor: str
    words: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Rendered:
    """The body of a page, and what the rest of the site asks about it."""

    title: str
    body: str
    sections: list[Section]
    links: list[str]
    """The names of the pages that it leads to, in order."""


def render(text: str, source: Path, names: dict[Path, str]) -> Rendered:
    """Markdown as a page; names are those of the site's pages by their sources."""
    parser = MarkdownIt("commonmark", {"highlight": _highlighted}).enable("table")
    tokens = parser.parse(re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL))
    sections = _sections(tokens)
    links: list[str] = []
    for token in tokens:
        for child in token.children or ():
            _lead(child, source, names, links)
    title = sections[0].title if sections else source.stem
    return Rendered(title, parser.renderer.render(tokens, parser.options, {}), sections, links)


def slug(title: str, taken: set[str]) -> str:
    """The anchor of a heading, as GitHub makes it."""
    base = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    made, number = base, 0
    while made in taken:
        number += 1
        made = f"{base}-{number}"
    taken.add(made)
    return made


def _sections(tokens: list[Token]) -> list[Section]:
    """The headings, which get their anchors, and the text under each."""
    found: list[Section] = []
    taken: set[str] = set()
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            title = _plain(tokens[place + 1])
            found.append(Section(int(token.tag[1]), title, slug(title, taken)))
            token.attrSet("id", found[-1].anchor)
        elif found and token.type in ("inline", "fence"):
            found[-1].words.append(_plain(token) if token.type == "inline" else token.content)
    return found


def _plain(token: Token) -> str:
    """The text of a token without its marks."""
    return "".join(" " if child.type == "softbreak" else child.content
                   for child in token.children or ())


def _lead(token: Token, source: Path, names: dict[Path, str], links: list[str]) -> None:
    """Links to pages lead to the site's; files of the tree are named, not linked."""
    href = token.attrGet("href")
    if token.type != "link_open" or not isinstance(href, str) or "://" in href:
        return
    path, _, anchor = href.partition("#")
    if not path:
        return
    place = (source.parent / path).resolve()
    name = names.get(place) or names.get(place / "README.md")
    if name is None:
        raise SystemExit(f"{source.name} links to {href}, which is no page of the manual")
    links.append(name)
    token.attrSet("href", f"{name}.html" + (f"#{anchor}" if anchor else ""))


def _highlighted(code: str, language: str, attributes: Any) -> str:
    try:
        lexer = get_lexer_by_name(LANGUAGES.get(language, language))
    except ClassNotFound:
        return escape(code)
    made: str = highlight(code, lexer, FORMATTER)
    return made

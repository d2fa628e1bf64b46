"""Links and pictures of a built site that lead nowhere."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path


class _Reader(HTMLParser):
    """What a page links to, and what may be linked to in it."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Of every tag."""
        for name, value in attrs:
            if value is not None and name in ("href", "src"):
                self.links.append(value)
            elif value is not None and name == "id":
                self.anchors.add(value)


def dead_links(site: Path) -> list[str]:
    """PAGE: LINK for each link to a file or an anchor that is not there."""

    @cache
    def read(path: Path) -> _Reader:
        reader = _Reader()
        reader.feed(path.read_text("utf-8"))
        return reader

    found = []
    for page in sorted(site.glob("*.html")):
        for link in read(page).links:
            path, _, anchor = link.partition("#")
            if "://" in link:
                continue
            place = site / path if path else page
            is_there = place.is_file() and (not anchor or anchor in read(place).anchors)
            if not is_there:
                found.append(f"{page.name}: {link}")
    return found

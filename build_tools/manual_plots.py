"""The tables of docs/performance.md as pictures: bars of ratios and of shares, in SVG."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

BAR, GAP, BETWEEN, NAMES, WIDTH, RIGHT, TOP = 13, 3, 10, 190, 420, 60, 44
COLOURS = ("#2a6f97", "#e07a3f", "#6a994e", "#8e5ea2")
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #222 } .head { font-weight: 600 }
.line { stroke: #888; stroke-dasharray: 3 3 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } }
""".strip()
# A machine's heading, or a table.
PART = re.compile(r"^## (.+)$|(?:^\|.*\|\n)+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture, and where in the page it stands: in front of its table."""

    file: str
    caption: str
    place: int
    svg: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One value of a group of bars."""

    group: str
    series: str
    value: float
    shown: str


def plots_of(page: str) -> list[Plot]:
    """Of each table that holds ratios to other engines, or shares of limits."""
    found: list[Plot] = []
    machine = ""
    for part in PART.finditer(page):
        if part[1]:
            machine = part[1]
            continue
        head, rows = _table(part[0])
        if "ratio" in head and "threads" in head:
            caption = f"Ratio to the fastest other engine, {machine}"
            bars = [Bar(row["model"], f"threads: {row['threads']}", float(row["ratio"]),
                        row["ratio"]) for row in rows]
            kind, mark, unit = "engines", 1.0, "1: as fast"
        elif "share of the limit" in head:
            caption = f"Share of the machine's limit, {machine}"
            bars = [Bar(row["model"], row["class"], float(row["share of the limit"].rstrip("%")),
                        row["share of the limit"]) for row in rows]
            kind, mark, unit = "limits", 100.0, "100 %: the limit"
        else:
            continue
        svg = _ratios(caption, bars, mark, unit) if kind == "engines" else _rows(
            caption, bars, mark, unit)
        found.append(Plot(f"{kind}{len(found)}.svg", caption, part.start(), svg))
    return found


def _table(text: str) -> tuple[list[str], list[dict[str, str]]]:
    """The head of a table, and its rows by the words of the head."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")]
             for line in text.strip().splitlines()]
    head, _, *rows = lines
    return head, [dict(zip(head, row, strict=True)) for row in rows]


def _ratios(caption: str, bars: Sequence[Bar], mark: float, unit: str) -> str:
    """Bars of one group under each other, a colour for each series."""
    ordered = sorted(bars, key=lambda bar: bar.group)  # of a group in the order of the table
    series = list(dict.fromkeys(bar.series for bar in bars))
    parts, y = [], TOP
    for group, members in groupby(ordered, key=lambda bar: bar.group):
        inner = list(members)
        middle = y + len(inner) * (BAR + GAP) / 2
        parts.append(_text(NAMES - 8, middle + 2, group, "end"))
        for bar in inner:
            parts += _bar(bar, y, _scale(bars, mark), COLOURS[series.index(bar.series) % 4])
            y += BAR + GAP
        y += BETWEEN
    legend = [
        f'<rect x="{NAMES + 130 * place}" y="24" width="10" height="10" fill="{COLOURS[place % 4]}"'
        f'/>{_text(NAMES + 130 * place + 15, 33, name)}' for place, name in enumerate(series)
    ]
    return _picture(caption, [*legend, *parts], y, mark * _scale(bars, mark), unit)


def _rows(caption: str, bars: Sequence[Bar], mark: float, unit: str) -> str:
    """A bar for each row, under the name of its group."""
    parts, y = [], TOP
    for group, members in groupby(bars, key=lambda bar: bar.group):
        parts.append(_text(8, y + BAR - 2, group, kind="head"))
        y += BAR + GAP
        for bar in members:
            parts.append(_text(NAMES - 8, y + BAR - 2, _shortened(bar.series), "end"))
            parts += _bar(bar, y, _scale(bars, mark), COLOURS[0])
            y += BAR + GAP
        y += BETWEEN
    return _picture(caption, parts, y, mark * _scale(bars, mark), unit)


def _shortened(series: str) -> str:
    """nn.conv2d_winograd, Winograd F(4, 3) -> Winograd F(4, 3)"""
    return series.partition(", ")[2] or series


def _scale(bars: Sequence[Bar], mark: float) -> float:
    return WIDTH / max(mark, *(bar.value for bar in bars))


def _bar(bar: Bar, y: float, scale: float, colour: str) -> list[str]:
    width = bar.value * scale
    return [
        f'<rect x="{NAMES}" y="{y:.0f}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>',
        _text(NAMES + width + 5, y + BAR - 2, bar.shown),
    ]


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _picture(caption: str, parts: Sequence[str], bottom: float, mark: float, unit: str) -> str:
    width = NAMES + WIDTH + RIGHT
    x = NAMES + mark
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 20:.0f}" '
        f'viewBox="0 0 {width} {bottom + 20:.0f}" role="img">',
        f"<title>{escape(caption)}</title>", f"<style>{STYLE}</style>",
        _text(8, 14, caption, kind="head"), *parts,
        f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom:.0f}"/>',
        _text(x, bottom + 14, unit, "middle"), "</svg>",
    ]) + "\n"

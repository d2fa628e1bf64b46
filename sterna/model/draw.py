"""Graphs as pictures: SVG, or an HTML page in which it can be moved and enlarged.

A file needs nothing but itself.
"""

from collections.abc import Sequence
from html import escape

from sterna.model.graph_boxes import Box, Boxes
from sterna.model.layered_layout import Layout, Point, lay_out_graph

LETTER, LINE, PADDING, MARGIN = 6.7, 15.0, 8.0, 20.0
LONGEST = 42

COLOURS = {
    "input": "#ffffff", "output": "#ffffff", "product": "#cfe2f3", "reduction": "#fce5cd",
    "elements": "#d9ead3", "view": "#eeeeee", "other": "#e6dbf0",
}

STYLE = """
text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #222 }
.type { fill: #777; font-size: 10px }
.box { stroke: #555; stroke-width: 1 }
.edge { fill: none; stroke: #999; stroke-width: 1.2 }
""".strip()

# Moves the picture by dragging and enlarges it by the wheel.
SCRIPT = """
const svg = document.querySelector('svg'), box = svg.viewBox.baseVal;
let from = null;
const scale = () => box.width / svg.clientWidth;
svg.addEventListener('pointerdown', e => { from = e; svg.setPointerCapture(e.pointerId); });
svg.addEventListener('pointerup', () => { from = null; });
svg.addEventListener('pointermove', e => {
  if (!from) return;
  box.x -= (e.clientX - from.clientX) * scale();
  box.y -= (e.clientY - from.clientY) * scale();
  from = e;
});
svg.addEventListener('wheel', e => {
  e.preventDefault();
  const by = Math.exp(e.deltaY * 0.001), r = svg.getBoundingClientRect();
  const x = box.x + (e.clientX - r.left) * scale(), y = box.y + (e.clientY - r.top) * scale();
  box.width *= by; box.height *= by;
  box.x = x - (x - box.x) * by; box.y = y - (y - box.y) * by;
}, {passive: false});
const fit = () => { box.height = box.width * svg.clientHeight / svg.clientWidth; };
box.width = Math.min(box.width, 1600); fit(); addEventListener('resize', fit);
""".strip()


def to_svg(graph: Boxes, title: str) -> str:
    """The graph as an SVG picture; boxes that are pointed at tell more."""
    layout = lay_out_graph([_size(box) for box in graph.boxes], graph.edges)
    width, height = layout.width + 2 * MARGIN, layout.height + 2 * MARGIN
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<g transform="translate({MARGIN:.0f} {MARGIN:.0f})">',
        *(_edge(path) for path in layout.paths.values()),
        *_boxes(graph.boxes, layout),
        "</g>",
        "</svg>",
    ]) + "\n"


def to_html(graph: Boxes, title: str) -> str:
    """The same as a page: dragging moves the picture, the wheel enlarges it."""
    return "\n".join([
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        "<style>html, body { margin: 0; height: 100% } svg { width: 100%; height: 100%; "
        "cursor: grab; touch-action: none }</style></head><body>",
        to_svg(graph, title),
        f"<script>{SCRIPT}</script>",
        "</body></html>",
    ]) + "\n"


def _lines(box: Box) -> list[str]:
    return [_shortened(line) for line in (*box.lines, box.result)]


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _size(box: Box) -> tuple[float, float]:
    lines = _lines(box)
    return max(map(len, lines)) * LETTER + 2 * PADDING, len(lines) * LINE + 2 * PADDING


def _boxes(boxes: Sequence[Box], layout: Layout) -> list[str]:
    return [_box(box, *centre) for box, centre in zip(boxes, layout.centres, strict=True)]


def _box(box: Box, x: float, y: float) -> str:
    width, height = _size(box)
    left, top = x - width / 2, y - height / 2
    radius = height / 2 if box.kind in ("input", "output") else 4
    tip = "\n".join([" + ".join(box.lines), box.result, *box.details])
    *lines, result = _lines(box)
    texts = [
        f'<text x="{x:.1f}" y="{top + PADDING + LINE * (i + 0.75):.1f}" text-anchor="middle"'
        f'{kind}>{escape(line)}</text>'
        for i, (line, kind) in enumerate([*((line, "") for line in lines),
                                          (result, ' class="type"')])
    ]
    return (
        f"<g><title>{escape(tip)}</title>"
        f'<rect class="box" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="{radius:.1f}" fill="{COLOURS[box.kind]}"/>{"".join(texts)}</g>'
    )


def _edge(path: Sequence[Point]) -> str:
    """A curve that leaves and reaches every point straight down."""
    (x, y), *rest = path
    steps = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in rest:
        middle = (y + to_y) / 2
        steps.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return f'<path class="edge" d="{"".join(steps)}"/>'

"""A picture of a search: the network's time as it goes on, and each layer's over its trials."""

import colorsys
import html
import itertools
from collections.abc import Sequence

from sterna.tune.search import Progress

WIDTH, HEIGHT, EDGE = 720, 320, 48
# The layers that are drawn, and the height of a line of their names.
MOST_LAYERS, LINE = 12, 16
_TEXT = "font-family='sans-serif' font-size='12' fill='#333'"

Line = list[tuple[float, float]]
"""Points: how far to the right, and which fraction of the untuned time."""


def draw_history(history: Sequence[Progress]) -> str:
    """An SVG of two panels, the network above and its layers below; 100 % is the untuned time."""
    network: Line = [(0.0, 1.0), *((at.seconds, at.ratio) for at in history)]
    layers = _layers(history)
    told = f"{network[-1][1]:.1%} after {len(history)} rounds"
    parts = _panel(0, f"time of the network, of its untuned time: {told}", [(network, "#1f6feb")],
                   f"{network[-1][0]:.0f} s")
    height = HEIGHT
    if layers:
        lines = [(line, _color(place)) for place, line in enumerate(layers.values())]
        most = max(line[-1][0] for line in layers.values())
        parts += _panel(HEIGHT, "time of each layer, of its untuned time", lines,
                        f"{most:.0f} trials")
        for place, (scope, line) in enumerate(layers.items()):
            down = 2 * HEIGHT + place * LINE
            name = html.escape(f"{scope}: {line[-1][1]:.1%}", quote=True)
            parts.append(f"<text x='{EDGE}' y='{down}' font-family='sans-serif' font-size='12' "
                         f"fill='{_color(place)}'>{name}</text>")
        height = 2 * HEIGHT + len(layers) * LINE
    return "\n".join([
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}'>",
        f"<rect width='{WIDTH}' height='{height}' fill='white'/>", *parts, "</svg>",
    ]) + "\n"


def _layers(history: Sequence[Progress]) -> dict[str, Line]:
    """The greatest layers, by the trials that each has had."""
    found: dict[str, Line] = {}
    for at in history:
        for scope, layer in at.layers.items():
            found.setdefault(scope, [(0.0, 1.0)]).append((layer.trials, layer.ratio))
    last = history[-1].layers if history else {}
    kept = sorted(found, key=lambda scope: -last[scope].fraction if scope in last else 0.0)
    return {scope: found[scope] for scope in kept[:MOST_LAYERS]}


def _panel(top: int, title: str, lines: Sequence[tuple[Line, str]], last_text: str) -> list[str]:
    every = [point for line, _ in lines for point in line]
    lowest = min(0.9, min(fraction for _, fraction in every) - 0.02)
    last = max(1.0, *(right for right, _ in every))

    def place(right: float, fraction: float) -> str:
        down = top + EDGE + (1.0 - fraction) / (1.0 - lowest) * (HEIGHT - 2 * EDGE)
        return f"{EDGE + right / last * (WIDTH - 2 * EDGE):.1f},{down:.1f}"

    floor = top + HEIGHT - EDGE
    parts = [
        f"<path d='M{EDGE},{top + EDGE} V{floor} H{WIDTH - EDGE}' stroke='#999' fill='none'/>",
        f"<text x='4' y='{top + EDGE + 4}' {_TEXT}>100 %</text>",
        f"<text x='4' y='{floor + 4}' {_TEXT}>{lowest:.0%}</text>",
        f"<text x='{WIDTH - EDGE - 30}' y='{floor + 18}' {_TEXT}>{last_text}</text>",
        f"<text x='{EDGE}' y='{top + 24}' {_TEXT}>{title}</text>",
    ]
    for line, color in lines:
        steps = [place(*line[0])]
        for before, after in itertools.pairwise(line):
            steps += [place(after[0], before[1]), place(*after)]
        parts.append(f"<polyline points='{' '.join(steps)}' stroke='{color}' stroke-width='2' "
                     "fill='none'/>")
    return parts


def _color(place: int) -> str:
    red, green, blue = colorsys.hls_to_rgb(place * 0.381966 % 1.0, 0.4, 0.7)
    return f"#{int(red * 255):02x}{int(green * 255):02x}{int(blue * 255):02x}"

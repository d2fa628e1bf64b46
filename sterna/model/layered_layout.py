"""Places for the boxes of a graph without cycles: in layers, every edge from a higher to a lower.

1. layers      a box lies one layer below the lowest box that it reads
2. bends       an edge over several layers bends once in each layer between
3. order       within a layer by the middle of what lies above, then below, back and forth
4. columns     as near to the middle of their neighbours as the order and the widths allow
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

GAP_X, GAP_Y = 18.0, 36.0
BEND_WIDTH = 6.0
SWEEPS = 8

Edge = tuple[int, int]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """Middles of boxes, the points that each edge passes, and the size of all of it."""

    centres: list[Point]
    paths: dict[Edge, list[Point]]
    width: float
    height: float


@dataclass(slots=True)
class _Net:
    """Boxes and bends, each with its neighbours in the layers next to it."""

    widths: list[float]
    heights: list[float]
    layer: list[int]
    above: list[list[int]] = field(default_factory=list)
    below: list[list[int]] = field(default_factory=list)

    def add(self, width: float, height: float, layer: int) -> int:
        self.widths.append(width)
        self.heights.append(height)
        self.layer.append(layer)
        self.above.append([])
        self.below.append([])
        return len(self.widths) - 1

    def link(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)


def lay_out_graph(sizes: Sequence[tuple[float, float]], edges: Sequence[Edge]) -> Layout:
    """Where to draw boxes of these widths and heights; an edge goes to a box of a higher number."""
    distinct = sorted(set(edges))
    for source, sink in distinct:
        if not 0 <= source < sink < len(sizes):
            raise ValueError(f"the edge {source} -> {sink} does not lead to a later box")
    net = _Net([], [], [])
    for (width, height), layer in zip(sizes, _layers(len(sizes), distinct), strict=True):
        net.add(width, height, layer)
    chains = {edge: _with_bends(net, edge) for edge in distinct}
    rows = _ordered(net)
    x = _columns(net, rows)
    tall = [max(net.heights[item] for item in row) for row in rows]
    y, height = _rows_down(tall)
    shift = min((x[i] - net.widths[i] / 2 for i in range(len(x))), default=0.0)
    places = [(x[i] - shift, y[net.layer[i]]) for i in range(len(x))]
    width = max((places[i][0] + net.widths[i] / 2 for i in range(len(x))), default=0.0)
    paths = {edge: _path(net, chain, places, tall) for edge, chain in chains.items()}
    return Layout(places[: len(sizes)], paths, width, height)


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """One below the lowest source; what has no source lies just above its first reader."""
    layer = [0] * count
    for source, sink in sorted(edges, key=lambda edge: edge[1]):
        layer[sink] = max(layer[sink], layer[source] + 1)
    readers: dict[int, list[int]] = {}
    for source, sink in edges:
        readers.setdefault(source, []).append(layer[sink])
    fed = {sink for _, sink in edges}
    for box, lower in readers.items():
        if box not in fed:
            layer[box] = min(lower) - 1
    return layer


def _with_bends(net: _Net, edge: Edge) -> list[int]:
    source, sink = edge
    chain = [source]
    for layer in range(net.layer[source] + 1, net.layer[sink]):
        chain.append(net.add(BEND_WIDTH, 0.0, layer))
    chain.append(sink)
    for upper, lower in pairwise(chain):
        net.link(upper, lower)
    return chain


# ---- order ----


def _ordered(net: _Net) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(max(net.layer, default=-1) + 1)]
    for item, layer in enumerate(net.layer):
        rows[layer].append(item)
    place = [0.0] * len(net.layer)
    for row in rows:
        _number(row, place)
    for sweep in range(SWEEPS):
        neighbours = net.above if sweep % 2 == 0 else net.below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = {item: _mean(place, neighbours[item], place[item]) for item in row}
            row.sort(key=lambda item: (wanted[item], place[item]))
            _number(row, place)
    return rows


def _number(row: Sequence[int], place: list[float]) -> None:
    """Places from 0 to 1, so that layers of different lengths compare."""
    for number, item in enumerate(row):
        place[item] = (number + 0.5) / len(row)


def _mean(values: Sequence[float], items: Sequence[int], otherwise: float) -> float:
    return sum(values[item] for item in items) / len(items) if items else otherwise


# ---- places ----


def _columns(net: _Net, rows: Sequence[Sequence[int]]) -> list[float]:
    x = [0.0] * len(net.widths)
    for row in rows:
        _place_row(net, row, [0.0] * len(row), x)
    for sweep in range(SWEEPS):
        neighbours = net.above if sweep % 2 == 0 else net.below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            _place_row(net, row, [_mean(x, neighbours[item], x[item]) for item in row], x)
    return x


def _place_row(
    net: _Net, row: Sequence[int], wanted: Sequence[float], x: list[float]
) -> None:
    """As near to the wanted places as can be without overlaps, in the least squares' sense.

    Measured from where the boxes before it end at least, a box may not lie left of the one before:
    places that would are pooled with it and share their mean.
    """
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (net.widths[left] + net.widths[right]) / 2 + GAP_X)
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        mean, count = want - offset, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    for item, mean, offset in zip(row, means, offsets, strict=False):
        x[item] = mean + offset


def _rows_down(tall: Sequence[float]) -> tuple[list[float], float]:
    """The middle of each layer, and where the last one ends."""
    middles, at = [], 0.0
    for height in tall:
        middles.append(at + height / 2)
        at += height + GAP_Y
    return middles, max(0.0, at - GAP_Y)


def _path(
    net: _Net, chain: Sequence[int], places: Sequence[Point], tall: Sequence[float]
) -> list[Point]:
    """From the lower side of the source, straight through layers, to the upper side of the sink."""
    source, *bends, sink = chain
    path = [(places[source][0], places[source][1] + net.heights[source] / 2)]
    for bend in bends:
        (x, y), height = places[bend], tall[net.layer[bend]]
        path += [(x, y - height / 2), (x, y + height / 2)]
    return [*path, (places[sink][0], places[sink][1] - net.heights[sink] / 2)]

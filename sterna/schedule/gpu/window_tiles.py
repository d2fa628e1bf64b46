"""How many neighbouring windows a thread has: pooling, depthwise convolutions.

What two windows share is loaded and converted once, and so are weights, which all windows have in
common. More results take more registers, and leave fewer threads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import variables_in
from sterna.schedule.choose import choose
from sterna.schedule.gpu.access import reads_of
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.loops import extents_of
from sterna.te import IterVar, Stage

SIDES = (1, 2, 3, 4, 5, 7, 8, 11, 13, 14)
WIDTHS = (4, 2, 1)
MOST_OUTPUTS = 32
# Products of a thread, each of a vector, that are written out.
MOST_PRODUCTS = 400
# Steps of a window that are written out: what neighbours share shows only then.
UNROLLED_STEPS = 49
# Sums, what is read for a row of windows, and its weights, that a thread has in registers.
MOST_REGISTERS = 62
# Threads that keep a device busy.
BUSY_THREADS = 132 * 256
# Instructions to load a vector, and to convert an element.
LOAD, CONVERT = 4.0, 1.25


@dataclass(frozen=True, slots=True)
class WindowTile:
    """The results of one thread."""

    places: tuple[int, ...]
    """The axes along which windows overlap."""
    sizes: tuple[int, ...]
    lanes: int

    @property
    def outputs(self) -> int:
        """Vectors of results."""
        return math.prod(self.sizes)

    def __str__(self) -> str:
        return f"{' x '.join(map(str, self.sizes)) or 1} windows, vectors of {self.lanes}"


def tile_of_windows(total: Stage, result: Stage, lanes: int, limits: Limits) -> WindowTile:
    """The results of one thread that take the fewest instructions each."""
    alone = WindowTile((), (), lanes)
    steps = extents_of(total.op.reduce_axis)
    written = unrolled_steps(total)
    slides = [slide for slide in _slides(total) if slide[1] in written]
    if limits.warp == 1 or not slides:
        return alone
    sizes = extents_of(result.op.axis)
    elements = math.prod(sizes)
    # Windows that move by more than one share little: pairs of them measured best.
    most = 2 if any(stride > 1 for _, _, stride in slides) else max(SIDES)
    sides = [
        [side for side in SIDES if sizes[place] % side == 0 and side <= most]
        for place, _, _ in slides
    ]
    widths = [n for n in WIDTHS if n <= lanes and n <= most]
    windows = [steps[list(total.op.reduce_axis).index(step)] for _, step, _ in slides]
    strides = [stride for _, _, stride in slides]
    weighted = len(total.op.input_tensors) > 1
    tiles = [
        WindowTile(tuple(place for place, _, _ in slides), tuple(chosen), width)
        for chosen, width in product(list(product(*sides)), widths)
        if math.prod(chosen) <= min(MOST_OUTPUTS, MOST_PRODUCTS // math.prod(extents_of(written)))
    ]

    def cost(tile: WindowTile) -> float:
        seen = [
            (side - 1) * stride + window
            for side, stride, window in zip(tile.sizes, strides, windows, strict=True)
        ]
        row = math.prod(seen[1:]) * tile.lanes
        weights = math.prod(steps[1:]) * tile.lanes if weighted else 0
        taken = tile.outputs * tile.lanes + row + weights
        loads = math.prod(seen) + (math.prod(steps) if weighted else 0)
        each = math.prod(steps) + loads * (CONVERT + LOAD / tile.lanes) / tile.outputs
        crowded = max(1.0, taken / MOST_REGISTERS)
        idle = max(1.0, BUSY_THREADS * tile.lanes * tile.outputs / elements)
        return each * crowded * idle

    return choose("windows of a thread", tiles, cost) if tiles else alone


def unrolled_steps(total: Stage) -> list[IterVar]:
    """The steps of a window, the last ones first, that are written out."""
    found: list[IterVar] = []
    for step in reversed(total.op.reduce_axis):
        if math.prod(extents_of([*found, step])) > UNROLLED_STEPS:
            break
        found.append(step)
    return found


def _slides(total: Stage) -> Sequence[tuple[int, IterVar, int]]:
    """The axes, but the last, that are read together with steps of the window: each with its step,
    and how far the window moves."""
    found: dict[int, tuple[int, IterVar, int]] = {}
    for load in reads_of(total) or ():
        for index in load.indices:
            used = set(variables_in(index))
            steps = [step for step in total.op.reduce_axis if step.var in used]
            places = [n for n, axis in enumerate(total.op.axis[:-1]) if axis.var in used]
            if len(steps) == 1 and len(places) == 1:
                var = total.op.axis[places[0]].var
                moved = Analyzer().simplify(substitute(index, {var: var + 1}) - index)
                stride = build.int_value(moved)
                if stride:  # windows of an adaptive pool move unevenly, and share nothing for sure
                    found[places[0]] = places[0], steps[0], stride
    return [found[place] for place in sorted(found)]

"""Exact plans (branch and bound): the smallest, by searches for plans of given sizes."""

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, count

from sterna.tir.usmp._packer import search_places
from sterna.tir.usmp.buffers import BufferInfo, live_bound

WORK_PER_SECOND = 300_000_000
"""What one second of a time limit stands for: plans must not depend on the machine."""

FIRST_ALLOWANCE = 2_000_000
"""The work that each order of the buffers may take at first; it doubles with every attempt."""

ALLOWANCE_OF_A_BUFFER = 1000
"""A large graph needs more: to look at each buffer takes that much."""

DOUBLINGS = 5
"""Until here: then new orders are worth more than longer searches."""


@dataclass(frozen=True, slots=True)
class _Box:
    """A buffer in units of all sizes' common divisor and in sections of time."""

    number: int
    size: int
    first: int
    last: int
    life: int
    """Its steps."""
    pressure: int
    """The most that is alive during its life."""

    @property
    def sections(self) -> int:
        return self.last - self.first


# Which buffers are tried first among those that can lie equally low. No order is best for all.
# An order sees a life and its sections stretched by a factor, which differs from round to round.
_ORDERS: list[Callable[[_Box, float], tuple[float, ...]]] = [
    lambda b, f: (b.pressure, b.life * f, b.size),
    lambda b, f: (b.pressure, b.sections * f, b.size),
    lambda b, f: (b.size * b.life * f, b.pressure),
    lambda b, f: (b.life * f, b.size),
]


@dataclass(slots=True)
class Found:
    """The best plan of a search, and what is known to be needed."""

    offsets: list[int]
    size: int
    needed: int


def optimal(
    buffers: Sequence[BufferInfo], start: Sequence[int], time_limit: float, enough: int
) -> Found:
    """A plan of the smallest size, or the best that the limit allows from a first plan on."""
    unit = math.gcd(*(b.size for b in buffers)) or 1
    boxes = _boxes(buffers, unit)
    size = max((at + b.size for at, b in zip(start, buffers, strict=True)), default=0)
    found = Found([at // unit for at in start], size // unit, live_bound(buffers) // unit)
    _improve(found, boxes, int(time_limit * WORK_PER_SECOND), enough // unit)
    return Found([at * unit for at in found.offsets], found.size * unit, found.needed * unit)


def _improve(found: Found, boxes: Sequence[_Box], budget: int, enough: int) -> None:
    """Search at the bound, then halve what is open between the bound and the best plan."""
    low = target = max(found.needed, enough)
    while found.size > max(found.needed, enough) and budget > 0:
        offsets, needed, work = _search(boxes, target, max(budget // 2, FIRST_ALLOWANCE))
        budget -= work
        if offsets is not None:
            found.offsets = [offsets.get(n, 0) for n in range(len(found.offsets))]
            found.size = max(found.offsets[b.number] + b.size for b in boxes)
        elif needed is not None:
            found.needed = max(found.needed, min(needed, found.size))
            low = max(low, found.needed)
        else:
            low = target + 1
        if low >= found.size:  # sizes that were given up get another attempt
            low = max(found.needed, enough)
        target = (low + found.size - 1) // 2


def _search(
    boxes: Sequence[_Box], capacity: int, budget: int
) -> tuple[dict[int, int] | None, int | None, int]:
    """A plan of this size, or the size that is needed, or neither; and the work that it took."""
    spent = 0
    least = max(FIRST_ALLOWANCE, ALLOWANCE_OF_A_BUFFER * len(boxes))
    for attempt in count():
        allowance = least << min(attempt, DOUBLINGS)
        source = random.Random(attempt)
        factors = {b.number: source.uniform(0.7, 1.4) if attempt > 1 else 1.0 for b in boxes}
        for key in _ORDERS:
            order = sorted(boxes, key=lambda b: key(b, factors[b.number]), reverse=True)
            items = [(b.size, b.first, b.last) for b in order]
            offsets, needed, work = search_places(items, capacity, min(allowance, budget - spent))
            spent += work
            if offsets is not None:
                return {b.number: at for b, at in zip(order, offsets, strict=True)}, None, spent
            if needed is not None or spent >= budget:
                return None, needed, spent
    raise AssertionError("the budget ends every search")


def _boxes(buffers: Sequence[BufferInfo], unit: int) -> list[_Box]:
    """The buffers that take room; a section begins where a buffer comes to life."""
    real = [(n, b) for n, b in enumerate(buffers) if b.size]
    begins = sorted({b.first for _, b in real})
    lives = [(bisect_left(begins, b.first), bisect_left(begins, b.last)) for _, b in real]
    most = _Highest(_alive(lives, [b.size for _, b in real], len(begins)))
    boxes = []
    for (number, b), (first, last) in zip(real, lives, strict=True):
        pressure = most.of(first, last)
        boxes.append(_Box(number, b.size // unit, first, last, b.last - b.first, pressure))
    return boxes


def _alive(lives: Sequence[tuple[int, int]], sizes: Sequence[int], sections: int) -> list[int]:
    """What is alive in each section."""
    changes = [0] * (sections + 1)
    for (first, last), size in zip(lives, sizes, strict=True):
        changes[first] += size
        changes[last] -= size
    return list(accumulate(changes[:-1]))


class _Highest:
    """The highest of any range of numbers, from the highest of ranges as long as powers of two."""

    def __init__(self, numbers: list[int]) -> None:
        self.rows = [numbers]
        while (step := 1 << (len(self.rows) - 1)) < len(self.rows[-1]):
            row = self.rows[-1]
            self.rows.append([max(a, b) for a, b in zip(row, row[step:], strict=False)])

    def of(self, first: int, last: int) -> int:
        """The highest from first up to, not including, last."""
        power = (last - first).bit_length() - 1
        row = self.rows[power]
        return max(row[first], row[last - (1 << power)])

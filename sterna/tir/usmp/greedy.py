"""Greedy first fit: one buffer after another, each at the lowest place free for its life."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush

from sterna.tir.usmp.buffers import BufferInfo

# Pairs of buffers that live at one moment: with more, looking at every pair takes too long.
MOST_PAIRS = 10_000_000


def crowded(buffers: Sequence[BufferInfo]) -> bool:
    """Whether so many buffers live at one moment that pairs of them cannot all be looked at."""
    ends = sorted(b.last for b in buffers)
    begins = sorted(b.first for b in buffers)
    met = sum(born - bisect_right(ends, first) for born, first in enumerate(begins))
    return met > MOST_PAIRS


def conflicts_of(buffers: Sequence[BufferInfo]) -> list[list[int]]:
    """Per buffer the numbers of the others that live at one moment with it."""
    conflicts: list[list[int]] = [[] for _ in buffers]
    alive: list[int] = []
    for number in sorted(range(len(buffers)), key=lambda n: buffers[n].first):
        alive = [n for n in alive if buffers[n].last > buffers[number].first]
        for other in alive:
            conflicts[other].append(number)
        conflicts[number] += alive
        alive.append(number)
    return conflicts


def place_in_order(
    buffers: Sequence[BufferInfo], conflicts: Sequence[Sequence[int]], order: Sequence[int]
) -> list[int]:
    """Offsets by number when the buffers are placed in this order."""
    offsets = [-1] * len(buffers)
    for number in order:
        near = [(offsets[n], buffers[n].size) for n in conflicts[number] if offsets[n] >= 0]
        offsets[number] = lowest_place(near, buffers[number].size)
    return offsets


def lowest_place(taken: list[tuple[int, int]], size: int) -> int:
    """The lowest offset of a gap of this size between pieces, each an offset and a size."""
    at = 0
    for start, length in sorted(taken):
        if start - at >= size:
            break
        at = max(at, start + length)
    return at


def order_by_size(buffers: Sequence[BufferInfo]) -> list[int]:
    """Large buffers first."""
    return sorted(range(len(buffers)), key=lambda n: (-buffers[n].size, buffers[n].first, n))


def greedy_by_size(buffers: Sequence[BufferInfo]) -> list[int]:
    """Large buffers first."""
    return place_in_order(buffers, conflicts_of(buffers), order_by_size(buffers))


def greedy_by_conflicts(buffers: Sequence[BufferInfo]) -> list[int]:
    """Buffers that meet many others first, large ones first among equals."""
    conflicts = conflicts_of(buffers)
    order = sorted(order_by_size(buffers), key=lambda n: -len(conflicts[n]))
    return place_in_order(buffers, conflicts, order)


def linear_scan(buffers: Sequence[BufferInfo]) -> list[int]:
    """Buffers in the order in which they come to life, large ones first among equals.

    What is free is kept from buffer to buffer, so that thousands may be alive at once.
    """
    offsets = [0] * len(buffers)
    alive: list[tuple[int, int]] = []
    free = [(0, math.inf)]
    for number in sorted(order_by_size(buffers), key=lambda n: buffers[n].first):
        buffer = buffers[number]
        while alive and alive[0][0] <= buffer.first:
            ended = heappop(alive)[1]
            _give_back(free, offsets[ended], buffers[ended].size)
        if buffer.size:  # else it lies nowhere, which is at 0
            offsets[number] = _take(free, buffer.size)
            heappush(alive, (buffer.last, number))
    return offsets


def _take(free: list[tuple[int, float]], size: int) -> int:
    """The lowest place of this size, which is free no longer."""
    at = next(at for at, (_, length) in enumerate(free) if length >= size)
    start, length = free[at]
    free[at : at + 1] = [(start + size, length - size)] if length > size else []
    return start


def _give_back(free: list[tuple[int, float]], start: int, size: int) -> None:
    """Add a place to what is free, as one piece with its neighbours."""
    at = bisect_left(free, (start, 0))
    length: float = size
    if free[at][0] == start + size:
        length += free.pop(at)[1]
    if at and sum(free[at - 1]) == start:
        start, before = free[at - 1]
        free[at - 1] = (start, before + length)
    else:
        free.insert(at, (start, length))

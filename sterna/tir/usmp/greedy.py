"""Plans that place one buffer after another, each at the lowest place free for its life."""

from collections.abc import Sequence

from sterna.tir.usmp.buffers import BufferInfo


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
        size, at = buffers[number].size, 0
        near = [(offsets[n], buffers[n].size) for n in conflicts[number] if offsets[n] >= 0]
        for start, length in sorted(near):
            if start - at >= size:
                break
            at = max(at, start + length)
        offsets[number] = at
    return offsets


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
    """Buffers in the order in which they come to life, large ones first among equals."""
    order = sorted(order_by_size(buffers), key=lambda n: buffers[n].first)
    return place_in_order(buffers, conflicts_of(buffers), order)

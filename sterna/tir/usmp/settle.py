"""Cache-affine memory plans: threads write over what they wrote themselves.

A line of memory that another core wrote last must come from its cache before it can be written:
that takes longer than most operators' arithmetic. Kernels give each thread an equal part of what
they write, in order. So a thread keeps its lines where a buffer lies as one of its size lay before.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

from sterna.tir.usmp.buffers import BufferInfo
from sterna.tir.usmp.greedy import conflicts_of, crowded

# So many places, those written last, are tried for a buffer beside those next to its neighbours.
TRIED_PLACES = 12
# Where a buffer lay, the next of its size is to lie: until so many times its size was written,
# smaller ones stay away. What is best depends on the network.
RESERVED = (0, 4)


def settle(buffers: Sequence[BufferInfo], offsets: Sequence[int], threads: int) -> list[int]:
    """Offsets of a plan that is no larger, in which threads write least over others' lines."""
    if threads == 1 or crowded(buffers):
        return list(offsets)
    task = _Task(buffers, offsets, conflicts_of(buffers), threads)
    plans = [list(offsets)]
    for reserved in RESERVED:
        once = _follow(task, offsets, reserved)
        plans += [once, _anew(task, reserved) or _follow(task, once, reserved)]
    return min(plans, key=lambda plan: foreign_bytes(buffers, plan, threads))


def foreign_bytes(buffers: Sequence[BufferInfo], offsets: Sequence[int], threads: int) -> int:
    """The bytes of a plan that threads write over what others wrote last."""
    memory, total = _Memory(threads), 0
    for number in _order(buffers):
        at, size = offsets[number], buffers[number].size
        total += memory.cost(at, size).foreign
        memory.write(at, size)
    return total


class _Task(NamedTuple):
    """What is to be settled."""

    buffers: Sequence[BufferInfo]
    offsets: Sequence[int]
    """Of the plan that is given."""
    conflicts: Sequence[Sequence[int]]
    threads: int

    @property
    def end(self) -> int:
        """The size of the arena."""
        ends = [at + b.size for b, at in zip(self.buffers, self.offsets, strict=True)]
        return max(ends, default=0)


def _follow(task: _Task, offsets: Sequence[int], reserved: int) -> list[int]:
    """One buffer after the other moves to where it is written soonest, as far as others let it."""
    placed, memory, end = list(offsets), _Memory(task.threads, reserved), task.end
    for number in _order(task.buffers):
        buffer = task.buffers[number]
        near = [(placed[n], task.buffers[n].size) for n in task.conflicts[number]]
        found = memory.best_place(buffer, near, end)
        placed[number] = placed[number] if found is None else found
        memory.write(placed[number], buffer.size)
    return placed


def _anew(task: _Task, reserved: int) -> list[int] | None:
    """The same with nothing in the way that comes later; None if one then finds no place."""
    placed: dict[int, int] = {}
    memory, end = _Memory(task.threads, reserved), task.end
    for number in _order(task.buffers):
        near = [(placed[n], task.buffers[n].size) for n in task.conflicts[number] if n in placed]
        found = memory.best_place(task.buffers[number], near, end)
        if found is None:
            return None
        placed[number] = found
        memory.write(found, task.buffers[number].size)
    return [placed[number] for number in range(len(task.buffers))]


def _order(buffers: Sequence[BufferInfo]) -> list[int]:
    """As they are written."""
    return sorted(range(len(buffers)), key=lambda n: (buffers[n].first, n))


class _Cost(NamedTuple):
    """What stands against a place, in bytes."""

    foreign: int
    """Written last by other threads."""
    new: int
    """Not written yet: in no cache near by."""
    age: int
    """What was written since, for each byte: what is older is in caches further away."""
    in_the_way: int
    """Of larger buffers that lay there a moment ago."""


class _Stretch(NamedTuple):
    """Memory that was written as a part of a buffer."""

    start: int
    end: int
    offset: int
    size: int
    """Where the buffer lay, and how large it was."""
    clock: int
    """The bytes that had been written before."""


class _Memory:
    """Which buffer was written last in each part of an arena."""

    def __init__(self, threads: int, reserved: int = 0) -> None:
        self.threads = threads
        self.reserved = reserved
        self.written: list[_Stretch] = []
        """In the order of their places."""
        self.recent: dict[tuple[int, int], None] = {}
        """Offsets and sizes of buffers, those that were written last at the end."""
        self.clock = 0

    def best_place(
        self, buffer: BufferInfo, near: Sequence[tuple[int, int]], end: int
    ) -> int | None:
        """The best offset for a buffer beside others, each an offset and a size; None if none is.

        What no thread has written counts half of what another has.
        """
        size, step = buffer.size, buffer.alignment
        tried = {
            at
            for start, length in [*near, *list(self.recent)[-TRIED_PLACES:], (0, end)]
            for at in (start - size, start, start + (length - size) // (2 * step) * step,
                       start + length - size, start + length)
            if at >= 0 and at + size <= end and at % step == 0
        }

        starts, ends = _joined(near)
        free = [at for at in tried if bisect_right(ends, at) == bisect_left(starts, at + size)]
        # Where a buffer of this size lay, little is foreign: most other places soon rank behind.
        free.sort(key=lambda at: (at, size) not in self.recent)
        best: tuple[float, int, int] = inf, 0, 0
        for at in free:
            cost = self.cost(at, size, best[0])
            best = min(best, (2 * cost.foreign + cost.new + cost.in_the_way, cost.age, at))
        return None if best[0] == inf else best[2]

    def cost(self, offset: int, size: int, limit: float = inf) -> _Cost:
        """What stands against a place for a buffer of some size.

        Nothing more is counted once twice what is foreign goes beyond a limit.
        """
        known = foreign = age = 0
        larger: set[tuple[int, int]] = set()
        for stretch in self._overlapping(offset, offset + size):
            low, high = max(stretch.start, offset), min(stretch.end, offset + size)
            known += high - low
            since = self.clock - stretch.clock
            age += (high - low) * since
            if size < stretch.size and since < self.reserved * stretch.size:
                larger.add((stretch.offset, stretch.size))
            if (stretch.offset, stretch.size) != (offset, size):
                foreign += high - low - self._own(stretch, offset, size, low, high)
                if 2 * foreign > limit:
                    break
        return _Cost(foreign, size - known, age, sum(length for _, length in larger))

    def write(self, offset: int, size: int) -> None:
        """A buffer is written."""
        end = offset + size
        parts = []
        for old in self._overlapping(offset, end):
            if old.start < offset:
                parts.append(old._replace(end=offset))
            if old.end > end:
                parts.append(old._replace(start=end))
        new = _Stretch(offset, end, offset, size, self.clock)
        self.written[self._range(offset, end)] = sorted([*parts, new])
        self.clock += size
        self.recent.pop((offset, size), None)
        self.recent[offset, size] = None

    def _own(self, old: _Stretch, offset: int, size: int, low: int, high: int) -> int:
        """What of a piece threads would write in a buffer that they wrote themselves."""
        own, threads = 0, self.threads
        first, last = (low - offset) * threads // size, (high - 1 - offset) * threads // size
        for thread in range(first, min(last + 2, threads)):
            start = max(low, offset + size * thread // threads,
                        old.offset + old.size * thread // threads)
            end = min(high, offset + size * (thread + 1) // threads,
                      old.offset + old.size * (thread + 1) // threads)
            if end > start:
                own += end - start
        return own

    def _range(self, start: int, end: int) -> slice:
        first = bisect_right(self.written, start, key=attrgetter("end"))
        return slice(first, bisect_left(self.written, end, key=attrgetter("start")))

    def _overlapping(self, start: int, end: int) -> list[_Stretch]:
        return self.written[self._range(start, end)]


def _joined(pieces: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Where the places that pieces take, each an offset and a size, begin and end, in order."""
    starts: list[int] = []
    ends: list[int] = []
    for start, length in sorted(pieces):
        if ends and start < ends[-1]:
            ends[-1] = max(ends[-1], start + length)
        else:
            starts.append(start)
            ends.append(start + length)
    return starts, ends

"""Transposes whose rows begin inside of vectors, by whole vectors all the same.

A block reads the whole vectors that cover its tile's rows, each row of it as far inside of them as
it begins, and knows from a row's number where that is. What it writes is shifted as well: from row
to row of the result a tile begins earlier, by as much as takes it to the start of a vector. So all
that is stored are whole vectors, but for the ends of the result's rows.
"""

import math
from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.access import VECTOR_BYTES
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.gpu.transpose_writer import (
    THREADS_OF_ELEMENTS,
    WORD_BYTES,
    Moved,
    Tile,
    TileWriter,
)
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar
from sterna.tir.stmt import BufferLoad

MOST_MOVED = 1 << 30
"""Elements whose places, and those of a tile behind the last, are numbers of 32 bits."""


def is_shiftable(widths: Sequence[int], total: int) -> bool:
    """Whether elements of so many bytes, the last those of the result, are moved so: measured on an
    H200, to find each element of 16 bits took longer than to move them one by one."""
    return min(widths) >= WORD_BYTES and len(set(widths[:-1])) == 1 and total < MOST_MOVED


def shifted_bytes(tile: Tile, read: int, write: int) -> int:
    """Shared memory of a tile of elements of so many bytes."""
    rows, pitch = _extents(tile, read, write)
    return rows * pitch * read


def _extents(tile: Tile, read: int, write: int) -> tuple[int, int]:
    """The rows of a tile in shared memory, and the elements from one to the next: an odd number, so
    that neighbours along what is written are in different banks."""
    return tile.along_write + VECTOR_BYTES // write, tile.along_read + VECTOR_BYTES // read + 1


class ShiftedWriter(TileWriter):
    """The statements of a block."""

    def __init__(self, moved: Moved, out: Tensor, tile: Tile, limits: Limits) -> None:
        super().__init__(moved, out, tile, limits)
        widths = moved.moved[0].dtype.bytes, out.dtype.bytes
        self.read_lanes, self.write_lanes = (VECTOR_BYTES // width for width in widths)
        self.threads = min(
            limits.threads, THREADS_OF_ELEMENTS, math.prod(self.sides) // self.write_lanes)
        self.extents = _extents(tile, *widths)
        self.in_row = tile.along_read // self.read_lanes + 1
        """Vectors of a row of the tile."""
        self.total = math.prod(moved.extents)

    @property
    def sides(self) -> tuple[int, int]:
        """Elements along what is read and along what is written."""
        return self.tile.along_read, self.tile.along_write

    def _counts(self) -> list[int]:
        """Tiles along both: what is written may begin before the first element of a row."""
        sizes = self.sizes[0], self.sizes[1] + self.write_lanes - 1
        return [-(-size // side) for size, side in zip(sizes, self.sides, strict=True)]

    def _begin(self) -> None:
        moved, ib = self.moved, self.ib
        read_steps, write_steps = (
            {axis: math.prod(moved.extents[each] for each in order[place + 1:])
             for place, axis in enumerate(order)}
            for order in (moved.order, tuple(range(len(moved.axes))))
        )
        self.step_read, self.step_write = read_steps[self.write[-1]], write_steps[self.read[-1]]
        self.a_first, self.f_first = (
            ib.let(name, number * side) for name, number, side in zip(
                ("a_first", "f_first"), self.first, self.sides, strict=True))

        def base(name: str, first: Expr, steps: dict[int, int]) -> Expr:
            for group, number in zip(self.outer, self.outer_numbers, strict=True):
                first = first + number * steps[group[-1]]
            return ib.let(name, first)

        # Of the tile's first column in what is read, and of its first row in what is written.
        self.read_base = base("read_base", self.a_first, read_steps)
        self.write_base = base("write_base", self.f_first, write_steps)

    def _start(self, f: Expr) -> Expr:
        """Where a row of the tile begins in what is read."""
        return self.read_base + f * self.step_read

    def _fetch(self) -> None:
        """Whole vectors; what lies behind the ends of axes is something else."""
        ib, lanes, (rows, _) = self.ib, self.read_lanes, self.extents
        count, whole = rows * self.in_row, self.total // lanes
        turns = -(-count // self.threads)
        kept = {
            tensor: ib.allocate(
                str(tensor.dtype), (turns, lanes), name="brought", scope="local")
            for tensor in self.held
        }

        with ib.for_range(0, turns, name="turn", kind="unroll") as turn, ib.new_scope():
            number = build.minimum(turn * self.threads + self.thread, count - 1)
            f = self.f_first + number // self.in_row - self.write_lanes
            f = build.maximum(build.minimum(f, self.sizes[1] - 1), 0)
            at = ib.let("at", self._start(f) // lanes + number % self.in_row)
            near = ib.let("near", build.minimum(at, whole - 1))
            for tensor, brought in kept.items():
                buffer = self.buffers[tensor]
                with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
                    brought[turn, lane] = BufferLoad(
                        buffer, tuple(buffer.indices_of(near * lanes + lane)))
                if self.total % lanes:
                    with ib.if_scope(at >= whole):
                        self._fetch_last(tensor, at, brought, turn)
        for tensor, brought in kept.items():
            with (
                ib.for_range(0, turns, name="turn") as turn,
                ib.for_range(0, lanes, name="lane") as lane, ib.new_scope(),
            ):
                number = ib.let("number", turn * self.threads + self.thread)
                row, first = number // self.in_row, number % self.in_row * lanes
                with ib.if_scope(number < count):
                    self.held[tensor][row, first + lane] = brought[turn, lane]

    def _fetch_last(self, tensor: Tensor, at: Expr, brought: BufferVar, turn: Expr) -> None:
        """The elements behind the last whole vector of what is read."""
        buffer, lanes = self.buffers[tensor], self.read_lanes
        with self.ib.for_range(0, lanes, name="lane", kind="unroll") as lane:
            place = build.minimum(at * lanes + lane, self.total - 1)
            brought[turn, lane] = BufferLoad(buffer, tuple(buffer.indices_of(place)))

    def _store(self) -> None:
        ib, lanes, (rows, _) = self.ib, self.write_lanes, self.sizes
        in_row = self.sides[1] // lanes
        made = ib.allocate(str(self.result.dtype), (lanes,), name="made", scope="local")
        turns = self.sides[0] * in_row // self.threads
        with ib.for_range(0, turns, name="turn") as turn, ib.new_scope():
            number = ib.let("number", turn * self.threads + self.thread)
            vector, column = number % in_row, number // in_row
            a = ib.let("a", self.a_first + column)
            start = ib.let("start", self.write_base + a * self.step_write)
            before = ib.let("before", start & (lanes - 1))
            f = ib.let("f", self.f_first + vector * lanes - before)

            def value(lane: Expr) -> Expr:
                row = vector * lanes + lane + lanes - before
                shift = self._start(f + lane) & (self.read_lanes - 1)
                return self._value(row, column + shift, a, f + lane)

            is_whole = build.logical_and(f >= 0, f + lanes <= self.sizes[1])
            is_whole = build.logical_and(is_whole, a < rows) if rows % self.sides[0] else is_whole
            with ib.if_scope(is_whole):
                with ib.for_range(0, lanes, name="lane", kind="unroll") as lane:
                    made[lane] = value(lane)
                place = ib.let("place", start // lanes + vector) * lanes
                out = self.out.buffer
                with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
                    self.out[tuple(out.indices_of(place + lane))] = made[lane]
            with ib.else_scope(), ib.for_range(0, lanes, name="lane", kind="unroll") as lane:
                inside = build.logical_and(f + lane >= 0, f + lane < self.sizes[1])
                with ib.if_scope(build.logical_and(inside, a < rows)):
                    self.out[self._out_indices(a, f + lane)] = value(lane)

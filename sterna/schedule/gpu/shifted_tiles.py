"""Transposes whose rows begin inside of vectors, by whole vectors all the same.

A block reads the whole vectors that cover its tile's rows, each row of it as far inside of them as
it begins, and knows from a row's number where that is. What it writes is shifted as well: from row
to row of the result a tile begins earlier, by as much as takes it to the start of a vector. So all
that is stored are whole vectors, but for the ends of the result's rows.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from sterna.codegen.nvptx.architecture import Architecture
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
from sterna.schedule.kernel import ScheduleTarget
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar
from sterna.tir.stmt import BufferLoad
from sterna.tir.warpgroups import copy_in, copy_in_commit, copy_in_wait, shared_address

LEAST_SIDE = 64
"""Elements of a tile along what is written, at least: so are a block's threads."""
THREADS_OF_HALVES = 128
"""Of a block that moves elements of 16 bits, for each 64 of a tile along what is written: each finds
many of them by what it found for one."""
HALF_BYTES, FIRST_WITH_COPIES = 2, 80
MOST_MOVED = 1 << 30
"""Elements whose places, and those of a tile behind the last, are numbers of 32 bits."""


def is_shiftable(widths: Sequence[int], total: int, target: ScheduleTarget | None) -> bool:
    """Whether elements of so many bytes, the last those of the result, are moved so: those of 16
    bits where copies bring them."""
    least = HALF_BYTES if has_copies(target) else WORD_BYTES
    return min(widths) >= least and len(set(widths[:-1])) == 1 and total < MOST_MOVED


def has_copies(target: ScheduleTarget | None) -> bool:
    """Whether copies run beside the threads (cp.async)."""
    arch = None if target is None else target.attrs.get("arch")
    return isinstance(arch, str) and Architecture.of(arch).number >= FIRST_WITH_COPIES


def shifted_bytes(tile: Tile, read: int, write: int) -> int:
    """Shared memory of a tile of elements of so many bytes."""
    return _Rows.of(tile, read, write).elements * read


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a tile in shared memory: as many together as the result's vectors have elements,
    and a vector between them and the next, so that lanes of a warp read different banks."""

    count: int
    together: int
    pitch: int
    """From one row to the next."""
    between: int

    @staticmethod
    def of(tile: Tile, read: int, write: int) -> "_Rows":
        """Of a tile of elements of so many bytes."""
        before, between = (VECTOR_BYTES // width for width in (write, read))
        return _Rows(tile.along_write + before, before, tile.along_read + between, between)

    @property
    def elements(self) -> int:
        """Of all rows."""
        return -(-self.count // self.together) * (self.together * self.pitch + self.between)

    def place(self, row: Expr, column: Expr) -> Expr:
        """Of an element."""
        return row * self.pitch + row // self.together * self.between + column


class ShiftedWriter(TileWriter):
    """The statements of a block."""

    def __init__(
        self, moved: Moved, out: Tensor, tile: Tile, limits: Limits, by_copies: bool
    ) -> None:
        """by_copies: whether what is read comes by copies that run beside the threads."""
        super().__init__(moved, out, tile, limits)
        self.by_copies = by_copies
        widths = moved.moved[0].dtype.bytes, out.dtype.bytes
        self.read_lanes, self.write_lanes = (VECTOR_BYTES // width for width in widths)
        most = THREADS_OF_ELEMENTS if min(widths) >= WORD_BYTES else THREADS_OF_HALVES
        most = min(limits.threads, most * tile.along_write // LEAST_SIDE)
        self.threads = min(most, math.prod(self.sides) // self.write_lanes)
        self.threads -= self.threads % tile.along_write
        self.rows = _Rows.of(tile, *widths)
        self.extents = (self.rows.elements,)
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

    def _vector_of(self, turn: Expr) -> tuple[Expr, Expr]:
        """A vector that a thread brings: its number in the array and its place in the tile."""
        lanes = self.read_lanes
        number = self.ib.let("number", turn * self.threads + self.thread)
        row = number // self.in_row
        f = self.f_first + build.minimum(row, self.rows.count - 1) - self.write_lanes
        f = build.maximum(build.minimum(f, self.sizes[1] - 1), 0)
        at = self.ib.let("at", self._start(f) // lanes + number % self.in_row)
        return at, self.rows.place(row, number % self.in_row * lanes)

    def _fetch(self) -> None:
        """Whole vectors; what lies behind the ends of axes is something else."""
        if self.by_copies:
            self._copy()
            return
        ib, lanes = self.ib, self.read_lanes
        turns = -(-self.rows.count * self.in_row // self.threads)
        kept = {
            tensor: ib.allocate(
                str(tensor.dtype), (turns, lanes), name="brought", scope="local")
            for tensor in self.held
        }
        whole = self.total // lanes
        with ib.for_range(0, turns, name="turn", kind="unroll") as turn, ib.new_scope():
            at, _ = self._vector_of(turn)
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
            with ib.for_range(0, turns, name="turn") as turn, ib.new_scope():
                number = ib.let("number", turn * self.threads + self.thread)
                row, first = number // self.in_row, number % self.in_row * lanes
                with ib.if_scope(number < self.rows.count * self.in_row), ib.for_range(
                    0, lanes, name="lane", kind="vectorize"
                ) as lane:
                    self.held[tensor][self.rows.place(row, first) + lane] = brought[turn, lane]

    def _copy(self) -> None:
        """All vectors of a thread at once, without registers; the array's last is a part of one."""
        ib, lanes, last = self.ib, self.read_lanes, (self.total - 1) // self.read_lanes
        count = self.rows.count * self.in_row
        for tensor, held in self.held.items():
            buffer, width = self.buffers[tensor], tensor.dtype.bytes
            base = ib.let("held", shared_address(held[0]))
            turns = -(-count // self.threads)
            with ib.for_range(0, turns, name="turn", kind="unroll") as turn, ib.new_scope():
                at, place = self._vector_of(turn)
                near = ib.let("near", build.minimum(at, last))
                size: Expr = build.const(VECTOR_BYTES)
                if self.total % lanes:
                    size = build.minimum(VECTOR_BYTES, (self.total - near * lanes) * width)
                element = BufferLoad(buffer, tuple(buffer.indices_of(near * lanes)))
                with ib.if_scope(turn * self.threads + self.thread < count):
                    ib.emit(copy_in(base + place * width, element, size))
        ib.emit(copy_in_commit())
        ib.emit(copy_in_wait(0))

    def _fetch_last(self, tensor: Tensor, at: Expr, brought: BufferVar, turn: Expr) -> None:
        """The elements behind the last whole vector of what is read."""
        buffer, lanes = self.buffers[tensor], self.read_lanes
        with self.ib.for_range(0, lanes, name="lane", kind="unroll") as lane:
            place = build.minimum(at * lanes + lane, self.total - 1)
            brought[turn, lane] = BufferLoad(buffer, tuple(buffer.indices_of(place)))

    def _store(self) -> None:
        """Vectors of the same rows of the tile, one after the other: what a thread stores next begins
        as far inside of vectors, so that it finds the rows' places once."""
        ib, lanes = self.ib, self.write_lanes
        in_row = self.sides[1] // lanes
        self.vector, own = (
            ib.let(name, value) for name, value in (
                ("vector", self.thread % in_row), ("own", self.thread // in_row)))
        self.a_own = ib.let("a", self.a_first + own)
        start = ib.let("start", self.write_base + self.a_own * self.step_write)
        before = ib.let("before", start & (lanes - 1))
        self.f_own = ib.let("f", self.f_first + self.vector * lanes - before)
        row = ib.let("row", self.vector * lanes + lanes - before)
        shift_of = self.read_lanes - 1
        self.places = [
            ib.let("held", self.rows.place(
                row + lane, own + (self._start(self.f_own + lane) & shift_of)))
            for lane in range(lanes)
        ]
        self.place = ib.let("place", start // lanes + self.vector)
        self.made = ib.allocate(str(self.result.dtype), (lanes,), name="made", scope="local")
        is_whole = build.logical_and(self.f_own >= 0, self.f_own + lanes <= self.sizes[1])
        with ib.if_scope(is_whole):
            self._over_columns(in_row, self._store_vector)
        with ib.else_scope():
            self._over_columns(in_row, self._store_elements)

    def _over_columns(self, in_row: int, store: Callable[[Expr, Expr], None]) -> None:
        """What a thread stores of each of its columns of the tile: their distance, and which."""
        ib, step, rows = self.ib, self.threads // in_row, self.sizes[0]
        with ib.for_range(0, self.sides[0] // step, name="turn", kind="unroll") as turn:
            behind = turn * step
            a = self.a_own + behind
            with ib.if_scope(a < rows) if rows % self.sides[0] else nullcontext():
                store(behind, a)

    def _store_vector(self, behind: Expr, a: Expr) -> None:
        ib, lanes, out = self.ib, self.write_lanes, self.out.buffer
        for lane in range(lanes):
            self.made[lane] = self._own_value(lane, behind, a)
        place = (self.place + behind // lanes * self.step_write) * lanes
        with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
            self.out[tuple(out.indices_of(place + lane))] = self.made[lane]

    def _store_elements(self, behind: Expr, a: Expr) -> None:
        """Those of them that the result has."""
        for lane in range(self.write_lanes):
            f = self.f_own + lane
            with self.ib.if_scope(build.logical_and(f >= 0, f < self.sizes[1])):
                self.out[self._out_indices(a, f)] = self._own_value(lane, behind, a)

    def _own_value(self, lane: int, behind: Expr, a: Expr) -> Expr:
        return self._value((self.places[lane] + behind,), a, self.f_own + lane)

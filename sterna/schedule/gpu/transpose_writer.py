"""The statements of a block that transposes a tile through shared memory."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import Expr, Var
from sterna.schedule.gpu.access import VECTOR_BYTES
from sterna.schedule.gpu.limits import Limits
from sterna.te import Tensor, extern, thread_axis
from sterna.te.tensor import replace_loads
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import Buffer, BufferLoad, Stmt
from sterna.tir.threads import barrier

THREADS_OF_ELEMENTS = 256
"""Of a block that moves single elements: each has many under way, and several blocks take turns."""
WORD_BYTES = 4
"""What a bank of shared memory gives at once."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block moves: elements along what is read, and along what is written."""

    along_read: int
    along_write: int
    is_shifted: bool = False
    """Whether rows begin inside of vectors, and are moved by whole ones all the same."""

    def __str__(self) -> str:
        shifted = ", shifted" if self.is_shifted else ""
        return f"{self.along_read} x {self.along_write}{shifted}"


@dataclass(frozen=True, slots=True)
class Moved:
    """Elements of one array in the order of another."""

    axes: tuple[Var, ...]
    """Of the result, those of more than one element, and their extents."""
    extents: tuple[int, ...]
    order: tuple[int, ...]
    """The axes by their places in what is read."""
    value: Expr
    moved: tuple[Tensor, ...]
    reads: tuple[Tensor, ...]

    @property
    def groups(self) -> list[list[int]]:
        """The axes of the result, those together that lie together before and after."""
        place = {axis: n for n, axis in enumerate(self.order)}
        found: list[list[int]] = []
        for axis in range(len(self.axes)):
            if found and place[axis] == place[axis - 1] + 1:
                found[-1].append(axis)
            else:
                found.append([axis])
        return found

    def size(self, group: Sequence[int]) -> int:
        """How many elements a group of axes counts."""
        return math.prod(self.extents[axis] for axis in group)


def sides_of(tile: Tile) -> tuple[int, int]:
    """Elements of a tile along what is read and along what is written."""
    return tile.along_read, tile.along_write


class TileWriter:
    """The statements of a block."""

    ib: IRBuilder
    buffers: dict[Tensor, Buffer]
    out: BufferVar
    held: dict[Tensor, BufferVar]
    at: dict[Var, Expr]
    """Where the tile is along axes that are whole outside of it."""

    def __init__(self, moved: Moved, out: Tensor, tile: Tile, limits: Limits) -> None:
        self.moved, self.result, self.tile = moved, out, tile
        *self.outer, self.write = moved.groups
        self.read = next(group for group in self.outer if moved.order[-1] in group)
        self.outer.remove(self.read)
        self.sizes = moved.size(self.read), moved.size(self.write)
        widest = max(tensor.dtype.bytes for tensor in moved.moved)
        self.read_lanes = lanes_of(self.sizes[0], widest)
        self.write_lanes = lanes_of(self.sizes[1], out.dtype.bytes)
        # Rows differ by a word at least where they are turned: threads read different banks.
        self.spread = max(1, WORD_BYTES // widest // self.read_lanes)
        elements = tile.along_read * tile.along_write
        most = limits.threads
        if min(self.read_lanes, self.write_lanes) == 1:
            most = min(most, THREADS_OF_ELEMENTS)
        self.threads = min(most, elements // max(self.read_lanes, self.write_lanes))
        self.extents = tile.along_write, tile.along_read
        """Rows of a tile in shared memory, and elements from one to the next."""

    def tensor(self) -> Tensor:
        """The result."""
        shape = tuple(build.int_value(extent) or 0 for extent in self.result.shape)
        lanes = f"vectors of {self.read_lanes} and {self.write_lanes}"
        found: Tensor = extern(
            shape, list(self.moved.reads), self._body, name=self.result.op.name,
            dtype=str(self.result.dtype),
            attrs={"schedule": f"tiles of {self.tile} transposed, {lanes}"},
        )
        return found

    def _body(self, ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        self.ib = ir_builder.create()
        self.buffers = dict(zip(self.moved.reads, ins, strict=True))
        self.out = self.ib.buffer_ptr(outs[0])
        self._write()
        return self.ib.get()

    def _write(self) -> None:
        ib = self.ib
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        counts = self._counts()
        sizes = [self.moved.size(group) for group in self.outer]
        ib.scope_attr(block, "thread_extent", math.prod([*sizes, *counts]))
        ib.scope_attr(thread, "thread_extent", self.threads)
        self.thread = thread.var
        *self.outer_numbers, across, along = unravelled(block.var, [*sizes, counts[0], counts[1]])
        self.at = {}
        for group, number in zip(self.outer, self.outer_numbers, strict=True):
            self._place(group, number, self.at)
        self.first = across, along
        self.held = {
            tensor: ib.allocate(
                str(tensor.dtype), self.extents, name=tensor.name, scope="shared")
            for tensor in self.moved.moved
        }
        self._begin()
        self._fetch()
        ib.emit(barrier())
        self._store()

    def _counts(self) -> list[int]:
        """Tiles along what is read and along what is written."""
        return [
            -(-size // side) for size, side in zip(self.sizes, sides_of(self.tile), strict=True)]

    def _begin(self) -> None:
        """What all threads compute before the first load."""

    def _place(self, group: Sequence[int], number: Expr, known: dict[Var, Expr]) -> None:
        """Which element of each axis of a group a number means."""
        extents = [self.moved.extents[axis] for axis in group]
        for axis, index in zip(group, unravelled(number, extents), strict=True):
            known[self.moved.axes[axis]] = index

    @contextmanager
    def _vectors(self, lanes: int, side: int, other: int) -> Iterator[tuple[Expr, Expr, Expr]]:
        """Each vector of a thread: which of its own, its number in a row of a side, and the row."""
        in_row = side // lanes
        turns = self._turns(lanes)
        with self.ib.for_range(0, turns, name="turn") as turn, self.ib.new_scope():
            number = turn * self.threads + self.thread
            yield turn, number % in_row, number // in_row

    def _turns(self, lanes: int) -> int:
        """Vectors of a thread."""
        return math.prod(sides_of(self.tile)) // lanes // self.threads

    def _fetch(self) -> None:
        """A thread loads all that it brings before it stores the first: loads take long.

        What lies behind the end of an axis is its last element again.
        """
        ib, lanes = self.ib, self.read_lanes
        side, other = sides_of(self.tile)
        kept = {
            tensor: ib.allocate(
                str(tensor.dtype), (self._turns(lanes), lanes), name="brought", scope="local"
            )
            for tensor in self.held
        }
        with self._vectors(lanes, side, other) as (turn, vector, row):
            a, f = self._named(0, vector, lanes, inside=True), self._named(1, row, inside=True)
            for tensor, brought in kept.items():
                with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
                    brought[turn, lane] = BufferLoad(
                        self.buffers[tensor], self._indices(tensor, a + lane, f))
        with self._vectors(lanes, side, other) as (turn, vector, row):
            column = self._turned(vector, row // self.write_lanes) * lanes
            for tensor, brought in kept.items():
                with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
                    self.held[tensor][row, column + lane] = brought[turn, lane]

    def _store(self) -> None:
        ib, lanes = self.ib, self.write_lanes
        other, side = sides_of(self.tile)
        made = ib.allocate(str(self.result.dtype), (lanes,), name="made", scope="local")
        with self._vectors(lanes, side, other) as (_, vector, row):
            a, f = self._named(0, row), self._named(1, vector, lanes)
            column = self._turned(row // self.read_lanes, vector) * self.read_lanes
            column = column + row % self.read_lanes
            with self._where(a, f):
                with ib.for_range(0, lanes, name="lane", kind="unroll") as lane:
                    made[lane] = self._value(vector * lanes + lane, column, a, f + lane)
                with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
                    self.out[self._out_indices(a, f + lane)] = made[lane]

    def _named(self, axis: int, vector: Expr, lanes: int = 1, inside: bool = False) -> Expr:
        """Where the vector of a number in the tile begins, by a name: indices of axes that count as
        one are found again as one. inside: the last one of the array for those behind it."""
        side, size = sides_of(self.tile)[axis] // lanes, self.sizes[axis] // lanes
        place = self.first[axis] * side + vector
        if inside and size % side:
            place = build.minimum(place, size - 1)
        return self.ib.let("af"[axis], place) * lanes

    def _turned(self, vector: Expr, row: Expr) -> Expr:
        """Where a vector of a row of vectors is; row: that of vectors along what is written."""
        count = self.tile.along_read // self.read_lanes
        return vector ^ row * self.spread % count

    @contextmanager
    def _where(self, a: Expr, f: Expr) -> Iterator[None]:
        """Inside the array: some tiles reach over its end."""
        inside = [
            index < size
            for index, size, side in zip((a, f), self.sizes, sides_of(self.tile), strict=True)
            if size % side
        ]
        if not inside:
            yield
            return
        with self.ib.if_scope(inside[0] if len(inside) == 1 else build.logical_and(*inside)):
            yield

    def _value(self, row: Expr, column: Expr, a: Expr, f: Expr) -> Expr:
        known = self._known(a, f)

        def loaded(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr:
            if tensor in self.held:
                return self.held[tensor][row, column]
            return BufferLoad(
                self.buffers[tensor], tuple(substitute(index, known) for index in indices)
            )

        made: Expr = substitute(replace_loads(self.moved.value, loaded), known)
        return made

    def _known(self, a: Expr, f: Expr) -> dict[Var, Expr]:
        known = dict(self.at)
        self._place(self.read, a, known)
        self._place(self.write, f, known)
        return known

    def _indices(self, tensor: Tensor, a: Expr, f: Expr) -> tuple[Expr, ...]:
        known = self._known(a, f)
        return _filled(
            [known[self.moved.axes[axis]] for axis in self.moved.order], tensor.shape
        )

    def _out_indices(self, a: Expr, f: Expr) -> tuple[Expr, ...]:
        known = self._known(a, f)
        return _filled([known[axis] for axis in self.moved.axes], self.result.shape)


def _filled(indices: Sequence[Expr], shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Indices of an array, with 0 for its axes of one element."""
    left = iter(indices)
    return tuple(build.const(0) if build.is_const(extent, 1) else next(left) for extent in shape)


def lanes_of(size: int, width: int) -> int:
    """Elements of a vector along an axis: a power of two."""
    lanes = max(1, VECTOR_BYTES // width)
    while lanes > 1 and size % lanes:
        lanes //= 2
    return lanes


def unravelled(number: Expr, sizes: Sequence[int]) -> tuple[Expr, ...]:
    """The indices of an element by its number."""
    found: list[Expr] = []
    for size in reversed(sizes[1:]):
        found.insert(0, number % size)
        number = number // size
    return (number, *found)

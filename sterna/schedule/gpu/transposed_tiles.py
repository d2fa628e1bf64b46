"""Transposes: tiles of shared memory, read and written by vectors.

Axes that follow each other in memory before and after count as one. Of those that are left, one is
the fastest of what is read and another of what is written; a block has a tile of both. Its threads
bring vectors along the first into shared memory and take vectors along the second out of it. The
vectors of a row change places there by the row's number (a swizzle), so that lanes of a warp read
different banks.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import INT32, Expr, Var
from sterna.ir.node import Node, post_order
from sterna.schedule.choose import choose
from sterna.schedule.gpu.access import VECTOR_BYTES
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.kernel import ScheduleTarget
from sterna.te import ComputeOp, PlaceholderOp, Tensor, extern, thread_axis
from sterna.te.tensor import ProducerLoad, replace_loads
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import Buffer, BufferLoad, Stmt
from sterna.tir.threads import barrier

SIDES = (32, 64, 128)
MOST_ELEMENTS = 4096
"""Of a tile: larger ones leave fewer blocks that move others meanwhile."""
SHORTEST = 8
"""Axes of fewer elements fill no tile."""
# Blocks that keep a device busy, and what a piece of a row costs beside its bytes.
BUSY, PIECE_BYTES = 264, 32
# What tiles of short vectors take where their rows are longer than a warp.
WIDE_TIME = 1.15
MOST_LOADS = 64
THREADS_OF_ELEMENTS = 256
"""Of a block that moves single elements: each has many under way, and several blocks take turns."""
WORD_BYTES = 4
"""What a bank of shared memory gives at once."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block moves: elements along what is read, and along what is written."""

    along_read: int
    along_write: int

    def __str__(self) -> str:
        return f"{self.along_read} x {self.along_write}"


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


def transposed_tiles(outputs: Sequence[Tensor], target: ScheduleTarget | None) -> Tensor | None:
    """The statements of a transpose for a GPU; None if a kernel is none, or has no tiles."""
    moved = _moved_by(outputs[0]) if len(outputs) == 1 else None
    if moved is None:
        return None
    kinds = [*(tensor.dtype for tensor in moved.moved), outputs[0].dtype]
    groups = moved.groups
    read = next(group for group in groups if moved.order[-1] in group)
    if read is groups[-1] or any(kind.bits < 8 for kind in kinds):
        return None
    sizes = moved.size(read), moved.size(groups[-1])
    if min(sizes) < SHORTEST:
        return None
    tile = _tile_of(moved, sizes, [kind.bytes for kind in kinds], Limits.of(target))
    return None if tile is None else _Writer(moved, outputs[0], tile, Limits.of(target)).tensor()


def _tile_of(
    moved: Moved, sizes: tuple[int, int], widths: Sequence[int], limits: Limits
) -> Tile | None:
    """The tile with the longest pieces of rows that leaves no processor idle.

    Where vectors are short, lanes behind the end of a row cost little, and rows of shared memory
    are a warp's: measured on an H200, for extents that are odd or twice an odd number.
    """
    rest = math.prod(moved.extents) // math.prod(sizes)
    held = sum(widths[:-1])
    vectors = [_lanes(size, width) * width for size, width in zip(
        sizes, (max(widths[:-1]), widths[-1]), strict=True)]
    is_short = min(vectors) < VECTOR_BYTES

    def cost(tile: Tile) -> float:
        counts = [-(-size // side) for size, side in zip(sizes, _sides(tile), strict=True)]
        blocks = rest * math.prod(counts)
        idle = math.prod(n * side / size for n, side, size in zip(
            counts, _sides(tile), sizes, strict=True))
        pieces = sum(1 + PIECE_BYTES / (side * width) for side, width in zip(
            _sides(tile), (max(widths[:-1]), widths[-1]), strict=True))
        if is_short:
            idle = idle**0.25 * (WIDE_TIME if tile.along_read > SIDES[0] else 1.0)
        return idle * pieces * max(1.0, BUSY / blocks)

    tiles = [
        Tile(*sides) for sides in product(SIDES, SIDES)
        if math.prod(sides) <= MOST_ELEMENTS and math.prod(sides) * held <= limits.shared_bytes
    ]
    return choose("tile of a transpose", tiles, cost) if tiles else None


def _sides(tile: Tile) -> tuple[int, int]:
    return tile.along_read, tile.along_write


def _moved_by(out: Tensor) -> Moved | None:
    """What a tensor of independent elements moves: arrays that are all read in one other order."""
    op = out.op
    extents = [build.int_value(extent) for extent in out.shape]
    if not isinstance(op, ComputeOp) or op.reduce_axis or op.num_outputs > 1 or not all(extents):
        return None
    axes = {n: Var(f"axis{n}", INT32) for n, extent in enumerate(extents) if extent != 1}
    value = _inlined(out, tuple(axes.get(n, build.const(0)) for n in range(len(extents))))
    if value is None:
        return None
    names = tuple(axes.values())
    orders: dict[Tensor, set[tuple[int, ...] | None]] = {}

    def note(node: Node) -> None:
        if isinstance(node, ProducerLoad):
            orders.setdefault(node.tensor, set()).add(_order(node, names))

    post_order(value, note)
    whole = {tensor: found for tensor, found in orders.items() if None not in found}
    same = tuple(range(len(names)))
    others = {order for found in whole.values() for order in found if order != same}
    if len(others) != 1:
        return None
    (order,) = others
    assert order is not None
    moved = tuple(tensor for tensor, found in whole.items() if found == {order})
    sizes = tuple(extent for extent in extents if extent is not None and extent != 1)
    return Moved(names, sizes, order, value, moved, tuple(orders)) if moved else None


def _order(load: ProducerLoad, axes: tuple[Var, ...]) -> tuple[int, ...] | None:
    """The axes in the order in which a load has them; None if it is not all of them."""
    used = [i for i, n in zip(load.indices, load.tensor.shape, strict=True)
            if not build.is_const(n, 1)]
    places = {id(axis): n for n, axis in enumerate(axes)}
    found = tuple(places.get(id(index), -1) for index in used)
    return found if sorted(found) == list(range(len(axes))) else None


def _inlined(out: Tensor, at: tuple[Expr, ...]) -> Expr | None:
    """An element by what is read from memory; None if more than expressions lie between."""
    count, fits = 0, True

    def loaded(tensor: Tensor, indices: tuple[Expr, ...]) -> Expr | None:
        nonlocal count, fits
        op = tensor.op
        count += 1
        if isinstance(op, PlaceholderOp):
            return None
        one = isinstance(op, ComputeOp) and not op.reduce_axis and op.num_outputs == 1
        if not one or count > MOST_LOADS:
            fits = False
            return None
        assert isinstance(op, ComputeOp)
        places = {axis.var: index for axis, index in zip(op.axis, indices, strict=True)}
        return replace_loads(substitute(op.body[0], places), loaded)

    value = loaded(out, at)
    return value if fits else None


class _Writer:
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
        self.read_lanes = _lanes(self.sizes[0], widest)
        self.write_lanes = _lanes(self.sizes[1], out.dtype.bytes)
        # Rows differ by a word at least where they are turned: threads read different banks.
        self.spread = max(1, WORD_BYTES // widest // self.read_lanes)
        elements = tile.along_read * tile.along_write
        most = limits.threads
        if min(self.read_lanes, self.write_lanes) == 1:
            most = min(most, THREADS_OF_ELEMENTS)
        self.threads = min(most, elements // max(self.read_lanes, self.write_lanes))

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
        ib, tile = self.ib, self.tile
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        counts = [-(-size // side) for size, side in zip(self.sizes, _sides(tile), strict=True)]
        sizes = [self.moved.size(group) for group in self.outer]
        ib.scope_attr(block, "thread_extent", math.prod([*sizes, *counts]))
        ib.scope_attr(thread, "thread_extent", self.threads)
        self.thread = thread.var
        *outer, across, along = _unravelled(block.var, [*sizes, counts[0], counts[1]])
        self.at = {}
        for group, number in zip(self.outer, outer, strict=True):
            self._place(group, number, self.at)
        self.first = across, along
        self.held = {
            tensor: ib.allocate(
                str(tensor.dtype), (tile.along_write, tile.along_read), name=tensor.name,
                scope="shared",
            )
            for tensor in self.moved.moved
        }
        self._fetch()
        ib.emit(barrier())
        self._store()

    def _place(self, group: Sequence[int], number: Expr, known: dict[Var, Expr]) -> None:
        """Which element of each axis of a group a number means."""
        extents = [self.moved.extents[axis] for axis in group]
        for axis, index in zip(group, _unravelled(number, extents), strict=True):
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
        return math.prod(_sides(self.tile)) // lanes // self.threads

    def _fetch(self) -> None:
        """A thread loads all that it brings before it stores the first: loads take long.

        What lies behind the end of an axis is its last element again.
        """
        ib, lanes = self.ib, self.read_lanes
        side, other = _sides(self.tile)
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
        other, side = _sides(self.tile)
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
        side, size = _sides(self.tile)[axis] // lanes, self.sizes[axis] // lanes
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
            for index, size, side in zip((a, f), self.sizes, _sides(self.tile), strict=True)
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


def _lanes(size: int, width: int) -> int:
    """Elements of a vector along an axis: a power of two."""
    lanes = max(1, VECTOR_BYTES // width)
    while lanes > 1 and size % lanes:
        lanes //= 2
    return lanes


def _unravelled(number: Expr, sizes: Sequence[int]) -> tuple[Expr, ...]:
    """The indices of an element by its number."""
    found: list[Expr] = []
    for size in reversed(sizes[1:]):
        found.insert(0, number % size)
        number = number // size
    return (number, *found)

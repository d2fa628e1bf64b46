"""Depthwise convolutions of bytes: four rows meet in the lanes of a dot product.

Four rows of the data lie side by side in a buffer, border (halo) included; a vector of it, with the
four bytes of each channel brought together, meets weights that are 0 where a row is not in the
window. So four rows give as many rows of results as fit into them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr, Shuffle
from sterna.relay.arrays import Array
from sterna.schedule.choose import choose, near
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP
from sterna.schedule.epilogue import Begin, Finish, apart
from sterna.te import all as all_of
from sterna.tir import dot4
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Registers that are narrowed to bytes together, and columns of results that share what they read.
VECTORS, COLUMNS = 4, 8
# What lies side by side takes about so much of the innermost cache.
SEEN_BYTES = 12 * 1024


def rows_together(made: Contraction) -> int:
    """Rows of results that read nothing but four rows of data."""
    return (GROUP - made.window[0]) // made.strides[0] + 1


def pack_rows(made: Contraction, plain: Array, lanes: int) -> Array:
    """(channel, row, column) as (row of results, column, vector of channels, lane, row of data)."""
    channels, rows, columns = plain.shape
    packed = np.zeros((rows_together(made), columns, channels // lanes, lanes, GROUP), plain.dtype)
    vectors = plain.transpose(2, 0, 1).reshape(columns, -1, lanes, rows)
    for place, part in enumerate(packed):
        first = place * made.strides[0]
        part[..., first : first + rows] = vectors
    return packed


def unpack_rows(made: Contraction, packed: Array) -> Array:
    """(channel, row, column) of what pack_rows made."""
    _, columns, vectors, lanes, _ = packed.shape
    rows = packed[0, ..., : made.window[0]].reshape(columns, vectors * lanes, made.window[0])
    return rows.transpose(1, 2, 0)


class DepthwiseKernel:
    """The statements of a depthwise convolution."""

    most_columns = COLUMNS

    def __init__(self, made: Contraction, lanes: int) -> None:
        """lanes: channels of a vector of sums."""
        (self.data_height, self.data_width), self.channels = made.image, made.inputs
        rows, self.window = made.window
        self.together, vectors, self.lanes = rows_together(made), made.outputs // lanes, lanes
        self.batch, (self.height, self.width) = made.batch, made.result
        (self.top, self.left), self.steps, self.border = made.before, made.strides, made.border
        self.kind, self.weight_kind = made.data, made.weight
        self.vectors = max(n for n in range(1, VECTORS + 1) if vectors % n == 0)
        self.block = self.vectors * self.lanes
        self.blocks = vectors // self.vectors
        self.groups = -(-self.height // self.together)
        most = min(self.most_columns, self.width)
        self.columns = choose("columns", range(1, most + 1), near(most))
        self.used = (self.together - 1) * self.steps[0] + rows
        parts = -(-self._read(self.width) * self.block * GROUP // SEEN_BYTES)
        tiles = -(-self.width // self.columns)
        self.part = -(-tiles // min(parts, tiles)) * self.columns
        self.begin: Begin | None = None
        self.finish: Finish | None = None

    def follow(self, finish: Finish | None) -> None:
        """Say what is made of the sums."""
        parts = None if finish is None else apart(finish, 4)
        self.begin, self.finish = (None, finish) if parts is None else parts

    def describe(self) -> str:
        """What it does, for the build report."""
        return (
            f"depthwise, four rows of bytes at once for {self.together} of results, "
            f"{self.columns} columns x {self.lanes} channels in registers, {self.block} channels "
            "at a time"
        )

    def write(self, ib: IRBuilder, data: BufferVar, weight: BufferVar, out: BufferVar) -> None:
        """Some rows of results and a block of channels after the other."""
        pieces = self.batch * self.groups * self.blocks
        with ib.for_range(0, pieces, name="piece", kind="parallel") as piece:
            block, above = piece % self.blocks, piece // self.blocks
            image, first = above // self.groups, above % self.groups * self.together
            for left in range(0, self.width, self.part):
                count = min(self.part, self.width - left)
                self._part(ib, data, weight, out, image, first, block, left, count)

    def _part(
        self, ib: IRBuilder, data: BufferVar, weight: BufferVar, out: BufferVar, image: Expr,
        first: Expr, block: Expr, left: int, count: int,
    ) -> None:
        """So many columns of results, of which what they read stays in the innermost cache."""
        step = self.steps[1]
        with ib.new_scope():
            shape = (self._read(count), self.vectors, GROUP, self.lanes)
            seen = ib.allocate(str(self.kind), shape, name="seen")
            self._gather(ib, data, seen, image, first * self.steps[0] - self.top, block,
                         left * step - self.left)
            whole, rest = divmod(count, self.columns)
            with ib.for_range(0, whole, name="across") as across:
                self._tile(ib, seen, weight, out, image, first, across * self.columns, left,
                           self.columns, block)
            if rest:
                self._tile(ib, seen, weight, out, image, first,
                           build.const(whole * self.columns), left, rest, block)

    def _read(self, count: int) -> int:
        """Columns of data that so many of results read."""
        return (count - 1) * self.steps[1] + self.window

    # ---- four rows side by side ----

    def _gather(
        self, ib: IRBuilder, data: BufferVar, seen: BufferVar, image: Expr, top: Expr, block: Expr,
        left: int,
    ) -> None:
        """The rows from one on, from a column on, each at its place; outside of them the border."""
        vector = f"{self.kind}x{self.lanes}"
        outside = Broadcast(build.const(self.border, self.kind), self.lanes)
        width = build.int_value(seen.buffer.shape[0]) or 1
        before = min(width, max(0, -left))
        inside = max(0, min(width, self.data_width - left) - before)

        def fill(first: int, count: int, rows: Sequence[Expr | None]) -> None:
            """Some columns of all rows; one that is not there is the border's."""
            if count <= 0:
                return
            with ib.for_range(0, count, name="column") as column:
                for n in range(self.vectors):
                    channel = (block * self.vectors + n) * self.lanes
                    parts = tuple(
                        outside if row is None else
                        data.buffer.vload((image, row, column + (left + first), channel), vector)
                        for row in rows
                    )
                    four = Shuffle(parts, tuple(range(GROUP * self.lanes)))
                    ib.emit(seen.buffer.vstore((column + first, n, 0, 0), four))

        used = [top + row for row in range(self.used)]
        nothing: list[Expr | None] = [None] * GROUP
        fill(0, before, nothing)
        fill(before + inside, width - before - inside, nothing)
        with ib.if_scope(all_of(top >= 0, top + (self.used - 1) < self.data_height)):
            fill(before, inside, [*used, *nothing[self.used :]])
        with ib.else_scope():
            fill(before, inside, nothing)
            for place, row in enumerate(used):
                with ib.if_scope(all_of(row >= 0, row < self.data_height)):
                    self._put_row(ib, data, seen, (image, row, left + before), block, place,
                                  before, inside)

    def _put_row(
        self, ib: IRBuilder, data: BufferVar, seen: BufferVar, start: tuple[Any, ...], block: Expr,
        place: int, first: int, count: int,
    ) -> None:
        """One row of the data to its place among the four."""
        image, row, left = start
        with ib.for_range(0, count, name="column") as column:
            for n in range(self.vectors):
                channel = (block * self.vectors + n) * self.lanes
                value = data.buffer.vload((image, row, column + left, channel),
                                          f"{self.kind}x{self.lanes}")
                ib.emit(seen.buffer.vstore((column + first, n, place, 0), value))

    # ---- products ----

    def _tile(
        self, ib: IRBuilder, seen: BufferVar, weight: BufferVar, out: BufferVar, image: Expr,
        first: Expr, left: Expr, begin: int, columns: int, block: Expr,
    ) -> None:
        """Some columns of a group of rows: all vectors of a block, and what follows them."""
        with ib.new_scope():
            shape = (self.together, columns, self.block)
            total = ib.allocate("int32", shape, name="total")
            with ib.for_range(0, self.vectors, name="vector") as vector:
                self._sum(ib, seen, weight, total, left, columns, block, vector)
            for row in range(self.together):
                exists = first + row < self.height
                with ib.if_scope(exists):
                    for column in range(columns):
                        at = (image, first + row, left + (begin + column))
                        self._store(ib, total, out, (row, column), at, block)

    def _sum(
        self, ib: IRBuilder, seen: BufferVar, weight: BufferVar, total: BufferVar, left: Expr,
        columns: int, block: Expr, vector: Expr,
    ) -> None:
        """One vector of channels in registers."""
        lanes = self.lanes
        kind = f"int32x{lanes}"
        held = ib.allocate("int32", (self.together, columns, lanes), name="held", scope="local")
        begun = ib.allocate("int32", (lanes,), name="begun", scope="local")
        with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
            channel = block * self.block + vector * lanes + lane
            begun[lane] = 0 if self.begin is None else self.begin(channel)
        every = [(row, column) for row in range(self.together) for column in range(columns)]
        for place in every:
            ib.emit(held.buffer.vstore((*place, 0), begun.buffer.vload((0,), kind)))
        self._products(ib, seen, weight, held, left, columns, block, vector)
        for row, result in every:
            value = held.buffer.vload((row, result, 0), kind)
            ib.emit(total.buffer.vstore((row, result, vector * lanes), value))

    def _products(
        self, ib: IRBuilder, seen: BufferVar, weight: BufferVar, held: BufferVar, left: Expr,
        columns: int, block: Expr, vector: Expr,
    ) -> None:
        """What all columns of data add to the results that read them."""
        lanes, step = self.lanes, self.steps[1]
        four = ib.allocate(str(self.kind), (GROUP * lanes,), name="four", scope="local")
        none = Broadcast(build.const(0, self.kind), lanes)
        turned = tuple(row * lanes + lane if row < self.used else GROUP * lanes
                       for lane in range(lanes) for row in range(GROUP))
        for column in range((columns - 1) * step + self.window):
            rows = seen.buffer.vload((left * step + column, vector, 0, 0),
                                     f"{self.kind}x{GROUP * lanes}")
            ib.emit(four.buffer.vstore((0,), Shuffle((rows, none), turned)))
            for row, result in np.ndindex(self.together, columns):
                tap = column - result * step
                if not 0 <= tap < self.window:
                    continue
                factors = self._factors(weight, (row, tap, block * self.vectors + vector, 0, 0))
                given = four.buffer.vload((0,), f"{self.kind}x{GROUP * lanes}")
                before = held.buffer.vload((row, result, 0), f"int32x{lanes}")
                added = self._add(before, given, factors)
                ib.emit(held.buffer.vstore((row, result, 0), added))

    def _factors(self, weight: BufferVar, at: tuple[Any, ...]) -> Expr:
        """A vector of weights."""
        return weight.buffer.vload(at, f"{self.weight_kind}x{GROUP * self.lanes}")

    def _add(self, before: Expr, given: Expr, factors: Expr) -> Expr:
        """A vector of sums with the products of four rows."""
        return dot4(before, given, factors)

    def _store(
        self, ib: IRBuilder, total: BufferVar, out: BufferVar, place: tuple[int, int],
        at: tuple[Expr, ...], block: Expr,
    ) -> None:
        """A block of results, or what is made of them."""
        with ib.for_range(0, self.block, name="lane", kind="vectorize") as lane:
            index = (*at, block * self.block + lane)
            value = total[(*place, lane)]
            out[index] = value if self.finish is None else self.finish(index, value)

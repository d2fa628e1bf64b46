"""Depthwise convolutions of bytes: four rows meet in the lanes of a dot product.

Four rows of the data lie side by side in a buffer, border (halo) included; a vector of it, with the
four bytes of each channel brought together, meets weights that are 0 where a row is not in the
window. So four rows give as many rows of results as fit into them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr, Select, Shuffle
from sterna.relay.arrays import Array
from sterna.schedule.choose import choose, near
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP
from sterna.schedule.epilogue import Begin, split_bias
from sterna.schedule.statement_kernel import StatementKernel
from sterna.te import all as all_of
from sterna.tir import dot4
from sterna.tir.ir_builder import BufferVar

# Registers that are narrowed to bytes together, and columns of results that share what they read.
VECTORS, COLUMNS = 4, 8
# What lies side by side takes about so much of the innermost cache.
SEEN_BYTES = 12 * 1024


def rows_together(made: Contraction) -> int:
    """Rows of results that read nothing but four rows of data."""
    return (GROUP - made.window[0]) // made.strides[0] + 1


def vectors_together(made: Contraction, lanes: int) -> int:
    """Registers of sums that are narrowed to bytes together."""
    return max(n for n in range(1, VECTORS + 1) if made.outputs // lanes % n == 0)


def zips_rows(made: Contraction, lanes: int) -> bool:
    """Whether one register of each of four rows becomes four, of four rows each: of 128 bits."""
    return lanes == vectors_together(made, lanes) == GROUP


def packed_shape(made: Contraction, lanes: int) -> tuple[int, ...]:
    """(row of results, column, vector of channels, lane, row of data) of weights."""
    return (rows_together(made), made.window[1], made.outputs // lanes, lanes, GROUP)


def pack_rows(made: Contraction, plain: Array, lanes: int) -> Array:
    """Weights (channel, row, column), with zeros for rows of data that are not in a window."""
    _, rows, columns = plain.shape
    packed = np.zeros(packed_shape(made, lanes), plain.dtype)
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


def interleaved(rows: Sequence[Expr], lanes: int) -> list[Expr]:
    """Four registers of a row each as four in which the numbers of each lane lie side by side."""
    half = lanes // 2

    def zipped(a: Expr, b: Expr, width: int, high: bool) -> Expr:
        first = range(half if high else 0, lanes if high else half, width)
        pairs = [[at + n for n in range(width)] for at in first]
        order = [place for pair in pairs for place in (*pair, *(lanes + n for n in pair))]
        return Shuffle((a, b), tuple(order))

    first, second, third, fourth = rows
    halves = [(zipped(first, second, 1, high), zipped(third, fourth, 1, high))
              for high in (False, True)]
    return [zipped(a, b, 2, high) for a, b in halves for high in (False, True)]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of results from one on, and a block of channels."""

    image: Expr
    first: Expr
    block: Expr


@dataclass(frozen=True, slots=True)
class Tile:
    """Columns of results that are in registers together."""

    piece: Piece
    seen: BufferVar
    """The rows of data of some columns of results."""
    begin: int
    """The first of these columns."""
    left: Expr
    """The tile's first column, counted from there."""
    columns: int


class DepthwiseKernel(StatementKernel):
    """The statements of a depthwise convolution."""

    most_columns = COLUMNS
    begin: Begin | None = None
    """What sums begin with, by their channel."""

    def __init__(self, made: Contraction, lanes: int) -> None:
        """lanes: channels of a vector of sums."""
        self.made, self.lanes, self.together = made, lanes, rows_together(made)
        self.vectors = vectors_together(made, lanes)
        self.block = self.vectors * lanes
        self.blocks = made.outputs // self.block
        height, self.width = made.result
        self.groups = -(-height // self.together)
        most = min(self.most_columns, self.width)
        self.columns = choose("columns", range(1, most + 1), near(most))
        self.used = (self.together - 1) * made.strides[0] + made.window[0]
        parts = -(-self._read(self.width) * self.block * GROUP // SEEN_BYTES)
        tiles = -(-self.width // self.columns)
        self.part = -(-tiles // min(parts, tiles)) * self.columns
        self.zips = zips_rows(made, lanes)

    def describe(self) -> str:
        return (
            f"depthwise, four rows of bytes at once for {self.together} of results, "
            f"{self.columns} columns x {self.lanes} channels in registers, {self.block} channels "
            "at a time"
        )

    def write(self) -> None:
        """Some rows of results and a block of channels after the other."""
        parts = None if self.finish is None else split_bias(self.finish, 4)
        self.begin, self.finish = (None, self.finish) if parts is None else parts
        pieces = self.made.batch * self.groups * self.blocks
        with self.ib.for_range(0, pieces, name="piece", kind="parallel") as number:
            block, above = number % self.blocks, number // self.blocks
            first = above % self.groups * self.together
            piece = Piece(above // self.groups, first, block)
            for left in range(0, self.width, self.part):
                self._part(piece, left, min(self.part, self.width - left))

    def _part(self, piece: Piece, left: int, count: int) -> None:
        """So many columns of results, of which what they read stays in the innermost cache."""
        with self.ib.new_scope():
            shape = (self._read(count), self.vectors, GROUP, self.lanes)
            seen = self.ib.allocate(str(self.made.data), shape, name="seen")
            self._gather(piece, seen, left * self.made.strides[1] - self.made.before[1], shape[0])
            whole, rest = divmod(count, self.columns)
            with self.ib.for_range(0, whole, name="across") as across:
                self._tile(Tile(piece, seen, left, across * self.columns, self.columns))
            if rest:
                self._tile(Tile(piece, seen, left, build.const(whole * self.columns), rest))

    def _read(self, count: int) -> int:
        """Columns of data that so many of results read."""
        return (count - 1) * self.made.strides[1] + self.made.window[1]

    def _gather(self, piece: Piece, seen: BufferVar, left: int, width: int) -> None:
        """Four rows of so many columns side by side; outside of the data lies the border."""
        if self.zips:
            self._zip(piece, seen, left, width)
            return
        ib, made = self.ib, self.made
        top = piece.first * made.strides[0] - made.before[0]
        before = min(width, max(0, -left))
        inside = max(0, min(width, made.image[1] - left) - before)
        outside = Broadcast(build.const(made.border, made.data), self.lanes)

        def fill(first: int, count: int, rows: Sequence[Expr | None], place: int = 0) -> None:
            """Some columns of rows from a place among the four on; None is a row of border."""
            if count <= 0:
                return
            with ib.for_range(0, count, name="column") as column:
                for n in range(self.vectors):
                    channel = (piece.block * self.vectors + n) * self.lanes
                    parts = tuple(
                        outside if row is None else
                        self.data.vload((piece.image, row, column + (left + first), channel),
                                        self.lanes)
                        for row in rows
                    )
                    lanes = tuple(range(len(rows) * self.lanes))
                    value = parts[0] if len(parts) == 1 else Shuffle(parts, lanes)
                    seen[column + first, n, place, 0] = value

        used = [top + row for row in range(self.used)]
        nothing: list[Expr | None] = [None] * GROUP
        fill(0, before, nothing)
        fill(before + inside, width - before - inside, nothing)
        with ib.if_scope(all_of(top >= 0, top + (self.used - 1) < made.image[0])):
            fill(before, inside, [*used, *nothing[self.used :]])
        with ib.else_scope():
            fill(before, inside, nothing)
            for place, row in enumerate(used):
                with ib.if_scope(all_of(row >= 0, row < made.image[0])):
                    fill(before, inside, [row], place)

    def _zip(self, piece: Piece, seen: BufferVar, left: int, width: int) -> None:
        """The same, with the four bytes of each channel side by side already."""
        ib, made, block = self.ib, self.made, self.block
        top = piece.first * made.strides[0] - made.before[0]
        before = min(width, max(0, -left))
        inside = max(0, min(width, made.image[1] - left) - before)
        border = build.const(made.border, made.data)
        outside = Broadcast(border, block)

        def row_of(column: Expr, number: int, is_inside: bool) -> Expr:
            """A register of a row, which may lie above or below the data."""
            if number >= self.used:
                return outside
            row = top + number
            near_by = build.minimum(build.maximum(row, 0), made.image[0] - 1)
            at = (piece.image, row if is_inside else near_by, column, piece.block * block)
            found = self.data.vload(at, block)
            has = Broadcast(all_of(row >= 0, row < made.image[0]), block)
            return found if is_inside else Select(has, found, outside)

        def fill(is_inside: bool) -> None:
            with ib.for_range(0, inside, name="column") as column:
                rows = [row_of(column + (left + before), n, is_inside) for n in range(GROUP)]
                for n, four in enumerate(interleaved(rows, block)):
                    seen[column + before, n, 0, 0] = four

        for first, last in ((0, before), (before + inside, width)):
            with ib.for_range(0, (last - first) * self.vectors, name="register") as register:
                place = (first + register // self.vectors, register % self.vectors, 0, 0)
                seen[place] = outside
        with ib.if_scope(all_of(top >= 0, top + (self.used - 1) < made.image[0])):
            fill(True)
        with ib.else_scope():
            fill(False)

    # ---- products ----

    def _tile(self, tile: Tile) -> None:
        """All vectors of a block, and what follows them."""
        ib = self.ib
        with ib.new_scope():
            shape = (self.together, tile.columns, self.block)
            total = ib.allocate("int32", shape, name="total")
            with ib.for_range(0, self.vectors, name="vector") as vector:
                self._sum(tile, total, vector)
            for row in range(self.together):
                with ib.if_scope(tile.piece.first + row < self.made.result[0]):
                    for column in range(tile.columns):
                        self._store(tile, total, row, column)

    def _store(self, tile: Tile, total: BufferVar, row: int, column: int) -> None:
        """All channels of one result."""
        piece = tile.piece
        at = (piece.image, piece.first + row, tile.left + (tile.begin + column))
        self.store_channels(at, piece.block * self.block, self.block,
                            lambda lane: total[row, column, lane])

    def _sum(self, tile: Tile, total: BufferVar, vector: Expr) -> None:
        """One vector of channels in registers."""
        ib, lanes, shape = self.ib, self.lanes, (self.together, tile.columns)
        held = ib.allocate("int32", (*shape, lanes), name="held", scope="local")
        begun = ib.allocate("int32", (lanes,), name="begun", scope="local")
        with ib.for_range(0, lanes, name="lane", kind="vectorize") as lane:
            channel = tile.piece.block * self.block + vector * lanes + lane
            begun[lane] = 0 if self.begin is None else self.begin(channel)
        for row, column in np.ndindex(shape):
            held[row, column, 0] = begun.vload(0, lanes)
        self.add_products(tile, held, vector)
        for row, column in np.ndindex(shape):
            total[row, column, vector * lanes] = held.vload((row, column, 0), lanes)

    def add_products(
        self, tile: Tile, held: BufferVar, vector: Expr, part: tuple[Expr, ...] = ()
    ) -> None:
        """What all columns of data add to the results that read them; part: of the weights."""
        lanes, step = self.lanes, self.made.strides[1]
        four = self.ib.allocate(str(self.made.data), (GROUP * lanes,), name="four", scope="local")
        none = Broadcast(build.const(0, self.made.data), lanes)
        turned = tuple(row * lanes + lane if row < self.used else GROUP * lanes
                       for lane in range(lanes) for row in range(GROUP))
        channels = tile.piece.block * self.vectors + vector
        for column in range(self._read(tile.columns)):
            rows = tile.seen.vload((tile.left * step + column, vector, 0, 0), GROUP * lanes)
            four[0] = rows if self.zips else Shuffle((rows, none), turned)
            for row, result in np.ndindex(self.together, tile.columns):
                tap = column - result * step
                if not 0 <= tap < self.made.window[1]:
                    continue
                factors = self.weight.vload((*part, row, tap, channels, 0, 0), GROUP * lanes)
                before = held.vload((row, result, 0), lanes)
                given = four.vload(0, GROUP * lanes)
                held[row, result, 0] = self.add(before, given, factors)

    def add(self, before: Expr, given: Expr, factors: Expr) -> Expr:
        """A vector of sums with the products of four rows."""
        return dot4(before, given, factors)

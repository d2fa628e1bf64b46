"""Contractions of bytes by dot2, pairs of products in 16 bits: vpmaddubsw.

Weights lie in the steps of byte_pair_steps.py, in which no sum leaves 16 bits, so that it is exact.
Rows of data whose border (halo) or sign is not what the instruction wants are copied.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Broadcast, Call, Expr
from sterna.schedule.choose import choose, near
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP
from sterna.schedule.halo import HaloRows
from sterna.schedule.statement_kernel import StatementKernel, places_of
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir import add_pairs, dot2
from sterna.tir.ir_builder import BufferVar

# The rows of register tiles by their vectors, the best first.
ROWS = {2: 4, 3: 4, 1: 8}
# Vectors that are narrowed to bytes together.
VECTORS = 4
# What of the data is read again for all panels, and how many pieces find a thread.
SEEN_BYTES, PIECES = 48 * 1024, 16
# What data with a sign counts more.
SIGN = 128
UINT8 = DataType("uint8")

Four = Callable[[int, Expr], Expr]
"""The four bytes of a result of a tile that lie so far from its first."""


def raised(value: Expr) -> Expr:
    """A byte with a sign as one that counts SIGN more."""
    bits = Call(UINT8, "reinterpret", (value,))
    return Call(UINT8, "bitwise_xor", (bits, build.const(SIGN, UINT8)))


@dataclass(frozen=True, slots=True)
class Lines:
    """Results in lines, each made of some rows of data."""

    made: Contraction
    """Its image is that of these rows."""
    height: int
    """Lines of an image."""
    width: int
    """Results of a line."""
    down: int
    """Rows of data from a line to the next."""
    reach: int
    """Rows of data that a line reads."""
    across: int
    """Bytes from what a result reads to what the next one does, in rows with their border."""
    rest: int = 0
    """Results of one more line, which is shorter."""

    @staticmethod
    def of_image(made: Contraction) -> "Lines":
        """The rows of a result are its lines."""
        height, width = made.result
        reach = (made.window[0] - 1) * made.dilation[0] + 1
        return Lines(made, height, width, made.strides[0], reach, made.strides[1] * made.inputs)

    @staticmethod
    def of_matrix(made: Contraction, rows: int) -> "Lines":
        """So many rows of a matrix are a line: an image whose rows have one pixel."""
        image = replace(made, image=(made.pixels, 1), result=(made.pixels, 1))
        whole, rest = divmod(made.pixels, rows)
        return Lines(image, whole, rows, rows, rows, made.inputs, rest)

    @property
    def count(self) -> int:
        """All lines of an image."""
        return self.height + bool(self.rest)


@dataclass(frozen=True, slots=True)
class Band:
    """Some lines of an image from one on."""

    image: Expr
    first: Expr
    seen: BufferVar | None = None
    """The rows of data that they read with their border, where these were copied."""


class PairKernel(StatementKernel):
    """The statements of a contraction: some lines and some channels after the other."""

    def __init__(self, made: Contraction, weight: Tensor, outer: Sequence[int]) -> None:
        """outer: the extents of the result before its channels."""
        _, self.vectors, self.lanes, _ = (build.int_value(extent) or 1 for extent in weight.shape)
        self.panel = self.vectors * self.lanes
        panels = made.outputs // self.panel
        self.panels = max(n for n in range(1, VECTORS // self.vectors + 1) if panels % n == 0)
        self.block = self.panels * self.panel
        self.outer, self.rows = outer, min(ROWS[self.vectors], made.result[1])
        self.is_matrix = made.is_pointwise and made.batch == made.result[0] == 1
        lines = Lines.of_matrix(made, self.rows) if self.is_matrix else Lines.of_image(made)
        self.made, self.lines = lines.made, lines
        columns = lines.made.image[1] + made.before[1] + made.after[1]
        self.halo = HaloRows(lines.made, columns, None if made.data.is_uint else raised)
        has_halo = {*made.window} != {1} or made.is_padded
        self.copies = has_halo or not made.data.is_uint
        self._divide(made.outputs // self.block)

    def _divide(self, blocks: int) -> None:
        """The work in pieces: some lines of results, and some blocks of channels."""
        lines = self.lines
        fitting = max(1, (SEEN_BYTES // self.halo.size - lines.reach) // lines.down + 1)
        self.band = -(-lines.count // -(-lines.count // min(fitting, lines.count)))
        self.bands = -(-lines.count // self.band)
        pieces = self.made.batch * self.bands
        divisors = [n for n in range(1, blocks + 1) if blocks % n == 0]
        wanted = min(blocks, -(-PIECES // pieces))
        enough = min(n for n in divisors if n >= wanted)
        self.shares = choose("groups of channels", divisors, near(enough))
        self.blocks = blocks // self.shares

    def describe(self) -> str:
        return (
            f"pairs of bytes, {self.rows} pixels x {self.panel} channels in registers, "
            f"{self.band} lines of {self.lines.width} x {self.blocks * self.block} channels at a "
            "time"
        )

    def write(self) -> None:
        """Some lines and some channels after the other; only the last line may be shorter."""
        ib, lines = self.ib, self.lines
        pieces = self.made.batch * self.bands * self.shares
        with ib.for_range(0, pieces, name="piece", kind="parallel") as piece:
            share, above = piece % self.shares, piece // self.shares
            with ib.new_scope():
                band = self._band(above // self.bands, above % self.bands * self.band)
                count = build.minimum(self.band, lines.height - band.first)
                with ib.for_range(0, self.blocks, name="block") as number:
                    block = share * self.blocks + number
                    with ib.for_range(0, count, name="line") as line:
                        self._line(band, line, block)
                    if lines.rest:
                        with ib.if_scope(band.first + self.band > lines.height):
                            self._tile(band, count, build.const(0), lines.rest, block)

    def _band(self, image: Expr, first: Expr) -> Band:
        """The lines from one on; what they read is copied where it must be."""
        if not self.copies:
            return Band(image, first)
        lines = self.lines
        rows = (self.band - 1) * lines.down + lines.reach
        seen = self.ib.allocate("uint8", (rows * self.halo.size,), name="seen")
        with self.ib.for_range(0, rows, name="row") as row:
            at = first * lines.down - self.made.before[0] + row
            self.halo.copy(self.ib, self.data, image, at, seen, row * self.halo.size)
        return Band(image, first, seen)

    def _line(self, band: Band, line: Expr, block: Expr) -> None:
        """One line of results of a block of channels."""
        whole, rest = divmod(self.lines.width, self.rows)
        with self.ib.for_range(0, whole, name="across") as across:
            self._tile(band, line, across * self.rows, self.rows, block)
        if rest:
            self._tile(band, line, build.const(whole * self.rows), rest, block)

    # ---- register tiles ----

    def _tile(self, band: Band, line: Expr, left: Expr, columns: int, block: Expr) -> None:
        """Some results of a line for a block of channels, and what follows them."""
        four = self._bytes(band, line, left)
        with self.ib.new_scope():
            total = self.ib.allocate("int32", (columns, self.block), name="total")
            with self.ib.for_range(0, self.panels, name="panel") as panel:
                self._sum(four, total, columns, block * self.panels + panel, panel)
            for column in range(columns):
                self._store(total, column, block, self._place(band, line, left + column))

    def _place(
        self, band: Band, line: Expr, column: Expr, down: int = 1, across: int = 1
    ) -> Sequence[Expr]:
        """The index of a result without its channel; of a pixel of the data with its steps."""
        if self.is_matrix:
            return places_of((band.first + line) * self.rows + column, self.outer)
        return band.image, (band.first + line) * down, column * across

    def _bytes(self, band: Band, line: Expr, left: Expr) -> Four:
        """What the results of a line read, from a column on."""
        seen, across = band.seen, self.lines.across
        if seen is not None:
            start = line * (self.lines.down * self.halo.size) + left * across
            return lambda column, place: seen.vload(start + column * across + place, GROUP)
        return lambda column, place: self.data.vload(
            (*self._place(band, line, left + column, *self.made.strides), place), GROUP
        )

    def _store(self, total: BufferVar, column: int, block: Expr, at: Sequence[Expr]) -> None:
        """What a result has summed, less what that is too large by where data has a sign."""
        first, (_, _, *lifted) = block * self.block, self.beside

        def sum_of(lane: Expr) -> Expr:
            value: Expr = total[column, lane]
            return value - lifted[0][first + lane] if lifted else value

        self.store_channels(at, first, self.block, sum_of)

    def _sum(self, four: Four, total: BufferVar, columns: int, panel: Expr, own: Expr) -> None:
        """One panel in registers."""
        ib, lanes, (_, starts, *_) = self.ib, self.lanes, self.beside
        with ib.new_scope():
            held = ib.allocate("int32", (columns, self.vectors, lanes), name="held", scope="local")
            for column, n in np.ndindex(columns, self.vectors):
                held[column, n, 0] = Broadcast(build.const(0, "int32"), lanes)
            begin, alone, end = starts[panel, 0], starts[panel, 1], starts[panel + 1, 0]
            with ib.for_range(0, (alone - begin) // 2, name="step") as step:
                first = begin + step * 2
                self._step(four, held, columns, (first, first + 1))
            with ib.for_range(alone, end, name="group") as group:
                self._step(four, held, columns, (group,))
            for column, n in np.ndindex(columns, self.vectors):
                total[column, own * self.panel + n * lanes] = held.vload((column, n, 0), lanes)

    def _step(self, four: Four, held: BufferVar, columns: int, groups: Sequence[Expr]) -> None:
        """What is summed in 16 bits, added to all sums."""
        ib, (places, *_), width = self.ib, self.beside, GROUP * self.lanes
        with ib.new_scope():
            away = [ib.let("place", places[group]) for group in groups]
            for column, n in np.ndindex(columns, self.vectors):
                pairs = [
                    dot2(four(column, place), self.weight.vload((group, n, 0, 0), width))
                    for group, place in zip(groups, away, strict=True)
                ]
                words = pairs[0] if len(pairs) == 1 else pairs[0] + pairs[1]
                held[column, n, 0] = add_pairs(held.vload((column, n, 0), self.lanes), words)

"""Contractions of bytes by dot2, pairs of products in 16 bits: the loops around register tiles.

Rows of data whose border (halo) or sign is not what the instruction wants are copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sterna.ir import build
from sterna.ir.expr import Call, Expr
from sterna.schedule.byte_pair_tiles import ROWS, PairTiles
from sterna.schedule.choose import choose, near
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP
from sterna.schedule.halo import HaloRows
from sterna.schedule.statement_kernel import places_of
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar

# What of the data is read again for all panels, and how many pieces find a thread.
SEEN_BYTES, PIECES = 48 * 1024, 16
# What data with a sign counts more.
SIGN = 128
UINT8 = DataType("uint8")


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


class PairKernel(PairTiles):
    """The statements of a contraction: some lines and some channels after the other."""

    def __init__(self, made: Contraction, weight: Tensor, outer: Sequence[int]) -> None:
        """outer: the extents of the result before its channels."""
        super().__init__(weight, made.outputs)
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

    def _tile(self, band: Band, line: Expr, left: Expr, columns: int, block: Expr) -> None:
        """Some results of a line."""
        lines, (down, across) = self.lines, self.made.strides
        start = line * (lines.down * self.halo.size) + left * lines.across

        def place_of(column: int, down: int = 1, across: int = 1) -> Sequence[Expr]:
            if self.is_matrix:
                return places_of((band.first + line) * self.rows + left + column, self.outer)
            return band.image, (band.first + line) * down, (left + column) * across

        def four(column: int, place: Expr) -> Expr:
            if band.seen is None:
                return self.data.vload((*place_of(column, down, across), place), GROUP)
            return band.seen.vload(start + column * lines.across + place, GROUP)

        self.tile(four, columns, block, place_of)

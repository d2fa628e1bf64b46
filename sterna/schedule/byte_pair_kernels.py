"""Contractions of bytes by dot2, pairs of products in 16 bits: the loops around register tiles.

Rows of data whose border (halo) or sign is not what the instruction wants are copied.
"""

from collections.abc import Sequence
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr
from sterna.schedule.amx_kernel import places_of
from sterna.schedule.byte_pair_tiles import SEEN_BYTES, SIGN, Four, PairTiles, vectors_over
from sterna.schedule.contraction import Contraction
from sterna.schedule.dot4 import GROUP
from sterna.te import Tensor
from sterna.te import all as all_of
from sterna.tir.ir_builder import BufferVar, IRBuilder


class RowsKernel(PairTiles):
    """The statements of a dense layer: some rows and some channels after the other."""

    def __init__(self, made: Contraction, weight: Tensor, outer: Sequence[int]) -> None:
        """outer: the extents of the result before its channels."""
        self.outer, self.every, self.depth = outer, made.pixels, made.inputs
        units = made.outputs
        super().__init__(made, weight, self.every)
        fitting = max(1, SEEN_BYTES // (self.rows * self.depth))
        tiles = -(-self.every // self.rows)
        self.band = -(-tiles // -(-tiles // fitting)) * self.rows
        self.bands = -(-self.every // self.band)
        self.shares = self.shares_of(units // self.block, self.bands)
        self.blocks = units // self.block // self.shares

    def describe(self) -> str:
        return (
            f"pairs of bytes, {self.rows} rows x {self.vectors * self.lanes} units in registers, "
            f"{self.band} rows x {self.blocks * self.block} units at a time"
        )

    def write(self, ib: IRBuilder, data: BufferVar) -> None:
        """Bands of rows; only the last may end within a tile."""
        with ib.for_range(0, self.bands * self.shares, name="piece", kind="parallel") as piece:
            share, first = piece % self.shares, piece // self.shares * self.band
            count = build.minimum(self.band, self.every - first)
            with ib.new_scope():
                seen = self._seen(ib, data, first, count)
                with ib.for_range(0, self.blocks, name="block") as number:
                    block = share * self.blocks + number
                    with ib.for_range(0, count // self.rows, name="across") as across:
                        self._some(ib, seen, first, across * self.rows, self.rows, block)
                    if rest := self.every % self.rows:
                        with ib.if_scope(count % self.rows > 0):
                            self._some(ib, seen, first, count - rest, rest, block)

    def _seen(self, ib: IRBuilder, data: BufferVar, first: Expr, count: Expr) -> Four:
        """four(row, place): bytes of a row of the band, without a sign."""
        kind = f"uint8x{GROUP}"

        def given(row: Any, place: Any, kind: str) -> Expr:
            return data.buffer.vload((*places_of(first + row, self.outer), place), kind)

        if self.kind.is_uint:
            return lambda row, place: given(row, place, kind)
        seen = ib.allocate("uint8", (self.band, self.depth), name="seen")
        with ib.for_range(0, count, name="row") as row:
            for place, length in vectors_over(self.depth, self.lanes * GROUP):
                part = given(row, place, f"{self.kind}x{length}")
                ib.emit(seen.buffer.vstore((row, place), self.unsigned(part, length)))
        return lambda row, place: seen.buffer.vload((row, place), kind)

    def _some(
        self, ib: IRBuilder, seen: Four, first: Expr, left: Expr, rows: int, block: Expr
    ) -> None:
        """So many rows of a band."""
        self.tile(ib, lambda row, place: seen(left + row, place), rows, block,
                  lambda row: places_of(first + left + row, self.outer))


class ImageKernel(PairTiles):
    """The statements of a convolution: some lines and some channels after the other."""

    def __init__(self, made: Contraction, weight: Tensor) -> None:
        (self.data_height, self.data_width), self.inputs = made.image, made.inputs
        self.batch, (self.height, self.width) = made.batch, made.result
        super().__init__(made, weight, self.width)
        (self.top, self.left), self.steps, self.border = made.before, made.strides, made.border
        self.window = tuple(
            (taps - 1) * step + 1 for taps, step in zip(made.window, made.dilation, strict=True)
        )
        self.row = (self.data_width + made.before[1] + made.after[1]) * self.inputs
        self.copies = self.window != (1, 1) or made.is_padded or not made.data.is_uint
        self._divide(made.outputs // self.block)

    def _divide(self, blocks: int) -> None:
        """The work in pieces: some lines of results, and some blocks of channels."""
        lines = max(1, (SEEN_BYTES // self.row - self.window[0]) // self.steps[0] + 1)
        count = -(-self.height // min(lines, self.height))
        self.lines = -(-self.height // count)
        self.bands = -(-self.height // self.lines)
        self.shares = self.shares_of(blocks, self.batch * self.bands)
        self.blocks = blocks // self.shares

    def describe(self) -> str:
        return (
            f"pairs of bytes, {self.rows} columns x {self.vectors * self.lanes} channels in "
            f"registers, {self.lines} rows x {self.blocks * self.block} channels at a time"
        )

    def write(self, ib: IRBuilder, data: BufferVar) -> None:
        """Some lines and some channels after the other."""
        pieces = self.batch * self.bands * self.shares
        with ib.for_range(0, pieces, name="piece", kind="parallel") as piece:
            share, above = piece % self.shares, piece // self.shares
            image, first = above // self.bands, above % self.bands * self.lines
            with ib.new_scope():
                seen = self._seen(ib, data, image, first)
                count = build.minimum(self.lines, self.height - first)
                with ib.for_range(0, self.blocks, name="block") as number:
                    block = share * self.blocks + number
                    with ib.for_range(0, count, name="line") as line:
                        self._line(ib, seen, image, first, line, block)

    # ---- rows of data ----

    def _seen(self, ib: IRBuilder, data: BufferVar, image: Expr, first: Expr) -> Any:
        """four(line, column, place): where bytes are read that lie so far from a pixel."""
        down, across = self.steps
        four = f"uint8x{GROUP}"
        if not self.copies:
            return lambda line, column, place: data.buffer.vload(
                (image, (first + line) * down, column * across, place), four
            )
        rows = (self.lines - 1) * down + self.window[0]
        seen = ib.allocate("uint8", (rows * self.row,), name="seen")
        self._copy(ib, data, seen, image, first * down - self.top, rows)
        return lambda line, column, place: seen.buffer.vload(
            (line * (down * self.row) + column * (across * self.inputs) + place,), four
        )

    def _copy(
        self, ib: IRBuilder, data: BufferVar, seen: BufferVar, image: Expr, top: Expr, rows: int
    ) -> None:
        """The rows from one on, between the border's columns, without a sign."""
        before = self.left * self.inputs
        inside = self.data_width * self.inputs
        with ib.for_range(0, rows, name="row") as row:
            start = row * self.row
            exists = all_of(top + row >= 0, top + row < self.data_height)
            with ib.if_scope(exists):
                self._fill(ib, seen, start, before)
                self._fill(ib, seen, start + (before + inside), self.row - before - inside)
                with ib.for_range(0, self.data_width, name="column") as column:
                    for channel, count in vectors_over(self.inputs, self.lanes * GROUP):
                        given = data.buffer.vload((image, top + row, column, channel),
                                                  f"{self.kind}x{count}")
                        at = start + before + column * self.inputs + channel
                        ib.emit(seen.buffer.vstore((at,), self.unsigned(given, count)))
            with ib.else_scope():
                self._fill(ib, seen, start, self.row)

    def _fill(self, ib: IRBuilder, seen: BufferVar, start: Expr, count: int) -> None:
        """So many bytes of the border."""
        border = self.border if self.kind.is_uint else self.border + SIGN
        width = self.lanes * GROUP
        whole, rest = divmod(count, width)
        byte = build.const(border, "uint8")
        with ib.for_range(0, whole, name="vector") as vector:
            ib.emit(seen.buffer.vstore((start + vector * width,), Broadcast(byte, width)))
        for first, length in vectors_over(rest, width):
            at = start + (whole * width + first)
            ib.emit(seen.buffer.vstore((at,), Broadcast(byte, length)))

    # ---- products ----

    def _line(
        self, ib: IRBuilder, four: Any, image: Expr, first: Expr, line: Expr, block: Expr
    ) -> None:
        """One line of results of a block of channels."""
        whole, rest = divmod(self.width, self.rows)

        def some(left: Expr, columns: int) -> None:
            self.tile(ib, lambda column, place: four(line, left + column, place), columns, block,
                      lambda column: (image, first + line, left + column))

        with ib.for_range(0, whole, name="across") as across:
            some(across * self.rows, self.rows)
        if rest:
            some(build.const(whole * self.rows), rest)

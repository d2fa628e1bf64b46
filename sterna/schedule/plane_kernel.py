"""Depthwise convolutions of bytes by halves of words (SMLAD), one channel's plane after the other.

The plane of a channel is copied with its border, two neighbours of a row in a word, so that no
image has a border in memory: band after band where it is large and the results stay before the rows
of the next one, and else all of it before the first result of its channel is written. So results
may take the place of what they are made from.
"""

from collections.abc import Callable, Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.epilogue import split_bias
from sterna.schedule.halves_steps import (
    PAIR_PLANE,
    is_written_out,
    plane_dots,
    plane_length,
    words_of_row,
)
from sterna.schedule.overlap import bands_take_place
from sterna.schedule.statement_kernel import StatementKernel
from sterna.tir import address_of, call_extern
from sterna.tir.halves import join_halves
from sterna.tir.ir_builder import BufferVar

# What a copy may take where results leave the rows below them readable.
BAND_BYTES, WORD_BYTES = 1536, 4


def odd_columns(made: Contraction) -> int:
    """The columns of a window, filled up to an odd number of at least three."""
    return max(3, made.window[1] + 1 - made.window[1] % 2)


def plane_words(made: Contraction, outputs: int) -> int:
    """The words of a row of a plane, where tiles have so many results."""
    tiles = -(-made.result[1] // outputs)
    before = (tiles - 1) * outputs * made.strides[1] // 2
    return before + words_of_row(odd_columns(made), made.strides[1], outputs)


def band_rows(made: Contraction, words: int) -> int:
    """Rows of results that one copy serves: what fits if the rest stays readable, or all."""
    rows = made.result[0]
    if made.multiplier == 1 and not bands_take_place(made, 1):
        return rows

    def fits(count: int) -> bool:
        return plane_rows(made, count) * words * WORD_BYTES <= BAND_BYTES

    return max([1, *(n for n in range(1, rows + 1) if rows % n == 0 and fits(n))])


def plane_rows(made: Contraction, band: int) -> int:
    """The rows of a plane for so many rows of results."""
    return (band - 1) * made.strides[0] + (made.window[0] - 1) * made.dilation[0] + 1


class PlaneKernel(StatementKernel):
    """Channel after channel: its plane, then its results, some neighbours of a row at a time."""

    lanes, copied = 1, PAIR_PLANE
    """Channels whose words alternate in a plane, and what copies them."""

    def __init__(self, made: Contraction, outputs: int) -> None:
        """outputs: results of a tile."""
        self.made, self.outputs = made, outputs
        self.words = plane_words(made, outputs)
        self.band = band_rows(made, self.words * self.lanes)
        self.rows = plane_rows(made, self.band)

    def describe(self) -> str:
        return f"planes of halves of words, {self.outputs} pixels in registers"

    def write(self) -> None:
        made = self.made
        columns = odd_columns(made)
        self.step = plane_dots((made.window[0], columns), made.strides[1], self.outputs)
        calls = made.batch * made.outputs * made.result[0] * -(-made.result[1] // self.outputs)
        length = plane_length((made.window[0], columns), made.strides[1], self.outputs)
        if is_written_out(calls, self.outputs, length, calls * length):
            self.step = self.step.written_out()
        self.write_bands()

    def write_bands(self) -> None:
        """All channels, band by band."""
        ib, made = self.ib, self.made
        for text in (self.copied.definition, self.step.definition):
            ib.scope_attr(None, "pragma_import_c", text)
        if bands_take_place(made, self.band):
            self.read_first()
        plane = ib.allocate("int32", (self.rows * self.words * self.lanes,), name="plane")
        bands = made.result[0] // self.band
        self._fill(plane, build.const(self.rows), build.const(self.rows))
        with (
            ib.for_range(0, made.batch, name="image") as image,
            ib.for_range(0, made.outputs // self.lanes, name="channel") as block,
            ib.for_range(0, bands, name="band") as band,
        ):
            channel = block * self.lanes
            first, last = self._inside(band)
            if bands > 1:  # else the border is that of all channels
                self._fill(plane, first, last)
            self._copy(plane, image, (band, first, last), channel // made.multiplier)
            self.write_band(plane, image, band, channel)

    def write_band(self, plane: BufferVar, image: Expr, band: Expr, channel: Expr) -> None:
        """The results of a band."""
        with self.ib.for_range(0, self.band, name="row") as row:
            self._row(plane, image, (band, row), channel)

    # ---- planes ----

    def _top(self, band: Expr) -> Expr:
        """The row of the image that a band begins with, which may lie outside."""
        return band * (self.band * self.made.strides[0]) - self.made.before[0]

    def _inside(self, band: Expr) -> tuple[Expr, Expr]:
        """The first row of a band that lies in the image, and the one behind the last."""
        top = self._top(band)
        first = build.minimum(self.rows, build.maximum(0, build.sub(0, top)))
        return first, build.maximum(first, build.minimum(self.rows, self.made.image[0] - top))

    def _fill(self, plane: BufferVar, first: Expr, last: Expr) -> None:
        """The rows of border before the first row and from the last one on."""
        border = build.const(self.made.border)
        for begin, end in ((build.const(0), first), (last, build.const(self.rows))):
            row = self.words * self.lanes
            with self.ib.for_range(begin * row, end * row, name="word") as word:
                plane[word] = join_halves(border, border)

    def _copy(
        self, plane: BufferVar, image: Expr, rows: tuple[Expr, Expr, Expr], channel: Expr
    ) -> None:
        """The rows of a band from one of the plane up to another."""
        made, before = self.made, self.made.before[1]
        band, first, last = rows
        pitch = made.image[1] * made.inputs
        begin = (image * made.image[0] + self._top(band) + first) * pitch + channel
        inside = min(made.image[1], 2 * self.words - before)
        skip = self.words - (before % 2 + inside + 1) // 2
        extents = (pitch, made.inputs, skip, before % 2, inside, made.border)
        start = (first * self.words + before // 2) * self.lanes
        self.ib.emit(call_extern(
            "int32", self.copied.name, address_of(plane[start]),
            address_of(self.data[begin]), last - first, *map(build.const, extents),
        ))

    # ---- results ----

    def _row(
        self, plane: BufferVar, image: Expr, place: tuple[Expr, Expr], channel: Expr
    ) -> None:
        """A row of a band."""
        made, each = self.made, self.outputs
        band, within = place
        row = band * self.band + within
        whole, rest = divmod(made.result[1], each)
        down = within * (made.strides[0] * self.words)
        across = each * made.strides[1] // 2
        with self.ib.for_range(0, whole, name="tile") as tile:
            self._tile(plane, down + tile * across, (image, row, tile * each), channel, each)
        if rest:
            first = build.const(whole * each)
            self._tile(plane, down + whole * across, (image, row, first), channel, rest)

    def _tile(
        self, plane: BufferVar, at: Expr, place: tuple[Expr, Expr, Expr], channel: Expr, count: int
    ) -> None:
        """So many results of a row from one on."""
        ib, made = self.ib, self.made
        begin, finish = self._epilogue()
        with ib.new_scope():
            sums = ib.allocate("int32", (self.outputs,), name="sums")
            ib.emit(call_extern(
                "int32", self.step.name, address_of(sums[0]),
                address_of(self.weight[channel, 0, 0, 0]), address_of(plane[at]),
                build.const(4 * self.words * made.dilation[0]), begin(channel),
            ))
            image, row, first = place
            for pixel in range(count):
                index = (image, row, first + pixel, channel)
                self.out[index] = finish(index, sums[pixel])

    def _epilogue(
        self,
    ) -> tuple[Callable[[Expr], Expr], Callable[[Sequence[Expr], Expr], Expr]]:
        with_bias = None if self.finish is None else split_bias(self.finish, 4)
        return (lambda channel: build.const(0), self.finished) if with_bias is None else with_bias

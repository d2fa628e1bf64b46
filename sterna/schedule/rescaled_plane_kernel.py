"""Depthwise layers of bytes with their rescaling, on planes of halves of words (SMLAD, SMMLA).

Where a sum has few products, what follows it costs as much as they do. So one piece of assembly
takes all results of a channel's band, and stores bytes. Planes of four channels are copied together
where they are small: four neighbours of memory are one word of data.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.halves_kernel import PANEL_BYTES
from sterna.schedule.halves_steps import PAIR_PLANE
from sterna.schedule.overlap import bands_take_place
from sterna.schedule.plane_kernel import (
    BAND_BYTES,
    WORD_BYTES,
    PlaneKernel,
    band_rows,
    odd_columns,
    plane_rows,
    plane_words,
)
from sterna.schedule.rescaled_plane_steps import (
    BESIDE,
    COPY_FOURS,
    FOUR,
    Line,
    line_instructions,
    rescaled_lines,
    rescaled_planes,
    tile_instructions,
)
from sterna.tir import address_of, call_extern
from sterna.tir.ir_builder import BufferVar

# Results of a row whose sums fit into registers beside addresses and operands.
MOST_OUTPUTS = 6
# Instructions of a channel beside its rows, of a row of tiles, of one that is copied, and of two
# neighbours there; and of a word of weights that is widened.
CHANNEL, ROW, COPIED, PAIR_COPIED, WIDENED = 40, 16, 22, 5, 6
FOUR_COPIED, FOUR_PAIRS = 14, 14
# The columns of windows of one row that are widened for each tile, what an addition holds, and the
# instructions of a channel there beside its rows.
MOST_COLUMNS, MOST_ADDED, LINE_CHANNEL = 5, 4095, 12


@dataclass(frozen=True, slots=True)
class PlaneTile:
    """Results of a row in registers together, and channels whose planes are copied together."""

    outputs: int
    lanes: int


def plane_tiles(made: Contraction) -> Iterator[PlaneTile]:
    """Those that a layer may have."""
    for outputs in range(1, min(MOST_OUTPUTS, made.result[1]) + 1):
        if outputs * made.strides[1] % 2 and outputs != made.result[1]:
            continue  # the next one begins inside of a word
        yield PlaneTile(outputs, 1)
        if made.is_depthwise and made.outputs % FOUR == 0 and _has_small_planes(made, outputs):
            yield PlaneTile(outputs, FOUR)


def _has_small_planes(made: Contraction, outputs: int) -> bool:
    """Whether planes of four channels, or bands of them, take no more than others do."""
    words = FOUR * plane_words(made, outputs)
    rows = plane_rows(made, band_rows(made, words))
    most = BAND_BYTES if bands_take_place(made, 1) else PANEL_BYTES
    return rows * words * WORD_BYTES <= most


def rescaled_plane_instructions(made: Contraction, tile: PlaneTile) -> float:
    """Of the whole layer."""
    window, stride = (made.window[0], odd_columns(made)), made.strides[1]
    whole, rest = divmod(made.result[1], tile.outputs)
    is_line = _line_of(made, tile) is not None

    def taken(outputs: int) -> int:
        return line_instructions(window[1], stride, outputs) if is_line else (
            tile_instructions(window, stride, outputs))

    row = whole * taken(tile.outputs) + (taken(rest) if rest else 0)
    words = plane_words(made, tile.outputs)
    band = band_rows(made, words * tile.lanes)
    rows = made.result[0] // band * plane_rows(made, band)
    columns = -(-min(made.image[1], 2 * words) // 2)
    copied = rows * (COPIED + PAIR_COPIED * columns) if tile.lanes == 1 else (
        rows * (FOUR_COPIED + FOUR_PAIRS * columns) / FOUR)
    weights = WIDENED * window[0] * (window[1] // 2)
    bands = made.result[0] // band
    called = CHANNEL / tile.lanes * bands + (LINE_CHANNEL if is_line else weights) * bands
    turns = bands if whole == 1 and not rest else made.result[0]
    channel = called + turns * ROW + made.result[0] * row + copied
    return made.batch * made.outputs * channel


def _line_of(made: Contraction, tile: PlaneTile) -> Line | None:
    """A tile of a short window of one row, if numbers in instructions hold its extents."""
    words, columns = plane_words(made, tile.outputs), odd_columns(made)
    if made.window[0] > 1 or columns > MOST_COLUMNS:
        return None
    is_row = tile.outputs == made.result[1]
    apart = made.strides[0] * words if is_row else tile.outputs * made.strides[1] // 2
    advance = WORD_BYTES * tile.lanes * apart
    found = Line(columns, made.strides[1], tile.lanes, made.outputs, advance)
    return found if max(found.advance, tile.outputs * made.outputs) <= MOST_ADDED else None


def record_words(made: Contraction) -> int:
    """The words of a channel's record."""
    return made.window[0] * (odd_columns(made) // 2) + BESIDE


class RescaledPlaneKernel(PlaneKernel):
    """Channels with their records, one after the other, or four by four."""

    def __init__(self, made: Contraction, tile: PlaneTile) -> None:
        self.lanes, self.line = tile.lanes, _line_of(made, tile)
        super().__init__(made, tile.outputs)
        self.copied = PAIR_PLANE if tile.lanes == 1 else COPY_FOURS

    def describe(self) -> str:
        return (f"planes of halves of words, {self.outputs} pixels of {self.lanes} channels in "
                "registers, with their rescaling")

    def write(self) -> None:
        made = self.made
        window = (made.window[0], odd_columns(made))
        outputs = (self.outputs, made.result[1] % self.outputs)
        self.step = rescaled_lines(self.line, outputs) if self.line is not None else (
            rescaled_planes(window, made.strides[1], outputs, self.lanes))
        self.write_bands()

    def write_band(self, plane: BufferVar, image: Expr, band: Expr, channel: Expr) -> None:
        made = self.made
        extents: tuple[int, ...]
        whole, rest = divmod(made.result[1], self.outputs)
        word = WORD_BYTES * self.lanes
        pitch = word * self.words
        down, apart = made.strides[0] * pitch, made.dilation[0] * pitch
        back = (made.window[0] - 1) * apart
        if whole == 1 and not rest:  # rows are tiles of one
            turns = (self.band, down - back, 1, 0)
        else:
            across = self.outputs * made.strides[1] // 2 * word
            turns = (whole, across - back, self.band, down)
        extents = (apart, *turns, made.outputs)
        if self.line is not None:  # the others stand in its instructions
            extents = (turns[0], *turns[2:])
        self.ib.emit(call_extern(
            "int32", self.step.name, address_of(self.out[image, band * self.band, 0, channel]),
            address_of(self.weight[channel, 0]), address_of(plane[0]), *map(build.const, extents),
        ))

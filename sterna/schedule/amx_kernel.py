"""AMX: the statements of contractions in tiles.

Two times two tiles share what they load. Where a position's pixels do not follow those of the one
before it in memory, a band of rows is copied, border (halo) included, so that they do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import INT32, Call, Expr
from sterna.ir.types import TensorType
from sterna.schedule.amx_bands import COLUMNS, PAIR, Bands, parts_of
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.halo import HaloRows
from sterna.schedule.rounded_once import rounded_once
from sterna.schedule.statement_kernel import StatementKernel, places_of
from sterna.te import all as all_of
from sterna.tir import tile_configure, tile_dot, tile_load, tile_release, tile_store, tile_zero
from sterna.tir.ir_builder import BufferVar
from sterna.tir.tiles import GROUP_BYTES, ROW_BYTES, SUMS

# What a piece of work costs before its first tile, in units of channels.
START = 0.1


@dataclass(frozen=True, slots=True)
class Band:
    """Some positions, and where their data lies."""

    source: BufferVar
    first: Expr
    """The position where it begins, in an image the row."""
    skipped: Expr
    """How many of these belong to the band before it."""
    image: Expr | None = None
    """The number of an image of which rows were copied; None where data is read as it lies."""


@dataclass(frozen=True, slots=True)
class Block:
    """What the tiles of sums hold at a time."""

    band: Band
    unit: Expr
    """Of the units of channels."""
    group: Expr
    """Of the groups of tiles of positions."""
    lanes: int
    """Channels of the unit."""

    @property
    def wide(self) -> int:
        """Tiles of its channels."""
        return -(-self.lanes // COLUMNS)


class AmxKernel(StatementKernel):
    """The statements of a contraction in bands."""

    def __init__(self, made: Contraction, threads: int, out: TensorType) -> None:
        """out: its extents before the channels are of a position each."""
        bands = Bands(made)
        self.bands, self.made = bands, made
        self.kind, self.total_kind = out.dtype, SUMS[f"{made.data} {made.weight}"]
        self.outer, self.group = out.concrete_shape[:-1], GROUP_BYTES // made.data.bytes
        self.parts, self.size = parts_of(bands.segment, made.data.bytes)
        self.positions = bands.positions()
        self.rows, self.high = self.positions.rows, self.positions.high
        self.band_rows = 0 if bands.in_place else bands.rows_of_band()
        self.lines = self.band_rows + bands.below
        self.halo = HaloRows(made, bands.across * made.strides[1])
        self.wide, self.rest = divmod(made.outputs, PAIR * COLUMNS)
        self.units = self.wide + bool(self.rest)
        self.groups = _even_groups(bands.count, self.units, threads)

    def describe(self) -> str:
        bands, made = self.bands, self.made
        what = f"{self.positions.count} pixels" if bands.in_place else f"{self.band_rows} rows"
        wide = min(PAIR, -(-made.outputs // COLUMNS))
        return (
            f"tiles, {self.high} x {wide} of {self.rows} pixels x {COLUMNS} channels, "
            f"{bands.segments * self.parts} steps of {self.size} {made.data}, {what} at a time"
        )

    def write(self) -> None:
        """Some positions and some channels after the other."""
        ib, bands, made = self.ib, self.bands, self.made
        with ib.for_range(0, bands.count * self.groups, name="piece", kind="parallel") as piece:
            band, group = piece // self.groups, piece % self.groups
            kept, depth = (self.rows, ROW_BYTES), (self.rows, self.size * made.data.bytes)
            factors = (self.size // self.group, ROW_BYTES)
            ib.emit(tile_configure([kept] * 4 + [depth] * 2 + [factors] * 2))
            if bands.in_place:
                count = self.positions.count
                first = build.minimum(band * count, made.pixels - count)
                self._band(Band(self.data, first, band * count - first), group)
            else:
                self._copied_band(band, group)
            ib.emit(tile_release())

    def _copied_band(self, band: Expr, group: Expr) -> None:
        """The rows that a band reads, copied side by side, phase after phase."""
        ib, bands, made = self.ib, self.bands, self.made
        every = bands.count // made.batch
        image, begin = band // every, band % every * self.band_rows
        first = build.minimum(begin, made.result[0] - self.band_rows)
        with ib.new_scope():
            size = len(bands.phases) * self.lines * self.halo.size
            seen = ib.allocate(str(made.data), (size,), name="seen")
            for place, phase in enumerate(bands.phases):
                with ib.for_range(0, self.lines, name="line") as line:
                    at = (first + line) * made.strides[0] + (phase - made.before[0])
                    start = (place * self.lines + line) * self.halo.size
                    self.halo.copy(ib, self.data, image, at, seen, start)
            self._band(Band(seen, first, begin - first, image), group)

    # ---- products ----

    def _band(self, band: Band, group: Expr) -> None:
        """All tiles of positions for some channels, then for the next."""
        count = -(-self.units // self.groups)
        first = group * count
        if self.wide:
            most = build.minimum(self.wide - first, count)
            with self.ib.if_scope(most > 0):
                self._channels(band, first, most, PAIR * COLUMNS)
        if self.rest:
            last = self.wide - first
            with self.ib.if_scope(all_of(last >= 0, last < count)):
                self._channels(band, build.const(self.wide), build.const(1), self.rest)

    def _channels(self, band: Band, first: Expr, units: Expr, lanes: int) -> None:
        """So many units of channels from one on."""
        with (
            self.ib.for_range(first, first + units, name="unit") as unit,
            self.ib.for_range(0, self.positions.groups, name="group") as group,
            self.ib.new_scope(),
        ):
            block = Block(band, unit, group, lanes)
            shape = (self.high * self.rows, block.wide * COLUMNS)
            total = self.ib.allocate(self.total_kind, shape, name="total")
            self._multiply(block)
            self._keep(block, total)
            for tile in range(self.high):
                self._results(block, total, tile)

    def _begin(self, block: Block, tile: int) -> Expr:
        """The first position that belongs to a tile."""
        return (block.group * self.high + tile) * self.rows

    def _start(self, block: Block, tile: int) -> Expr:
        """The first position that a tile reads; the last tiles overlap."""
        return build.minimum(self._begin(block, tile), self.positions.count - self.rows)

    def _multiply(self, block: Block) -> None:
        """Tiles 0 to 3 are sums, 4 and 5 of positions, 6 and 7 of weights."""
        ib, bands, made, band = self.ib, self.bands, self.made, block.band
        step = made.strides[1] * made.inputs
        base = band.first * step if bands.in_place else build.const(0)
        for tile in range(self.high):
            for column in range(block.wide):
                ib.emit(tile_zero(PAIR * tile + column))
        with ib.for_range(0, bands.segments, name="segment") as segment:
            offset = self._offset(segment)
            with ib.for_range(0, self.parts, name="part") as part:
                number = segment * self.parts + part
                if bands.far_weights and block.wide == PAIR:
                    self._fetch_ahead(block, number)
                at = base + offset + build.minimum(part * self.size, bands.segment - self.size)
                for tile in range(self.high):
                    start = self._start(block, tile) * step
                    ib.emit(tile_load(4 + tile, band.source[at + start], step))
                    for column in range(block.wide):
                        if tile == 0:
                            factors = self.weight[block.unit * PAIR + column, number, 0, 0, 0]
                            ib.emit(tile_load(6 + column, factors, self.group * COLUMNS))
                        ib.emit(tile_dot(PAIR * tile + column, 4 + tile, 6 + column,
                                         str(made.data), str(made.weight)))

    def _fetch_ahead(self, block: Block, step: Expr) -> None:
        """Weights of the next unit, some rows of its tiles in each step of each group."""
        row, rows = self.group * COLUMNS, self.size // self.group
        steps, each = self.bands.segments * self.parts, -(-PAIR * rows // self.positions.groups)
        whole = -(-self.made.outputs // COLUMNS) * steps * rows
        place = (block.unit + 1) * (PAIR * steps * rows) + (block.group * steps + step) * each
        for number in range(each):
            at = build.minimum(place + number, whole - 1) * row
            self.ib.emit(Call(INT32, "prefetch", (self.weight[at],)))

    def _keep(self, block: Block, total: BufferVar) -> None:
        """Sums from tiles to where vectors take them from."""
        for tile in range(self.high):
            for column in range(block.wide):
                at = total[tile * self.rows, column * COLUMNS]
                self.ib.emit(tile_store(PAIR * tile + column, at, block.wide * COLUMNS))

    def _offset(self, segment: Expr) -> Expr:
        """Where a segment of the first position of a copied band begins."""
        bands, made = self.bands, self.made
        if bands.in_place:
            return build.const(0)
        columns = bands.segments // made.window[0]
        down, right = segment // columns * made.dilation[0], segment % columns * made.dilation[1]
        phase: Expr = build.const(0)
        for place, known in enumerate(bands.phases):
            if place:
                phase = build.select(build.equal(down % made.strides[0], known), place, phase)
        line = phase * self.lines + down // made.strides[0]
        return line * self.halo.size + right * made.inputs

    # ---- results ----

    def _results(self, block: Block, total: BufferVar, tile: int) -> None:
        """Positions of a tile that lie in rows of results, in loops without a question."""
        ib, band = self.ib, block.band
        begin, start = self._begin(block, tile), self._start(block, tile)
        end, shift = start + self.rows, tile * self.rows - start
        if band.image is None:
            with ib.for_range(build.maximum(begin, band.skipped), end, name="row") as position:
                at = places_of(band.first + position, self.outer)
                self._store(block, at, total, position + shift)
            return
        across, width = self.bands.across, self.made.result[1]
        top, bottom = build.maximum(begin // across, band.skipped), (end - 1) // across
        with ib.for_range(top, bottom + 1, name="line") as line:
            left = build.maximum(begin, line * across)
            right = build.maximum(left, build.minimum(end, line * across + width))
            with ib.for_range(left, right, name="row") as position:
                at = (band.image, band.first + line, position - line * across)
                self._store(block, at, total, position + shift)

    def _store(self, block: Block, at: Sequence[Expr], total: BufferVar, row: Expr) -> None:
        """The channels of one position."""
        self.store_channels(at, block.unit * (PAIR * COLUMNS), block.lanes,
                            lambda lane: build.cast(self.kind, total[row, lane]))

    def finished(self, index: Sequence[Expr], value: Expr) -> Expr:
        made = super().finished(index, value)
        return rounded_once(made) if self.total_kind == "float32" else made


def _even_groups(bands: int, units: int, threads: int) -> int:
    """Into how many parts channels are cut so that the last thread ends soonest."""

    def end(groups: int) -> float:
        return -(-bands * groups // threads) * (-(-units // groups) + START)

    return choose("groups of channels", range(1, units + 1), end)

"""AMX: the statements of contractions in tiles.

Two times two tiles share what they load. Where a position's pixels do not follow those of the one
before it in memory, a band of rows is copied, border (halo) included, so that they do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sterna.ir import build
from sterna.ir.expr import INT32, Call, Expr
from sterna.ir.types import TensorType
from sterna.schedule.amx_bands import COLUMNS, PAIR, Bands, parts_of
from sterna.schedule.choose import choose
from sterna.schedule.contraction import Contraction
from sterna.schedule.epilogue import Finish
from sterna.schedule.rounded_once import rounded_once
from sterna.te import all as all_of
from sterna.tir import tile_configure, tile_dot, tile_load, tile_release, tile_store, tile_zero
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.tiles import GROUP_BYTES, ROW_BYTES, SUMS

# What is copied at once.
CHUNK = 64
# What a piece of work costs before its first tile, in units of channels.
START = 0.1


@dataclass(frozen=True, slots=True)
class Band:
    """What is read and written."""

    source: BufferVar
    weight: BufferVar
    out: BufferVar
    first: Expr
    """The position where it begins, in an image the row."""
    skipped: Expr
    """How many of these belong to the band before it."""
    image: Expr | None = None
    """The number of an image of which rows were copied; None where data is read as it lies."""


@dataclass(frozen=True, slots=True)
class Block:
    """What the tiles of sums hold at a time."""

    unit: Expr
    """Of the units of channels."""
    group: Expr
    """Of the groups of tiles of positions."""
    lanes: int
    """Channels of the unit."""


class TileKernel:
    """The statements of a contraction in bands."""

    def __init__(self, made: Contraction, threads: int, out: TensorType) -> None:
        """out: its extents before the channels are of a position each."""
        bands = Bands(made)
        self.bands, self.made = bands, made
        data, weight = made.data, made.weight
        self.data_kind, self.weight_kind = data, weight
        self.kind, self.total_kind = out.dtype, SUMS[f"{data} {weight}"]
        self.outer, self.group = out.concrete_shape[:-1], GROUP_BYTES // made.data.bytes
        self.parts, self.size = parts_of(bands.run, made.data.bytes)
        self.positions = bands.positions()
        self.rows, self.high = self.positions.rows, self.positions.high
        self.band_rows = 0 if bands.in_place else bands.rows_of_band()
        self.wide, self.rest = divmod(made.outputs, PAIR * COLUMNS)
        self.units = self.wide + bool(self.rest)
        self.groups = _even_groups(bands.count, self.units, threads)
        self.finish: Finish | None = None

    def describe(self) -> str:
        """What it does, for the build report."""
        bands, made = self.bands, self.made
        what = f"{self.positions.count} pixels" if bands.in_place else f"{self.band_rows} rows"
        wide = min(PAIR, -(-made.outputs // COLUMNS))
        return (
            f"tiles, {self.high} x {wide} of {self.rows} pixels x {COLUMNS} channels, "
            f"{bands.runs * self.parts} steps of {self.size} {self.data_kind}, {what} at a time"
        )

    def write(self, ib: IRBuilder, data: BufferVar, weight: BufferVar, out: BufferVar) -> None:
        """Some positions and some channels after the other."""
        bands, made = self.bands, self.made
        with ib.for_range(0, bands.count * self.groups, name="piece", kind="parallel") as piece:
            band, group = piece // self.groups, piece % self.groups
            kept, depth = (self.rows, ROW_BYTES), (self.rows, self.size * made.data.bytes)
            factors = (self.size // self.group, ROW_BYTES)
            ib.emit(tile_configure([kept] * 4 + [depth] * 2 + [factors] * 2))
            if bands.in_place:
                every = made.pixels
                flat = ib.buffer_ptr(data.buffer, (every * made.inputs,))
                first = build.minimum(band * self.positions.count, every - self.positions.count)
                skipped = band * self.positions.count - first
                self._band(ib, Band(flat, weight, out, first, skipped), group)
            else:
                self._copied_band(ib, data, weight, out, band, group)
            ib.emit(tile_release())

    # ---- a band of rows, side by side ----

    def _copied_band(
        self, ib: IRBuilder, data: BufferVar, weight: BufferVar, out: BufferVar, band: Expr,
        group: Expr,
    ) -> None:
        bands, made = self.bands, self.made
        every = bands.count // made.batch
        first = build.minimum(band % every * self.band_rows, made.result[0] - self.band_rows)
        skipped = band % every * self.band_rows - first
        row = bands.across * made.strides[1] * made.inputs
        lines = self.band_rows + bands.below
        with ib.new_scope():
            size = len(bands.phases) * lines * row
            seen = ib.allocate(str(self.data_kind), (size,), name="seen")
            for place, phase in enumerate(bands.phases):
                with ib.for_range(0, lines, name="line") as line:
                    at = (first + line) * made.strides[0] + (phase - made.before[0])
                    self._copy_row(ib, data, seen, (place * lines + line) * row, band // every, at)
            self._band(ib, Band(seen, weight, out, first, skipped, band // every), group)

    def _copy_row(
        self, ib: IRBuilder, data: BufferVar, seen: BufferVar, start: Expr, image: Expr, at: Expr
    ) -> None:
        """A row of the data between its borders, or a row of border."""
        bands, made = self.bands, self.made
        row = bands.across * made.strides[1] * made.inputs
        left = min(row, made.before[1] * made.inputs)
        inside = min(row - left, made.image[1] * made.inputs)
        border = build.const(made.border, self.data_kind)
        shape = (made.batch * made.image[0] * made.image[1] * made.inputs,)
        source = ib.buffer_ptr(data.buffer, shape)
        begin = (image * made.image[0] + at) * (made.image[1] * made.inputs)

        def fill(first: int, count: int, value: Any) -> None:
            with _lanes(ib, count) as place:
                seen[start + first + place] = value(place)

        with ib.if_scope(all_of(at >= 0, at < made.image[0])):
            if left:
                fill(0, left, lambda place: border)
            if inside:
                fill(left, inside, lambda place: source[begin + place])
            if row > left + inside:
                fill(left + inside, row - left - inside, lambda place: border)
        with ib.else_scope():
            fill(0, row, lambda place: border)

    # ---- products ----

    def _band(self, ib: IRBuilder, band: Band, group: Expr) -> None:
        """All tiles of positions for some channels, then for the next."""
        count = -(-self.units // self.groups)
        first = group * count
        if self.wide:
            most = build.minimum(self.wide - first, count)
            with ib.if_scope(most > 0):
                self._channels(ib, band, first, most, PAIR * COLUMNS)
        if self.rest:
            last = self.wide - first
            with ib.if_scope(all_of(last >= 0, last < count)):
                self._channels(ib, band, build.const(self.wide), build.const(1), self.rest)

    def _channels(
        self, ib: IRBuilder, band: Band, first: Expr, units: Expr, lanes: int
    ) -> None:
        """So many units of channels from one on."""
        wide = -(-lanes // COLUMNS)
        with (
            ib.for_range(first, first + units, name="unit") as unit,
            ib.for_range(0, self.positions.groups, name="group") as group,
            ib.new_scope(),
        ):
            shape = (self.high * self.rows, wide * COLUMNS)
            total = ib.allocate(self.total_kind, shape, name="total")
            block = Block(unit, group, lanes)
            self._multiply(ib, band, block)
            self._keep(ib, total, wide)
            self._results(ib, band, total, block)

    def _start(self, block: Block, tile: int) -> Expr:
        """The first position of a tile; the last tiles overlap."""
        begin = (block.group * self.high + tile) * self.rows
        return build.minimum(begin, self.positions.count - self.rows)

    def _multiply(self, ib: IRBuilder, band: Band, block: Block) -> None:
        """Tiles 0 to 3 are sums, 4 and 5 of positions, 6 and 7 of weights."""
        bands, made, wide = self.bands, self.made, -(-block.lanes // COLUMNS)
        step = made.strides[1] * made.inputs
        base = band.first * step if bands.in_place else build.const(0)
        kinds = str(self.data_kind), str(self.weight_kind)
        for tile in range(self.high):
            for column in range(wide):
                ib.emit(tile_zero(PAIR * tile + column))
        with ib.for_range(0, bands.runs, name="run") as run:
            offset = self._offset(run)
            with ib.for_range(0, self.parts, name="part") as part:
                if bands.far_weights and wide == PAIR:
                    self._fetch_ahead(ib, band, block, run * self.parts + part)
                at = base + offset + build.minimum(part * self.size, bands.run - self.size)
                for tile in range(self.high):
                    start = self._start(block, tile) * step
                    ib.emit(tile_load(4 + tile, band.source[at + start], step))
                    for column in range(wide):
                        if tile == 0:
                            where = (block.unit * PAIR + column, run * self.parts + part, 0, 0, 0)
                            ib.emit(tile_load(6 + column, band.weight[where], self.group * COLUMNS))
                        ib.emit(tile_dot(PAIR * tile + column, 4 + tile, 6 + column, *kinds))

    def _fetch_ahead(self, ib: IRBuilder, band: Band, block: Block, step: Expr) -> None:
        """Weights of the next unit, some rows of its tiles in each step of each group."""
        row, rows = self.group * COLUMNS, self.size // self.group
        steps, each = self.bands.runs * self.parts, -(-PAIR * rows // self.positions.groups)
        whole = -(-self.made.outputs // COLUMNS) * steps * rows
        place = (block.unit + 1) * (PAIR * steps * rows) + (block.group * steps + step) * each
        flat = ib.buffer_ptr(band.weight.buffer, (whole * row,))
        for number in range(each):
            at = build.minimum(place + number, whole - 1) * row
            ib.emit(Call(INT32, "prefetch", (flat[at],)))

    def _keep(self, ib: IRBuilder, total: BufferVar, wide: int) -> None:
        """Sums from tiles to where vectors take them from."""
        for tile in range(self.high):
            for column in range(wide):
                at = total[tile * self.rows, column * COLUMNS]
                ib.emit(tile_store(PAIR * tile + column, at, wide * COLUMNS))

    def _offset(self, run: Expr) -> Expr:
        """Where a run of the first position of a copied band begins."""
        bands, made = self.bands, self.made
        if bands.in_place:
            return build.const(0)
        columns = bands.runs // made.window[0]
        down, right = run // columns * made.dilation[0], run % columns * made.dilation[1]
        lines = self.band_rows + bands.below
        phase: Expr = build.const(0)
        for place, known in enumerate(bands.phases):
            if place:
                phase = build.select(build.equal(down % made.strides[0], known), place, phase)
        line = phase * lines + down // made.strides[0]
        return (line * (bands.across * made.strides[1]) + right) * made.inputs

    # ---- results ----

    def _results(self, ib: IRBuilder, band: Band, total: BufferVar, block: Block) -> None:
        """Positions that lie in rows of results, in loops without a question."""
        for tile in range(self.high):
            start = self._start(block, tile)
            begin = (block.group * self.high + tile) * self.rows  # others have those before it
            self._positions(ib, band, total, block, begin, start + self.rows,
                            tile * self.rows - start)

    def _positions(
        self, ib: IRBuilder, band: Band, total: BufferVar, block: Block, begin: Expr, end: Expr,
        shift: Expr,
    ) -> None:
        """Those from one to another; shift: from a position to the row of its sums."""
        if band.image is None:
            with ib.for_range(build.maximum(begin, band.skipped), end, name="row") as position:
                at = places_of(band.first + position, self.outer)
                self._store(ib, band, at, total, position + shift, block)
            return
        across, width = self.bands.across, self.made.result[1]
        top, bottom = build.maximum(begin // across, band.skipped), (end - 1) // across
        with ib.for_range(top, bottom + 1, name="line") as line:
            left = build.maximum(begin, line * across)
            right = build.maximum(left, build.minimum(end, line * across + width))
            with ib.for_range(left, right, name="row") as position:
                at = (band.image, band.first + line, position - line * across)
                self._store(ib, band, at, total, position + shift, block)

    def _store(
        self, ib: IRBuilder, band: Band, at: Sequence[Expr], total: BufferVar, row: Expr,
        block: Block,
    ) -> None:
        """The channels of one position, or what is made of them."""
        with ib.for_range(0, block.lanes, name="lane", kind="vectorize") as lane:
            index = (*at, block.unit * (PAIR * COLUMNS) + lane)
            value = build.cast(self.kind, total[row, lane])
            made = value if self.finish is None else self.finish(index, value)
            band.out[index] = rounded_once(made) if self.total_kind == "float32" else made


def places_of(position: Expr, outer: Sequence[int]) -> tuple[Expr, ...]:
    """The index of a position among these extents."""
    found: list[Expr] = []
    for extent in reversed(outer):
        found.append(position % extent)
        position = position // extent
    return tuple(reversed(found))


@contextmanager
def _lanes(ib: IRBuilder, count: int) -> Iterator[Expr]:
    """The lanes of vectors that cover so many numbers; the last vector may overlap others."""
    lanes = min(count, CHUNK)
    with (
        ib.for_range(0, -(-count // lanes), name="chunk") as chunk,
        ib.for_range(0, lanes, name="lane", kind="vectorize") as lane,
    ):
        yield build.minimum(chunk * lanes, count - lanes) + lane


def _even_groups(bands: int, units: int, threads: int) -> int:
    """Into how many parts channels are cut so that the last thread ends soonest."""

    def end(groups: int) -> float:
        return -(-bands * groups // threads) * (-(-units // groups) + START)

    return choose("groups of channels", range(1, units + 1), end)

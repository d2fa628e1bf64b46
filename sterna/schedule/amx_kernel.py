"""Sums of products in tiles: registers that hold 16 rows of 64 bytes each.

A sum goes over runs of numbers that lie side by side: the channels of a pixel, or of all columns of
a window. A tile takes a part of a run of up to 16 positions, each some numbers after the one before
it; the other holds the weights of 16 channels for that part. Two times two of them share what they
load. Where a position's pixels do not follow those of the one before it in memory, a band of rows
is copied, border included, so that they do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import INT32, Call, Expr
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array
from sterna.schedule.epilogue import Finish
from sterna.schedule.rounded_once import rounded_once
from sterna.support.dtype import DataType
from sterna.te import all as all_of
from sterna.tir import tile_configure, tile_dot, tile_load, tile_release, tile_store, tile_zero
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.tiles import GROUP_BYTES, ROW_BYTES, ROWS, SUMS

# A tile's columns of sums.
COLUMNS = ROW_BYTES // GROUP_BYTES
# Tiles of positions and of channels that are multiplied with each other.
PAIR = 2
# What positions read stays in the innermost cache while all channels run over it; where weights do
# not stay in the second cache, they are read for as many positions as share that with them.
BAND_BYTES, FAR_WEIGHTS, FAR_BAND_BYTES = 24 * 1024, 1024 * 1024, 1024 * 1024
# What is copied at once.
CHUNK = 64
# Cycles: to multiply two tiles of few rows; to store a row of sums and to load it again.
LEAST_CYCLES, ROW_CYCLES = 10, 2.0
# Half of it is the smallest float that is not denormal.
LEAST_TO_HALVE = 2.0**-125
# What a piece of work costs before its first tile, in units of channels.
START = 0.1


def parts_of(run: int, item: int = 1) -> tuple[int, int]:
    """How many parts a run has, and how long they are; the last may overlap others.

    item: the bytes of a number.
    """
    group, fewest = GROUP_BYTES // item, -(-run * item // ROW_BYTES)
    size = group * -(-run // (group * fewest))
    if size <= run:
        return fewest, size
    return fewest + 1, group * -(-run // (group * (fewest + 1)))


def unpack_tiles(packed: Array, channels: int, runs: int, run: int) -> Array:
    """What pack_tiles was given."""
    count, size = parts_of(run, packed.dtype.itemsize)
    blocks = len(packed)
    every = packed.transpose(0, 3, 1, 2, 4).reshape(blocks * COLUMNS, runs, count, size)
    plain = np.zeros((channels, runs, run), packed.dtype)
    for part in range(count):
        first = min(part * size, run - size)
        plain[:, :, first : first + size] += every[:channels, :, part]
    return plain


def _share(one: Array, other: Array) -> None:
    """Weights of products that two parts add: halves of floats, the whole in one part else.

    A weight of 0 in one part would make an infinite number NaN. Halves are exact but for the
    smallest, which tiles take for 0.
    """
    other[...] = 0
    if one.dtype.kind not in "iu":
        values = one.astype(np.float32)
        halves = np.where(np.abs(values) < LEAST_TO_HALVE, values, values / 2)
        other[...] = values - halves
        one[...] = halves


def pack_tiles(plain: Array) -> Array:
    """(channel, run, number) as (block of channels, part, row of a tile, channel, number)."""
    channels, runs, run = plain.shape
    group = GROUP_BYTES // plain.dtype.itemsize
    count, size = parts_of(run, plain.dtype.itemsize)
    blocks = -(-channels // COLUMNS)
    made = np.zeros((blocks * COLUMNS, runs, count, size), plain.dtype)
    for part in range(count):
        first = min(part * size, run - size)
        made[:channels, :, part] = plain[:, :, first : first + size]
    if seen := count * size - run:
        _share(made[:, :, -2, size - seen :], made[:, :, -1, :seen])
    tiles = made.reshape(blocks, COLUMNS, runs * count, size // group, group)
    return np.ascontiguousarray(tiles.transpose(0, 2, 3, 1, 4))


@dataclass(frozen=True, slots=True)
class Positions:
    """Some positions, cut into tiles of as many rows; the last may overlap others."""

    count: int

    @property
    def high(self) -> int:
        """Tiles that share what they load."""
        return PAIR if self.count > ROWS else 1

    @property
    def groups(self) -> int:
        return -(-self.count // (self.high * ROWS))

    @property
    def rows(self) -> int:
        return -(-self.count // (self.high * self.groups))


@dataclass(frozen=True, slots=True)
class Sums:
    """What is computed: images of rows of pixels, of some channels each."""

    images: int
    height: int
    width: int
    channels: int
    data_height: int
    data_width: int
    depth: int
    """Channels of the data."""
    window: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    before: tuple[int, int] = (0, 0)
    border: int = 0
    padded: bool = False
    item: int = 1
    """Bytes of a number."""

    @property
    def in_place(self) -> bool:
        """Whether each position's numbers follow those of the one before it as the data lies."""
        return self.window == self.strides == (1, 1) and not self.padded

    @property
    def run(self) -> int:
        """Numbers side by side that are summed over."""
        return self.depth * (self.window[1] if self.dilation[1] == 1 else 1)

    @property
    def runs(self) -> int:
        """How many of these there are."""
        return self.window[0] * (1 if self.dilation[1] == 1 else self.window[1])

    @property
    def across(self) -> int:
        """Positions of a row, those between its end and the next row included."""
        if self.in_place:
            return self.width
        seen = (self.width - 1) * self.strides[1] + (self.window[1] - 1) * self.dilation[1] + 1
        return -(-seen // self.strides[1])

    @property
    def far_weights(self) -> bool:
        """Whether weights come from beyond the second cache."""
        return self.channels * self.runs * self.run * self.item >= FAR_WEIGHTS

    @property
    def band_bytes(self) -> int:
        """What the positions of a band may read."""
        return FAR_BAND_BYTES if self.far_weights else BAND_BYTES

    def rows_of_band(self) -> int:
        """Rows whose data fits into a cache, as many in each band as can be."""
        row = self.across * self.strides[1] * self.depth * len(self.phases) * self.item
        most = max(1, min(self.height, self.band_bytes // row - self.below))
        return -(-self.height // -(-self.height // most))

    @property
    def phases(self) -> list[int]:
        """Rows of the data that are read by every row of results, up to whole steps."""
        every = (row * self.dilation[0] % self.strides[0] for row in range(self.window[0]))
        return sorted(set(every))

    @property
    def below(self) -> int:
        """Steps from a row of results to the last row of data that it reads."""
        return (self.window[0] - 1) * self.dilation[0] // self.strides[0]

    def positions(self) -> Positions:
        """Those of a band."""
        if self.in_place:
            every = self.images * self.height * self.width
            pair = PAIR * ROWS
            most = max(1, self.band_bytes // (pair * self.depth * self.item)) * pair
            return Positions(min(every, most))
        return Positions((self.rows_of_band() - 1) * self.across + self.width)

    @property
    def bands(self) -> int:
        if self.in_place:
            return -(-self.images * self.height * self.width // self.positions().count)
        return self.images * -(-self.height // self.rows_of_band())

    def cycles(self) -> float:
        """What the products take, with the way of their sums to vectors."""
        count, size = parts_of(self.run, self.item)
        seen = self.positions()
        blocks = -(-self.channels // COLUMNS)
        tiles = self.bands * seen.groups * seen.high * blocks
        dot = max(seen.rows, size * self.item // GROUP_BYTES, LEAST_CYCLES)
        return tiles * (self.runs * count * dot + seen.rows * ROW_CYCLES)


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
    """The statements of such sums."""

    def __init__(
        self, sums: Sums, data: DataType, weight: DataType, threads: int, out: TensorType
    ) -> None:
        """out: its extents before the channels are of a position each."""
        self.sums, self.data_kind, self.weight_kind = sums, data, weight
        self.kind, self.total_kind = out.dtype, SUMS[f"{data} {weight}"]
        self.outer, self.group = out.concrete_shape[:-1], GROUP_BYTES // sums.item
        self.parts, self.size = parts_of(sums.run, sums.item)
        self.positions = sums.positions()
        self.rows, self.high = self.positions.rows, self.positions.high
        self.band_rows = 0 if sums.in_place else sums.rows_of_band()
        self.wide, self.rest = divmod(sums.channels, PAIR * COLUMNS)
        self.units = self.wide + bool(self.rest)
        self.groups = _even_groups(sums.bands, self.units, threads)
        self.finish: Finish | None = None

    def describe(self) -> str:
        """What it does, for the build report."""
        sums = self.sums
        what = f"{self.positions.count} pixels" if sums.in_place else f"{self.band_rows} rows"
        wide = min(PAIR, -(-sums.channels // COLUMNS))
        return (
            f"tiles, {self.high} x {wide} of {self.rows} pixels x {COLUMNS} channels, "
            f"{sums.runs * self.parts} steps of {self.size} {self.data_kind}, {what} at a time"
        )

    def write(self, ib: IRBuilder, data: BufferVar, weight: BufferVar, out: BufferVar) -> None:
        """Some positions and some channels after the other."""
        sums = self.sums
        with ib.for_range(0, sums.bands * self.groups, name="piece", kind="parallel") as piece:
            band, group = piece // self.groups, piece % self.groups
            kept, depth = (self.rows, ROW_BYTES), (self.rows, self.size * sums.item)
            factors = (self.size // self.group, ROW_BYTES)
            ib.emit(tile_configure([kept] * 4 + [depth] * 2 + [factors] * 2))
            if sums.in_place:
                every = sums.images * sums.height * sums.width
                flat = ib.buffer_ptr(data.buffer, (every * sums.depth,))
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
        sums = self.sums
        bands = sums.bands // sums.images
        first = build.minimum(band % bands * self.band_rows, sums.height - self.band_rows)
        skipped = band % bands * self.band_rows - first
        row = sums.across * sums.strides[1] * sums.depth
        lines = self.band_rows + sums.below
        with ib.new_scope():
            size = len(sums.phases) * lines * row
            seen = ib.allocate(str(self.data_kind), (size,), name="seen")
            for place, phase in enumerate(sums.phases):
                with ib.for_range(0, lines, name="line") as line:
                    at = (first + line) * sums.strides[0] + (phase - sums.before[0])
                    self._copy_row(ib, data, seen, (place * lines + line) * row, band // bands, at)
            self._band(ib, Band(seen, weight, out, first, skipped, band // bands), group)

    def _copy_row(
        self, ib: IRBuilder, data: BufferVar, seen: BufferVar, start: Expr, image: Expr, at: Expr
    ) -> None:
        """A row of the data between its borders, or a row of border."""
        sums = self.sums
        row = sums.across * sums.strides[1] * sums.depth
        left = min(row, sums.before[1] * sums.depth)
        inside = min(row - left, sums.data_width * sums.depth)
        border = build.const(sums.border, self.data_kind)
        shape = (sums.images * sums.data_height * sums.data_width * sums.depth,)
        source = ib.buffer_ptr(data.buffer, shape)
        begin = (image * sums.data_height + at) * (sums.data_width * sums.depth)

        def fill(first: int, count: int, value: Any) -> None:
            with _lanes(ib, count) as place:
                seen[start + first + place] = value(place)

        with ib.if_scope(all_of(at >= 0, at < sums.data_height)):
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
        sums, wide = self.sums, -(-block.lanes // COLUMNS)
        step = sums.strides[1] * sums.depth
        base = band.first * step if sums.in_place else build.const(0)
        kinds = str(self.data_kind), str(self.weight_kind)
        for tile in range(self.high):
            for column in range(wide):
                ib.emit(tile_zero(PAIR * tile + column))
        with ib.for_range(0, sums.runs, name="run") as run:
            offset = self._offset(run)
            with ib.for_range(0, self.parts, name="part") as part:
                if sums.far_weights and wide == PAIR:
                    self._fetch_ahead(ib, band, block, run * self.parts + part)
                at = base + offset + build.minimum(part * self.size, sums.run - self.size)
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
        steps, each = self.sums.runs * self.parts, -(-PAIR * rows // self.positions.groups)
        whole = -(-self.sums.channels // COLUMNS) * steps * rows
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
        sums = self.sums
        if sums.in_place:
            return build.const(0)
        columns = sums.runs // sums.window[0]
        down, right = run // columns * sums.dilation[0], run % columns * sums.dilation[1]
        lines = self.band_rows + sums.below
        phase: Expr = build.const(0)
        for place, known in enumerate(sums.phases):
            if place:
                phase = build.select(build.equal(down % sums.strides[0], known), place, phase)
        line = phase * lines + down // sums.strides[0]
        return (line * (sums.across * sums.strides[1]) + right) * sums.depth

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
        across, width = self.sums.across, self.sums.width
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

    return min(range(1, units + 1), key=lambda groups: (end(groups), groups))

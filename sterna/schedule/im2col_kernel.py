"""The statements of a convolution as a product of matrices (GEMM) whose columns are pixels.

Channels lie first, and stay so: weights are the left matrix, and what the windows of some pixels
see is the right one (im2col), copied panel by panel, which stays in the second cache. A register
tile is some output channels times vectors of pixels, which are stored where they belong.

A panel may hold some input channels at a time, whose sums wait in memory: of images that leave the
second cache all of a channel is read then, where few lines of every channel would come from far.
Such panels make the border of an image themselves.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sterna.ir import build
from sterna.ir.expr import Broadcast, Call, Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import Plan
from sterna.schedule.statement_kernel import StatementKernel
from sterna.support.dtype import DataType
from sterna.tir.ir_builder import BufferVar
from sterna.tir.passes.inject_prefetch import LINE_BYTES

INT32 = DataType("int32")
# Steps of the sum that are written out.
STEPS = 4
# How pixels come into panels: tile by tile, as rows of all pixels, or as tiles cut from such a row.
# Or they do not: of windows of one pixel they are read where they lie.
TILES, ROWS, CUT_ROWS, IN_PLACE = "tiles", "rows", "cut_rows", "in_place"
# Tiles that are copied together, in so many copies at most.
TOGETHER, COPIES = 4, 16


def without_border(made: Contraction) -> Contraction:
    """The same over images that have their border already."""
    if not made.is_padded:
        return made
    zero = (0,) * made.rank
    image = [sum(sizes) for sizes in zip(made.image, made.before, made.after, strict=True)]
    return replace(made, image=tuple(image), before=zero, after=zero)


def as_lines(made: Contraction) -> Contraction:
    """The same with all pixels in one line, where windows are as wide as a pixel; else itself.

    What is below a pixel lies a line's width behind it.
    """
    (high, wide), (down, across) = made.image, made.strides
    if made.window[1] > 1 or across > 1 or (down > 1 and made.result[0] > 1) or made.is_padded:
        return made
    return replace(
        made, image=(1, high * wide), result=(1, made.result[0] * wide),
        window=(1, made.window[0]), dilation=(1, made.dilation[0] * wide), strides=(1, 1),
    )


def vector_of_line(width: int, lanes: int) -> int:
    """Neighbours of a line that are copied at once: the last of them may be copied twice."""
    return min(lanes, 1 << width.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Panel:
    """The pixels of some lines, or some pixels of one: the columns of a part of the product."""

    image: Expr
    group: Expr
    first: Expr
    """The first of its lines, or of its pixels."""
    lines: int
    width: int
    """Pixels of each of its lines."""
    seen: BufferVar | None
    """What their windows see, unless it is read in place."""
    chunk: "Chunk | None" = None
    """The input channels of it, unless it has all of them."""

    @property
    def pixels(self) -> int:
        """All of them."""
        return self.lines * self.width


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some input channels of a panel, whose sums wait in memory."""

    first: Expr
    count: Expr | int
    sums: BufferVar
    bordered: BufferVar | None
    """The lines of the image that a panel sees of these channels, if it has a border."""


@dataclass(frozen=True, slots=True)
class TilePixels:
    """Where the data of a tile's pixels begins, so many side by side each."""

    number: Expr
    begins: Sequence[Expr]
    side: int
    zeros: tuple[int, int] = (0, 0)
    """Lanes of its last vector, from which on, that no pixel fills. They are computed with: what
    lay there before could be subnormal, which takes some processors many times as long."""


class Im2colKernel(StatementKernel):
    """The statements of one convolution: without a border, unless it goes by chunks of channels."""

    def __init__(self, made: Contraction, plan: Plan) -> None:
        self.whole, self.made = made, as_lines(without_border(made))
        self.channels = min(plan.integer("channels"), self.made.depth)
        self.rows, self.columns = plan.integer("rows"), plan.integer("columns")
        self.lanes, self.by_lanes = plan.integer("lanes"), bool(plan.integer("by_lanes"))
        self.units, self.shares = plan.integer("panel"), plan.integer("shares")
        self.copied = plan.text("copied")
        self.outputs = made.outputs // made.groups
        self.blocks = -(-self.outputs // self.rows)
        self.dtype = str(made.data)
        self.is_line = self.made.result[0] == 1
        self.extent = self.made.result[1] if self.is_line else self.made.result[0]
        # planes lie pages apart, of which each tile reads a line or two: nothing else foresees them
        self.fetches = self.copied == IN_PLACE and self.blocks == 1

    def describe(self) -> str:
        what = "pixels" if self.is_line else "lines"
        some = f" of {self.channels} channels" if self.channels < self.made.depth else ""
        return (
            f"im2col, {self.rows} channels x {self.columns} pixels in registers, panels of "
            f"{min(self.units, self.extent)} {what}{some}"
        )

    def write(self) -> None:
        """Panel by panel, which threads share with parts of the output channels."""
        whole, rest = divmod(self.extent, self.units)
        parts = whole + (rest > 0)
        made = self.made
        count = made.batch * made.groups * parts * self.shares
        with self.ib.for_range(0, count, name="piece", kind="parallel") as piece:
            share, above = piece % self.shares, piece // self.shares
            part, above = self.ib.let("part", above % parts), above // parts
            image = self.ib.let("image", above // made.groups)
            group = self.ib.let("group", above % made.groups)
            if not rest:
                self._panel(image, group, part * self.units, self.units, share)
            elif not whole:
                self._panel(image, group, build.const(0), rest, share)
            else:
                with self.ib.if_scope(part < whole):
                    self._panel(image, group, part * self.units, self.units, share)
                with self.ib.else_scope():
                    self._panel(image, group, build.const(whole * self.units), rest, share)

    def _panel(self, image: Expr, group: Expr, first: Expr, units: int, share: Expr) -> None:
        """Copy what some pixels see and multiply it by a part of the output channels."""
        ib, made = self.ib, self.made
        lines, width = (1, units) if self.is_line else (units, made.result[1])
        with ib.new_scope():
            if self.copied == IN_PLACE:
                self._blocks(Panel(image, group, first, lines, width, None), share)
                return
            tiles, steps = -(-lines * width // self.columns), self.channels * made.taps
            shape: tuple[int, ...] = (tiles, steps, self.columns)
            if self.copied == ROWS:
                shape = (steps, -(-lines * width // self.lanes) * self.lanes)
            seen = ib.allocate(self.dtype, shape, name="seen")
            panel = Panel(image, group, first, lines, width, seen)
            if self.channels == made.depth:
                self._copy_panel(panel, seen)
                self._blocks(panel, share)
                return
            sums = ib.allocate(
                self.dtype, (self.blocks * self.rows, tiles * self.columns), name="sums"
            )
            bordered = None
            if self.whole.is_padded:
                reach = (made.window[0] - 1) * made.dilation[0] + 1
                seen_lines = (lines - 1) * made.strides[0] + reach
                bordered = ib.allocate(
                    self.dtype, (self.channels, seen_lines, made.image[1]), name="bordered"
                )
            with ib.for_range(0, -(-made.depth // self.channels), name="chunk") as number:
                channel = ib.let("first", number * self.channels)
                count: Expr | int = self.channels
                if made.depth % self.channels:
                    count = ib.let("count", build.minimum(count, made.depth - channel))
                part = replace(panel, chunk=Chunk(channel, count, sums, bordered))
                if bordered is not None:
                    self._add_border(part, bordered)
                self._copy_panel(part, seen)
                self._blocks(part, share)

    def _blocks(self, panel: Panel, share: Expr) -> None:
        """Multiply a panel by a part of the output channels."""
        ib = self.ib
        each = -(-self.blocks // self.shares)
        start = share * each
        last = self.outputs - (self.blocks - 1) * self.rows
        if last == self.rows and self.blocks % self.shares == 0:
            with ib.for_range(0, each, name="block") as number:
                self._block(panel, start + number, self.rows)
            return
        end = build.minimum(start + each, self.blocks - (last < self.rows))
        with ib.for_range(0, build.maximum(end - start, 0), name="block") as number:
            self._block(panel, start + number, self.rows)
        if last < self.rows:
            with ib.if_scope(share == (self.blocks - 1) // each):
                self._block(panel, build.const(self.blocks - 1), last)

    def _add_border(self, panel: Panel, bordered: BufferVar) -> None:
        """Copy the lines that a panel sees of some channels, with zeros around the image."""
        ib, whole, chunk = self.ib, self.whole, panel.chunk
        assert chunk is not None
        (high, wide), (above, left) = whole.image, whole.before
        _, lines, full = (build.int_value(extent) or 0 for extent in bordered.shape)
        begin = panel.image * whole.inputs + panel.group * self.made.depth + chunk.first
        first = panel.first * self.made.strides[0]
        zero = build.const(0.0, self.dtype)
        with (
            ib.for_range(0, chunk.count, name="channel") as channel,
            ib.for_range(0, lines, name="line") as line,
        ):
            at = ib.let("at", first + line - above)
            with ib.if_scope(build.logical_and(at >= 0, at < high)):
                for start, count in self._pieces(left):
                    bordered[channel, line, start] = self._filled(zero, count)
                for start, count in self._pieces(full - left - wide):
                    bordered[channel, line, left + wide + start] = self._filled(zero, count)
                for start, count in self._pieces(wide):
                    read = self.data.vload(((begin + channel) * high + at) * wide + start, count)
                    bordered[channel, line, left + start] = read
            with ib.else_scope():
                for start, count in self._pieces(full):
                    bordered[channel, line, start] = self._filled(zero, count)

    def _filled(self, value: Expr, count: int) -> Expr:
        return Broadcast(value, count) if count > 1 else value

    def _copy_panel(self, panel: Panel, seen: BufferVar) -> None:
        """Copy what the windows of its pixels see."""
        copy = self._copy if self.copied == TILES else self._copy_lines
        copy(panel, seen)

    def _copy(self, panel: Panel, seen: BufferVar) -> None:
        """What the window of every pixel sees, some tiles at a time: whole lines of the cache."""
        side = self.columns if self.is_line else math.gcd(panel.width, self.columns)
        each = self.columns // side
        whole, rest = divmod(panel.pixels, self.columns)
        begin = self._beginnings(panel, side)
        together = max(1, min(TOGETHER, COPIES // each))
        groups, others = divmod(whole, together)

        def tiles(first: Expr, count: int) -> list[TilePixels]:
            return [
                TilePixels(first + n, [begin((first + n) * each + k) for k in range(each)], side)
                for n in range(count)
            ]

        with self.ib.for_range(0, groups, name="tiles") as group:
            self._copy_tiles(panel, seen, tiles(group * together, together))
        last = tiles(build.const(groups * together), others)
        if rest:
            side = min(side, rest)
            begins = [begin(build.const(whole * each + k)) for k in range(rest // side)]
            zeros = (rest // self.lanes * self.lanes, self.lanes if rest % self.lanes else 0)
            last.append(TilePixels(build.const(whole), begins, side, zeros))
        if last:
            self._copy_tiles(panel, seen, last)

    def _copy_lines(self, panel: Panel, seen: BufferVar) -> None:
        """What windows see, a line of the panel after the other: rows, of which tiles may be cut.

        Lanes that no pixel fills are 0: what lay there before could be subnormal.
        """
        ib, made = self.ib, self.made
        wide, (down, across) = made.image[1], made.strides
        size, rest = vector_of_line(panel.width, self.lanes), panel.pixels % self.lanes
        begins = [*range(0, panel.width - size, size), panel.width - size]
        tiles, whole = -(-panel.pixels // self.columns), self.copied == ROWS
        row = seen if whole else ib.allocate(
            self.dtype, (1, tiles * self.columns), name="row")
        source = self._source(panel)
        with self._steps(panel) as (step, away):
            at = step if whole else build.const(0)
            if rest:
                nothing = Broadcast(build.const(0.0, self.dtype), self.lanes)
                row[at, panel.pixels - rest] = nothing
            with ib.for_range(0, panel.lines, name="line") as line:
                place = away + (self._first_line(panel) + line) * (down * wide)
                for begin in begins:
                    with ib.for_range(0, size, name="lane", kind="vectorize") as lane:
                        value = source[place + (begin + lane) * across]
                        row[at, line * panel.width + begin + lane] = value
            if not whole:
                with ib.for_range(0, tiles, name="tile") as tile:
                    first = tile * self.columns
                    seen[tile, step, 0] = row.vload((at, first), self.columns)

    def _source(self, panel: Panel) -> BufferVar:
        """Where the windows of a panel see their pixels."""
        bordered = None if panel.chunk is None else panel.chunk.bordered
        return self.data if bordered is None else bordered

    def _first_line(self, panel: Panel) -> Expr:
        """The first line of a panel there."""
        return panel.first if self._source(panel) is self.data else build.const(0)

    @contextmanager
    def _steps(self, panel: Panel) -> Iterator[tuple[Expr, Expr]]:
        """Loops over the sum of a panel: the step, and where its first pixel lies from there on."""
        ib, made, chunk, source = self.ib, self.made, panel.chunk, self._source(panel)
        high, wide = made.image
        first: Expr = panel.image * made.inputs + panel.group * made.depth
        if chunk is not None:
            first = first + chunk.first
        if source is not self.data:
            first, high = build.const(0), build.int_value(source.shape[1]) or 0
        count = made.depth if chunk is None else chunk.count
        with (
            ib.for_range(0, count, name="channel") as channel,
            ib.for_range(0, made.window[0], name="below") as below,
            ib.for_range(0, made.window[1], name="beside") as beside,
        ):
            step = (channel * made.window[0] + below) * made.window[1] + beside
            line = (first + channel) * high + below * made.dilation[0]
            yield step, line * wide + beside * made.dilation[1]

    def _beginnings(self, panel: Panel, side: int) -> Callable[[Expr], Expr]:
        """Where so many pixels that lie side by side begin, by their number."""
        (down, across), wide = self.made.strides, self.made.image[1]
        if self.is_line:
            return lambda number: (panel.first + number * side) * across
        count = panel.pixels // side
        places = self.ib.allocate("int32", (count,), name="places")
        with self.ib.for_range(0, count, name="number") as number:
            line, pixel = number * side // panel.width, number * side % panel.width
            places[number] = (self._first_line(panel) + line) * down * wide + pixel * across
        return places.__getitem__

    def _copy_tiles(
        self, panel: Panel, seen: BufferVar, tiles: Sequence[TilePixels]
    ) -> None:
        """The pixels of some tiles, element by element of the sum."""
        ib, across, source = self.ib, self.made.strides[1], self._source(panel)
        with self._steps(panel) as (step, away):
            for tile in tiles:
                first, count = tile.zeros
                if count:
                    nothing = Broadcast(build.const(0.0, self.dtype), count)
                    seen[tile.number, step, first] = nothing
                for number, begin in enumerate(tile.begins):
                    with ib.for_range(0, tile.side, name="lane", kind="vectorize") as lane:
                        value = source[away + begin + lane * across]
                        seen[tile.number, step, number * tile.side + lane] = value

    def _block(self, panel: Panel, block: Expr, rows: int) -> None:
        """A block of output channels times all pixels of a panel, tile by tile."""
        whole, rest = divmod(panel.pixels, self.columns)
        block = self.ib.let("block", block)
        with self.ib.for_range(0, whole, name="tile") as tile:
            self._tile(panel, block, rows, tile * self.columns, self.columns)
        if rest:
            self._tile(panel, block, rows, build.const(whole * self.columns), rest)

    def _tile(self, panel: Panel, block: Expr, rows: int, first: Expr, columns: int) -> None:
        """Some channels of some pixels in registers, over the whole sum.

        Where pixels are read in place, lanes that no pixel fills take those before the first one.
        """
        ib, chunk = self.ib, panel.chunk
        width = -(-columns // self.lanes) * self.lanes
        before = width - columns if self.copied == IN_PLACE else 0
        with ib.new_scope():
            total = ib.allocate(self.dtype, (rows, width), name="total", scope="local")
            zero = Broadcast(build.const(0.0, self.dtype), width)
            if chunk is None:
                self._rows(rows, lambda row: total.__setitem__((row, 0), zero))
                self._sum(panel, total, block, rows, first - before, width)
                self._store_all(panel, total, block, rows, first, columns, before)
                return
            own = block * self.rows
            with ib.if_scope(chunk.first == 0):
                self._rows(rows, lambda row: total.__setitem__((row, 0), zero))
            with ib.else_scope():
                self._rows(rows, lambda row: total.__setitem__(
                    (row, 0), chunk.sums.vload((own + row, first), width)))
            self._sum(panel, total, block, rows, first, width)
            with ib.if_scope(chunk.first + self.channels >= self.made.depth):
                self._store_all(panel, total, block, rows, first, columns, before)
            with ib.else_scope():
                self._rows(rows, lambda row: chunk.sums.__setitem__(
                    (own + row, first), total.vload((row, 0), width)))

    def _rows(self, rows: int, each: Callable[[Expr], None]) -> None:
        """The same for each row of a tile."""
        with self.ib.for_range(0, rows, name="row", kind="unroll") as row:
            each(row)

    def _store_all(
        self, panel: Panel, total: BufferVar, block: Expr, rows: int, first: Expr, columns: int,
        before: int,
    ) -> None:
        """The pixels of a tile's channels, with what follows."""
        with self.ib.for_range(0, rows, name="row", kind="unroll") as row:
            for start, count in self._pieces(columns):
                self._store(panel, total, block, row, first, start, count, before)

    def _sum(
        self, panel: Panel, total: BufferVar, block: Expr, rows: int, first: Expr, width: int
    ) -> None:
        """Add the steps of a panel to a tile, some of them written out."""
        ib, made, chunk = self.ib, self.made, panel.chunk
        count = made.depth if chunk is None else chunk.count

        def add(step: Expr) -> None:
            self._step(panel, total, block, rows, first, width, step)

        steps = count * made.taps
        with ib.for_range(0, steps // STEPS, name="step") as step:
            for n in range(STEPS):
                add(step * STEPS + n)
        if isinstance(steps, int):
            for n in range(steps // STEPS * STEPS, steps):
                add(build.const(n))
            return
        with ib.for_range(0, steps % STEPS, name="step") as step:
            add(steps // STEPS * STEPS + step)

    def _step(
        self, panel: Panel, total: BufferVar, block: Expr, rows: int, first: Expr, width: int,
        step: Expr,
    ) -> None:
        """One column of the weights times one row of the panel.

        Weights that were not packed lie in a row for each output channel.
        """
        ib = self.ib
        chunk = panel.chunk
        begin = build.const(0) if chunk is None else chunk.first * self.made.taps
        at = (panel.group, block, begin + step)
        lies = len(self.weight.shape) == 2
        with ib.new_scope():
            held: BufferVar | None = None
            if self.by_lanes and not lies:
                held = ib.allocate(self.dtype, (self.rows,), name="held", scope="local")
                held[0] = self.weight.vload((*at, 0), self.rows)
            read = self._pixels(panel, step, first, width)
            with ib.for_range(0, rows, name="row", kind="unroll") as row:
                if lies:
                    output = panel.group * self.outputs + block * self.rows + row
                    number = self.weight[output, begin + step]
                else:
                    number = self.weight[(*at, row)] if held is None else held[row]
                product = Broadcast(number, width) * read
                total[row, 0] = total.vload((row, 0), width) + product

    def _pixels(self, panel: Panel, step: Expr, first: Expr, width: int) -> Expr:
        """What a step of the sum multiplies for pixels from one on."""
        if panel.seen is None:
            made = self.made
            channel = panel.image * made.inputs + panel.group * made.depth + step
            pixel = channel * made.image[1] + panel.first + first
            found: Expr = self.data.vload(pixel, width)
            if self.fetches:
                for line in range(0, width, LINE_BYTES // 4):
                    self.ib.emit(Call(INT32, "prefetch", (self.data[pixel + (width + line)],)))
            return found
        place = (step, first) if self.copied == ROWS else (first // self.columns, step, 0)
        held: Expr = panel.seen.vload(place, width)
        return held

    def _pieces(self, columns: int) -> Sequence[tuple[int, int]]:
        """Where vectors of so many columns begin, and how many columns they have: powers of two."""
        found, start = [], 0
        while start < columns:
            count = min(self.lanes, 1 << (columns - start).bit_length() - 1)
            found.append((start, count))
            start += count
        return found

    def _store(
        self, panel: Panel, total: BufferVar, block: Expr, row: Expr, first: Expr, start: int,
        count: int, before: int,
    ) -> None:
        """Some pixels of a channel, with what follows."""
        begin = panel.first if self.is_line else panel.first * panel.width
        channel = panel.group * self.outputs + block * self.rows + row
        wide = self.whole.result[1]
        with self.ib.for_range(0, count, name="lane", kind="vectorize") as lane:
            pixel = begin + first + start + lane
            index = (panel.image, channel, pixel // wide, pixel % wide)
            self.out[index] = self.finished(index, total[row, before + start + lane])

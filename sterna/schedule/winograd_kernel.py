"""The statements of a convolution by Winograd's way.

A block of tiles is transformed to (group, chunk, position, tile, channel): a group is the tiles
whose products are in registers together, a chunk the channels of one line of the cache, so that
what is written and read together lies together. For each block of output channels every position is
a product of matrices, and the results' transform ends it.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Broadcast, Call, Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.epilogue import Finish
from sterna.schedule.linear_steps import Matrix, linear_steps
from sterna.schedule.register_tile import register_tile
from sterna.schedule.winograd_plan import matrices
from sterna.schedule.winograd_transform import Transform
from sterna.te import all as all_of
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.passes.inject_prefetch import LINE_BYTES
from sterna.tir.stmt import BufferLoad, Evaluate


class WinogradKernel:
    """One convolution; data, weight and out are set when its statements are written."""

    data: BufferVar
    weight: BufferVar
    out: BufferVar
    finish: Finish | None = None

    def __init__(self, made: Contraction, m: int, block: int, lanes: int) -> None:
        """block: output channels that lie together; lanes: channels of a vector."""
        self.m, self.window, self.size = m, made.window[0], m + made.window[0] - 1
        self.lanes, self.block, self.dtype = lanes, block, str(made.data)
        self.image, self.before = made.image, made.before
        self.batch, (self.height, self.width) = made.batch, made.result
        self.inputs, self.outputs = made.inputs, made.outputs
        self.down, self.across = -(-self.height // self.m), -(-self.width // self.m)
        self.chunk = max(lanes, math.gcd(self.inputs, LINE_BYTES // 4))

    def plan(self, block_tiles: int, registers: int, together: int, split: str) -> None:
        """How tiles are dealt out."""
        self.each = min(block_tiles, self.down * self.across)
        self.blocks = -(-self.down * self.across // self.each)
        self.split = split
        self.together = together
        tile = register_tile(
            self.each, self.outputs, self.lanes, registers, self.block, together=together
        )
        self.rows = tile.rows
        self.groups = -(-self.each // self.rows)

    def describe(self, plain: int) -> str:
        """What it does, for the build report; plain: products of a plain sum for one result."""
        return (
            f"Winograd F({self.m}, {self.window}), {self.blocks} blocks of {self.each} tiles, "
            f"threads share {self.split}, "
            f"{self.rows} tiles x {self.block} channels in registers, weights "
            f"{self.size**2 * self.inputs / plain:.1f} times as large"
        )

    def write(self, ib: IRBuilder) -> None:
        """All blocks of tiles, shared by threads or each by all of them."""
        tiles = self.down * self.across
        one = self._by_positions if self.split == "positions" else self._by_channels
        kind = "parallel" if self.split == "blocks" else "serial"
        with ib.for_range(0, self.batch * self.blocks, name="block", kind=kind) as at:
            image, first = at // self.blocks, at % self.blocks * self.each
            count = build.minimum(self.each, tiles - first) if tiles % self.each else self.each
            shape = (self.groups, self.inputs // self.chunk, self.size**2, self.rows, self.chunk)
            seen = ib.allocate(self.dtype, shape, name="seen")
            one(ib, seen, image, first, count)

    def _by_channels(
        self, ib: IRBuilder, seen: BufferVar, image: Expr, first: Expr, count: Any
    ) -> None:
        """Block by block of channels, which threads share unless they share blocks of tiles."""
        kind = "serial" if self.split == "blocks" else "parallel"
        self._transform_data(ib, seen, image, first, count, kind)
        with ib.for_range(0, self.outputs // self.block, name="channels", kind=kind) as channels:
            made = self._room_for_products(ib, 1)
            with ib.for_range(0, self.size**2, name="position") as position:
                following = (build.minimum(position + 1, self.size**2 - 1), channels)
                self._multiply(ib, seen, made, position, channels, following)
            with ib.for_range(0, count, name="tile") as tile:
                self._transform_result(ib, made, image, first, tile, channels)

    def _by_positions(
        self, ib: IRBuilder, seen: BufferVar, image: Expr, first: Expr, count: Any
    ) -> None:
        """Every thread multiplies some positions of all tiles."""
        blocks = self.outputs // self.block
        made = self._room_for_products(ib, blocks)
        self._transform_data(ib, seen, image, first, count, "parallel")
        parts = self.size**2 * blocks
        with ib.for_range(0, parts, name="part", kind="parallel") as part:
            later = build.minimum(part + 1, parts - 1)
            following = (later // blocks, later % blocks)
            self._multiply(ib, seen, made, part // blocks, part % blocks, following)
        with ib.for_range(0, blocks * count, name="part", kind="parallel") as part:
            self._transform_result(ib, made, image, first, part % count, part // count)

    def _room_for_products(self, ib: IRBuilder, blocks: int) -> BufferVar:
        shape = (blocks, self.groups, self.size**2, self.rows, self.block)
        return ib.allocate(self.dtype, shape, name="made")

    def _transform_data(
        self, ib: IRBuilder, seen: BufferVar, image: Expr, first: Expr, count: Any, kind: str
    ) -> None:
        """All tiles of a block, chunk by chunk."""
        transform = self._transform(matrices(self.m, self.window).data)
        parts = self.inputs // self.chunk * count
        with (
            ib.for_range(0, parts, name="part", kind=kind) as part,
            ib.for_range(0, self.chunk // self.lanes, name="vector") as vector,
        ):
            chunk, place = part // count, part % count
            top, left = self._corner(first + place)
            top, left = top - self.before[0], left - self.before[1]
            channel = chunk * self.chunk + vector * self.lanes

            def load(row: Any, column: Any) -> tuple[None, Expr]:
                index = (image, top + row, left + column, channel)
                return None, self.data.buffer.vload(index, f"{self.dtype}x{self.lanes}")

            def load_if_inside(row: Any, column: Any) -> tuple[Expr, Expr]:
                within = self._within(top + row, left + column, 1)
                return all_of(*within), load(row, column)[1]

            def store(row: Any, values: Sequence[Expr]) -> None:
                for column, value in enumerate(values):
                    index = (
                        place // self.rows, chunk, row * self.size + column, place % self.rows,
                        vector * self.lanes,
                    )
                    ib.emit(seen.buffer.vstore(index, value))

            half = transform.between(ib)
            if self._has_border:
                with ib.if_scope(all_of(*self._within(top, left, self.size))):
                    transform.columns(ib, half, load)
                with ib.else_scope():
                    transform.columns(ib, half, load_if_inside)
            else:
                transform.columns(ib, half, load)
            transform.rows(ib, half, store)

    @property
    def _has_border(self) -> bool:
        """Whether tiles reach over the edges of the data."""
        reach = self.window - 1
        whole = (self.down * self.m + reach, self.across * self.m + reach)
        return self.before != (0, 0) or self.image != whole

    def _within(self, top: Expr, left: Expr, extent: int) -> list[Expr]:
        """That a square with a corner lies in the data."""
        height, width = self.image
        return [top >= 0, top <= height - extent, left >= 0, left <= width - extent]

    def _multiply(
        self, ib: IRBuilder, seen: BufferVar, made: BufferVar, position: Expr, channels: Expr,
        following: tuple[Expr, Expr],
    ) -> None:
        """All tiles of a block at one position, and one block of channels.

        following: the position and the block of channels whose weights come closer meanwhile.
        """
        whole, rest = divmod(self.each, self.rows)
        lines = range(0, self.block, LINE_BYTES // self.weight.buffer.dtype.bytes)
        each = -(-len(lines) // max(1, whole))

        def ahead(turn: Expr) -> list[tuple[Expr, ...]]:
            """The lines of every channel that one of the whole groups fetches."""
            numbers = [build.minimum(turn * each + n, len(lines) - 1) for n in range(each)]
            return [(*following, number * lines.step) for number in numbers]

        with ib.for_range(0, whole, name="group") as group:
            self._group(ib, seen, made, position, channels, group, self.rows, ahead(group))
        if rest:
            fetched = [] if whole else ahead(build.const(0))
            last = build.const(whole)
            self._group(ib, seen, made, position, channels, last, rest, fetched)

    def _group(
        self, ib: IRBuilder, seen: BufferVar, made: BufferVar, position: Expr, channels: Expr,
        group: Expr, rows: int, ahead: Sequence[tuple[Expr, ...]],
    ) -> None:
        """Some tiles and a block of channels in registers, over all input channels."""
        vector = f"{self.dtype}x{self.block}"
        with ib.new_scope():
            total = ib.allocate(self.dtype, (rows, self.block), name="total", scope="local")
            zero = Broadcast(build.const(0.0, self.dtype), self.block)
            with ib.for_range(0, rows, name="row", kind="unroll") as row:
                ib.emit(total.buffer.vstore((row, 0), zero))
            with (
                ib.for_range(0, self.inputs // self.chunk, name="chunk") as chunk,
                ib.for_range(0, self.chunk // self.together, name="lane") as lane,
            ):
                at = (group, chunk, position)
                number = self._numbers(ib, seen, at, lane * self.together, rows)
                for step in range(self.together):
                    channel = chunk * self.chunk + lane * self.together + step
                    if step % self._channels_of_a_line == 0:
                        self._fetch(ib, ahead, channel)
                    read = self.weight.buffer.vload((position, channels, channel, 0), vector)
                    with ib.for_range(0, rows, name="row", kind="unroll") as row:
                        before = total.buffer.vload((row, 0), vector)
                        after = before + Broadcast(number(row, step), self.block) * read
                        ib.emit(total.buffer.vstore((row, 0), after))
            with ib.for_range(0, rows, name="row", kind="unroll") as row:
                value = total.buffer.vload((row, 0), vector)
                index = (self._kept(channels), group, position, row, 0)
                ib.emit(made.buffer.vstore(index, value))

    @property
    def _channels_of_a_line(self) -> int:
        """Input channels whose weights of a block lie in one line of the cache."""
        return max(1, LINE_BYTES // (self.block * self.weight.buffer.dtype.bytes))

    def _fetch(self, ib: IRBuilder, ahead: Sequence[tuple[Expr, ...]], channel: Expr) -> None:
        for *block, line in ahead:
            place = BufferLoad(self.weight.buffer, (*block, channel, line))
            ib.emit(Evaluate(Call(build.const(0).dtype, "prefetch", (place,))))

    def _numbers(
        self, ib: IRBuilder, seen: BufferVar, at: tuple[Expr, ...], lane: Expr, rows: int
    ) -> Callable[[Expr, int], Expr]:
        """What the rows of a step are multiplied by; those of several steps are loaded at once."""
        if self.together == 1:
            return lambda row, step: seen[(*at, row, lane)]
        held = ib.allocate(self.dtype, (rows, self.together), name="held", scope="local")
        with ib.for_range(0, rows, name="row", kind="unroll") as row:
            loaded = seen.buffer.vload((*at, row, lane), f"{self.dtype}x{self.together}")
            ib.emit(held.buffer.vstore((row, 0), loaded))
        return lambda row, step: held[row, step]

    def _kept(self, channels: Expr) -> Expr:
        """Which block of products is that of some channels: there is one for all, or for each."""
        return channels if self.split == "positions" else build.const(0)

    def _transform_result(
        self, ib: IRBuilder, made: BufferVar, image: Expr, first: Expr, place: Expr,
        channels: Expr,
    ) -> None:
        """One tile and one block of channels."""
        top, left = self._corner(first + place)
        transform = self._transform(matrices(self.m, self.window).result)
        with ib.for_range(0, self.block // self.lanes, name="vector") as vector:
            channel = vector * self.lanes

            def load(row: Any, column: Any) -> tuple[None, Expr]:
                index = (
                    self._kept(channels), place // self.rows, row * self.size + column,
                    place % self.rows, channel,
                )
                return None, made.buffer.vload(index, f"{self.dtype}x{self.lanes}")

            def store(row: Any, values: Sequence[Expr]) -> None:
                for column, value in enumerate(values):
                    index = (image, top + row, left + column, channels * self.block + channel)
                    inside: list[Expr] = []
                    if self.height % self.m:
                        inside.append(top + row < self.height)
                    if column >= self.width % self.m > 0:
                        inside.append(left + column < self.width)
                    with ib.if_scope(all_of(*inside)) if inside else nullcontext():
                        self._store(ib, index, value)

            half = transform.between(ib)
            transform.columns(ib, half, load)
            transform.rows(ib, half, store)

    def _store(self, ib: IRBuilder, index: tuple[Expr, ...], value: Expr) -> None:
        """A vector of results, or what is made of them."""
        if self.finish is None:
            ib.emit(self.out.buffer.vstore(index, value))
            return
        held = ib.allocate(self.dtype, (self.lanes,), name="held", scope="local")
        ib.emit(held.buffer.vstore((0,), value))
        with ib.for_range(0, self.lanes, name="lane", kind="vectorize") as lane:
            place = (*index[:-1], index[-1] + lane)
            self.out[place] = self.finish(place, held[lane])

    def _corner(self, tile: Expr) -> tuple[Expr, Expr]:
        """Where a tile of results begins."""
        return tile // self.across * self.m, tile % self.across * self.m

    def _transform(self, matrix: Matrix) -> Transform:
        return Transform(linear_steps(matrix), self.size, self.dtype, self.lanes)

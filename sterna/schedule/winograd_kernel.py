"""The statements of a convolution by Winograd's way.

A block of tiles is transformed to (group, chunk, position, tile, channel): a group is the tiles
whose products are in registers together, a chunk the channels of one line of the cache, so that
what is written and read together lies together. For each block of output channels every position is
a product of matrices, and the results' transform ends it.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import INT32, Broadcast, Call, Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import Plan
from sterna.schedule.linear_steps import Matrix, linear_steps
from sterna.schedule.register_tile import TileSpace
from sterna.schedule.statement_kernel import StatementKernel
from sterna.schedule.winograd_plan import all_tiles, matrices, tiles_of
from sterna.schedule.winograd_transform import Transform
from sterna.te import all as all_of
from sterna.tir.ir_builder import BufferVar
from sterna.tir.passes.inject_prefetch import LINE_BYTES


@dataclass(frozen=True, slots=True)
class Block:
    """Some tiles of an image from one on, and room for their transforms."""

    image: Expr
    first: Expr
    count: Expr | int
    seen: BufferVar


Products = tuple[Expr, Expr]
"""The products of all tiles at a position with a block of output channels, by their numbers."""


def chunk_of(made: Contraction, lanes: int) -> int:
    """Input channels whose transforms lie together: those of a line of the cache."""
    return max(lanes, math.gcd(made.depth, LINE_BYTES // 4))


class WinogradKernel(StatementKernel):
    """The statements of one convolution."""

    def __init__(self, made: Contraction, plan: Plan, block: int) -> None:
        """block: output channels that lie together."""
        self.made, self.block, self.dtype = made, block, str(made.data)
        self.m, self.window = plan.integer("m"), made.window[0]
        self.size = self.m + self.window - 1
        self.lanes, self.together = plan.integer("lanes"), plan.integer("together")
        self.split, self.plain = plan.text("split"), plan.integer("products")
        (self.height, self.width), self.inputs = made.result, made.inputs
        self.of_group = made.outputs // block // made.groups
        self.dilation = made.dilation
        self.down, self.across = tiles_of(made, self.m)
        self.chunk, self.tiles = chunk_of(made, self.lanes), all_tiles(made, self.m)
        self.each = min(plan.integer("tiles"), self.tiles)
        self.blocks = -(-self.tiles // self.each)
        self.rows = TileSpace(
            self.each, made.outputs, self.lanes, plan.integer("registers"), block,
            together=self.together,
        ).choose().rows
        self.groups = -(-self.each // self.rows)

    def describe(self) -> str:
        return (
            f"Winograd F({self.m}, {self.window})"
            f"{' of interleaved images' if self.dilation != (1, 1) else ''}, "
            f"{self.blocks} blocks of {self.each} tiles, "
            f"threads share {self.split}, "
            f"{self.rows} tiles x {self.block} channels in registers, weights "
            f"{self.size**2 * self.made.depth / self.plain:.1f} times as large"
        )

    def write(self) -> None:
        """All blocks of tiles, shared by threads or each by all of them."""
        one = self._by_positions if self.split == "positions" else self._by_channels
        kind = "parallel" if self.split == "blocks" else "serial"
        count = self.made.batch * self.blocks
        with self.ib.for_range(0, count, name="block", kind=kind) as number:
            image, first = number // self.blocks, number % self.blocks * self.each
            whole = self.tiles % self.each == 0
            some = self.each if whole else build.minimum(self.each, self.tiles - first)
            shape = (self.groups, self.inputs // self.chunk, self.size**2, self.rows, self.chunk)
            seen = self.ib.allocate(self.dtype, shape, name="seen")
            one(Block(image, first, some, seen))

    def _by_channels(self, block: Block) -> None:
        """Block by block of channels, which threads share unless they share blocks of tiles."""
        ib, kind = self.ib, "serial" if self.split == "blocks" else "parallel"
        self._transform_data(block, kind)
        blocks = self.made.outputs // self.block
        with ib.for_range(0, blocks, name="channels", kind=kind) as channels:
            made = self._room_for_products(1)
            with ib.for_range(0, self.size**2, name="position") as position:
                following = (build.minimum(position + 1, self.size**2 - 1), channels)
                self._multiply(block, made, (position, channels), following)
            with ib.for_range(0, block.count, name="tile") as tile:
                self._transform_result(block, made, tile, channels)

    def _by_positions(self, block: Block) -> None:
        """Every thread multiplies some positions of all tiles."""
        ib, blocks = self.ib, self.made.outputs // self.block
        made = self._room_for_products(blocks)
        self._transform_data(block, "parallel")
        parts = self.size**2 * blocks
        with ib.for_range(0, parts, name="part", kind="parallel") as part:
            later = build.minimum(part + 1, parts - 1)
            own, following = ((n // blocks, n % blocks) for n in (part, later))
            self._multiply(block, made, own, following)
        with ib.for_range(0, blocks * block.count, name="part", kind="parallel") as part:
            self._transform_result(block, made, part % block.count, part // block.count)

    def _room_for_products(self, blocks: int) -> BufferVar:
        shape = (blocks, self.groups, self.size**2, self.rows, self.block)
        return self.ib.allocate(self.dtype, shape, name="made")

    def _transform_data(self, block: Block, kind: str) -> None:
        """All tiles of a block, chunk by chunk."""
        ib, before = self.ib, self.made.before
        transform = self._transform(matrices(self.m, self.window).data)
        parts = self.inputs // self.chunk * block.count
        with (
            ib.for_range(0, parts, name="part", kind=kind) as part,
            ib.for_range(0, self.chunk // self.lanes, name="vector") as vector,
        ):
            chunk, place = part // block.count, part % block.count
            top, left = self._corner(block.first + place)
            top, left = top - before[0], left - before[1]
            below, beside = self.dilation
            channel = chunk * self.chunk + vector * self.lanes

            def load(row: Expr | int, column: Expr) -> tuple[None, Expr]:
                index = (block.image, top + row * below, left + column * beside, channel)
                return None, self.data.vload(index, self.lanes)

            def load_if_inside(row: Expr | int, column: Expr) -> tuple[Expr, Expr]:
                within = self._within(top + row * below, left + column * beside, 1)
                return all_of(*within), load(row, column)[1]

            def store(row: Expr, values: Sequence[Expr]) -> None:
                for column, value in enumerate(values):
                    block.seen[
                        place // self.rows, chunk, row * self.size + column, place % self.rows,
                        vector * self.lanes,
                    ] = value

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
        reach, (below, beside) = self.window - 1, self.dilation
        whole = ((self.down * self.m + reach) * below, (self.across * self.m + reach) * beside)
        return self.made.before != (0, 0) or self.made.image != whole

    def _within(self, top: Expr, left: Expr, extent: int) -> list[Expr]:
        """That a square with a corner lies in the data."""
        height, width = (
            size - (extent - 1) * dilation - 1
            for size, dilation in zip(self.made.image, self.dilation, strict=True)
        )
        return [top >= 0, top <= height, left >= 0, left <= width]

    def _multiply(self, block: Block, made: BufferVar, own: Products, following: Products) -> None:
        """The products of a block; those that follow have their weights come closer meanwhile."""
        whole, rest = divmod(self.each, self.rows)
        lines = range(0, self.block, LINE_BYTES // self.weight.dtype.bytes)
        each = -(-len(lines) // max(1, whole))

        def ahead(step: Expr) -> list[tuple[Expr, ...]]:
            """The lines of every channel that one of the whole groups fetches."""
            numbers = [build.minimum(step * each + n, len(lines) - 1) for n in range(each)]
            return [(*following, number * lines.step) for number in numbers]

        with self.ib.for_range(0, whole, name="group") as group:
            self._group(block, made, own, group, self.rows, ahead(group))
        if rest:
            fetched = [] if whole else ahead(build.const(0))
            self._group(block, made, own, build.const(whole), rest, fetched)

    def _group(
        self, block: Block, made: BufferVar, own: Products, group: Expr, rows: int,
        ahead: Sequence[tuple[Expr, ...]],
    ) -> None:
        """Some tiles and a block of channels in registers, over all input channels."""
        ib, (position, channels) = self.ib, own
        chunks = self.made.depth // self.chunk
        first = channels // self.of_group * chunks if self.made.groups > 1 else 0
        with ib.new_scope():
            total = ib.allocate(self.dtype, (rows, self.block), name="total", scope="local")
            zero = Broadcast(build.const(0.0, self.dtype), self.block)
            with ib.for_range(0, rows, name="row", kind="unroll") as row:
                total[row, 0] = zero
            with (
                ib.for_range(0, chunks, name="chunk") as chunk,
                ib.for_range(0, self.chunk // self.together, name="lane") as lane,
            ):
                at = (group, first + chunk, position)
                number = self._numbers(block, at, lane * self.together, rows)
                for step in range(self.together):
                    channel = chunk * self.chunk + lane * self.together + step
                    if step % self._channels_of_a_line == 0:
                        self._fetch(ahead, channel)
                    read = self.weight.vload((position, channels, channel, 0), self.block)
                    with ib.for_range(0, rows, name="row", kind="unroll") as row:
                        product = Broadcast(number(row, step), self.block) * read
                        total[row, 0] = total.vload((row, 0), self.block) + product
            with ib.for_range(0, rows, name="row", kind="unroll") as row:
                index = (self._kept(channels), group, position, row, 0)
                made[index] = total.vload((row, 0), self.block)

    @property
    def _channels_of_a_line(self) -> int:
        """Input channels whose weights of a block lie in one line of the cache."""
        return max(1, LINE_BYTES // (self.block * self.weight.dtype.bytes))

    def _fetch(self, ahead: Sequence[tuple[Expr, ...]], channel: Expr) -> None:
        for *block, line in ahead:
            self.ib.emit(Call(INT32, "prefetch", (self.weight[(*block, channel, line)],)))

    def _numbers(
        self, block: Block, at: tuple[Expr, ...], lane: Expr, rows: int
    ) -> Callable[[Expr, int], Expr]:
        """What the rows of a step are multiplied by; those of several steps are loaded at once."""
        if self.together == 1:
            return lambda row, step: block.seen[(*at, row, lane)]
        held = self.ib.allocate(self.dtype, (rows, self.together), name="held", scope="local")
        with self.ib.for_range(0, rows, name="row", kind="unroll") as row:
            held[row, 0] = block.seen.vload((*at, row, lane), self.together)
        return lambda row, step: held[row, step]

    def _kept(self, channels: Expr) -> Expr:
        """Which block of products is that of some channels: there is one for all, or for each."""
        return channels if self.split == "positions" else build.const(0)

    def _transform_result(self, block: Block, made: BufferVar, place: Expr, channels: Expr) -> None:
        """One tile and one block of channels."""
        ib, (top, left) = self.ib, self._corner(block.first + place)
        transform = self._transform(matrices(self.m, self.window).result)
        with ib.for_range(0, self.block // self.lanes, name="vector") as vector:
            channel = vector * self.lanes

            def load(row: Expr | int, column: Expr) -> tuple[None, Expr]:
                index = (
                    self._kept(channels), place // self.rows, row * self.size + column,
                    place % self.rows, channel,
                )
                return None, made.vload(index, self.lanes)

            def store(row: Expr, values: Sequence[Expr]) -> None:
                below, beside = self.dilation
                for column, value in enumerate(values):
                    at = (block.image, top + row * below, left + column * beside)
                    inside: list[Expr] = []
                    if self.height % (self.m * below):
                        inside.append(at[1] < self.height)
                    if self.width % (self.m * beside) > 0 and self._may_end(column):
                        inside.append(at[2] < self.width)
                    with ib.if_scope(all_of(*inside)) if inside else nullcontext():
                        self._store(at, channels * self.block + channel, value)

            half = transform.between(ib)
            transform.columns(ib, half, load)
            transform.rows(ib, half, store)

    def _may_end(self, column: int) -> bool:
        """Whether a column of the last tile of a line may lie behind the last pixel."""
        return column >= self.width // self.dilation[1] % self.m

    def _store(self, at: Sequence[Expr], channel: Expr, value: Expr) -> None:
        """A vector of results, or what is made of them."""
        if self.finish is None:
            self.out[(*at, channel)] = value
            return
        held = self.ib.allocate(self.dtype, (self.lanes,), name="held", scope="local")
        held[0] = value
        self.store_channels(at, channel, self.lanes, held.__getitem__)

    def _corner(self, tile: Expr) -> tuple[Expr, Expr]:
        """Where a tile of results begins: of an interleaved image its own rows and columns."""
        if self.dilation == (1, 1):
            return tile // self.across * self.m, tile % self.across * self.m
        below, beside = self.dilation
        own, each = tile % (self.down * self.across), tile // (self.down * self.across)
        top, left = own // self.across * self.m, own % self.across * self.m
        return top * below + each // beside, left * beside + each % beside

    def _transform(self, matrix: Matrix) -> Transform:
        return Transform(linear_steps(matrix), self.size, self.dtype, self.lanes)

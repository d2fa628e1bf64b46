"""Products whose data is float32 in memory and rounded to 16 bits on the way to Tensor Cores.

Rows come into the ring as they are. Each thread loads the numbers that it multiplies, rounds them
in pairs and has them multiplied out of its registers; the words of two blocks take turns, so that
the next ones are made while products are under way. Few rows, whose data is the columns of a turned
product, are rounded by warps beside the one that loads, from one part of a stage into another;
each of these takes every fourth block.
"""

from collections.abc import Callable
from functools import partial

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.operand import ROW_BYTES, Place
from sterna.schedule.gpu.persistent_kernel import PersistentKernel
from sterna.schedule.gpu.ring import GROUP, WARP
from sterna.schedule.gpu.turned_kernel import TurnedKernel
from sterna.schedule.gpu.warpgroup_kernel import STEPS, Turn, WarpgroupKernel, adds_to
from sterna.tir.ir_builder import BufferVar
from sterna.tir.register_products import keep_words, load_pair, settle, wgmma_registers
from sterna.tir.warpgroups import (
    async_fence,
    load_quad,
    mbarrier_arrive,
    mbarrier_expect,
    mbarrier_init,
    mbarrier_wait,
    pack_pair,
    warp_sync,
    wgmma_commit,
    wgmma_fence,
    wgmma_wait,
)

EIGHTS = 4
"""Groups of eight floats in a row of a box: one product takes two of them."""
WORDS = 16
"""What a thread multiplies of a block, two numbers each."""
WARPS_OF_GROUP = GROUP // WARP


class RoundedKernel(WarpgroupKernel):
    """A product of rows of float32."""

    @property
    def arrivals(self) -> int:
        """Each warp: it has loaded its own rows."""
        return self.ring.consumers * WARPS_OF_GROUP

    def _multiply_all(self, sums: BufferVar, warp: Expr, place: Turn, again: bool) -> None:
        """Two blocks at a time, each with words of its own."""
        words = self.ib.allocate("uint32", (2 * WORDS,), name="words", scope="local")
        rows = _Rows(self, warp, words, place)
        rows.load(0)
        self._in_pairs(partial(self._multiply_block, sums, rows, place))

    def _in_pairs(self, multiply: Callable[[Expr, int, bool], None]) -> None:
        """Multiply all blocks: each by its number, the half of the registers, and if it is last."""
        pairs = (self.blocks - 1) // 2
        with self._rolled(pairs, "pair") as pair:
            for half in range(2):
                multiply(pair * 2 + half, half, False)
        for half, block in enumerate(range(pairs * 2, self.blocks)):
            multiply(build.const(block), half, block == self.blocks - 1)

    def _multiply_block(
        self, sums: BufferVar, rows: "_Rows", place: Turn, block: Expr, half: int, is_last: bool
    ) -> None:
        """Begin the products of a block, make words of the next one and wait for the products."""
        ib, product = self.ib, self.product
        ib.emit(wgmma_fence())
        for step in range(STEPS):
            ib.emit(wgmma_registers(
                product.a.kind, self.ring.columns, sums[0], rows.words[half * WORDS + 4 * step],
                self._columns(place.stage, step), adds_to(block, step), product.b.along_rows,
            ))
        ib.emit(wgmma_commit())
        if not is_last:
            rows.load(1 - half)
        ib.emit(wgmma_wait(0))
        with ib.if_scope((self.thread % WARP).equal(0)):
            ib.emit(mbarrier_arrive(self.free + place.stage * 8))
        place.advance()


class RoundedPersistentKernel(RoundedKernel, PersistentKernel):
    """A large product of rows of float32."""

    def _free_last(self, place: Turn) -> None:
        """It is free already."""


class _Rows:
    """The rows of a thread in shared memory: lane / 4 of the warp's 16, and eight further down.

    A thread multiplies pairs of floats that are eight apart. The chunks of eight rows are in an
    order of their own each; so that a load meets every bank once, lanes of odd rows begin in the
    other half of their row, and what they load is exchanged afterwards.
    """

    def __init__(
        self, kernel: WarpgroupKernel, warp: Expr, words: BufferVar, place: Turn
    ) -> None:
        self.kernel, self.words, ib = kernel, words, kernel.ib
        self.ahead = Turn(kernel, "ahead")
        self.ahead.state[0], self.ahead.state[1] = place.stage, place.phase
        lane = ib.let("lane", kernel.thread % WARP)
        row, pair = lane // 4, lane % 4
        self.is_odd = ib.let("is_odd", row % 2)
        first = ((pair // 2) ^ row) * 16 ^ self.is_odd * 64
        own = kernel.base + (warp * 16 + row) * ROW_BYTES + pair % 2 * 8
        self.places = [
            ib.let(f"eight{number}", own + (first ^ (number * 32))) for number in range(EIGHTS)
        ]

    def load(self, half: int) -> None:
        """Make one half of the words of the next block, four for each product."""
        ib, kernel, place = self.kernel.ib, self.kernel, self.ahead
        ib.emit(mbarrier_wait(kernel.full + place.stage * 8, place.phase))
        with ib.new_scope():
            behind = ib.let("behind", place.stage * kernel.ring.stage_bytes)
            pair = ib.allocate("float32", (2 * WORDS,), name="pair", scope="local")
            for number in range(WORDS):
                box, eight, lower = _parts(number)
                at = self.places[eight] + behind
                down = box * kernel.ring.rows * ROW_BYTES + lower * 8 * ROW_BYTES
                ib.emit(load_pair(pair[2 * number], at + down))
            made = [
                ib.let("word", pack_pair(kernel.product.a.kind, pair[2 * n], pair[2 * n + 1]))
                for n in range(WORDS)
            ]
            for number in range(WORDS):
                other = number ^ 4  # two groups of eight further
                self.words[half * WORDS + number] = build.select(
                    self.is_odd.equal(0), made[number], made[other]
                )
        ib.emit(settle(self.words[half * WORDS], WORDS))
        place.advance()


def _parts(number: int) -> tuple[int, int, int]:
    """The box, the group of eight floats in it and the half of the rows that a word is of."""
    step, within = number // 4, number % 4
    return step // 2, step % 2 * 2 + within // 2, within % 2


class RoundedTurnedKernel(TurnedKernel):
    """A product of few rows of float32, which are its columns."""

    def _begin_stage(self, stage: int) -> None:
        ib = self.ib
        ib.emit(mbarrier_init(self.full + 8 * stage, 2))  # who loads, and who rounds
        ib.emit(mbarrier_init(self.wide_full + 8 * stage, 1))
        ib.emit(mbarrier_init(self.free + 8 * stage, self.arrivals))

    def _expect(self, stage: Expr) -> None:
        ib, ring = self.ib, self.ring
        ib.emit(mbarrier_expect(self.full + stage * 8, ring.row_bytes))
        ib.emit(mbarrier_expect(self.wide_full + stage * 8, ring.wide_column_bytes))

    def _column_loads(self, stage: Expr, to: Expr, at: Place) -> list[Expr]:
        ring, barrier = self.ring, self.wide_full + stage * 8
        to = to + ring.columns * ROW_BYTES
        return self.product.b.loads(self.maps[1], to, barrier, ring.columns, at)

    def _assist(self, warp: Expr) -> None:
        """Four warps round what has come, 16 bytes of the result for a thread at a time."""
        ib, ring = self.ib, self.ring
        loader = ring.consumers * WARPS_OF_GROUP
        with ib.if_scope(warp > loader), ib.new_scope():
            first = ib.let("first_block", warp - (loader + 1))
            place = Turn(self, "rounded")
            place.state[0] = first % ring.stages
            place.state[1] = first // ring.stages
            turns = -(-self.blocks // WARPS_OF_GROUP)
            with self._rolled(turns, "turn") as turn:
                with ib.if_scope(turn * WARPS_OF_GROUP + first < self.blocks):
                    self._round_block(place)
                for _ in range(WARPS_OF_GROUP):
                    place.advance()

    def _round_block(self, place: Turn) -> None:
        ib, ring = self.ib, self.ring
        ib.emit(mbarrier_wait(self.wide_full + place.stage * 8, place.phase))
        with ib.new_scope():
            lane = ib.let("lane", self.thread % WARP)
            start = self.base + place.stage * ring.stage_bytes + ring.row_bytes
            rounded = ib.let("columns", start)
            for turn in range(ROW_BYTES // 16 * ring.columns // WARP):
                self._round_chunk(rounded, lane + turn * WARP)
        ib.emit(async_fence())
        ib.emit(warp_sync())
        with ib.if_scope((self.thread % WARP).equal(0)):
            ib.emit(mbarrier_arrive(self.full + place.stage * 8))

    def _round_chunk(self, rounded: Expr, number: Expr) -> None:
        """Eight numbers of a column; neighbouring threads have neighbouring columns."""
        ib, columns = self.ib, self.ring.columns
        column, chunk = number % columns, number // columns
        within = column % 8
        wide = rounded + columns * ROW_BYTES + chunk // EIGHTS * (columns * ROW_BYTES)
        with ib.new_scope():
            floats = ib.allocate("float32", (8,), name="floats", scope="local")
            for part in range(2):
                at = (chunk % EIGHTS * 2 + part) ^ within
                ib.emit(load_quad(floats[4 * part], wide + column * ROW_BYTES + at * 16))
            words = [
                pack_pair(self.product.b.kind, floats[2 * n], floats[2 * n + 1]) for n in range(4)
            ]
            to = rounded + column * ROW_BYTES + (chunk ^ within) * 16
            ib.emit(keep_words(to, words))

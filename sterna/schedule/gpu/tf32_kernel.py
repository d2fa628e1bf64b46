"""Products of float32 by Tensor Cores, each as three products of tf32.

Tensor Cores read ten bits of a number's fraction. What they do not read is a number of its own,
the *rest*, of which they read ten bits more: a * b is nearly a * b + rest(a) * b + a * rest(b). A
kernel before this one writes the rests of the columns' operand, which come into the ring beside it.
Threads load the numbers of their rows and take them apart in registers, out of which they are
multiplied; the words of two blocks take turns, so that the next are made while products are under
way.
"""

from functools import partial

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.operand import ROW_BYTES, Place
from sterna.schedule.gpu.persistent_kernel import PersistentKernel
from sterna.schedule.gpu.ring import WARP
from sterna.schedule.gpu.rounded_kernel import RoundedKernel
from sterna.schedule.gpu.warpgroup_kernel import STEPS, Turn, WarpgroupKernel, adds_to
from sterna.te import Tensor, compute
from sterna.tir.external import reinterpret
from sterna.tir.ir_builder import BufferVar
from sterna.tir.register_products import load_float, settle, wgmma_registers
from sterna.tir.warpgroups import (
    mbarrier_arrive,
    mbarrier_wait,
    tensor_map,
    wgmma_commit,
    wgmma_fence,
    wgmma_wait,
)

NUMBERS = 16
"""What a thread multiplies of a block: two rows, and eight numbers of each."""
READ_BITS = 0xFFFFE000
"""The bits of a float32 that Tensor Cores read."""


def read_part(value: Expr) -> Expr:
    """The part of a number that Tensor Cores read."""
    return reinterpret("float32", reinterpret("uint32", value) & build.const(READ_BITS, "uint32"))


def rests_of(operand: Tensor) -> Tensor:
    """What Tensor Cores do not read of an array's numbers."""
    made: Tensor = compute(
        operand.shape, lambda *at: operand(*at) - read_part(operand(*at)), name="T_rests"
    )
    return made


class ThriceKernel(RoundedKernel):
    """A product of float32 whose columns' operand has its rests beside it."""

    def describe(self) -> str:
        return f"wgmma, three products of tf32, a tile of {self.ring} a block"

    def _column_loads(self, stage: Expr, to: Expr, at: Place) -> list[Expr]:
        columns, barrier = self.ring.columns, self.full + stage * 8
        rests = tensor_map(self.beside[0][0], self.product.b.map_line(columns))
        behind = to + columns * ROW_BYTES
        return [
            *super()._column_loads(stage, to, at),
            *self.product.b.loads(rests, behind, barrier, columns, at),
        ]

    def _multiply_all(self, sums: BufferVar, warp: Expr, place: Turn, again: bool) -> None:
        rows = _Rows(self, warp, place)
        rows.load(0)
        self._in_pairs(partial(self._multiply_thrice, sums, rows, place))

    def _multiply_thrice(
        self, sums: BufferVar, rows: "_Rows", place: Turn, block: Expr, half: int, is_last: bool
    ) -> None:
        """Begin the products of a block, take the next one apart and wait for the products."""
        ib, ring = self.ib, self.ring
        ib.emit(wgmma_fence())
        for step in range(STEPS):
            whole = self._columns(place.stage, step)
            rest = whole + ring.columns * ROW_BYTES // 16
            # The smallest first.
            factors = ((rows.rests, whole), (rows.numbers, rest), (rows.numbers, whole))
            for number, (words, columns) in enumerate(factors):
                ib.emit(wgmma_registers(
                    self.product.a.kind, ring.columns, sums[0], words[half * NUMBERS + 4 * step],
                    columns, adds_to(block, step + number), False,
                ))
        ib.emit(wgmma_commit())
        if not is_last:
            rows.load(1 - half)
        ib.emit(wgmma_wait(0))
        with ib.if_scope((self.thread % WARP).equal(0)):
            ib.emit(mbarrier_arrive(self.free + place.stage * 8))
        place.advance()


class ThricePersistentKernel(ThriceKernel, PersistentKernel):
    """A large one, by blocks that stay."""

    def _free_last(self, place: Turn) -> None:
        """It is free already."""


class _Rows:
    """The rows of a thread: lane / 4 of the warp's 16, and eight further down.

    Of each eight numbers of a sum it has two that are four apart, lane % 4 and the other.
    """

    def __init__(self, kernel: WarpgroupKernel, warp: Expr, place: Turn) -> None:
        self.kernel, ib = kernel, kernel.ib
        self.numbers = ib.allocate("uint32", (2 * NUMBERS,), name="numbers", scope="local")
        self.rests = ib.allocate("uint32", (2 * NUMBERS,), name="rests", scope="local")
        self.ahead = Turn(kernel, "ahead")
        self.ahead.state[0], self.ahead.state[1] = place.stage, place.phase
        lane = ib.let("lane", kernel.thread % WARP)
        row = lane // 4
        self.first = ib.let(
            "first", kernel.base + (warp * 16 + row) * ROW_BYTES + row * 16 + lane % 4 * 4
        )

    def load(self, half: int) -> None:
        """Take the numbers of the next block apart."""
        ib, kernel, place = self.kernel.ib, self.kernel, self.ahead
        ib.emit(mbarrier_wait(kernel.full + place.stage * 8, place.phase))
        with ib.new_scope():
            start = ib.let("start", self.first + place.stage * kernel.ring.stage_bytes)
            loaded = ib.allocate("float32", (NUMBERS,), name="loaded", scope="local")
            for number in range(NUMBERS):
                chunk, lower = number // 2, number % 2
                at = (start ^ (chunk * 16)) + lower * 8 * ROW_BYTES
                ib.emit(load_float(loaded[number], at))
            for number in range(NUMBERS):
                value, word = loaded[number], half * NUMBERS + number
                read = ib.let("read", read_part(value))
                self.numbers[word] = reinterpret("uint32", read)
                self.rests[word] = reinterpret("uint32", value - read)
        for words in (self.numbers, self.rests):
            ib.emit(settle(words[half * NUMBERS], NUMBERS))
        place.advance()

"""Products of matrices of float32 by the lanes of warps, each number multiplied as it is.

The ring of stages is that of warpgroup_kernel.py. A thread holds the sums of up to eight rows and
eight columns; four steps of a sum at a time come from shared memory by loads of 16 bytes, which the
order of chunks there keeps free of conflicts. A warp is four lanes high and eight wide.
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.operand import ROW_BYTES
from sterna.schedule.gpu.results import Results
from sterna.schedule.gpu.ring import GROUP, WARP, Product, Ring
from sterna.schedule.gpu.warpgroup_kernel import Turn, WarpgroupKernel
from sterna.support.dtype import DataType
from sterna.tir.ir_builder import BufferVar
from sterna.tir.warpgroups import (
    load_quad,
    mbarrier_arrive,
    mbarrier_wait,
    multiply_quads,
    warp_sync,
)

HIGH, WIDE = 4, 8
"""The lanes of a warp."""
OWN_COLUMNS = 8
"""Columns of a thread."""
QUAD = 4
"""Numbers of 4 bytes that one load brings."""
# Beyond so many sums a thread has no registers for what the epilogue reads.
MOST_SUMS_BESIDE = 32


class LaneKernel(WarpgroupKernel):
    """The statements of a product of float32."""

    def __init__(
        self, product: Product, ring: Ring, kind: DataType, outer: Sequence[int], *,
        dependent: bool = False,
    ) -> None:
        super().__init__(product, ring, kind, outer, dependent=dependent)
        self.warps = ring.consumers * GROUP // WARP
        self.across = ring.columns // (WIDE * OWN_COLUMNS)
        """Warps side by side."""
        self.own_rows = ring.rows * self.across // (self.warps * HIGH)

    def describe(self) -> str:
        own = f"{self.own_rows} x {OWN_COLUMNS}"
        return f"a tile of {self.ring} a block, {own} a thread"

    @property
    def sums_of_a_thread(self) -> int:
        return self.own_rows * OWN_COLUMNS

    @property
    def arrivals(self) -> int:
        return self.warps

    def _consume(self, sums: BufferVar, warp: Expr) -> None:
        ib, ring = self.ib, self.ring
        own = sums
        if ring.split > 1:
            size = self.sums_of_a_thread // ring.split
            own = ib.allocate("float32", (size,), name="own", scope="local")
        results = LaneResults(self, own, warp)
        results.load_reads()
        for number in range(self.sums_of_a_thread):
            sums[number] = build.const(0.0, "float32")
        place = Turn(self, "emptied")
        with self._rolled(self.blocks, "block") as block:
            ib.emit(mbarrier_wait(self.full + place.stage * 8, place.phase))
            self._multiply_block(sums, place.stage, results)
            if self.blocks > ring.stages:
                ib.emit(warp_sync())
                with ib.if_scope((self.thread % WARP).equal(0)):
                    ib.emit(mbarrier_arrive(self.free + place.stage * 8))
            place.advance()
            del block
        if ring.split > 1:
            results.exchange(sums)
        results.store()

    def _multiply_block(self, sums: BufferVar, stage: Expr, results: "LaneResults") -> None:
        """The steps of a block, four at a time."""
        ib, ring, own = self.ib, self.ring, self.own_rows
        start = self.base + stage * ring.stage_bytes
        up, along = results.up, results.along
        # Rows four apart are in the other half of their eight, whose chunks are in another order.
        firsts = [
            ib.let(f"a{half}", start + (results.top + up + half * HIGH) * ROW_BYTES
                   + (up + half * HIGH) * 16)
            for half in range(2)
        ]
        behind = start + ring.rows * ROW_BYTES
        columns = ROW_BYTES // QUAD
        by_rows = self.product.b.along_rows
        if by_rows:
            begin = behind + results.left // columns * (columns * ROW_BYTES) + along * 16
        else:
            begin = behind + (results.left + along) * ROW_BYTES + along * 16
        begin = ib.let("b0", begin)
        with self._rolled(columns // QUAD, "step") as step, ib.new_scope():
            a = ib.allocate("float32", (own * QUAD,), name="a", scope="local")
            b = ib.allocate("float32", (OWN_COLUMNS * QUAD,), name="b", scope="local")
            for row in range(own):
                half, pair = row % 2, row // 2
                at = (firsts[half] ^ (step * 16)) + pair * 2 * HIGH * ROW_BYTES
                ib.emit(load_quad(a[row * QUAD], at))
            if by_rows:
                for number in range(QUAD):
                    k = step * QUAD + number
                    at = (begin ^ (k % 8 * 16)) + k * ROW_BYTES
                    for part in range(OWN_COLUMNS // QUAD):
                        first = b[number * OWN_COLUMNS + part * QUAD]
                        ib.emit(load_quad(first, at + part * columns * ROW_BYTES))
            else:
                at = begin ^ (step * 16)
                for column in range(OWN_COLUMNS):
                    ib.emit(load_quad(b[column * QUAD], at + column * WIDE * ROW_BYTES))
            ib.emit(multiply_quads(sums[0], a[0], b[0], own, OWN_COLUMNS, by_rows))


class LaneResults(Results):
    """What becomes of the sums of a thread: those of a column lie together."""

    kernel: LaneKernel
    most_beside = MOST_SUMS_BESIDE

    def __init__(self, kernel: LaneKernel, sums: BufferVar, warp: Expr) -> None:
        super().__init__(kernel, sums, warp)
        ib, across = self.ib, kernel.across
        self.up = ib.let("up", self.lane // WIDE)
        self.along = ib.let("along", self.lane % WIDE)
        self.top = ib.let("top", warp // across * (HIGH * kernel.own_rows))
        self.left = ib.let("left", warp % across * (WIDE * OWN_COLUMNS))

    @property
    def count(self) -> int:
        return self.kernel.sums_of_a_thread // self.ring.split

    def place(self, number: int) -> tuple[Expr, Expr]:
        """The row and the column of a sum."""
        kernel = self.kernel
        which: Expr = build.const(number // kernel.own_rows)
        if self.ring.split > 1:
            which = which + kernel.rank * (OWN_COLUMNS // self.ring.split)
        row = kernel.row + self.top + self.up + number % kernel.own_rows * HIGH
        column = kernel.column + self.left
        if kernel.product.b.along_rows:
            columns = ROW_BYTES // QUAD
            column = column + self.along * QUAD + which // QUAD * columns + which % QUAD
        else:
            column = column + self.along + which * WIDE
        return row, column

    def store(self) -> None:
        self._store_pairs(at_once=False)

"""Products of matrices of float32 by the lanes of warps, each number multiplied as it is.

The ring of stages is that of warpgroup_kernel.py. A thread holds the sums of up to eight rows and
eight columns; four steps of a sum at a time come from shared memory by loads of 16 bytes, which the
order of chunks there keeps free of conflicts. While four steps are multiplied, the next four are
loaded into registers of their own. A warp is four lanes high and eight wide. Neighbouring lanes
have the same columns, and every second lane the same rows: then a load of each kind takes shared
memory two turns, not four.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.operand import ROW_BYTES
from sterna.schedule.gpu.results import Results
from sterna.schedule.gpu.ring import GROUP, WARP, Product, Ring
from sterna.schedule.gpu.warpgroup_kernel import Turn, WarpgroupKernel
from sterna.support.dtype import DataType
from sterna.tir.ir_builder import BufferVar
from sterna.tir.threads import ROLLED
from sterna.tir.warpgroups import (
    load_quad,
    mbarrier_arrive,
    mbarrier_wait,
    multiply_quads,
    warp_sync,
)

HIGH, WIDE = 4, 8
"""The lanes of a warp."""
MOST_COLUMNS = 8
"""Columns of a thread."""
QUAD = 4
"""Numbers of 4 bytes that one load brings."""
STEPS = CHUNKS = ROW_BYTES // 16
"""Of a block: the quads of a row in shared memory, whose order changes from row to row."""
# Beyond so many sums a thread has no registers for what the epilogue reads, unless that is little:
# so many numbers together.
MOST_SUMS_BESIDE, MOST_HELD = 32, 64


@dataclass(frozen=True, slots=True)
class Lanes:
    """How the sums of a tile are shared out among threads."""

    across: int
    """Warps side by side."""
    rows: int
    """Of a thread."""
    columns: int

    @staticmethod
    def of(ring: Ring) -> "Lanes":
        """Those of a tile."""
        lanes = ring.consumers * GROUP // WARP * HIGH
        across = -(-ring.columns // (WIDE * MOST_COLUMNS))
        while ring.rows * across % lanes:  # fewer warps are above each other
            across *= 2
        return Lanes(across, ring.rows * across // lanes, ring.columns // (WIDE * across))

    @property
    def sums(self) -> int:
        """Of a thread."""
        return self.rows * self.columns

    def suits(self, product: Product) -> bool:
        """Whether columns that lie side by side are whole loads."""
        return not (product.b.along_rows and self.columns % QUAD)


class LaneKernel(WarpgroupKernel):
    """The statements of a product of float32."""

    def __init__(
        self, product: Product, ring: Ring, kind: DataType, outer: Sequence[int], *,
        dependent: bool = False,
    ) -> None:
        super().__init__(product, ring, kind, outer, dependent=dependent)
        self.lanes = Lanes.of(ring)

    def describe(self) -> str:
        own = f"{self.lanes.rows} x {self.lanes.columns}"
        return f"a tile of {self.ring} a block, {own} a thread"

    @property
    def sums_of_a_thread(self) -> int:
        """As many as parts of whole quads take: what is behind the last is 0."""
        part = QUAD * self.ring.split if self.ring.split > 1 else 1
        return -(-self.lanes.sums // part) * part

    @property
    def arrivals(self) -> int:
        return self.ring.consumers * GROUP // WARP

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
        with ib.new_scope():
            if self.blocks == 1:
                self._multiply_steps(sums, results)
            else:
                self._multiply_blocks(sums, results)
        if ring.split > 1:
            results.exchange(sums)
        results.store()

    def _multiply_steps(self, sums: BufferVar, results: "LaneResults") -> None:
        """The only block, two steps at a time.

        Were all steps written out, products would be moved behind all loads, to where their sums
        are stored; no thread has registers for so many numbers.
        """
        ib, stage = self.ib, build.const(0)
        even, odd = (_Quads(self, results, name) for name in ("even", "odd"))
        ib.emit(mbarrier_wait(self.full, stage))
        even.load(stage, 0)
        pairs = -(-min(self.product.depth, STEPS * QUAD) // (2 * QUAD))
        with ib.for_range(0, pairs, name="pair", annotations={ROLLED: 1}) as pair:
            odd.load(stage, pair * 2 + 1)
            even.multiply(sums)
            # What is loaded behind the last step is not multiplied.
            even.load(stage, pair * 2 + 2)
            odd.multiply(sums)

    def _multiply_blocks(self, sums: BufferVar, results: "LaneResults") -> None:
        """All blocks: each step is loaded while the one before is multiplied."""
        ib, place = self.ib, Turn(self, "emptied")
        held = [_Quads(self, results, name) for name in ("even", "odd")]
        ib.emit(mbarrier_wait(self.full + place.stage * 8, place.phase))
        held[0].load(place.stage, 0)
        with ib.for_range(0, self.blocks, name="block", annotations={ROLLED: 1}) as block:
            for step in range(STEPS - 1):
                held[(step + 1) % 2].load(place.stage, step + 1)
                held[step % 2].multiply(sums)
            place.advance()
            with ib.if_scope(block < self.blocks - 1):
                ib.emit(mbarrier_wait(self.full + place.stage * 8, place.phase))
            # What is loaded behind the last block is not multiplied.
            held[0].load(place.stage, 0)
            held[1].multiply(sums)
            if self.blocks > self.ring.stages:
                ib.emit(warp_sync())
                with ib.if_scope((self.thread % WARP).equal(0)):
                    ib.emit(mbarrier_arrive(self.free + self._before(place) * 8))


class _Quads:
    """Registers for four steps of a thread's rows and columns."""

    def __init__(self, kernel: LaneKernel, results: "LaneResults", name: str) -> None:
        self.kernel, self.results, ib = kernel, results, kernel.ib
        rows, columns = kernel.lanes.rows, kernel.lanes.columns
        self.a = ib.allocate("float32", (rows * QUAD,), name=f"{name}_a", scope="local")
        self.b = ib.allocate("float32", (columns * QUAD,), name=f"{name}_b", scope="local")

    def load(self, stage: Expr, step: int | Expr) -> None:
        """Four steps of a block in a stage."""
        kernel, results = self.kernel, self.results
        ib, ring = kernel.ib, kernel.ring
        start = kernel.base + stage * ring.stage_bytes
        # Rows four apart are in the other half of their eight, whose chunks are in another order.
        for row in range(kernel.lanes.rows):
            half, pair = row % 2, row // 2
            first = start + results.row_places[half]
            at = (first ^ (step * 16)) + pair * 2 * HIGH * ROW_BYTES
            ib.emit(load_quad(self.a[row * QUAD], at))
        begin = start + results.column_place
        if kernel.product.b.along_rows:
            self._load_beside(begin, step)
            return
        for column in range(kernel.lanes.columns):
            at = (begin ^ (step * 16)) + column * WIDE * ROW_BYTES
            ib.emit(load_quad(self.b[column * QUAD], at))

    def _load_beside(self, begin: Expr, step: int | Expr) -> None:
        """Columns that lie side by side, four at a time."""
        own = self.kernel.lanes.columns
        for number in range(QUAD):
            k = step * QUAD + number
            at = (begin ^ (k % 8 * 16)) + k * ROW_BYTES
            for part in range(own // QUAD):
                first = self.b[number * own + part * QUAD]
                self.kernel.ib.emit(load_quad(first, at + part * WIDE * QUAD * ROW_BYTES))

    def multiply(self, sums: BufferVar) -> None:
        """Add their products to the sums."""
        lanes, by_steps = self.kernel.lanes, self.kernel.product.b.along_rows
        self.kernel.ib.emit(
            multiply_quads(sums[0], self.a[0], self.b[0], lanes.rows, lanes.columns, by_steps)
        )


class LaneResults(Results):
    """What becomes of the sums of a thread: those of a column lie together."""

    kernel: LaneKernel
    most_beside = MOST_SUMS_BESIDE
    most_held = MOST_HELD

    def __init__(self, kernel: LaneKernel, sums: BufferVar, warp: Expr) -> None:
        super().__init__(kernel, sums, warp)
        ib, lanes, ring = self.ib, kernel.lanes, kernel.ring
        self.up = ib.let("up", self.lane % 2 + self.lane // 16 * 2)
        self.along = ib.let("along", self.lane // 2 % WIDE)
        self.top = ib.let("top", warp // lanes.across * (HIGH * lanes.rows))
        self.left = ib.let("left", warp % lanes.across * (WIDE * lanes.columns))
        rows = [self.up, self.up + HIGH]
        self.row_places = [
            ib.let("row_place", (self.top + row) * ROW_BYTES + (self.top + row) % CHUNKS * 16)
            for row in rows
        ]
        """Where the first two rows of a thread begin in a stage, in the order of their chunks."""
        first = self.left if kernel.product.b.along_rows else self.left + self.along
        self.column_place = ib.let(
            "column_place", (first + ring.rows) * ROW_BYTES + self.along * 16
        )
        """Where its first column, or four of them side by side, begin."""

    @property
    def count(self) -> int:
        return self.kernel.sums_of_a_thread // self.ring.split

    @property
    def has_whole_parts(self) -> bool:
        """Whether all parts of a thread's sums are whole quads."""
        return self.kernel.sums_of_a_thread == self.kernel.lanes.sums

    @property
    def is_whole(self) -> bool:
        return super().is_whole and self.has_whole_parts

    def place(self, number: int) -> tuple[Expr, Expr]:
        """The row and the column of a sum; the row behind the last where there is no sum."""
        kernel, lanes = self.kernel, self.kernel.lanes
        among: Expr = build.const(number)
        if self.ring.split > 1:
            among = among + kernel.rank * self.count
        which = among // lanes.rows
        row = kernel.row + self.top + self.up + among % lanes.rows * HIGH
        if not self.has_whole_parts:
            row = build.select(among < lanes.sums, row, build.const(self.product.rows))
        column = kernel.column + self.left
        if kernel.product.b.along_rows:
            beside = WIDE * QUAD
            column = column + self.along * QUAD + which // QUAD * beside + which % QUAD
        else:
            column = column + self.along + which * WIDE
        return row, column

    def store(self) -> None:
        self._store_pairs(at_once=False)

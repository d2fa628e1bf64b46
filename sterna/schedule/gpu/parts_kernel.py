"""Products of few tiles and long sums: parts of sums by blocks of their own, and a kernel that adds
them up (split-K through the device's memory).

Blocks of a cluster that share a sum have nothing else in common, and not all processors have room
for clusters of four. Here neighbouring blocks make neighbouring tiles of the same part, so that
caches serve several of them at once, and there may be as many as there are processors. Parts are
added in their order, so that results are always the same; what follows the product comes then.
"""

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.results import Results
from sterna.schedule.gpu.warpgroup_kernel import WarpgroupKernel
from sterna.schedule.rounded_once import rounded_once
from sterna.schedule.statement_kernel import places_of
from sterna.te import thread_axis
from sterna.tir.ir_builder import BufferVar
from sterna.tir.warpgroups import launch_dependents, store_pair, wait_for_grids

ADDING_THREADS = 128
"""Of a block that adds up parts."""
ADDED = (4, 2)
"""Columns that a thread adds up: as many of these as the result has whole groups of."""


class PartsKernel(WarpgroupKernel):
    """The statements of a product and of the sums of its parts."""

    def describe(self) -> str:
        return f"wgmma, a tile of {self.ring} a block"

    def write(self) -> None:
        """All parts, then their sums."""
        ib, product = self.ib, self.product
        self.results_of_part = product.batch * product.rows * product.columns
        size = (self.results_of_part * self.ring.apart,)
        self.parts = ib.allocate("float32", size, name="parts", scope="global")
        with ib.new_scope():
            super().write()
        with ib.new_scope():
            self._add_parts()

    def results(self, sums: BufferVar, warp: Expr) -> Results:
        return _PartResults(self, sums, warp)

    def _add_parts(self) -> None:
        ib, columns = self.ib, self.product.columns
        each = next(n for n in ADDED if columns % n == 0)
        threads = self.results_of_part // each
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", -(-threads // ADDING_THREADS))
        ib.scope_attr(thread, "thread_extent", ADDING_THREADS)
        if self.dependent:
            ib.emit(launch_dependents())
            ib.emit(wait_for_grids())
        number = ib.let("number", block.var * ADDING_THREADS + thread.var)
        with ib.if_scope(number < threads), ib.new_scope():
            self._add_neighbours(ib.let("first", number * each), each)

    def _add_neighbours(self, first: Expr, each: int) -> None:
        """The results of a thread, which are side by side."""
        ib, columns = self.ib, self.product.columns
        total = ib.allocate("float32", (each,), name="total", scope="local")
        for part in range(self.ring.apart):
            with ib.for_range(0, each, name="lane", kind="vectorize") as lane:
                value = self.parts[first + part * self.results_of_part + lane]
                total[lane] = total[lane] + value if part else value
        places = places_of(first // columns, self.outer)
        with ib.for_range(0, each, name="lane", kind="vectorize") as lane:
            whole = build.cast(self.kind, total[lane])
            made = self.finished((*places, first % columns + lane), whole)
            self.out[first + lane] = rounded_once(made) if made.dtype == "bfloat16" else made


class _PartResults(Results):
    """Sums of a part, which are stored as they are."""

    kernel: PartsKernel

    def load_reads(self) -> None:
        """What follows comes later."""

    def store(self) -> None:
        ib, kernel = self.ib, self.kernel
        rows, columns = self.extents()
        before = kernel.rank * kernel.results_of_part
        for number in range(0, self.count, 2):
            row, column = self.place(number)
            with ib.if_scope(self._is_inside(row, column)):
                to = kernel.parts[before + (row + kernel.batch * rows) * columns + column]
                ib.emit(store_pair(to, self.sums[number], self.sums[number + 1]))

"""Products of few rows: the weights' features are the rows that Tensor Cores multiply.

Tensor Cores take 64 rows and as few as 8 columns. A tile that is 64 features high and 16 or 32
pixels or tokens wide leaves less of them idle, and more blocks share the work. Its results are
turned on the way through shared memory.
"""

from sterna.ir.expr import Expr
from sterna.schedule.gpu.operand import ROW_BYTES
from sterna.schedule.gpu.results import Results
from sterna.schedule.gpu.ring import GROUP, GROUP_ROWS
from sterna.schedule.gpu.warpgroup_kernel import WarpgroupKernel
from sterna.te import all as all_of
from sterna.tir.ir_builder import BufferVar
from sterna.tir.warpgroups import copy_chunk, named_barrier, stmatrix

PIECES = 8
"""Chunks of 16 bytes in the 64 features of a row."""


class TurnedKernel(WarpgroupKernel):
    """The statements of a product whose result is turned: a's rows are its columns."""

    def describe(self) -> str:
        return f"wgmma, a turned tile of {self.ring} a block"

    def results(self, sums: BufferVar, warp: Expr) -> Results:
        return TurnedResults(self, sums, warp)


class TurnedResults(Results):
    """Results whose rows are the columns of sums."""

    has_pairs = False

    def extents(self) -> tuple[int, int]:
        return self.product.columns, self.product.rows

    def place(self, number: int) -> tuple[Expr, Expr]:
        feature, pixel = super().place(number)
        return pixel, feature

    @property
    def stores_rows(self) -> bool:
        return True

    def _store_rows(self) -> None:
        """All warps of a group have parts of each row."""
        ib, kernel, ring, lane = self.ib, self.kernel, self.ring, self.lane
        kind = kernel.out.dtype
        ib.emit(named_barrier(1, ring.consumers * GROUP))
        own = ib.let("own", kernel.base + self.warp // 4 * (ring.own_columns * ROW_BYTES))
        pixels = min(16, ring.own_columns)
        piece = self.warp % 4 * 2 + lane // 8 % 2
        for block in range(ring.own_columns // pixels):
            words = [
                self._word(kind, 8 * block + 2 * part) for part in range(pixels // 4)
            ]
            pixel = block * pixels + lane % 8 + (lane // 16 * 8 if pixels == 16 else 0)
            at = own + pixel * ROW_BYTES + (piece ^ (lane % 8)) * 16
            ib.emit(stmatrix(at, words, transposed=True))
        ib.emit(named_barrier(1, ring.consumers * GROUP))
        high = GROUP // PIECES
        thread = kernel.thread % GROUP
        rows, columns = self.extents()
        for turn in range(-(-ring.own_columns // high)):
            pixel, chunk = turn * high + thread // PIECES, thread % PIECES
            feature = kernel.row + self.warp // 4 * GROUP_ROWS + chunk * 8
            whole = self.column + pixel
            inside = [whole < rows, feature < columns]
            if ring.own_columns % high:
                inside.append(pixel < ring.own_columns)
            with ib.if_scope(all_of(*inside)):
                at = own + pixel * ROW_BYTES + (chunk ^ (pixel % 8)) * 16
                to = (whole + kernel.batch * rows) * columns + feature
                ib.emit(copy_chunk(kernel.out[to], at))

"""Products of matrices by the Tensor Cores of single warps (mma), from sm_80 on.

All threads copy blocks of both operands into shared memory, some stages ahead of their use
(cp.async), in the order of chunks that loads of matrices (ldmatrix) read without conflicts. A warp
multiplies 64 rows and 32 columns; what is outside of an operand is zero.
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.operand import ROW_BYTES, Matrix, Place, Windows
from sterna.schedule.gpu.results import Results
from sterna.schedule.gpu.ring import WARP, Product, Ring, tile_of
from sterna.schedule.gpu.warpgroup_kernel import WarpgroupKernel
from sterna.support.dtype import DataType
from sterna.te import all as all_of
from sterna.te import thread_axis
from sterna.tir.ir_builder import BufferVar
from sterna.tir.threads import barrier
from sterna.tir.warpgroups import (
    copy_in,
    copy_in_commit,
    copy_in_wait,
    ldmatrix,
    mma,
    shared_address,
)

HIGH, WIDE = 64, 32
"""What a warp multiplies."""
PIECES = ROW_BYTES // 16
STEPS = 4
"""Products along a block: each takes 32 bytes of a row."""


class WarpKernel(WarpgroupKernel):
    """The statements of a product of 16 bits or tf32, both operands with sums side by side."""

    def __init__(
        self, product: Product, ring: Ring, kind: DataType, outer: Sequence[int], *,
        dependent: bool = False,
    ) -> None:
        super().__init__(product, ring, kind, outer, dependent=dependent)
        self.across = ring.columns // WIDE
        self.threads = ring.rows // HIGH * self.across * WARP

    def describe(self) -> str:
        return f"mma, a tile of {self.ring} a block"

    @property
    def sums_of_a_thread(self) -> int:
        return HIGH * WIDE // WARP

    def write(self) -> None:
        """One tile for each block."""
        ib, ring, product = self.ib, self.ring, self.product
        down, across = -(-product.rows // ring.rows), -(-product.columns // ring.columns)
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", down * across)
        if product.batch > 1:
            matrix = thread_axis("blockIdx.y")
            ib.scope_attr(matrix, "thread_extent", product.batch)
            self.batch = matrix.var
        ib.scope_attr(thread, "thread_extent", self.threads)
        self.thread = thread.var
        size = ring.stages * ring.stage_bytes
        shared = ib.allocate("uint8", (size,), name="stages", scope="shared.dyn")
        sums = ib.allocate("float32", (self.sums_of_a_thread,), name="sums", scope="local")
        self.base = ib.let("base", shared_address(shared[0]))
        row, column = tile_of(block.var, down, across)
        self.row = ib.let("row", row * ring.rows)
        self.column = ib.let("column", column * ring.columns)
        for number in range(self.sums_of_a_thread):
            sums[number] = build.const(0.0, "float32")
        self._run(sums)

    def _run(self, sums: BufferVar) -> None:
        ib, ring, blocks = self.ib, self.ring, self.blocks
        warp = ib.let("warp", self.thread // WARP)
        results = WarpResults(self, sums, warp)
        ahead = ring.stages - 1
        for stage in range(ahead):
            if stage < blocks:
                self._fill(build.const(stage), build.const(stage))
            ib.emit(copy_in_commit())
        with self.ib.for_range(0, blocks, name="block") as block:
            ib.emit(copy_in_wait(ahead - 1))
            ib.emit(barrier())
            with ib.if_scope(block + ahead < blocks):
                self._fill(block + ahead, (block + ahead) % ring.stages)
            ib.emit(copy_in_commit())
            with ib.new_scope():
                self._multiply_stage(sums, block % ring.stages, results)
        results.store()

    # ---- copies ----

    def _fill(self, block: Expr, stage: Expr) -> None:
        """All threads copy chunks of a block; each has the same chunk of some rows."""
        ring, to = self.ring, self.base + stage * self.ring.stage_bytes
        self._copy(self.product.a, self.data, block, to, ring.rows, self.row)
        beside = to + ring.rows * ROW_BYTES
        self._copy(self.product.b, self.weight, block, beside, ring.columns, self.column)

    def _copy(
        self, operand: object, array: BufferVar, block: Expr, to: Expr, rows: int, first: Expr
    ) -> None:
        chunk, every = self.thread % PIECES, self.threads // PIECES
        at = self._place(block, first)
        if operand is self.product.a:
            at = self._in_group(at)
        channel = at.channel + chunk * (16 // self.product.a.kind.bytes)
        for turn in range(rows // every):
            row = turn * every + self.thread // PIECES
            place = Place(first + row, channel, at.tap, at.batch)
            if isinstance(operand, Windows):
                inside, index = _pixel(operand, place)
            else:
                assert isinstance(operand, Matrix)
                inside, index = _element(operand, place)
            there = to + row * ROW_BYTES + (chunk ^ (row % PIECES)) * 16
            within = build.if_then_else(inside, index, build.const(0, index.dtype))
            size = build.select(inside, build.const(16), build.const(0))
            self.ib.emit(copy_in(there, array[within], size))

    # ---- products ----

    def _multiply_stage(self, sums: BufferVar, stage: Expr, results: "WarpResults") -> None:
        ib, lane = self.ib, results.lane
        start = ib.let("start", self.base + stage * self.ring.stage_bytes)
        top = start + (results.top + lane % 16) * ROW_BYTES
        left = start + (self.ring.rows + results.left + lane % 8 + lane // 16 * 8) * ROW_BYTES
        a = ib.allocate("uint32", (HIGH // 16 * 4,), name="a", scope="local")
        b = ib.allocate("uint32", (WIDE // 16 * 4,), name="b", scope="local")
        for step in range(STEPS):
            for tile in range(HIGH // 16):
                chunk = (step * 2 + lane // 16) ^ (lane % 8)
                ib.emit(ldmatrix(a[tile * 4], top + tile * 16 * ROW_BYTES + chunk * 16))
            for tile in range(WIDE // 16):
                chunk = (step * 2 + lane // 8 % 2) ^ (lane % 8)
                ib.emit(ldmatrix(b[tile * 4], left + tile * 16 * ROW_BYTES + chunk * 16))
            for tile in range(HIGH // 16):
                for part in range(WIDE // 8):
                    own = sums[(tile * (WIDE // 8) + part) * 4]
                    ib.emit(mma(self.product.a.kind, own, a[tile * 4], b[part * 2]))


def _element(operand: Matrix, at: Place) -> tuple[Expr, Expr]:
    """Whether a chunk of a matrix's row is inside, and where it is."""
    inside = all_of(at.row < operand.rows, at.channel < operand.depth)
    line = (at.row + at.batch * operand.rows) * operand.taps + at.tap
    return inside, line * operand.depth + at.channel


def _pixel(operand: Windows, at: Place) -> tuple[Expr, Expr]:
    """Whether a chunk of what a window reads is inside of the image, and where it is."""
    made = operand.made
    (high, wide), (height, width) = made.result, made.image
    y = at.row // wide % high * made.strides[0] - made.before[0]
    y = y + at.tap // made.window[1] * made.dilation[0]
    x = at.row % wide * made.strides[1] - made.before[1]
    x = x + at.tap % made.window[1] * made.dilation[1]
    image = at.row // (wide * high)
    inside = all_of(
        at.row < made.pixels, at.channel < made.inputs, y >= 0, y < height, x >= 0, x < width
    )
    return inside, ((image * height + y) * width + x) * made.inputs + at.channel


class WarpResults(Results):
    """Results of a warp: tiles of 16 rows and 8 columns, whose threads have four sums each."""

    has_pairs = True
    most_beside = 0

    def __init__(self, kernel: WarpKernel, sums: BufferVar, warp: Expr) -> None:
        super().__init__(kernel, sums, warp)
        self.top = self.ib.let("top", warp // kernel.across * HIGH)
        self.left = self.ib.let("left", warp % kernel.across * WIDE)

    @property
    def count(self) -> int:
        return self.kernel.sums_of_a_thread

    @property
    def stores_rows(self) -> bool:
        return False

    def place(self, number: int) -> tuple[Expr, Expr]:
        tile, part = divmod(number // 4, WIDE // 8)
        row = self.kernel.row + self.top + tile * 16 + self.lane // 4 + number // 2 % 2 * 8
        column = self.kernel.column + self.left + part * 8 + self.lane % 4 * 2 + number % 2
        return row, column

"""Products of matrices by warps of two kinds: one brings tiles, the others multiply them (wgmma).

A block makes one tile of the result. A ring of stages in shared memory holds blocks of both
operands. One warp, the producer, fills them by copies that run beside the threads (TMA); groups of
four warps, the consumers, multiply 64 rows each and hold the sums in registers. Two barriers in
memory for each stage say when it is full and when it is free again. What follows the product is
computed on the sums; what that reads is loaded before the first product is done.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike, Var
from sterna.schedule.gpu.operand import Place
from sterna.schedule.gpu.results import Results
from sterna.schedule.gpu.ring import GROUP, GROUP_ROWS, WARP, Product, Ring, tile_of
from sterna.schedule.statement_kernel import StatementKernel
from sterna.support.dtype import DataType
from sterna.te import all as all_of
from sterna.te import thread_axis
from sterna.tir.ir_builder import BufferVar
from sterna.tir.threads import ROLLED
from sterna.tir.threads import barrier as block_barrier
from sterna.tir.warpgroups import (
    cluster_arrive,
    cluster_rank,
    cluster_size,
    first_lane,
    launch_dependents,
    mbarrier_arrive,
    mbarrier_expect,
    mbarrier_init,
    mbarrier_ready,
    mbarrier_wait,
    registers,
    shared_address,
    tensor_map,
    tma_prefetch,
    wait_for_grids,
    wgmma,
    wgmma_commit,
    wgmma_fence,
    wgmma_wait,
)

STEP_BYTES, STEPS = 32, 4
"""What a product takes of a row, and the products of one block of whole rows."""
# What threads that load and threads that multiply have, where one group loads for two.
FEW_REGISTERS, MANY_REGISTERS = 40, 232


class WarpgroupKernel(StatementKernel):
    """The statements of a product."""

    def __init__(
        self, product: Product, ring: Ring, kind: DataType, outer: Sequence[int], *,
        dependent: bool = False,
    ) -> None:
        """kind: the type of the product's elements; outer: the extents of all rows.

        dependent: whether it may start before the kernels before it are done.
        """
        self.product, self.ring, self.kind, self.outer = product, ring, kind, tuple(outer)
        self.dependent = dependent
        self.batch: ExprLike = 0
        """The number of the matrix that a block is at."""
        self.rank: Expr = build.const(0)
        """The number of the part of sums that a block adds up."""

    def describe(self) -> str:
        return f"wgmma, a tile of {self.ring} a block"

    # ---- the block ----

    def write(self) -> None:
        """One tile for each block."""
        ib, ring, product = self.ib, self.ring, self.product
        down, across = -(-product.rows // ring.rows), -(-product.columns // ring.columns)
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", down * across * ring.split * ring.apart)
        if product.batch > 1:
            matrix = thread_axis("blockIdx.y")
            ib.scope_attr(matrix, "thread_extent", product.batch)
            self.batch = matrix.var
        ib.scope_attr(thread, "thread_extent", ring.threads)
        shared = ib.allocate("uint8", (ring.shared_bytes,), name="stages", scope="shared.dyn")
        size = (self.sums_of_a_thread,)
        sums = ib.allocate(str(product.sums), size, name="sums", scope="local")
        self.base = ib.let("base", shared_address(shared[0]))
        self.sent = ib.let("sent", self.base + ring.ring_bytes)
        self.full = ib.let("full", self.sent + ring.sent_bytes)
        self.free = ib.let("free", self.full + 8 * ring.stages)
        self.all_sent = ib.let("all_sent", self.free + 8 * ring.stages)
        self.wide_full = ib.let("wide_full", self.all_sent + 8)
        self.thread = thread.var
        self.maps = (
            tensor_map(self.data[0], product.a.map_line(ring.rows)),
            tensor_map(self.weight[0], product.b.map_line(ring.columns)),
        )
        if ring.split > 1:
            ib.emit(cluster_size(ring.split))
            self.rank = ib.let("rank", cluster_rank())
        tile = block.var // ring.split
        if ring.apart > 1:
            self.rank = ib.let("rank", tile // (down * across))
            tile = tile % (down * across)
        row, column = tile_of(tile, down, across)
        self.row = ib.let("row", row * ring.rows)
        self.column = ib.let("column", column * ring.columns)
        if self.dependent:
            ib.emit(launch_dependents())
        self._begin()
        self._share_roles(sums)

    def _share_roles(self, sums: BufferVar) -> None:
        """One thread loads, groups of four warps multiply."""
        ib, ring = self.ib, self.ring
        warp = ib.let("warp", first_lane(self.thread // WARP))
        with ib.if_scope(warp >= ring.consumers * 4):
            if ring.moves_registers:
                ib.emit(registers(FEW_REGISTERS, False))
            with ib.if_scope(self.thread.equal(ring.consumers * GROUP)):
                self._produce()
            self._assist(warp)
        with ib.else_scope():
            if ring.moves_registers:
                ib.emit(registers(MANY_REGISTERS, True))
            self._consume(sums, warp)

    def _assist(self, warp: Expr) -> None:
        """What warps beside the one that loads do, if there are any."""

    def _begin(self) -> None:
        """One thread begins the barriers."""
        ib, ring = self.ib, self.ring
        with ib.if_scope(self.thread.equal(ring.consumers * GROUP)):
            for each in self.maps:
                ib.emit(tma_prefetch(each))
        with ib.if_scope(self.thread.equal(0)):
            for stage in range(ring.stages):
                self._begin_stage(stage)
            if ring.split > 1 or ring.kept:
                ib.emit(mbarrier_init(self.all_sent, 1))
            ib.emit(mbarrier_ready())
            if ring.split > 1:
                ib.emit(mbarrier_expect(self.all_sent, ring.sent_bytes))
        ib.emit(block_barrier())
        if ring.split > 1:
            ib.emit(cluster_arrive())

    def _begin_stage(self, stage: int) -> None:
        """The barriers of a stage."""
        self.ib.emit(mbarrier_init(self.full + 8 * stage, 1))
        self.ib.emit(mbarrier_init(self.free + 8 * stage, self.arrivals))

    @property
    def sums_of_a_thread(self) -> int:
        """How many sums, or parts of them, a thread holds."""
        return self.ring.columns // 2

    @property
    def arrivals(self) -> int:
        """How many say that a stage is free."""
        return self.ring.consumers

    @property
    def blocks(self) -> int:
        """The blocks of a sum that one block of threads adds up."""
        ring = self.ring
        return -(-self.product.blocks // (ring.split * ring.apart * ring.taps))

    def _rolled(self, end: int, name: str, begin: int = 0) -> AbstractContextManager[Var]:
        """A loop that is not written out where registers are scarce."""
        notes = {ROLLED: 1} if self.ring.moves_registers else {}
        return self.ib.for_range(begin, end, name=name, annotations=notes)

    # ---- the producer ----

    def _produce(self) -> None:
        ib, ring, blocks = self.ib, self.ring, self.blocks
        first = min(ring.stages, blocks)
        with ib.for_range(0, first, name="block") as block:
            self._expect(block)
            self._load(block, block, self.product.fixed)
        if self.dependent:
            ib.emit(wait_for_grids())
        with ib.for_range(0, first, name="block") as block:
            self._load(block, block, "ab".strip(self.product.fixed or " "))
        if blocks <= ring.stages:
            return
        with ib.new_scope():
            place = Turn(self, "filled")
            with self._rolled(blocks, "block", first) as block:
                stage = place.stage
                ib.emit(mbarrier_wait(self.free + stage * 8, place.phase))
                self._expect(stage)
                self._load(block, stage, "ab")
                place.advance()

    def _expect(self, stage: Expr) -> None:
        """Say how many bytes a stage gets."""
        self.ib.emit(mbarrier_expect(self.full + stage * 8, self.ring.stage_bytes))

    def _place(self, block: Expr, first: Expr, tap: int = 0) -> Place:
        """Where a stage's block begins; tap: which of its taps."""
        product = self.product
        parts = -(-product.depth // product.a.unit)
        if self.ring.split * self.ring.apart > 1:
            block = block + self.rank * self.blocks
        block = block * self.ring.taps + tap
        if product.taps == 1:
            return Place(first, block * product.a.unit, build.const(0), self.batch)
        channel = block % parts * product.a.unit
        return Place(first, channel, block // parts, self.batch)

    def _in_group(self, at: Place) -> Place:
        """The same among the channels that this tile's columns read."""
        if not self.product.group:
            return at
        before = self.column // self.product.group * self.product.depth
        return replace(at, channel=at.channel + before)

    def _load(self, block: Expr, stage: Expr, which: str) -> None:
        """A block of some operands."""
        ring, product, barrier = self.ring, self.product, self.full + stage * 8
        to = self.base + stage * ring.stage_bytes
        loads: list[Expr] = []
        for tap in range(ring.taps):
            if "a" in which:
                at = self._in_group(self._place(block, self.row, tap))
                place = to + tap * ring.rows * ring.pitch
                loads += product.a.loads(self.maps[0], place, barrier, ring.rows, at)
            if "b" in which:
                at = self._place(block, self.column, tap)
                place = to + ring.row_bytes + tap * ring.columns * ring.pitch
                loads += self._column_loads(stage, place, at)
        for load in loads:
            self.ib.emit(load)

    def _column_loads(self, stage: Expr, to: Expr, at: Place) -> list[Expr]:
        """The copies of a block of the columns' operand."""
        barrier = self.full + stage * 8
        return self.product.b.loads(self.maps[1], to, barrier, self.ring.columns, at)

    # ---- the consumers ----

    def _consume(self, sums: BufferVar, warp: Expr) -> None:
        ib, ring = self.ib, self.ring
        own = sums
        if ring.split > 1:
            own = ib.allocate("float32", (ring.own_columns // 2,), name="own", scope="local")
        results = self.results(own, warp)
        results.load_reads()
        with ib.new_scope():
            place = Turn(self, "emptied")
            self._multiply_all(sums, warp, place, self.blocks > ring.stages)
        if ring.split > 1:
            results.exchange(sums)
        results.store()

    def _multiply_all(self, sums: BufferVar, warp: Expr, place: "Turn", again: bool) -> None:
        """The products of all blocks of a sum; again: whether stages are filled again."""
        ib, group = self.ib, self.ib.let("group", warp // 4)
        start = ib.let("start", self.base // 16 + group * (GROUP_ROWS * self.ring.pitch // 16))
        with self._rolled(self.blocks, "block") as block:
            ib.emit(mbarrier_wait(self.full + place.stage * 8, place.phase))
            ib.emit(wgmma_fence())
            for step in range(self.ring.tap_bytes // STEP_BYTES):
                ib.emit(self._multiply(sums, start, place.stage, block, step))
            ib.emit(wgmma_commit())
            if again:
                ib.emit(wgmma_wait(1))
                self._free_one_before(block, place)
            place.advance()
        ib.emit(wgmma_wait(0))

    def results(self, sums: BufferVar, warp: Expr) -> "Results":
        """What becomes of sums."""
        return Results(self, sums, warp)

    def _multiply(
        self, sums: BufferVar, start: Expr, stage: Expr, block: Expr, step: int
    ) -> Expr:
        """A part of a block in a stage; start: where the rows of this group of warps are."""
        ring, a, b = self.ring, self.product.a, self.product.b
        behind = stage * (ring.stage_bytes // 16)
        left = build.cast("int64", start + behind) + a.descriptor
        tap, within = divmod(step, ring.pitch // STEP_BYTES)
        left = left + (tap * (ring.rows * ring.pitch // 16) + within * a.step)
        return wgmma(
            a.kind, ring.columns, sums[0], left,
            self._columns(block if ring.kept else stage, step),
            adds_to(block, step), a.along_rows, b.along_rows,
        )

    def _columns(self, number: Expr, step: int) -> Expr:
        """The descriptor of the columns' part of a block, by its stage, or by its own number where
        all of the columns' operand stays in shared memory."""
        ring, b = self.ring, self.product.b
        first, size = self.base + ring.row_bytes, ring.stage_bytes
        if ring.kept:
            first = self.base + ring.stages * ring.stage_bytes
            size = ring.columns * ring.tap_bytes
        beside = first // 16 + number * (size // 16)
        tap, within = divmod(step, ring.pitch // STEP_BYTES)
        behind = tap * (ring.columns * ring.pitch // 16) + within * b.step
        return build.cast("int64", beside) + b.descriptor + behind

    def _before(self, place: "Turn") -> Expr:
        """The stage before the next one."""
        last = self.ring.stages - 1
        return build.select(place.stage.equal(0), build.const(last), place.stage - 1)

    def _free_one_before(self, block: Expr, place: "Turn") -> None:
        """The products before the last ones are done: what they read may be overwritten."""
        with self.ib.if_scope(all_of(block > 0, (self.thread % GROUP).equal(0))):
            self.ib.emit(mbarrier_arrive(self.free + self._before(place) * 8))


def adds_to(block: Expr, step: int) -> ExprLike:
    """Whether a product adds to sums: all but the first do."""
    return 1 if step else build.cast("int32", block > 0)


class Turn:
    """Which stage of a ring is next, and the parity of the phase that it is in."""

    def __init__(self, kernel: WarpgroupKernel, name: str, phase: int = 0) -> None:
        self.kernel = kernel
        self.state = kernel.ib.allocate("int32", (2,), name=name, scope="local")
        self.state[0] = build.const(0)
        self.state[1] = build.const(phase)

    @property
    def stage(self) -> Expr:
        """The number of the stage."""
        return self.state[0]

    @property
    def phase(self) -> Expr:
        """Its parity: it changes with every turn."""
        return self.state[1]

    def advance(self) -> None:
        """Go on to the next stage."""
        last = self.stage.equal(self.kernel.ring.stages - 1)
        self.state[1] = build.select(last, 1 - self.phase, self.phase)
        self.state[0] = build.select(last, build.const(0), self.stage + 1)

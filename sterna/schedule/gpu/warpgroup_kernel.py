"""Products of matrices by warps of two kinds: one brings tiles, the others multiply them (wgmma).

A block makes one tile of the result. A ring of stages in shared memory holds blocks of both
operands. One warp, the producer, fills them by copies that run beside the threads (TMA); groups of
four warps, the consumers, multiply 64 rows each and hold the sums in registers. Two barriers in
memory for each stage say when it is full and when it is free again. What follows the product is
computed on the sums; what that reads is loaded before the first product is done.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from sterna.ir import build
from sterna.ir.expr import Call, Cast, Expr, ExprLike, Var
from sterna.ir.visitor import Rewriter
from sterna.schedule.gpu.operand import ROW_BYTES, Operand, Place
from sterna.schedule.products import FLOAT32
from sterna.schedule.rounded_once import rounded_once
from sterna.schedule.statement_kernel import StatementKernel, places_of
from sterna.support.dtype import DataType
from sterna.te import all as all_of
from sterna.te import thread_axis
from sterna.tir.ir_builder import BufferVar
from sterna.tir.stmt import BufferLoad
from sterna.tir.threads import ROLLED
from sterna.tir.threads import barrier as block_barrier
from sterna.tir.warpgroups import (
    cluster_address,
    cluster_arrive,
    cluster_rank,
    cluster_size,
    cluster_wait,
    copy_chunk,
    first_lane,
    launch_dependents,
    load_quad,
    mbarrier_arrive,
    mbarrier_expect,
    mbarrier_init,
    mbarrier_ready,
    mbarrier_wait,
    named_barrier,
    pack_pair,
    registers,
    send_quad,
    shared_address,
    stmatrix,
    store_pair,
    store_word,
    tensor_map,
    wait_for_grids,
    warp_sync,
    wgmma,
    wgmma_commit,
    wgmma_fence,
    wgmma_wait,
)

WARP, GROUP, GROUP_ROWS = 32, 128, 64
"""The threads of a warp and of four, and the rows that these multiply."""
STEPS = 4
"""Products of one block: each takes 32 bytes of a row."""
CHUNK = 64
"""Columns of the result that lie together in shared memory: rows of 128 bytes."""
TALL = 16
"""Tiles down the result whose blocks run side by side, so that they share what they read."""
# What threads that load and threads that multiply have, where one group loads for two.
FEW_REGISTERS, MANY_REGISTERS = 40, 232
# Beyond so many sums a thread has no registers for what the epilogue reads.
MOST_SUMS_BESIDE = 64


@dataclass(frozen=True, slots=True)
class Ring:
    """The tile of a block, and how much of the sum is in shared memory at once."""

    rows: int
    columns: int
    stages: int
    split: int = 1
    """Blocks that add up parts of one sum (split-K)."""
    turned: bool = False
    """Whether its rows are the columns of the result."""
    resident: int = 0
    """Blocks that stay and make one tile after the other; 0: each makes one."""

    @property
    def consumers(self) -> int:
        """Groups of four warps that multiply."""
        return self.rows // GROUP_ROWS

    @property
    def threads(self) -> int:
        """Of a block: those that multiply, and a warp that loads."""
        return self.consumers * GROUP + (GROUP if self.moves_registers else WARP)

    @property
    def moves_registers(self) -> bool:
        """Whether consumers take registers of threads that hardly need any."""
        return self.consumers * self.columns >= 512

    @property
    def stage_bytes(self) -> int:
        """A block of both operands."""
        return (self.rows + self.columns) * ROW_BYTES

    @property
    def ring_bytes(self) -> int:
        """All stages, and the tile of the result, which lies there afterwards or beside them."""
        stages = self.stages * self.stage_bytes
        if self.resident:
            return stages + self.consumers * 2 * GROUP_ROWS * ROW_BYTES
        return max(stages, self.rows * self.columns * 2)

    @property
    def shared_bytes(self) -> int:
        """With the barriers, and what other blocks send."""
        return self.ring_bytes + self.sent_bytes + 16 * self.stages + 8

    @property
    def sent_bytes(self) -> int:
        """What a block gets of all parts of sums, of which it adds up its own columns."""
        return self.rows * self.columns * 4 if self.split > 1 else 0

    @property
    def own_columns(self) -> int:
        """The columns whose sums a block has at last."""
        return self.columns // self.split

    def __str__(self) -> str:
        parts = f", sums in {self.split} parts" if self.split > 1 else ""
        stay = f", {self.resident} blocks stay" if self.resident else ""
        turned = ", turned" if self.turned else ""
        return f"{self.rows} x {self.columns}, {self.stages} stages{parts}{stay}{turned}"


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices: result[batch, row, column] = sum(a[batch, row] * b[batch, column])."""

    a: Operand
    b: Operand
    rows: int
    columns: int
    taps: int
    depth: int
    batch: int = 1
    fixed: str = ""
    """Which of a and b are known before the kernels before this one are done."""

    def turned(self) -> "Product":
        """The same with its operands exchanged."""
        return replace(
            self, a=self.b, b=self.a, rows=self.columns, columns=self.rows,
            fixed=self.fixed.translate({ord("a"): "b", ord("b"): "a"}),
        )

    @property
    def blocks(self) -> int:
        """Of a sum."""
        return self.taps * -(-self.depth // self.a.unit)

    @property
    def sums(self) -> DataType:
        """The type that products are added in."""
        return DataType("int32") if self.a.kind.is_integer else FLOAT32


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
        ib.scope_attr(block, "thread_extent", down * across * ring.split)
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
        self.thread = thread.var
        self.maps = (
            tensor_map(self.data[0], product.a.map_line(ring.rows)),
            tensor_map(self.weight[0], product.b.map_line(ring.columns)),
        )
        if ring.split > 1:
            ib.emit(cluster_size(ring.split))
            self.rank = ib.let("rank", cluster_rank())
        row, column = tile_of(block.var // ring.split, down, across)
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
        with ib.else_scope():
            if ring.moves_registers:
                ib.emit(registers(MANY_REGISTERS, True))
            self._consume(sums, warp)

    def _begin(self) -> None:
        """One thread begins the barriers."""
        ib, ring = self.ib, self.ring
        with ib.if_scope(self.thread.equal(0)):
            for stage in range(ring.stages):
                ib.emit(mbarrier_init(self.full + 8 * stage, 1))
                ib.emit(mbarrier_init(self.free + 8 * stage, self.arrivals))
            if ring.split > 1:
                ib.emit(mbarrier_init(self.all_sent, 1))
            ib.emit(mbarrier_ready())
            if ring.split > 1:
                ib.emit(mbarrier_expect(self.all_sent, ring.sent_bytes))
        ib.emit(block_barrier())
        if ring.split > 1:
            ib.emit(cluster_arrive())

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
        return self.product.blocks // self.ring.split

    def _rolled(self, end: int, name: str, begin: int = 0) -> AbstractContextManager[Var]:
        """A loop that is not written out where registers are scarce."""
        notes = {ROLLED: 1} if self.ring.moves_registers else {}
        return self.ib.for_range(begin, end, name=name, annotations=notes)

    # ---- the producer ----

    def _produce(self) -> None:
        ib, ring, blocks = self.ib, self.ring, self.blocks
        first = min(ring.stages, blocks)
        with ib.for_range(0, first, name="block") as block:
            ib.emit(mbarrier_expect(self.full + block * 8, ring.stage_bytes))
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
                ib.emit(mbarrier_expect(self.full + stage * 8, ring.stage_bytes))
                self._load(block, stage, "ab")
                place.advance()

    def _place(self, block: Expr, first: Expr) -> Place:
        product = self.product
        parts = -(-product.depth // product.a.unit)
        if self.ring.split > 1:
            block = block + self.rank * self.blocks
        channel = block % parts * product.a.unit
        return Place(first, channel, block // parts, self.batch)

    def _load(self, block: Expr, stage: Expr, which: str) -> None:
        """A block of some operands."""
        ring, product, barrier = self.ring, self.product, self.full + stage * 8
        to = self.base + stage * ring.stage_bytes
        loads: list[Expr] = []
        if "a" in which:
            at = self._place(block, self.row)
            loads += product.a.loads(self.maps[0], to, barrier, ring.rows, at)
        if "b" in which:
            to, at = to + ring.rows * ROW_BYTES, self._place(block, self.column)
            loads += product.b.loads(self.maps[1], to, barrier, ring.columns, at)
        for load in loads:
            self.ib.emit(load)

    # ---- the consumers ----

    def _consume(self, sums: BufferVar, warp: Expr) -> None:
        ib, ring = self.ib, self.ring
        group = ib.let("group", warp // 4)
        own = sums
        if ring.split > 1:
            own = ib.allocate("float32", (ring.own_columns // 2,), name="own", scope="local")
        results = self.results(own, warp)
        results.load_reads()
        with ib.new_scope():
            place = Turn(self, "emptied")
            start = ib.let("start", self.base // 16 + group * (GROUP_ROWS * ROW_BYTES // 16))
            with self._rolled(self.blocks, "block") as block:
                ib.emit(mbarrier_wait(self.full + place.stage * 8, place.phase))
                ib.emit(wgmma_fence())
                for step in range(STEPS):
                    ib.emit(self._multiply(sums, start, place.stage, block, step))
                ib.emit(wgmma_commit())
                if self.blocks > ring.stages:
                    ib.emit(wgmma_wait(1))
                    self._free_one_before(block, place)
                place.advance()
            ib.emit(wgmma_wait(0))
        if ring.split > 1:
            results.exchange(sums)
        results.store()

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
        beside = self.base // 16 + ring.rows * ROW_BYTES // 16
        right = build.cast("int64", beside + behind) + b.descriptor
        adds: ExprLike = 1 if step else build.cast("int32", block > 0)
        return wgmma(
            a.kind, ring.columns, sums[0], left + step * a.step, right + step * b.step, adds,
            a.along_rows, b.along_rows,
        )

    def _before(self, place: "Turn") -> Expr:
        """The stage before the next one."""
        last = self.ring.stages - 1
        return build.select(place.stage.equal(0), build.const(last), place.stage - 1)

    def _free_one_before(self, block: Expr, place: "Turn") -> None:
        """The products before the last ones are done: what they read may be overwritten."""
        with self.ib.if_scope(all_of(block > 0, (self.thread % GROUP).equal(0))):
            self.ib.emit(mbarrier_arrive(self.free + self._before(place) * 8))


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


class Results:
    """What becomes of the sums that a thread holds.

    Sum i is in row lane / 4 + 8 * (i / 2 % 2) of the warp's 16, and in column
    8 * (i / 4) + 2 * (lane % 4) + i % 2.
    """

    most_beside = MOST_SUMS_BESIDE
    has_pairs = True
    """Whether sums of even numbers have the next one to their right."""

    def __init__(self, kernel: WarpgroupKernel, sums: BufferVar, warp: Expr) -> None:
        self.kernel, self.sums = kernel, sums
        self.ib, self.ring, self.product = kernel.ib, kernel.ring, kernel.product
        self.lane = self.ib.let("lane", kernel.thread % WARP)
        self.warp = warp
        self.first = self.ib.let("first", kernel.row + warp * 16)
        """The first row of the warp."""
        self.column = kernel.column
        if self.ring.split > 1:
            self.column = self.ib.let("mine", kernel.column + kernel.rank * self.ring.own_columns)
        self.held: dict[tuple[int, str], BufferLoad] = {}

    @property
    def count(self) -> int:
        """The sums of a thread."""
        return self.ring.own_columns // 2

    def exchange(self, parts: BufferVar) -> None:
        """Send parts of sums to the blocks that own their columns, and add up what comes here.

        Four sums of a thread have one owner. They are added in the order of the blocks, so that
        results are always the same.
        """
        ib, kernel, ring = self.ib, self.kernel, self.ring
        groups, threads = self.count // 4, ring.consumers * GROUP
        ib.emit(cluster_wait())
        for owner in range(ring.split):
            with ib.new_scope():
                place = kernel.sent + (kernel.rank * (groups * threads) + kernel.thread) * 16
                to = ib.let("to", cluster_address(place, owner))
                arrived = ib.let("arrived", cluster_address(kernel.all_sent, owner))
                for group in range(groups):
                    first = parts[(owner * groups + group) * 4]
                    ib.emit(send_quad(to + group * threads * 16, first, arrived))
        ib.emit(mbarrier_wait(kernel.all_sent, build.const(0)))
        with ib.new_scope():
            part = ib.allocate("float32", (4,), name="part", scope="local")
            for group in range(groups):
                for source in range(ring.split):
                    place = (source * groups + group) * threads + kernel.thread
                    ib.emit(load_quad(part[0], kernel.sent + place * 16))
                    for number in range(4):
                        at = group * 4 + number
                        self.sums[at] = part[number] if source == 0 else (
                            self.sums[at] + part[number]
                        )

    def extents(self) -> tuple[int, int]:
        """The rows and columns of the result."""
        return self.product.rows, self.product.columns

    def place(self, number: int) -> tuple[Expr, Expr]:
        """The row and the column of the result where a sum belongs."""
        row = self.first + self.lane // 4 + 8 * (number // 2 % 2)
        return row, self.column + 8 * (number // 4) + 2 * (self.lane % 4) + number % 2

    def element(self, number: int) -> Expr:
        """What is stored where a sum was: in float32 where that is rounded to 16 bits last."""
        kernel, product = self.kernel, self.product
        (row, column), (rows, columns) = self.place(number), self.extents()
        if product.rows % self.ring.rows or product.columns % self.ring.columns:
            row, column = build.minimum(row, rows - 1), build.minimum(column, columns - 1)
        value = build.cast(kernel.kind, self.sums[number])
        places = places_of(row + kernel.batch * rows, kernel.outer)
        made = kernel.finished((*places, column), value)
        return rounded_once(made) if made.dtype == "bfloat16" else made

    def load_reads(self) -> None:
        """Load what the epilogue reads, before there are sums."""
        if self.kernel.finish is None or self.count > self.most_beside:
            return
        found: dict[tuple[int, str], BufferLoad] = {}
        for number in range(self.count):
            _Reads(found).rewrite(self.element(number))
        if self.kernel.dependent and found:
            self.ib.emit(wait_for_grids())
        by_kind: dict[str, list[tuple[int, str]]] = {}
        for key, load in found.items():
            by_kind.setdefault(str(load.dtype), []).append(key)
        for kind, keys in by_kind.items():
            kept = self.ib.allocate(kind, (len(keys),), name="beside", scope="local")
            for place, key in enumerate(keys):
                kept[place] = found[key]
                self.held[key] = kept[place]

    def final(self, number: int) -> Expr:
        """What is stored, with what was loaded before."""
        made: Expr = _Held(self.held).rewrite(self.element(number))
        return made

    def store(self) -> None:
        """Store all results of a warp."""
        kind = self.kernel.out.dtype
        narrow, columns = kind.bits == 16 and kind.is_float, self.extents()[1]
        if narrow and columns % 8 == 0 and self.stores_rows:
            self._store_rows()
        else:
            self._store_pairs(self.has_pairs and columns % 2 == 0 and kind.is_float)

    @property
    def stores_rows(self) -> bool:
        """Whether its columns are whole blocks of what goes through shared memory."""
        return self.ring.own_columns % 16 == 0

    def _store_pairs(self, at_once: bool) -> None:
        """Straight from the registers; at_once: two results that are side by side."""
        ib, kernel = self.ib, self.kernel
        rows, columns = self.extents()
        for number in range(0, self.count, 2 if at_once else 1):
            row, column = self.place(number)
            with ib.if_scope(all_of(row < rows, column < columns)):
                to = kernel.out[(row + kernel.batch * rows) * columns + column]
                if not at_once:
                    ib.emit(kernel.out.buffer.vstore(to.indices, self.final(number)))
                elif kernel.out.dtype.bits == 16:
                    ib.emit(store_word(to, self._word(kernel.out.dtype, number)))
                else:
                    ib.emit(store_pair(to, self.final(number), self.final(number + 1)))

    def _store_rows(self) -> None:
        """Through shared memory, where the tile's blocks were, as whole rows of 128 bytes."""
        ib, ring, lane, kind = self.ib, self.ring, self.lane, self.kernel.out.dtype
        ib.emit(named_barrier(1, ring.consumers * GROUP))
        chunks = -(-ring.own_columns // CHUNK)
        tile = self.kernel.base + self.warp // 4 * (chunks * GROUP_ROWS * ROW_BYTES)
        own = ib.let("own", tile + self.warp % 4 * (16 * ROW_BYTES))
        # Where lane l's row of each matrix of 8 x 8 is.
        row = lane % 8 + lane // 8 % 2 * 8
        for block in range(ring.own_columns // 16):
            words = [self._word(kind, 8 * block + 2 * part) for part in range(4)]
            piece = block % 4 * 2 + lane // 16
            at = own + block // 4 * (GROUP_ROWS * ROW_BYTES) + row * ROW_BYTES
            ib.emit(stmatrix(at + (piece ^ (lane % 8)) * 16, words))
        ib.emit(warp_sync())
        for chunk in range(chunks):
            self._copy_chunk(own + chunk * (GROUP_ROWS * ROW_BYTES), chunk)

    def _word(self, kind: DataType, number: int) -> Expr:
        low, high = (build.cast("float32", _unrounded(self.final(number + n))) for n in (0, 1))
        return pack_pair(kind, low, high)

    def _copy_chunk(self, source: Expr, chunk: int) -> None:
        """The 16 rows of a warp, 64 columns of them."""
        ib, kernel, product, lane = self.ib, self.kernel, self.product, self.lane
        wide = min(CHUNK, self.ring.own_columns) // 8
        for turn in range(16 * wide // WARP):
            row = turn * (WARP // wide) + lane // wide
            piece = lane % wide
            column = self.column + chunk * CHUNK + piece * 8
            inside = all_of(self.first + row < product.rows, column < product.columns)
            with ib.if_scope(inside):
                whole = self.first + row + kernel.batch * product.rows
                at = source + row * ROW_BYTES + (piece ^ (row % 8)) * 16
                ib.emit(copy_chunk(kernel.out[whole * product.columns + column], at))


def tile_of(number: Expr, down: int, across: int) -> tuple[Expr, Expr]:
    """Which tile a block makes: some down, then the same in the next column."""
    if down <= TALL:
        return number % down, number // down
    group, within = number // (TALL * across), number % (TALL * across)
    tall = build.minimum(TALL, down - group * TALL) if down % TALL else build.const(TALL)
    return group * TALL + within % tall, within // tall


def _unrounded(expr: Expr) -> Expr:
    """What a narrow number was rounded from, as the word that it becomes part of rounds it."""
    if isinstance(expr, Call) and expr.op == "round_bfloat16":
        return expr.args[0]
    if isinstance(expr, Cast) and expr.value.dtype == FLOAT32 and expr.dtype.bits == 16:
        return expr.value
    return expr


class _Reads(Rewriter):
    """Notes what an expression reads of the device's memory."""

    def __init__(self, found: dict[tuple[int, str], BufferLoad]) -> None:
        self.found = found

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        if load.buffer.scope == "global":
            self.found.setdefault(_key(load), load)
        return load


class _Held(Rewriter):
    """Puts what was loaded before into the place of loads."""

    def __init__(self, held: dict[tuple[int, str], BufferLoad]) -> None:
        self.held = held

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        return self.held.get(_key(load), load)


def _key(load: BufferLoad) -> tuple[int, str]:
    return id(load.buffer), ", ".join(map(str, load.indices))

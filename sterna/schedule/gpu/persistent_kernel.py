"""Large products by a persistent kernel: blocks that stay, and make one tile after the other.

As many blocks run as there is room for. The stages of shared memory go round without a pause: the
next tile's blocks come while this one's results are stored, by copies from shared memory too. The
columns' operand may stay in shared memory as a whole: of convolutions with few channels the copies
are what takes the longest, and only the windows' are left then.
"""

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.operand import MAP_TYPES, ROW_BYTES, SWIZZLES
from sterna.schedule.gpu.results import Results
from sterna.schedule.gpu.ring import GROUP, GROUP_ROWS, TALL, tile_of
from sterna.schedule.gpu.warpgroup_kernel import Turn, WarpgroupKernel
from sterna.te import thread_axis
from sterna.tir.external import reinterpret
from sterna.tir.ir_builder import BufferVar
from sterna.tir.warpgroups import (
    async_fence,
    blocks_at_once,
    keep_pair,
    launch_dependents,
    mbarrier_arrive,
    mbarrier_expect,
    mbarrier_wait,
    named_barrier,
    shared_address,
    stmatrix,
    tensor_map,
    tma_commit,
    tma_store,
    tma_wait_read,
    wait_for_grids,
)

STORED_BYTES = 32
"""What one instruction stores of each row of 16 bits."""
STORED_AT_ONCE = 2
"""Pieces of results, of 64 rows each, that every group of warps has in shared memory."""


class PersistentKernel(WarpgroupKernel):
    """The statements of a large product, whose results have 16 or 32 bits."""

    def describe(self) -> str:
        return f"wgmma, tiles of {self.ring} one after the other"

    def write(self) -> None:
        """A share of the tiles for each block."""
        ib, ring, product = self.ib, self.ring, self.product
        self.down = -(-product.rows // ring.rows)
        self.across = -(-product.columns // ring.columns)
        self.tiles = self.down * self.across * product.batch
        blocks = min(self.tiles, ring.resident)
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", blocks)
        ib.scope_attr(thread, "thread_extent", ring.threads)
        self.block, self.thread, self.count = block.var, thread.var, blocks
        shared = ib.allocate("uint8", (ring.shared_bytes,), name="stages", scope="shared.dyn")
        sums = ib.allocate(str(product.sums), (ring.columns // 2,), name="sums", scope="local")
        self.base = ib.let("base", shared_address(shared[0]))
        self.kept = ib.let("kept", self.base + ring.stages * ring.stage_bytes)
        self.staged = ib.let("staged", self.kept + ring.kept_bytes)
        self.full = ib.let("full", self.base + ring.ring_bytes)
        self.free = ib.let("free", self.full + 8 * ring.stages)
        self.all_sent = ib.let("all_sent", self.free + 8 * ring.stages)
        self.maps = (
            tensor_map(self._rows_array()[0], product.a.map_line(ring.rows)),
            tensor_map(self.weight[0], product.b.map_line(ring.columns)),
        )
        self.out_map = tensor_map(self.out[0], self._out_line())
        if ring.together > 1:
            ib.emit(blocks_at_once(ring.together))
        ib.emit(launch_dependents())
        self._begin()
        self._share_roles(sums)

    def _rows_array(self) -> BufferVar:
        """The array that rows are copied from."""
        return self.data

    def _await_tile(self, tile: Expr) -> None:
        """Wait until the data of a tile is there."""

    @property
    def stored_bytes(self) -> int:
        """Of a row of results that are stored at once: a tile's have several such parts.

        Copies leave out what lies behind the last column of the result: where one tile has all
        columns, its last part may reach over its end.
        """
        width = self.ring.columns * self.out.dtype.bytes
        if self.across == 1:
            return min((size for size in SWIZZLES if size >= width), default=ROW_BYTES)
        return next(size for size in SWIZZLES if width % size == 0)

    def _out_line(self) -> str:
        product, kind, stored = self.product, self.out.dtype, self.stored_bytes
        pitch = product.columns * kind.bytes
        numbers = [
            MAP_TYPES[str(kind)], SWIZZLES[stored], 3, product.columns, product.rows, product.batch,
            pitch, pitch * product.rows, stored // kind.bytes, GROUP_ROWS, 1,
        ]
        return " ".join(["tiled", *map(str, numbers)])

    def _place_tile(self, tile: Expr) -> None:
        """Where a tile begins."""
        every = self.down * self.across
        if self.product.batch > 1:
            self.batch = self.ib.let("matrix", tile // every)
            tile = tile % every
        row, column = tile_of(tile, self.down, self.across, self.ring.ahead or TALL)
        self.row = self.ib.let("row", row * self.ring.rows)
        self.column = self.ib.let("column", column * self.ring.columns)

    def _tiles(self) -> tuple[Expr, int]:
        """How many tiles a block makes at most."""
        return self.block, -(-self.tiles // self.count)

    # ---- the producer ----

    def _produce(self) -> None:
        ib, ring = self.ib, self.ring
        which = "a" if ring.kept else "ab"
        is_known = ring.kept > 0 and self.product.fixed == "b"
        if is_known:
            self._load_kept()
        ib.emit(wait_for_grids())
        if ring.kept and not is_known:
            self._load_kept()
        place = Turn(self, "filled", 1)
        first, most = self._tiles()
        with self._rolled(most, "turn") as turn, ib.new_scope():
            tile = ib.let("tile", first + turn * self.count)
            with ib.if_scope(tile < self.tiles), ib.new_scope():
                self._place_tile(tile)
                self._await_tile(tile)
                with self._rolled(self.blocks, "block") as block:
                    stage = place.stage
                    ib.emit(mbarrier_wait(self.free + stage * 8, place.phase))
                    self._expect(stage)
                    self._load(block, stage, which)
                    place.advance()

    def _load_kept(self) -> None:
        """All of the columns' operand."""
        ib, ring = self.ib, self.ring
        size = ring.columns * ring.pitch
        ib.emit(mbarrier_expect(self.all_sent, ring.kept * ring.taps * size))
        with ib.for_range(0, ring.kept, name="block") as block:
            for tap in range(ring.taps):
                at = self._place(block, build.const(0), tap)
                to = self.kept + (block * ring.taps + tap) * size
                for load in self.product.b.loads(
                    self.maps[1], to, self.all_sent, ring.columns, at
                ):
                    ib.emit(load)

    # ---- the consumers ----

    def _consume(self, sums: BufferVar, warp: Expr) -> None:
        ib = self.ib
        place = Turn(self, "emptied", 0)
        first, most = self._tiles()
        if self.ring.kept:
            ib.emit(mbarrier_wait(self.all_sent, build.const(0)))
        with self._rolled(most, "turn") as turn, ib.new_scope():
            tile = ib.let("tile", first + turn * self.count)
            with ib.if_scope(tile < self.tiles), ib.new_scope():
                self._place_tile(tile)
                results = StagedResults(self, sums, warp)
                results.load_reads()
                self._multiply_all(sums, warp, place, True)
                self._free_last(place)
                results.store()
        with ib.if_scope((self.thread % GROUP).equal(0)):
            ib.emit(tma_wait_read(0))


    def _free_last(self, place: Turn) -> None:
        """All products of a tile are done: the stage of the last may be overwritten."""
        with self.ib.if_scope((self.thread % GROUP).equal(0)):
            self.ib.emit(mbarrier_arrive(self.free + self._before(place) * 8))


class StagedResults(Results):
    """Results that copies take out of shared memory."""

    kernel: PersistentKernel

    def store(self) -> None:
        """As many columns after the other as a row in shared memory has room for."""
        ib, kernel = self.ib, self.kernel
        wide = kernel.stored_bytes // kernel.out.dtype.bytes
        one = (kernel.thread % GROUP).equal(0)
        group = self.warp // 4
        number = ib.let("barrier", group + 1)
        own = kernel.staged + group * (STORED_AT_ONCE * GROUP_ROWS * ROW_BYTES)
        chunks, size = -(-self.ring.columns // wide), GROUP_ROWS * kernel.stored_bytes
        room = STORED_AT_ONCE * ROW_BYTES // kernel.stored_bytes
        pieces = next((n for n in range(room, 1, -1) if chunks % n == 0), STORED_AT_ONCE)
        keep = self._keep_halves if kernel.out.dtype.bits == 16 else self._keep_floats
        for chunk in range(chunks):
            piece = own + chunk % pieces * size
            # The tile before may have stored its last piece from where this one's first comes.
            left = pieces - 1 if chunk or chunks % pieces == 0 else 0
            with ib.if_scope(one):
                ib.emit(tma_wait_read(left))
            ib.emit(named_barrier(number, GROUP))
            keep(piece, chunk)
            ib.emit(async_fence())
            ib.emit(named_barrier(number, GROUP))
            with ib.if_scope(one):
                column, row = kernel.column + chunk * wide, kernel.row + group * GROUP_ROWS
                ib.emit(tma_store(kernel.out_map, piece, (column, row, kernel.batch)))
                ib.emit(tma_commit())

    def _keep_halves(self, piece: Expr, chunk: int) -> None:
        """Columns of 16 bits, as many as a row has."""
        lane, pitch = self.lane, self.kernel.stored_bytes
        row = self.warp % 4 * 16 + lane % 8 + lane // 8 % 2 * 8
        for block in range(pitch // STORED_BYTES):
            first = (chunk * (pitch // STORED_BYTES) + block) * 8
            if first >= self.count:
                break
            words = [self._word(self.kernel.out.dtype, first + 2 * part) for part in range(4)]
            swizzle = lane % 8 // (ROW_BYTES // pitch)
            at = (block * 2 + lane // 16) ^ swizzle
            self.ib.emit(stmatrix(piece + row * pitch + at * 16, words))

    def _keep_floats(self, piece: Expr, chunk: int) -> None:
        """Columns of 32 bits, as many as a row has."""
        lane, pitch = self.lane, self.kernel.stored_bytes
        row, count = self.warp % 4 * 16 + lane // 4, pitch // 8
        swizzle = lane // 4 // (ROW_BYTES // pitch)
        for pair in range(0, min(count, self.count - chunk * count), 2):
            number = chunk * count + pair
            at = (pair // 4 * 2 + lane % 4 // 2) ^ swizzle
            place = piece + (row + pair // 2 % 2 * 8) * pitch + at * 16 + lane % 2 * 8
            low, high = (reinterpret("float32", self.final(number + n)) for n in (0, 1))
            self.ib.emit(keep_pair(place, low, high))

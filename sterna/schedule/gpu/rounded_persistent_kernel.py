"""Large products of float32 data: rounded to 16 bits ahead of the products, by warps beside them.

A kernel before rounds the rows of the first tiles. In the product's own kernel three warps of each
block have nothing to do; they round the rows of the next group of tiles, a piece at a time, while
the products of this one run. Pieces are taken by tickets, so that blocks that run never wait for
blocks that do not, and counted; whoever loads rows waits for the count of their group.
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.persistent_kernel import PersistentKernel
from sterna.schedule.gpu.ring import GROUP, WARP
from sterna.te import thread_axis
from sterna.tir.ir_builder import BufferVar
from sterna.tir.register_products import (
    add_count,
    await_count,
    fetch_quad,
    store_words,
    take_ticket,
)
from sterna.tir.warpgroups import first_lane, pack_pair, wait_for_grids, warp_sync

EACH = 8
"""Numbers that a thread rounds at once."""
PIECE = 4096
"""Numbers of a piece: what a warp takes by one ticket."""
BEFORE_THREADS, BEFORE_TURNS = 256, 4
"""Of a block of the kernel before."""
FIRST_PIECE = BEFORE_THREADS * BEFORE_TURNS * EACH
"""What a block of that kernel rounds."""
CLAIMS = 64
"""Tickets after which a warp looks whether there are any left."""


class AheadKernel(PersistentKernel):
    """The statements of a large product whose data is rounded ahead."""

    def write(self) -> None:
        """The rows of the first group of tiles, then the product."""
        ib, product, ring = self.ib, self.product, self.ring
        self.group_size = ring.ahead * ring.rows * product.depth
        self.numbers = product.rows * product.depth
        groups = -(-self.numbers // self.group_size)
        kind = str(product.a.kind)
        self.rounded = ib.allocate(kind, (self.numbers,), name="rounded", scope="global")
        self.counts = ib.allocate("int32", (groups + 1,), name="counts", scope="global")
        with ib.new_scope():
            self._round_first(groups + 1)
        with ib.new_scope():
            super().write()

    def _rows_array(self) -> BufferVar:
        return self.rounded

    def _round(self, firsts: Sequence[Expr]) -> None:
        """Eight numbers from each place on; all are loaded before the first are stored."""
        ib, kind = self.ib, self.product.a.kind
        with ib.new_scope():
            size = (EACH * len(firsts),)
            floats = ib.allocate("float32", size, name="floats", scope="local")
            for number, first in enumerate(firsts):
                for half in (0, 4):
                    ib.emit(fetch_quad(floats[number * EACH + half], self.data[first + half]))
            for number, first in enumerate(firsts):
                pairs = range(number * EACH, (number + 1) * EACH, 2)
                words = [pack_pair(kind, floats[n], floats[n + 1]) for n in pairs]
                ib.emit(store_words(self.rounded[first], words))

    def _round_first(self, counts: int) -> None:
        """The kernel before; it also begins the counts."""
        ib = self.ib
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        size = FIRST_PIECE
        ib.scope_attr(block, "thread_extent", self.group_size // size)
        ib.scope_attr(thread, "thread_extent", BEFORE_THREADS)
        self._round([
            block.var * size + (turn * BEFORE_THREADS + thread.var) * EACH
            for turn in range(BEFORE_TURNS)
        ])
        with ib.if_scope((block.var * BEFORE_THREADS + thread.var) < counts):
            self.counts[block.var * BEFORE_THREADS + thread.var] = build.const(0)

    def _await_tile(self, tile: Expr) -> None:
        """Wait until all pieces of its group are counted."""
        ib, group = self.ib, tile // (self.ring.ahead * self.across)
        with ib.if_scope(group > 0):
            left = self.numbers - group * self.group_size
            pieces = build.minimum(left, self.group_size) // PIECE
            ib.emit(await_count(self.counts[group], pieces))

    def _assist(self, warp: Expr) -> None:
        """Round what is left, piece by piece."""
        ib = self.ib
        loader = self.ring.consumers * (GROUP // WARP)
        pieces = (self.numbers - self.group_size) // PIECE
        with ib.if_scope(warp > loader), ib.new_scope():
            ib.emit(wait_for_grids())
            ticket = ib.allocate("int32", (1,), name="ticket", scope="local")
            ticket[0] = build.const(0)
            with self._rolled(-(-pieces // CLAIMS), "look"), ib.if_scope(
                ticket[0] < pieces
            ), self._rolled(CLAIMS, "claim"):
                self._take_piece(ticket, pieces)

    def _take_piece(self, ticket: BufferVar, pieces: int) -> None:
        ib = self.ib
        with ib.if_scope((self.thread % WARP).equal(0)):
            ib.emit(take_ticket(ticket[0], self.counts[0]))
        ticket[0] = first_lane(ticket[0])
        with ib.if_scope(ticket[0] < pieces), ib.new_scope():
            first = ib.let("piece", self.group_size + ticket[0] * PIECE)
            lane = ib.let("lane", self.thread % WARP)
            with self._rolled(PIECE // (2 * WARP * EACH), "part") as part:
                self._round([
                    first + (part * 2 + half) * (WARP * EACH) + lane * EACH for half in range(2)
                ])
            group = ib.let("of_group", first // self.group_size)
            ib.emit(warp_sync())
            ib.emit(add_count(self.counts[group]))

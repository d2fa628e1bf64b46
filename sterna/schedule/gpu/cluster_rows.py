"""Rows that the blocks of a cluster have among them, each its part in the registers of its threads.

A warp's part of a sum goes into the shared memory of every block of the cluster, where a barrier
counts its bytes; each block then joins the parts of all warps by itself. Two numbers go at once:
the largest number of a warp and the sum of its powers less that (online softmax). So rows that one
block's registers have no room for, or that fill them, are read once, and leave a processor's other
blocks room to wait for memory meanwhile.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.row_program import RowProgram, RowSum
from sterna.schedule.gpu.row_writer import (
    FLOAT,
    WARP,
    Piece,
    RowWriter,
    Share,
    is_sum_of_powers,
    joining,
)
from sterna.te import Tensor, thread_axis
from sterna.tir.ir_builder import BufferVar
from sterna.tir.register_products import larger
from sterna.tir.threads import barrier
from sterna.tir.warpgroups import (
    cluster_address,
    cluster_arrive,
    cluster_size,
    cluster_wait,
    load_quad,
    mbarrier_expect,
    mbarrier_init,
    mbarrier_ready,
    mbarrier_wait,
    send_quad,
    shared_address,
)

QUAD_BYTES, BARRIER_BYTES = 16, 8


def suits_clusters(program: RowProgram) -> bool:
    """Whether blocks can send each other what they have of all sums, and all store results."""
    kinds = [joining(step)[1] for step in program.sums]
    return program.is_element and bool(kinds) and all(kind == FLOAT for kind in kinds)


def meets_once(program: RowProgram) -> bool:
    """Whether blocks send each other all that they have at once."""
    steps = program.sums
    return len(steps) == 1 or (len(steps) == 2 and is_sum_of_powers(*steps))


class ClusterWriter(RowWriter):
    """The statements of a block that has some of a row."""

    def __init__(
        self, program: RowProgram, out: Tensor, held: list[Tensor], share: Share,
        passes_cache: bool,
    ) -> None:
        super().__init__(program, out, held, share, 1, passes_cache)
        self.sums_powers = True

    def _bind(self) -> Expr:
        ib, share = self.ib, self.share
        block, self.thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", self.count * share.blocks)
        ib.scope_attr(self.thread, "thread_extent", share.in_block)
        ib.emit(cluster_size(share.blocks))
        self.lane = ib.let("lane", block.var % share.blocks * share.in_block + self.thread.var)
        self.place_in_block, self.is_there = build.const(0), None
        return ib.let("row", block.var // share.blocks)

    def _sum_up(self) -> None:
        """Begin a barrier for each sum, while the row is on its way."""
        ib, sums = self.ib, len(self.program.sums)
        bytes_of = sums * (self.warps * QUAD_BYTES + BARRIER_BYTES)
        sent = ib.allocate("uint8", (bytes_of,), name="sent", scope="shared.dyn")
        self.sent = ib.let("sent", shared_address(sent[0]))
        self.arrived = ib.let("arrived", self.sent + sums * self.warps * QUAD_BYTES)
        with ib.if_scope(self.thread.var.equal(0)):
            for number in range(sums):
                ib.emit(mbarrier_init(self.arrived + number * BARRIER_BYTES, 1))
            ib.emit(mbarrier_ready())
            for number in range(sums):
                ib.emit(mbarrier_expect(
                    self.arrived + number * BARRIER_BYTES, self.warps * QUAD_BYTES))
        ib.emit(barrier())
        ib.emit(cluster_arrive())
        self.joined = 0
        super()._sum_up()

    def _join_all(self, step: RowSum, total: BufferVar) -> None:
        join, _ = joining(step)
        self._join(total, join, WARP)
        nothing = build.cast(FLOAT, step.combiner.identity[0])
        for number, (part, _) in enumerate(self._exchange(total[0], total[0], nothing, nothing)):
            total[0] = join(total[0], part) if number else part
        self._join(total, join, min(lanes_for(self.warps), WARP))
        self.known[step.value] = self.ib.let(step.name, build.cast(step.value.dtype, total[0]))

    def _sum_powers(self, largest: RowSum, powers: RowSum) -> None:
        """Powers of e less a warp's largest number, so that blocks meet once, not twice: each part
        shrinks by how far that is below the row's."""
        ib = self.ib
        most, total, base = (
            ib.allocate("float32", (1,), name=f"{powers.name}.{name}", scope="local")
            for name in ("most", "own", "base")
        )
        most[0], total[0] = build.const(-math.inf, FLOAT), build.const(0, FLOAT)

        def each(step: RowSum, total: BufferVar, join: Callable[[Expr, Expr], Expr]) -> None:
            def add(piece: Piece) -> None:
                there = nullcontext() if piece.is_one is None else ib.if_scope(piece.is_one)
                with there, ib.for_range(0, piece.lanes, name="lane", kind="unroll") as lane:
                    at = self._inner(piece.place + lane)
                    value = self._value(step.source, self._kept(piece, lane), at)
                    total[0] = join(total[0], build.cast(FLOAT, value))

            self._over_row(add)
            self._join(total, join, WARP)

        def settle_base() -> None:
            # Where nothing counts, 0 stands for the largest: -inf less -inf is no number.
            is_none = most[0].equal(build.const(-math.inf, FLOAT))
            base[0] = build.select(is_none, build.const(0, FLOAT), most[0])

        each(largest, most, larger)
        settle_base()
        self.known[largest.value] = build.cast(largest.value.dtype, base[0])
        each(powers, total, plus)
        nothing = build.const(-math.inf, FLOAT), build.const(0, FLOAT)
        parts = self._exchange(most[0], total[0], *nothing)
        for number, (part, _) in enumerate(parts):
            most[0] = larger(most[0], part) if number else part
        self._join(most, larger, min(lanes_for(self.warps), WARP))
        settle_base()
        for number, (part, sum_of) in enumerate(parts):
            shrunk = sum_of * self._power(part - base[0])
            total[0] = total[0] + shrunk if number else shrunk
        self._join(total, plus, min(lanes_for(self.warps), WARP))
        for step, joined in ((largest, most), (powers, total)):
            self.known[step.value] = ib.let(step.name, build.cast(step.value.dtype, joined[0]))

    def _exchange(
        self, first: Expr, second: Expr, no_first: Expr, no_second: Expr
    ) -> list[tuple[Expr, Expr]]:
        """Two numbers of a warp for all warps of the cluster; those of the warps that a lane has
        to join, of which others have the rest. no_first, no_second: what changes no sum, of lanes
        for which there is no warp."""
        ib, share = self.ib, self.share
        place = self.sent + self.joined * self.warps * QUAD_BYTES
        arrived = self.arrived + self.joined * BARRIER_BYTES
        self.joined += 1
        if self.joined == 1:
            ib.emit(cluster_wait())  # from then on all barriers are there
        quad = ib.allocate("float32", (4,), name="quad", scope="local")
        for number in range(4):
            quad[number] = second if number % 2 else first
        within = ib.let("within", self.thread.var % WARP)
        with ib.if_scope(within < share.blocks):
            to = cluster_address(place + self.lane // WARP * QUAD_BYTES, within)
            ib.emit(send_quad(to, quad[0], cluster_address(arrived, within)))
        ib.emit(mbarrier_wait(arrived, build.const(0)))
        lanes = min(lanes_for(self.warps), WARP)
        found: list[tuple[Expr, Expr]] = []
        for number in range(0, self.warps, WARP):
            own = number + (within if lanes == WARP else within % lanes)
            is_ragged = number + lanes > self.warps
            near = build.minimum(own, self.warps - 1) if is_ragged else own
            ib.emit(load_quad(quad[0], place + near * QUAD_BYTES))
            first, second = (
                ib.let("part", build.select(own < self.warps, part, nothing) if is_ragged else part)
                for part, nothing in ((quad[0], no_first), (quad[1], no_second))
            )
            found.append((first, second))
        return found


def lanes_for(warps: int) -> int:
    """Lanes that join what so many warps have: a power of two."""
    return 1 << (warps - 1).bit_length()


def plus(a: Expr, b: Expr) -> Expr:
    """Of two numbers."""
    return a + b

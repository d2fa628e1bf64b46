"""What becomes of sums in the registers of Tensor Cores' threads: epilogues, and how they store.

What the epilogue reads is loaded before the first product is done, as far as there are registers.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from sterna.ir import build
from sterna.ir.expr import Call, Cast, Expr
from sterna.ir.visitor import Rewriter
from sterna.schedule.gpu.operand import ROW_BYTES
from sterna.schedule.gpu.ring import GROUP, GROUP_ROWS, WARP
from sterna.schedule.products import FLOAT32
from sterna.schedule.rounded_once import rounded_once
from sterna.schedule.statement_kernel import places_of
from sterna.support.dtype import DataType
from sterna.te import all as all_of
from sterna.tir.ir_builder import BufferVar
from sterna.tir.stmt import BufferLoad
from sterna.tir.warpgroups import (
    cluster_address,
    cluster_wait,
    copy_chunk,
    load_quad,
    mbarrier_wait,
    named_barrier,
    pack_pair,
    send_quad,
    stmatrix,
    store_pair,
    store_word,
    wait_for_grids,
    warp_sync,
)

if TYPE_CHECKING:
    from sterna.schedule.gpu.warpgroup_kernel import WarpgroupKernel

CHUNK = 64
"""Columns of the result that lie together in shared memory: rows of 128 bytes."""
# Beyond so many sums a thread has no registers for what the epilogue reads.
MOST_SUMS_BESIDE = 64


class Results:
    """What becomes of the sums that a thread holds.

    Sum i is in row lane / 4 + 8 * (i / 2 % 2) of the warp's 16, and in column
    8 * (i / 4) + 2 * (lane % 4) + i % 2.
    """

    most_beside = MOST_SUMS_BESIDE
    most_held = MOST_SUMS_BESIDE
    """With what is read, where there are more sums."""
    has_pairs = True
    """Whether sums of even numbers have the next one to their right."""

    def __init__(self, kernel: "WarpgroupKernel", sums: BufferVar, warp: Expr) -> None:
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
        groups, threads, last = self.count // 4, ring.consumers * GROUP, ring.columns // 8 - 1
        ib.emit(cluster_wait())
        for owner in range(ring.split):
            with ib.new_scope():
                place = kernel.sent + (kernel.rank * (groups * threads) + kernel.thread) * 16
                to = ib.let("to", cluster_address(place, owner))
                arrived = ib.let("arrived", cluster_address(kernel.all_sent, owner))
                for group in range(groups):
                    # The last owner may have fewer: it gets something as often as the others.
                    first = parts[min(owner * groups + group, last) * 4]
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

    @property
    def is_whole(self) -> bool:
        """Whether all of a tile lies within the result."""
        rows, columns = self.product.rows, self.product.columns
        whole = rows % self.ring.rows == 0 and columns % self.ring.columns == 0
        return whole and self.ring.is_even

    def _is_inside(self, row: Expr, column: Expr) -> Expr:
        """Whether the result has a place, and this block is the one that stores it."""
        rows, columns = self.extents()
        inside = [row < rows, column < columns]
        if not self.ring.is_even:
            inside.append(column < self.kernel.column + self.ring.columns)
        return all_of(*inside)

    def place(self, number: int) -> tuple[Expr, Expr]:
        """The row and the column of the result where a sum belongs."""
        row = self.first + self.lane // 4 + 8 * (number // 2 % 2)
        return row, self.column + 8 * (number // 4) + 2 * (self.lane % 4) + number % 2

    def element(self, number: int) -> Expr:
        """What is stored where a sum was: in float32 where that is rounded to 16 bits last."""
        kernel = self.kernel
        (row, column), (rows, columns) = self.place(number), self.extents()
        if not self.is_whole:
            row, column = build.minimum(row, rows - 1), build.minimum(column, columns - 1)
        value = build.cast(kernel.kind, self.sums[number])
        places = places_of(row + kernel.batch * rows, kernel.outer)
        made = kernel.finished((*places, column), value)
        return rounded_once(made) if made.dtype == "bfloat16" else made

    def load_reads(self) -> None:
        """Load what the epilogue reads, before there are sums."""
        if self.kernel.finish is None:
            return
        found: dict[tuple[int, str], BufferLoad] = {}
        for number in range(self.count):
            _Reads(found).rewrite(self.element(number))
        if self.count > self.most_beside and self.count + len(found) > self.most_held:
            return
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
            with nullcontext() if self.is_whole else ib.if_scope(self._is_inside(row, column)):
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
        """The 16 rows of a warp, 64 columns of them at the most."""
        ib, kernel, product, lane = self.ib, self.kernel, self.product, self.lane
        wide = min(CHUNK, self.ring.own_columns - chunk * CHUNK) // 8
        for turn in range(16 * wide // WARP):
            number = turn * WARP + lane
            row, piece = number // wide, number % wide
            column = self.column + chunk * CHUNK + piece * 8
            with ib.if_scope(self._is_inside(self.first + row, column)):
                whole = self.first + row + kernel.batch * product.rows
                at = source + row * ROW_BYTES + (piece ^ (row % 8)) * 16
                ib.emit(copy_chunk(kernel.out[whole * product.columns + column], at))


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

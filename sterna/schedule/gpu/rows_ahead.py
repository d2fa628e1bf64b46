"""Rows that are brought ahead: while a block computes one, copies beside the threads bring another.

A block takes every so-manieth row. Each thread has places of its own in shared memory, one for each
of its vectors, so that nobody waits for others: copies put a vector of the next row where a thread
has just read this row's. Where registers keep a row, all of the next one is on its way from then
on, otherwise each vector as soon as its result is stored. What is read along every row but has no
rows, such as the scales of a norm, is brought once for all rows of a block, in the order in which
threads need it: that is the same for all of them where they begin equally far inside of vectors.
"""

from collections.abc import Callable, Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.access import VECTOR_BYTES
from sterna.schedule.gpu.row_program import RowProgram
from sterna.schedule.gpu.row_writer import Part, Piece, RowWriter, Share
from sterna.te import Tensor, thread_axis
from sterna.tir.register_products import settle
from sterna.tir.stmt import BufferLoad
from sterna.tir.warpgroups import (
    blocks_at_once,
    copy_in,
    copy_in_commit,
    copy_in_wait,
    shared_address,
)


class AheadWriter(RowWriter):
    """The statements of a block that takes several rows, one after the other."""

    def __init__(
        self, program: RowProgram, out: Tensor, held: list[Tensor], beside: list[Tensor],
        share: Share, blocks: int, at_once: int,
    ) -> None:
        super().__init__(program, out, held, share, 1)
        self.beside, self.blocks, self.at_once = beside, blocks, at_once
        step = share.own if share.held else share.at_once
        self.parts = [
            Part(build.const(first * share.threads), min(step, share.own - first), False)
            for first in range(0, share.own, step)
        ]

    def _write(self) -> None:
        ib, share = self.ib, self.share
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", self.blocks)
        ib.scope_attr(thread, "thread_extent", share.threads)
        if self.at_once > 1:
            ib.emit(blocks_at_once(self.at_once))
        self.lane, self.place_in_block, self.is_there = thread.var, build.const(0), None
        places = (1, share.own, share.threads, share.lanes)
        self.shared = self._windows("shared.dyn", places)
        self.window = self._windows("local", (self.parts[0].count, share.lanes))
        self.single = self._windows("local", (1, 1)) if share.is_shifted else {}
        self.places = {
            tensor: ib.let("place", shared_address(own[0, 0, 0, 0]) + thread.var * VECTOR_BYTES)
            for tensor, own in self.shared.items()
        }
        self._name_row(block.var)
        self._keep_beside(places)
        for part in self.parts:
            self._bring(part)
            ib.emit(copy_in_commit())
        with ib.for_range(0, (self.count - 1 - block.var) // self.blocks + 1, name="turn") as turn:
            self._write_row(ib.let("row", block.var + turn * self.blocks))

    def _write_row(self, row: Expr) -> None:
        ib, share = self.ib, self.share
        self._name_row(row)
        self.is_read = False
        if share.is_shifted:
            self._fetch(self._single())
        if share.held:
            self._over_parts(lambda part: self._bring_next(row, part))
        self._sum_up()
        self.made = ib.allocate(str(self.result.dtype), (share.lanes,), name="made", scope="local")
        if share.held:
            self._over_row(self._store)
            return
        for part in self.parts:
            self._each_of(part, self._fetch)
            self._each_of(part, self._store)
            self._bring_next(row, part)
        if share.is_shifted:
            self._store(self._single())

    # ---- over a row ----

    def _over_row(self, each: Callable[[Piece], None]) -> None:
        """Each piece of a row; single elements, which come late, at last."""
        if self.share.held:
            self._each_of(self.parts[0], each)
        else:
            self._over_parts(lambda part: self._each_of(part, each))
        if self.share.is_shifted:
            each(self._single())

    def _over_parts(self, do: Callable[[Part], None]) -> None:
        """Each part of a row, once its vectors are in the threads' registers."""
        for number, part in enumerate(self.parts):
            if not self.is_read:
                self.ib.emit(copy_in_wait(len(self.parts) - 1 - number))
            self._each_of(part, self._fetch)
            do(part)
            # Otherwise LLVM has all parts of a row in registers before it sums any of them.
            for total in () if self.share.held else self.totals:
                self.ib.emit(settle(total[0], 1))

    def _each_of(self, part: Part, each: Callable[[Piece], None], kind: str = "unroll") -> None:
        """Each vector of a part, one after the other: some rows have no last one."""
        share = self.share
        for own in range(part.count):
            first = (build.int_value(part.first) or 0) + own * share.threads
            is_ragged = first + share.threads > share.least
            each(self._vector(build.const(own), build.const(first), is_ragged))

    def _fetch(self, piece: Piece) -> None:
        """From a thread's place in shared memory."""
        if piece.number is None:
            super()._fetch(piece)
            return
        for tensor, kept in self.window.items():
            with self.ib.for_range(0, piece.lanes, name="lane", kind="vectorize") as lane:
                place = self._shared_place(piece.number, lane)
                kept[piece.own, lane] = self.shared[tensor][place]

    # ---- ahead ----

    def _bring_next(self, row: Expr, part: Part) -> None:
        """A part of the next row of this block, if there is one."""
        ib, named = self.ib, (self.first, self.before, self.count_of, self.known)
        with ib.if_scope(row + self.blocks < self.count):
            self._name_row(ib.let("next", row + self.blocks))
            self._bring(part)
        self.first, self.before, self.count_of, self.known = named
        ib.emit(copy_in_commit())

    def _bring(self, part: Part) -> None:
        """Copies into the places of a part of the row at hand."""
        def copy(piece: Piece) -> None:
            assert piece.number is not None
            number = piece.number
            if piece.is_one is not None:
                number = build.minimum(number, self.count_of - 1)
            turn = (build.int_value(part.first) or 0) // self.share.threads + piece.own
            for tensor, place in self.places.items():
                buffer = self.buffers[tensor]
                element = BufferLoad(buffer, self._vector_indices(buffer, number, build.const(0)))
                to = place + turn * (self.share.threads * VECTOR_BYTES)
                self.ib.emit(copy_in(to, element, build.const(VECTOR_BYTES)))

        self._each_of(part, copy)

    # ---- what has no rows ----

    def _keep_beside(self, places: Sequence[int]) -> None:
        """What all rows of this block read, as its threads read it."""
        ib, share = self.ib, self.share
        kinds = {tensor: str(tensor.dtype) for tensor in self.beside}
        self.beside_kept = {
            tensor: ib.allocate(kind, places, name=tensor.name, scope="shared.dyn")
            for tensor, kind in kinds.items()
        }
        self.beside_window, self.beside_single = (
            {tensor: ib.allocate(kind, (size,), name=tensor.name, scope="local")
             for tensor, kind in kinds.items()}
            for size in (share.lanes, 1)
        )

        def element(tensor: Tensor, place: Expr) -> Expr:
            buffer = self.buffers[tensor]
            left = iter(self._inner(build.minimum(place, share.length - 1)))
            return BufferLoad(buffer, tuple(
                build.const(0) if build.is_const(extent, 1) else next(left)
                for extent in buffer.shape))

        def keep(piece: Piece) -> None:
            assert piece.number is not None
            for tensor, kept in self.beside_kept.items():
                brought = self.beside_window[tensor]
                with ib.for_range(0, share.lanes, name="lane", kind="unroll") as lane:
                    brought[lane] = element(tensor, piece.place + lane)
                with ib.for_range(0, share.lanes, name="lane", kind="vectorize") as lane:
                    kept[self._shared_place(piece.number, lane)] = brought[lane]

        for part in self.parts if self.beside else ():
            self._each_of(part, keep)
        for tensor, alone in self.beside_single.items():
            alone[0] = element(tensor, self._single().place)

    def _store(self, piece: Piece) -> None:
        if piece.number is not None:
            for tensor, kept in self.beside_window.items():
                with self.ib.for_range(0, piece.lanes, name="lane", kind="vectorize") as lane:
                    place = self._shared_place(piece.number, lane)
                    kept[lane] = self.beside_kept[tensor][place]
        super()._store(piece)

    def _kept(self, piece: Piece, lane: Expr) -> dict[Tensor, Expr]:
        alone = piece.number is None
        beside = self.beside_single if alone else self.beside_window
        return super()._kept(piece, lane) | {
            tensor: kept[0 if alone else lane] for tensor, kept in beside.items()}

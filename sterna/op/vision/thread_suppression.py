"""Non-maximum suppression by threads: a block goes through a list of boxes, the best first.

Boxes are taken in groups, a box for each thread. It holds its box against those that were kept so
far, and against the better ones of the group, which gives a mask of bits; one thread sweeps over
the group's masks and says which boxes stay. A block is one warp, so that waiting costs little, and
lists fill the device: there is one for each class of each image.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.op.axis_rows import index_type
from sterna.op.statements import variable
from sterna.schedule.products import FLOAT32
from sterna.te import thread_axis
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.threads import barrier

# Boxes of a group: as many as a word has bits.
GROUP = 32


@dataclass(frozen=True, slots=True)
class Suppression:
    """What lists of boxes are, and which of two boxes drops the other."""

    lists: int
    room: int
    """Boxes that a list keeps at most; memory is for so many."""
    width: int
    """Numbers of a box."""
    size: Callable[[Expr], Expr]
    """How many boxes a list has."""
    box: Callable[[Expr, Expr], Sequence[Expr]]
    """The numbers of the box of a list that comes so many-th."""
    is_wanted: Callable[[Expr, Expr, Expr], Expr]
    """Whether the box of a list that comes so many-th may be kept behind so many others."""
    drops: Callable[[Sequence[Expr], Sequence[Expr]], Expr]
    """Whether a box is dropped for a better one."""


class KeptByThreads:
    """For each list how many boxes were kept, and which: their ranks in the list's order."""

    def __init__(self, ib: IRBuilder, made: Suppression) -> None:
        self.ib, self.made = ib, made
        self.kind = index_type(made.lists * made.room * made.width)
        self.numbers: BufferVar = ib.allocate(self.kind, (made.lists,), name="numbers")
        self.ranks: BufferVar = ib.allocate(self.kind, (made.lists * made.room,), name="ranks")
        self.columns = [
            ib.allocate(FLOAT32, (made.lists * made.room,), name=f"kept{column}")
            for column in range(made.width)
        ]
        with ib.new_scope():
            self._write()

    def _write(self) -> None:
        ib, made, kind = self.ib, self.made, self.kind
        block, thread = thread_axis("blockIdx.x"), thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", made.lists)
        ib.scope_attr(thread, "thread_extent", GROUP)
        one = ib.let("list", build.cast(kind, block.var))
        own = thread.var
        boxes = [
            ib.allocate(FLOAT32, (GROUP,), name=f"box{column}", scope="shared")
            for column in range(made.width)
        ]
        masks = ib.allocate("uint32", (GROUP,), name="masks", scope="shared")
        beaten = ib.allocate("int32", (GROUP,), name="beaten", scope="shared")
        stays = ib.allocate("uint32", (1,), name="stays", scope="shared")
        number = ib.allocate(kind, (1,), name="number", scope="shared")
        is_first = own.equal(0)
        with ib.if_scope(is_first):
            number[0] = build.const(0, kind)
        size = ib.let("size", build.cast(kind, made.size(one)))
        with ib.for_range(0, (size + (GROUP - 1)) // GROUP, name="group", dtype=kind) as group:
            k = ib.let("k", group * GROUP + own)
            near = ib.let("near", build.minimum(k, size - 1))
            for column, value in zip(boxes, made.box(one, near), strict=True):
                column[own] = value
            ib.emit(barrier())
            many = ib.let("many", number[0])
            mine = [ib.let(f"mine{c}", column[own]) for c, column in enumerate(boxes)]
            lost, mask = self._compared(one, mine, many, own, boxes)
            beaten[own] = build.select(k < size, lost, 1)
            masks[own] = mask
            ib.emit(barrier())
            with ib.if_scope(is_first):
                kept, count = self._swept(one, group, many, masks, beaten)
                stays[0] = kept
                number[0] = count
            ib.emit(barrier())
            bits = ib.let("bits", stays[0])
            bit = ib.let("bit", build.const(1, "uint32") << build.cast("uint32", own))
            is_kept = build.not_equal(bits & bit, build.const(0, "uint32"))
            with ib.if_scope(is_kept):
                before = many + build.cast(kind, t.popcount(bits & (bit - 1)))
                at = ib.let("at", one * made.room + before)
                self.ranks[at] = k
                for column, value in zip(self.columns, mine, strict=True):
                    column[at] = value
            ib.emit(barrier())
        ib.emit(barrier())
        with ib.if_scope(is_first):
            self.numbers[one] = number[0]

    def _compared(
        self, one: Expr, mine: Sequence[Expr], many: Expr, own: Expr, boxes: Sequence[BufferVar],
    ) -> tuple[Expr, Expr]:
        """Whether a kept box drops a box, and which of its group do, by bits."""
        ib, made = self.ib, self.made
        begin = ib.let("begin", one * made.room)
        lost = variable(ib, "int32", "lost", 0)
        with ib.for_range(0, many, name="j") as j:
            at = ib.let("at", begin + j)
            other = [ib.let(f"other{c}", column[at]) for c, column in enumerate(self.columns)]
            lost.set(build.maximum(lost.get(), build.select(made.drops(mine, other), 1, 0)))
        zero = build.const(0, "uint32")
        mask = variable(ib, "uint32", "mask", zero)
        with ib.for_range(0, GROUP, name="better") as better:
            other = [ib.let(f"other{c}", column[better]) for c, column in enumerate(boxes)]
            counts = build.logical_and(better < own, made.drops(mine, other))
            set_bit = build.const(1, "uint32") << build.cast("uint32", better)
            mask.set(mask.get() | build.select(counts, set_bit, zero))
        return lost.get(), mask.get()

    def _swept(
        self, one: Expr, group: Expr, many: Expr, masks: BufferVar, beaten: BufferVar
    ) -> tuple[Expr, Expr]:
        """Which boxes of a group stay, by bits, and how many are kept in all then."""
        ib, made = self.ib, self.made
        zero = build.const(0, "uint32")
        kept = variable(ib, "uint32", "stay", zero)
        count = variable(ib, self.kind, "count", many)
        with ib.for_range(0, GROUP, name="box") as box:
            better = masks[box] & kept.get()
            free = build.logical_and(beaten[box].equal(0), better.equal(zero))
            wanted = build.logical_and(count.get() < made.room, made.is_wanted(
                one, group * GROUP + box, count.get()))
            with ib.if_scope(build.logical_and(free, wanted)):
                set_bit = build.const(1, "uint32") << build.cast("uint32", box)
                kept.set(kept.get() | set_bit)
                count.set(count.get() + 1)
        return kept.get(), count.get()

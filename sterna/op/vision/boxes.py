"""Non-maximum suppression: boxes that remain when those that overlap better ones are dropped."""

from collections.abc import Callable, Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim
from sterna.op.axis_rows import index_type
from sterna.op.statements import variable
from sterna.schedule.products import FLOAT32
from sterna.tir.ir_builder import IRBuilder

# After so many boxes is asked whether one of them was overlapped already.
BLOCK = 64


class KeptBoxes:
    """Rows of numbers, number by number, so that vector instructions hold one against many."""

    def __init__(self, ib: IRBuilder, room: Dim, width: int) -> None:
        self.ib = ib
        self.room = room
        self.width = width
        self.kind = index_type(room)
        self.rows = ib.allocate(FLOAT32, (room * width,), name="kept")
        self.number = variable(ib, self.kind, "number", 0)
        self.free = variable(ib, "int32", "free", 1)

    def clear(self) -> None:
        """Keeps none any more."""
        self.number.set(0)

    def add(self, row: Sequence[Expr]) -> None:
        """Keeps one more."""
        for column, value in enumerate(row):
            self.rows[self.number.get() + column * self.room] = value
        self.number.set(self.number.get() + 1)

    def none_drops(self, drops: Callable[[Sequence[Expr]], Expr]) -> Expr:
        """Whether no kept box drops a new one, by what drops(row of a kept box) says."""
        ib = self.ib
        number = ib.let("many", self.number.get())
        self.free.set(1)
        with (
            ib.for_range(0, (number + (BLOCK - 1)) // BLOCK, name="block") as block,
            ib.if_scope(self.free.get() > 0),
        ):
            end = build.minimum(block * BLOCK + BLOCK, number)
            with ib.for_range(block * BLOCK, end, name="j") as j:
                row = [ib.let(f"other{column}", self.rows[j + column * self.room])
                       for column in range(self.width)]
                self.free.set(build.minimum(self.free.get(), build.select(drops(row), 0, 1)))
        return self.free.get() > 0


def box_area(box: Sequence[Expr]) -> Expr:
    """The area of a box that is given by both starts and both ends."""
    return (box[2] - box[0]) * (box[3] - box[1])


def shared_part(ib: IRBuilder, one: Sequence[Expr], other: Sequence[Expr]) -> Expr:
    """The part of two boxes' union that they share; a box is both starts, both ends, its area."""
    zero = build.const(0, FLOAT32)
    sides = [
        build.maximum(build.minimum(one[2 + i], other[2 + i]) - build.maximum(one[i], other[i]),
                      zero)
        for i in (0, 1)
    ]
    shared = ib.let("shared", sides[0] * sides[1])
    union = ib.let("union", one[4] + other[4] - shared)
    return build.select(union > zero, shared / union, zero)

"""Rows of an image with their border (halo), copied one behind the other.

Kernels that read pixels where they lie side by side need not ask then where an image ends.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.contraction import Contraction
from sterna.te import all as all_of
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Numbers that are copied at once.
CHUNK = 64


@dataclass(frozen=True, slots=True)
class HaloRows:
    """How rows of the data of a contraction are copied."""

    made: Contraction
    columns: int
    """Pixels of a row, the border's on both sides included."""
    convert: Callable[[Expr], Expr] | None = None
    """What becomes of each number; None if they stay what they are."""

    @property
    def size(self) -> int:
        """Numbers of a row."""
        return self.columns * self.made.inputs

    def copy(
        self, ib: IRBuilder, data: BufferVar, image: Expr, row: Expr, to: BufferVar, start: Expr
    ) -> None:
        """A row of an image between its borders, or a row of border where the image has none."""
        made = self.made
        left = min(self.size, made.before[1] * made.inputs)
        inside = min(self.size - left, made.image[1] * made.inputs)
        begin = (image * made.image[0] + row) * (made.image[1] * made.inputs)

        def fill(first: int, count: int, from_data: bool) -> None:
            if count == 0:
                return
            with _lanes_over(ib, count) as place:
                border = build.const(made.border, made.data)
                value: Expr = data[begin + place] if from_data else border
                to[start + first + place] = value if self.convert is None else self.convert(value)

        with ib.if_scope(all_of(row >= 0, row < made.image[0])):
            fill(0, left, from_data=False)
            fill(left, inside, from_data=True)
            fill(left + inside, self.size - left - inside, from_data=False)
        with ib.else_scope():
            fill(0, self.size, from_data=False)


@contextmanager
def _lanes_over(ib: IRBuilder, count: int) -> Iterator[Expr]:
    """The lanes of vectors that cover so many numbers; the last vector may overlap others."""
    lanes = min(count, CHUNK)
    with (
        ib.for_range(0, -(-count // lanes), name="chunk") as chunk,
        ib.for_range(0, lanes, name="lane", kind="vectorize") as lane,
    ):
        yield build.minimum(chunk * lanes, count - lanes) + lane

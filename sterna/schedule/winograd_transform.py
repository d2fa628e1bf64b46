"""The sums before and after the products of Winograd's way: matrix * square * its transpose."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Broadcast, Expr, Var
from sterna.schedule.linear_steps import LinearSteps
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import STAYS_ROLLED

# An element by its row and column, and when it is one; elsewhere the square has a zero.
Load = Callable[[Any, Any], tuple[Expr | None, Expr]]
# What becomes of a row of results, by its number.
Store = Callable[[Any, Sequence[Expr]], None]


@dataclass(frozen=True, slots=True)
class Transform:
    """Of squares of vectors: columns first, then rows, in loops that keep a line in registers."""

    lines: LinearSteps
    size: int
    """Rows and columns of a square."""
    dtype: str
    lanes: int

    def between(self, ib: IRBuilder) -> BufferVar:
        """Room for what columns give to rows."""
        shape = (len(self.lines.results), self.size, self.lanes)
        return ib.allocate(self.dtype, shape, name="half", scope="local")

    def columns(self, ib: IRBuilder, half: BufferVar, load: Load) -> None:
        """The matrix times the square."""
        with self._lines_of(ib, self.size, "column") as column:
            line = self._line(ib, [load(row, column) for row in range(self.size)])
            for row, value in enumerate(line):
                ib.emit(half.buffer.vstore((row, column, 0), value))

    def rows(self, ib: IRBuilder, half: BufferVar, store: Store) -> None:
        """That times the matrix transposed."""
        with self._lines_of(ib, len(self.lines.results), "row") as row:
            line = [(None, self._vector(half, row, column)) for column in range(self.size)]
            store(row, self._line(ib, line))

    def _lines_of(self, ib: IRBuilder, count: int, name: str) -> AbstractContextManager[Var]:
        return ib.for_range(0, count, name=name, annotations={STAYS_ROLLED: 1})

    def _line(self, ib: IRBuilder, values: Sequence[tuple[Expr | None, Expr]]) -> list[Expr]:
        """The matrix times a line of the square."""
        count = len(values) + len(self.lines.steps)
        held = ib.allocate(self.dtype, (count, self.lanes), name="held", scope="local")

        def hold(place: int, value: Expr) -> None:
            ib.emit(held.buffer.vstore((place, 0), value))

        for place, (inside, value) in enumerate(values):
            if inside is None:
                hold(place, value)
                continue
            with ib.if_scope(inside):
                hold(place, value)
            with ib.else_scope():
                hold(place, Broadcast(build.const(0.0, self.dtype), self.lanes))
        for place, step in enumerate(self.lines.steps, len(values)):
            left, right = self._vector(held, step.left), self._vector(held, step.right)
            hold(place, _sum(left, right, float(step.factor)))
        return [
            _product(self._vector(held, value), float(factor))
            for value, factor in self.lines.results
        ]

    def _vector(self, buffer: BufferVar, *index: Any) -> Expr:
        value: Expr = buffer.buffer.vload((*index, 0), f"{self.dtype}x{self.lanes}")
        return value


def _sum(left: Expr, right: Expr, factor: float) -> Expr:
    return left - _product(right, -factor) if factor < 0 else left + _product(right, factor)


def _product(value: Expr, factor: float) -> Expr:
    if factor == 1:
        return value
    return value * Broadcast(build.const(factor, value.dtype.element), value.dtype.lanes)

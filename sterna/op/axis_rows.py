"""What is known of rows along one axis, for operators that go row by row: sort, cumsum, dft."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Dim
from sterna.op.indexing import INT32, INT64, unravel
from sterna.schedule.loops import PARALLEL_ELEMENTS
from sterna.tir.ir_builder import IRBuilder

# Rows side by side that are computed together: as many as stay in the first cache, whole vectors.
ROWS_PER_BLOCK = 256
# Fewer rows side by side are computed one after the other.
FEW_ROWS = 4


def product(dims: Sequence[Dim]) -> Any:
    """The number of elements of a shape."""
    total: Any = 1
    for dim in dims:
        total = total * dim
    return total


def index_type(*counts: Dim) -> str:
    """The type that numbers below these, and sums of two of them, are computed in."""
    known = [count for count in counts if type(count) is int]
    return INT64 if any(count >= 2**30 for count in known) else INT32


class AxisRows:
    """A shape as rows along one axis; the other dimensions count the rows."""

    def __init__(self, shape: Sequence[Dim], axis: int) -> None:
        self.shape = list(shape)
        self.axis = axis
        self.length = self.shape[axis]
        self.others = [dim for i, dim in enumerate(self.shape) if i != axis]
        self.count = product(self.others)

    @contextmanager
    def each(self, ib: IRBuilder) -> Iterator[Callable[[Any], tuple[Any, ...]]]:
        """A loop over the rows, shared among threads if there is much to do.

        Gives what turns a place in the row into indices.
        """
        with self._lines(ib, self.others) as around:

            def at(place: ExprLike) -> tuple[ExprLike, ...]:
                return (*around[: self.axis], place, *around[self.axis :])

            yield at

    @property
    def lie_side_by_side(self) -> bool:
        """Whether neighbours in memory belong to different rows, a vector of them at least."""
        last = self.shape[-1]
        return self.axis < len(self.shape) - 1 and (not isinstance(last, int) or last >= FEW_ROWS)

    @contextmanager
    def each_block(self, ib: IRBuilder) -> Iterator[tuple[Any, Callable[..., tuple[Any, ...]]]]:
        """A loop over blocks of rows that lie side by side, shared among threads as rows are.

        Gives how many rows the block has, ROWS_PER_BLOCK at most, and what turns a place in the row
        and the number of a row in the block into indices.
        """
        last = self.shape[-1]
        blocks = (last + (ROWS_PER_BLOCK - 1)) // ROWS_PER_BLOCK
        with self._lines(ib, [*self.others[:-1], blocks]) as (*around, block):
            begin = ib.let("begin", block * ROWS_PER_BLOCK)
            whole = isinstance(last, int) and last % ROWS_PER_BLOCK == 0
            width: Any = ROWS_PER_BLOCK if whole else build.minimum(last - begin, ROWS_PER_BLOCK)

            def at(place: ExprLike, row: ExprLike) -> tuple[ExprLike, ...]:
                return (*around[: self.axis], place, *around[self.axis :], begin + row)

            yield width, at

    @contextmanager
    def each_vector(
        self, ib: IRBuilder, most: int
    ) -> Iterator[tuple[int, Callable[..., tuple[Any, ...]]]]:
        """The same of blocks that all have as many rows; the last may overlap with the one before.

        How many rows lie side by side is a number.
        """
        last = self.shape[-1]
        assert isinstance(last, int)
        width = min(last, most)
        with self._lines(ib, [*self.others[:-1], -(-last // width)]) as (*around, block):
            begin = ib.let("begin", build.minimum(block * width, last - width))

            def at(place: ExprLike, row: ExprLike) -> tuple[ExprLike, ...]:
                return (*around[: self.axis], place, *around[self.axis :], begin + row)

            yield width, at

    @contextmanager
    def each_part(
        self, ib: IRBuilder, parts: int
    ) -> Iterator[tuple[Any, Any, Callable[[Any], tuple[Any, ...]]]]:
        """A loop over parts of all rows, as many of each, which threads share; extents are numbers.

        Gives the number of the row, that of the part, and what turns a place into indices.
        """
        kind = index_type(self.count * parts)
        with ib.for_range(
            0, self.count * parts, name="number", dtype=kind, kind="parallel"
        ) as number:
            across = self.lie_side_by_side
            line = ib.let("line", number % self.count if across else number // parts)
            part = ib.let("part", number // self.count if across else number % parts)
            yield line, part, partial(self.at, line)

    def number_of(self, line: Expr, part: Expr, parts: int) -> Expr:
        """Where an array has what belongs to a part, so that neighbours in each_part are there."""
        return part * self.count + line if self.lie_side_by_side else line * parts + part

    def at(self, line: Expr, place: ExprLike) -> tuple[ExprLike, ...]:
        """The indices of a place in a row, whose number is given."""
        around = unravel(line, self.others)
        return (*around[: self.axis], place, *around[self.axis :])

    @property
    def is_static(self) -> bool:
        """Whether all extents are known and there are elements."""
        return all(isinstance(dim, int) and dim > 0 for dim in self.shape)

    @contextmanager
    def _lines(self, ib: IRBuilder, extents: Sequence[Dim]) -> Iterator[list[Any]]:
        """One loop over all of these extents; gives where it is in each."""
        count = product(extents)
        sizes = [1024 if build.int_value(dim) is None else dim for dim in self.shape]
        large = math.prod(sizes) >= PARALLEL_ELEMENTS
        kind = "parallel" if large and build.int_value(count) != 1 else "serial"
        with ib.for_range(0, count, name="line", dtype=index_type(count), kind=kind) as line:
            yield [ib.let(f"at{i}", at) for i, at in enumerate(unravel(line, extents))]

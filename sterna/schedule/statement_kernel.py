"""Kernels of statements: what implementations with packed weights share.

A kernel is made for a contraction and knows the extents of its loops. Its operands, its result and
its epilogue are there while its statements are written.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.schedule.epilogue import Epilogue, Finish, extern_with
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


class StatementKernel(ABC):
    """A contraction as statements, written one after the other."""

    ib: IRBuilder
    data: BufferVar
    weight: BufferVar
    beside: Sequence[BufferVar]
    """What else stands for the weights."""
    out: BufferVar
    finish: Finish | None = None

    @abstractmethod
    def describe(self) -> str:
        """What it does, for the build report."""

    @abstractmethod
    def write(self) -> None:
        """All statements."""

    def tensor(
        self, name: str, out: TensorType, epilogue: Epilogue | None, operands: Sequence[Tensor]
    ) -> Tensor:
        """What the statements make of data and packed weights, with what follows."""

        def write(ib: IRBuilder, buffers: Sequence[BufferVar], finish: Finish | None) -> None:
            self.ib, self.finish = ib, finish
            self.data, self.weight, *self.beside, self.out = buffers
            self.write()

        return extern_with(epilogue, out, operands, write, name, self.describe())

    def finished(self, index: Sequence[Expr], value: Expr) -> Expr:
        """What is stored where the contraction's element is a value."""
        return value if self.finish is None else self.finish(index, value)

    def store_channels(
        self, at: Sequence[Expr], first: Expr | int, count: int, sum_of: Callable[[Expr], Expr]
    ) -> None:
        """So many channels of a pixel from one on; sum_of: what the sum of each is."""
        with self.ib.for_range(0, count, name="lane", kind="vectorize") as lane:
            index = (*at, first + lane)
            self.out[index] = self.finished(index, sum_of(lane))


def places_of(position: Expr, outer: Sequence[int]) -> tuple[Expr, ...]:
    """The index of a position among these extents."""
    found: list[Expr] = []
    for extent in reversed(outer):
        found.append(position % extent)
        position = position // extent
    return tuple(reversed(found))

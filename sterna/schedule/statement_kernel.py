"""Kernels of statements: what implementations with packed weights share.

A kernel is made for a contraction and knows the extents of its loops. Its operands, its result and
its epilogue are there while its statements are written.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType
from sterna.schedule.epilogue import Epilogue, Finish
from sterna.te import Tensor, extern
from sterna.tir import address_of, ir_builder
from sterna.tir.in_place import READS_FIRST
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import Buffer, Stmt


class StatementKernel(ABC):
    """A contraction as statements, written one after the other."""

    ib: IRBuilder
    data: BufferVar
    weight: BufferVar
    beside: Sequence[BufferVar]
    """What else stands for the weights."""
    out: BufferVar
    finish: Finish | None = None
    reads_data_again: bool = False
    """Whether what follows the contraction reads its data as well."""

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
        reads = () if epilogue is None else epilogue.reads
        self.reads_data_again = operands[0] in reads

        def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
            self.ib = ir_builder.create()
            given = map(self.ib.buffer_ptr, (*ins[: len(operands)], *outs))
            self.data, self.weight, *self.beside, self.out = given
            buffers = dict(zip(reads, ins[len(operands) :], strict=True))
            self.finish = None if epilogue is None else partial(epilogue.element, buffers=buffers)
            self.write()
            return self.ib.get()

        made: Tensor = extern(
            out.shape, [*operands, *reads], body, name=name,
            dtype=str(out.dtype if epilogue is None else epilogue.out.dtype),
            attrs={"schedule": self.describe()},
        )
        return made

    def read_first(
        self, lead: int = 0, source: BufferVar | None = None, together: int = 0
    ) -> None:
        """Say that each number of the data is read before what takes its place is written.

        lead: by how many numbers the result must begin before the data for that.
        source: another operand of which that is said instead.
        together: results that are written in some order of their own. Where what follows reads
        data in their places, they lie exactly there, or all of them before it.
        """
        if lead and self.reads_data_again:
            lead = max(lead, together)
        read = source or self.data
        first = read[(0,) * len(read.shape)]
        self.ib.scope_attr(build.const(lead), READS_FIRST, address_of(first))

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

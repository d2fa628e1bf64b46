"""What is known of rows along one axis, for operators that go row by row: sort, cumsum, dft."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sterna.ir import build
from sterna.ir.types import Dim
from sterna.op.indexing import INT32, INT64, unravel
from sterna.schedule.default import PARALLEL_ELEMENTS
from sterna.tir.ir_builder import IRBuilder


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

    @contextmanager
    def each(self, ib: IRBuilder) -> Iterator[Callable[[Any], tuple[Any, ...]]]:
        """A loop over the rows, shared among threads if there is much to do.

        Gives what turns a place in the row into indices.
        """
        count = product(self.others)
        sizes = [1024 if build.int_value(dim) is None else dim for dim in self.shape]
        large = math.prod(sizes) >= PARALLEL_ELEMENTS
        kind = "parallel" if large and len(self.others) > 0 else "serial"
        with ib.for_range(0, count, name="line", dtype=index_type(count), kind=kind) as line:
            around = [ib.let(f"at{i}", at) for i, at in enumerate(unravel(line, self.others))]

            def at(place: Any) -> tuple[Any, ...]:
                return (*around[: self.axis], place, *around[self.axis :])

            yield at

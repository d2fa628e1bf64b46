"""Operators whose results are filled by statements, because an element may be written often."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from sterna.ir.types import TensorType
from sterna.te import Tensor, extern
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import Stmt

Fill = Callable[[IRBuilder, BufferVar, list[BufferVar]], None]


def filled(out: TensorType, inputs: Sequence[Tensor], fill: Fill, name: str) -> Tensor:
    """A tensor that fill(builder, result, inputs) writes."""

    def body(ins: list[Any], outs: list[Any]) -> Stmt:
        builder = ir_builder.create()
        fill(builder, builder.buffer_ptr(outs[0]), [builder.buffer_ptr(each) for each in ins])
        return builder.get()

    made: Tensor = extern(out.shape, inputs, body, name=name, dtype=out.dtype)
    return made


@contextmanager
def loops(builder: IRBuilder, extents: Sequence[Any], name: str = "i") -> Iterator[list[Any]]:
    """One loop inside the other over these extents."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(builder.for_range(0, extent, name=f"{name}{place}"))
            for place, extent in enumerate(extents)
        ]

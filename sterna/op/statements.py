"""Operators whose results are filled by statements, because no expression gives an element."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Dim, TensorType, Type, flatten_type
from sterna.te import Tensor, extern
from sterna.tir import ir_builder
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import Buffer, Stmt

Fill = Callable[[IRBuilder, list[BufferVar], list[BufferVar]], None]
FillOne = Callable[[IRBuilder, BufferVar, list[BufferVar]], None]


def statements(out: Type, inputs: Sequence[Tensor], fill: Fill, name: str) -> list[Tensor]:
    """The tensors of a type, written by fill(builder, inputs, outputs)."""
    kinds: list[TensorType] = flatten_type(out)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        ib = ir_builder.create()
        fill(ib, [ib.buffer_ptr(each) for each in ins], [ib.buffer_ptr(each) for each in outs])
        return ib.get()

    shapes = [kind.shape for kind in kinds]
    made = extern(shapes, inputs, body, name=name, dtype=[str(kind.dtype) for kind in kinds])
    return list(made) if isinstance(made, list) else [made]


def filled(out: TensorType, inputs: Sequence[Tensor], fill: FillOne, name: str) -> Tensor:
    """A tensor that fill(builder, result, inputs) writes."""
    return statements(out, inputs, lambda ib, ins, outs: fill(ib, outs[0], ins), name)[0]


@contextmanager
def loops(builder: IRBuilder, extents: Sequence[Dim], name: str = "i") -> Iterator[list[Expr]]:
    """One loop inside the other over these extents."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(builder.for_range(0, extent, name=f"{name}{place}"))
            for place, extent in enumerate(extents)
        ]


def variable(ib: IRBuilder, dtype: str, name: str, value: ExprLike) -> "Variable":
    """A number that statements change."""
    made = Variable(ib.allocate(dtype, (1,), name=name, scope="local"))
    made.set(value)
    return made


class Variable:
    """A number that statements change."""

    def __init__(self, held: BufferVar, place: ExprLike = 0) -> None:
        self.held = held
        self.place = place

    def get(self) -> Expr:
        """What it is now."""
        return self.held[self.place]

    def set(self, value: ExprLike) -> None:
        """Make it another number."""
        self.held[self.place] = build.cast(self.held.dtype, build.as_expr(value))

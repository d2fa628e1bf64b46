"""What the steps of recurrent networks by blocks and by clusters of them have in common: the
operands, and threads that have a unit of a sequence each."""

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.op.gates import Gate
from sterna.op.recurrent_steps import Options, Step, by_layout
from sterna.tir.ir_builder import BufferVar, IRBuilder


class Gates:
    """The gates of a thread's unit, in registers."""

    def __init__(self, held: BufferVar) -> None:
        self.held = held

    def __getitem__(self, place: tuple[Expr, int, Expr]) -> Expr:
        found: Expr = self.held[place[1]]
        return found

    def __setitem__(self, place: tuple[Expr, int, Expr], value: Expr) -> None:
        self.held[place[1]] = value


class ThreadSteps:
    """Steps in some directions, whose kernels subclasses write."""

    direction: Expr
    unit: Expr
    row: Expr

    def __init__(
        self, step: Step, attrs: Options, ib: IRBuilder, operands: dict[str, BufferVar],
        outs: list[BufferVar], which: range, functions: list[Gate],
    ) -> None:
        self.make, self.attrs, self.ib, self.operands, self.outs = step, attrs, ib, operands, outs
        self.which, self.functions = which, functions
        self.columns = operands["columns"]
        self.kind = str(operands["projected"].dtype)
        _, size, gates, _, filled = (build.int_value(n) or 0 for n in self.columns.shape)
        self.size, self.gates, self.filled = size, gates, filled
        first, second, *_ = operands["projected"].shape
        self.time, self.batch = by_layout(attrs, (first, second))

    def part(self, name: str, block: Expr, place: ExprLike, unit: Expr) -> Expr:
        """An element of an operand that has one for each unit; 0 without it."""
        if name not in self.operands:
            return build.const(0, self.kind)
        return build.cast(self.kind, self.operands[name][self.direction, self.unit, place, 0])

"""Softmax that a user has written as tensor expressions: what its steps say about their numbers.

    most[i] = max(x[i, :]),  power[i, j] = exp(x[i, j] - most[i]),  total[i] = sum(power[i, :])

Such powers are of numbers that are not above 0, and such a total lies between 1 and the length of a
row. So powers are the quick ones of nn.softmax, and a division by the total is one by row.
"""

from collections.abc import Callable

from sterna.ir import build
from sterna.ir.build import bind
from sterna.ir.expr import FLOAT32, Add, BinaryExpr, Call, Div, Expr, Max, Sub
from sterna.ir.visitor import Rewriter
from sterna.schedule.exponential import quick_exp
from sterna.te import ComputeOp, Tensor, compute
from sterna.te.tensor import ProducerLoad, Reduce


def is_shifted_power(expr: Expr) -> bool:
    """Whether it is e to an element of a row less the largest of the row."""
    if not isinstance(expr, Call) or expr.op != "exp" or expr.dtype != FLOAT32:
        return False
    (shifted,) = expr.args
    if not isinstance(shifted, Sub):
        return False
    element, largest = shifted.a, shifted.b
    if not isinstance(element, ProducerLoad) or not isinstance(largest, ProducerLoad):
        return False
    rows = _reduced_rows(largest, Max)
    same = rows is not None and rows.tensor is element.tensor and len(element.indices) > 0
    return same and _are_same(largest.indices, element.indices[:-1])


def is_total_of_powers(load: Expr) -> bool:
    """Whether it is the sum of a row of such powers."""
    if not isinstance(load, ProducerLoad):
        return False
    rows = _reduced_rows(load, Add)
    if rows is None:
        return False
    made = rows.tensor.op
    return isinstance(made, ComputeOp) and len(made.body) == 1 and is_shifted_power(made.body[0])


def _are_same(first: tuple[Expr, ...], second: tuple[Expr, ...]) -> bool:
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))


def _reduced_rows(load: ProducerLoad, combine: type[BinaryExpr]) -> ProducerLoad | None:
    """What a reduction of whole rows, by the sum or the maximum, reads; None if it is none."""
    op = load.tensor.op
    body = op.body[0] if isinstance(op, ComputeOp) else None
    if not isinstance(body, Reduce) or len(body.axis) != 1 or not is_reduction_by(body, combine):
        return None
    assert isinstance(op, ComputeOp)
    read = body.source[0]
    if not isinstance(read, ProducerLoad):
        return None
    (axis,) = body.axis
    length = None if axis.dom is None else build.int_value(axis.dom.extent)
    whole = length is not None and length == build.int_value(read.tensor.shape[-1])
    places = (*(each.var for each in op.axis), axis.var)
    return read if whole and _are_same(read.indices, places) else None


def is_reduction_by(body: Reduce, combine: type[BinaryExpr]) -> bool:
    """Whether a reduction of single numbers, from nothing on, is by the sum or the maximum."""
    if len(body.source) != 1 or body.init or not build.is_const(body.condition, 1):
        return False
    (left,), (right,), (result,) = body.combiner.left, body.combiner.right, body.combiner.result
    return type(result) is combine and {*result.children()} == {left, right}


class SoftmaxRewriter(Rewriter):
    """Quick powers, and one division for a row instead of one for each element.

    renewed: what stands for a tensor of the user's in what is written.
    """

    def __init__(self, renewed: Callable[[Tensor], Tensor]) -> None:
        self._renewed = renewed
        self._factors: dict[Tensor, Tensor] = {}

    def visit_Call(self, call: Call) -> Expr:
        kept: Expr = self.rewrite_children(call)
        return quick_exp(call.args[0]) if is_shifted_power(call) else kept

    def visit_Div(self, division: Div) -> Expr:
        part, total = self.rewrite(division.a), division.b
        if not is_total_of_powers(total):
            return Div(part, self.rewrite(total)) if part is not division.a else division
        assert isinstance(total, ProducerLoad)
        summed = self._renewed(total.tensor)
        if summed not in self._factors:
            self._factors[summed] = compute(
                summed.shape, lambda *i: 1.0 / summed(*i), name=f"{summed.name}_factor"
            )
        factor = self._factors[summed](*total.indices)
        return bind(part, lambda p: bind(
            p * factor, lambda near: near + (p - near * total) * factor))

"""Validation of packed weights that say where loops read: graphs may come from strangers."""

from sterna.relay.arrays import shared_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr
from sterna.relay.op import record_of
from sterna.relay.traverse import not_primitive, post_order
from sterna.schedule.implementation import expect_packed_values, plan_of
from sterna.schedule.packed import contraction_of_call


def check_packed(main: Function) -> None:
    """Raise ValueError for a kernel of a graph whose packed weights would lead it outside."""
    for expr in post_order(main, not_primitive):
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            given: dict[RelayExpr, RelayExpr] = dict(zip(expr.op.params, expr.args, strict=True))
            for part in post_order(expr.op.body):
                if isinstance(part, Call) and plan_of(part.attrs) is not None:
                    _check(part, given)


def _check(call: Call, given: dict[RelayExpr, RelayExpr]) -> None:
    operands = [given.get(arg, arg) for arg in call.args[1:]]
    arrays = [shared_numpy(each.data) if isinstance(each, Constant) else None for each in operands]
    record, made = record_of(call), contraction_of_call(call)
    assert record is not None and call.attrs is not None
    if record.contraction.describe is None:  # the shape says it all, and its type was inferred
        return
    assert made is not None
    try:
        expect_packed_values(call.attrs, made, arrays)
    except ValueError as error:
        raise ValueError(f"{call.span or record.name}: {error}") from None

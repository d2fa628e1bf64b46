"""Calls replaced by what their operators' records say: what several passes have in common."""

from collections.abc import Callable

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr, Tuple, TupleGetItem
from sterna.relay.op import OpRecord, record_of
from sterna.relay.traverse import not_primitive, rewrite

# What stands for a call; None to leave it.
Answer = Callable[[OpRecord, Call], RelayExpr | None]


def rewrite_calls(func: Function, answer: Answer) -> Function:
    """The function with calls replaced; what replaces them is looked at again."""

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if isinstance(new, TupleGetItem) and isinstance(new.tuple_value, Tuple):
            return new.tuple_value.fields[new.index]
        record = record_of(new)
        if record is None:
            return new
        assert isinstance(new, Call)
        made = answer(record, new)
        if made is None or made is new:
            return new
        if made.span is None:
            made.span = new.span
        known = {id(arg) for arg in new.args}
        return rewrite(made, change, lambda expr: id(expr) not in known)

    made = rewrite(func, change, not_primitive)
    assert isinstance(made, Function)
    return made


def call_pass(name: str, opt_level: int, answer: Answer) -> Pass:
    """A pass that replaces calls."""
    made: Pass = function_pass(
        lambda func, mod, context: rewrite_calls(func, answer),
        opt_level=opt_level, name=name, kind=Function,
    )  # fmt: skip
    return made

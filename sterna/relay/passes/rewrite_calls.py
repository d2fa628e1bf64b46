"""Calls replaced by what their operators' records say: what several passes have in common."""

from collections.abc import Callable, Sequence

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr, Tuple, TupleGetItem
from sterna.relay.op import AnyOp, rules_of
from sterna.relay.traverse import not_primitive, rewrite

# What rewritings consist of.
NEW = (Call, Tuple, TupleGetItem)

# What stands for a call; None to leave it.
Answer = Callable[[AnyOp, Call], RelayExpr | None]


def rewrite_calls(func: Function, answer: Answer) -> Function:
    """The function with calls replaced; what replaces them is looked at again."""
    done: dict[int, RelayExpr] = {}  # what was looked at; kept alive, so that ids stay its own

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if id(new) in done:
            return new
        made = replaced(new)
        done[id(made)] = made
        return made

    def replaced(expr: RelayExpr) -> RelayExpr:
        if isinstance(expr, TupleGetItem) and isinstance(expr.tuple_value, Tuple):
            return expr.tuple_value.fields[expr.index]
        record = rules_of(expr)
        if record is None:
            return expr
        assert isinstance(expr, Call)
        made = answer(record, expr)
        if made is None or made is expr:
            return expr
        name_parts([made], expr)
        return rewrite(made, change, lambda part: id(part) not in done)

    made = rewrite(func, change, not_primitive)
    assert isinstance(made, Function)
    return made


def name_parts(
    made: Sequence[RelayExpr], call: Call, known: Sequence[RelayExpr] | None = None
) -> None:
    """What stands for a call comes from where the call comes from, all new parts of it.

    known: what the new parts read, in place of the call's arguments.
    """
    if not call.span:
        return
    old = {id(arg) for arg in (call.args if known is None else known)}
    stack = list(made)
    while stack:
        part = stack.pop()
        if part.span is None and id(part) not in old and isinstance(part, NEW):
            part.span = call.span
            stack.extend(part.operands())


def call_pass(name: str, opt_level: int, answer: Answer) -> Pass:
    """A pass that replaces calls."""
    made: Pass = function_pass(
        lambda func, mod, context: rewrite_calls(func, answer),
        opt_level=opt_level, name=name, kind=Function,
    )
    return made

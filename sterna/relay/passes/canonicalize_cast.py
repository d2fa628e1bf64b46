"""Rematerialisation of widening casts: one for each reader, so that it becomes part of its kernel.

    %1 = cast(%x, dtype="int32"); add(%1, %a), multiply(%1, %b)
        -> add(cast(%x, dtype="int32"), %a), multiply(cast(%x, dtype="int32"), %b)

Between kernels there are then the narrow elements instead of the wide ones.
"""

from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TensorType
from sterna.relay.expr import Call, Function, RelayExpr
from sterna.relay.op import BROADCAST, is_call_of, record_of
from sterna.relay.traverse import not_primitive, rewrite


def CanonicalizeCast() -> Pass:
    """Give every reader of a widening cast a cast of its own."""
    made: Pass = function_pass(
        lambda func, mod, context: canonicalize_cast(func),
        opt_level=3, name="CanonicalizeCast", kind=Function,
    )
    return made


def canonicalize_cast(func: Function) -> Function:
    """The function in which no two elementwise calls read one widening cast."""
    taken: set[int] = set()
    kept: list[RelayExpr] = []

    def own(arg: RelayExpr) -> RelayExpr:
        if not _widens(arg):
            return arg
        if id(arg) not in taken:
            taken.add(id(arg))
            kept.append(arg)
            return arg
        assert isinstance(arg, Call)
        copy = Call(arg.op, arg.args, arg.attrs)
        copy.span = arg.span
        return copy

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        record = record_of(new)
        if record is None or record.pattern > BROADCAST:
            return new
        assert isinstance(new, Call)
        mine: dict[int, RelayExpr] = {}
        args = tuple([mine.setdefault(id(arg), own(arg)) for arg in new.args])
        if all(a is b for a, b in zip(args, new.args, strict=True)):
            return new
        made = Call(new.op, args, new.attrs)
        made.span = new.span
        return made

    result = rewrite(func, change, not_primitive)
    assert isinstance(result, Function)
    return result


def _widens(expr: RelayExpr) -> bool:
    if not is_call_of(expr, "cast"):
        return False
    assert isinstance(expr, Call)
    wide, narrow = expr.checked_type, expr.args[0].checked_type
    assert isinstance(wide, TensorType) and isinstance(narrow, TensorType)
    return wide.dtype.bits > narrow.dtype.bits

"""Common subexpression elimination (CSE): equal calls, computed once.

    %1 = nn.relu(%x); %2 = nn.relu(%x); add(%1, %2)   ->   %1 = nn.relu(%x); add(%1, %1)
"""

from collections.abc import Callable
from typing import Any

from sterna.ir.structural import structural_equal
from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem
from sterna.relay.op import Op, record_of
from sterna.relay.traverse import not_primitive, rewrite


def EliminateCommonSubexpr(fskip: Callable[[RelayExpr], bool] | None = None) -> Pass:
    """Compute equal calls once, except those that fskip picks."""
    made: Pass = function_pass(
        lambda func, mod, context: eliminate_common_subexpr(func, fskip),
        opt_level=3, name="EliminateCommonSubexpr", kind=Function,
    )
    return made


def eliminate_common_subexpr(
    func: Function, skip: Callable[[RelayExpr], bool] | None = None
) -> Function:
    """The function with equal calls of operators shared."""
    known: dict[Any, list[RelayExpr]] = {}

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        key = _key(new)
        if key is None or (skip is not None and isinstance(new, Call) and skip(new)):
            return new
        same = known.setdefault(key, [])
        for other in same:
            if _same_attrs(other, new):
                return other
        same.append(new)
        return new

    made = rewrite(func, change, not_primitive)
    assert isinstance(made, Function)
    return made


def _key(expr: RelayExpr) -> Any:
    """What equal expressions share: for calls the operator and the identity of the operands."""
    record = record_of(expr)
    if record is not None and record.foldable:
        assert isinstance(expr, Call) and isinstance(expr.op, Op)
        return (expr.op.name, tuple(map(id, expr.args)))
    if isinstance(expr, TupleGetItem):
        return (expr.index, id(expr.tuple_value))
    if isinstance(expr, Tuple):
        return ("tuple", tuple(map(id, expr.fields)))
    if isinstance(expr, Constant) and not expr.data.shape:
        return ("scalar", str(expr.data.dtype), expr.data.numpy().tobytes())
    return None


def _same_attrs(a: RelayExpr, b: RelayExpr) -> bool:
    if isinstance(a, Call) and isinstance(b, Call):
        return structural_equal(a.attrs, b.attrs)
    return True

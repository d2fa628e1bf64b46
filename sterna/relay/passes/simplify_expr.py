"""Algebraic simplification: calls that are equal to fewer or cheaper ones.

    add(%x, 0f)                    ->  %x
    transpose(transpose(%x))       ->  %x
    add(add(%x, 1f), 2f)           ->  add(%x, 3f)

The rules stand with the operators: `rewrites` in their records.
"""

from sterna.ir.transform import Pass
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import AnyOp
from sterna.relay.passes.rewrite_calls import call_pass


def SimplifyExpr() -> Pass:
    """Replace calls by what is equal to them and cheaper."""
    return call_pass("SimplifyExpr", 0, simplify_expr)


def SimplifyExprPostAlterOp() -> Pass:
    """The same once more, for what a change of layouts leaves behind."""
    return call_pass("SimplifyExprPostAlterOp", 0, simplify_expr)


def simplify_expr(record: AnyOp, call: Call) -> RelayExpr | None:
    """What the first of the operator's rules that fits says."""
    for rule in record.rewrites:
        made = rule(call)
        if made is not None:
            return made
    return None

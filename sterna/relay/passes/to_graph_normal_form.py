"""Graph normal form: lets replaced by what they name; values are shared by being one expression.

    let %v = add(%x, %x); multiply(%v, %v)   ->   %0 = add(%x, %x); multiply(%0, %0)
"""

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Function, Let, RelayExpr, Var
from sterna.relay.traverse import not_primitive, post_order, rebuild


def ToGraphNormalForm() -> Pass:
    """Replace lets by shared expressions."""
    made: Pass = function_pass(
        lambda func, mod, context: to_graph_normal_form(func),
        opt_level=1, name="ToGraphNormalForm", kind=Function,
    )
    return made


def to_graph_normal_form(func: Function) -> Function:
    """The function without lets."""
    values: dict[Var, RelayExpr] = {}
    order = post_order(func, not_primitive)
    for expr in order:
        if isinstance(expr, Let):
            values[expr.var] = expr.value
    if not values:
        return func
    made: dict[int, RelayExpr] = {}
    stack: list[RelayExpr] = [func]
    while stack:
        expr = stack[-1]
        if id(expr) in made:
            stack.pop()
            continue
        needs = _needs(expr, values)
        waiting = [part for part in needs if id(part) not in made]
        if waiting:
            stack += reversed(waiting)
            continue
        stack.pop()
        if isinstance(expr, Var) and expr in values:
            made[id(expr)] = made[id(values[expr])]
        elif isinstance(expr, Let):
            made[id(expr)] = made[id(expr.body)]
        else:
            made[id(expr)] = rebuild(expr, made) if not_primitive(expr) else expr
    result = made[id(func)]
    assert isinstance(result, Function)
    return result


def _needs(expr: RelayExpr, values: dict[Var, RelayExpr]) -> tuple[RelayExpr, ...]:
    if isinstance(expr, Var):
        return (values[expr],) if expr in values else ()
    if isinstance(expr, Let):
        return (expr.body,)
    if not not_primitive(expr):
        return ()
    inner: tuple[RelayExpr, ...] = expr.operands()  # type: ignore[attr-defined]
    return inner

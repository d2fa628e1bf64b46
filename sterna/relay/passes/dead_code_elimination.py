"""Dead code elimination: lets whose variables nobody reads, removed.

    let %v = add(%x, %x); let %w = nn.relu(%x); %w   ->   let %w = nn.relu(%x); %w
"""

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Function, Let, RelayExpr, Var
from sterna.relay.passes.to_graph_normal_form import to_graph_normal_form
from sterna.relay.traverse import not_primitive, post_order, rewrite


def DeadCodeElimination(inline_once: bool = False, ignore_impurity: bool = False) -> Pass:
    """Remove what is not used; inline_once also replaces lets by what they name."""

    def change(func: Function) -> Function:
        return to_graph_normal_form(func) if inline_once else dead_code_elimination(func)

    made: Pass = function_pass(
        lambda func, mod, context: change(func),
        opt_level=1, name="DeadCodeElimination", kind=Function,
    )
    return made


def dead_code_elimination(func: Function) -> Function:
    """The function without lets that nothing reads, not even indirectly."""
    used = _used(func)

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        return new.body if isinstance(new, Let) and new.var not in used else new

    made = rewrite(func, change, not_primitive)
    assert isinstance(made, Function)
    return made


def _used(func: Function) -> set[Var]:
    """The variables of lets from which the result is made."""
    values = {e.var: e.value for e in post_order(func, not_primitive) if isinstance(e, Let)}
    used: set[Var] = set()
    seen: set[int] = set()
    stack: list[RelayExpr] = [func]
    while stack:
        expr = stack.pop()
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        if isinstance(expr, Let):
            stack.append(expr.body)
        elif isinstance(expr, Var):
            used.add(expr)
            stack += [values[expr]] if expr in values else []
        elif not_primitive(expr):
            stack += expr.operands()  # type: ignore[attr-defined]
    return used

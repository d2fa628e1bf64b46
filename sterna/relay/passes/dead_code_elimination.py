"""Lets whose variables nobody reads, removed.

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
    )  # fmt: skip
    return made


def dead_code_elimination(func: Function) -> Function:
    """The function without lets that nobody reads; removing one may make others unread."""
    while True:
        used = _used(func)

        def change(new: RelayExpr, old: RelayExpr, used: set[Var] = used) -> RelayExpr:
            if isinstance(new, Let) and new.var not in used:
                return new.body
            return new

        made = rewrite(func, change, not_primitive)
        assert isinstance(made, Function)
        if made is func:
            return func
        func = made


def _used(func: Function) -> set[Var]:
    """The variables that are read somewhere, beside where they are bound."""
    used: set[Var] = set()
    for expr in post_order(func, not_primitive):
        inner = expr.operands() if not_primitive(expr) else ()  # type: ignore[attr-defined]
        bound = expr.params if isinstance(expr, Function) else ()
        for place, part in enumerate(inner):
            names = isinstance(expr, Let) and place == 0
            if isinstance(part, Var) and not names and part not in bound:
                used.add(part)
        if isinstance(expr, Function) and isinstance(expr.body, Var):
            used.add(expr.body)
    return used

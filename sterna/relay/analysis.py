"""Questions about graphs."""

from collections.abc import Callable

from sterna.relay.expr import Function, Let, RelayExpr, Var
from sterna.relay.traverse import post_order


def post_order_visit(expr: RelayExpr, fvisit: Callable[[RelayExpr], object]) -> None:
    """Visit every expression once, what it is made of first."""
    for found in post_order(expr):
        fvisit(found)


def all_vars(expr: RelayExpr) -> list[Var]:
    """Every variable, in the order in which a walk meets them."""
    return [found for found in post_order(expr) if isinstance(found, Var)]


def bound_vars(expr: RelayExpr) -> list[Var]:
    """The variables that functions and lets inside bind."""
    bound: dict[Var, None] = {}
    for found in post_order(expr):
        if isinstance(found, Function):
            bound.update(dict.fromkeys(found.params))
        elif isinstance(found, Let):
            bound.setdefault(found.var)
    return [v for v in all_vars(expr) if v in bound]


def free_vars(expr: RelayExpr) -> list[Var]:
    """The variables that nothing inside binds."""
    bound = set(bound_vars(expr))
    return [v for v in all_vars(expr) if v not in bound]

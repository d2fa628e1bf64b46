"""Side effects: what an expression does beside having a value."""

from sterna.ir.expr import Call, Expr
from sterna.ir.node import Node, post_order
from sterna.tir.intrinsics import INTRINSICS


def has_effect(expr: Expr) -> bool:
    """Whether evaluating it does something: it calls what is not known as harmless."""
    stack: list[Node] = [expr]
    while stack:
        found = stack.pop()
        if isinstance(found, Call):
            known = INTRINSICS.get(found.op)
            if known is None or known.has_effect:
                return True
        stack.extend(found.children())
    return False


def calls(node: Node, op: str) -> bool:
    """Whether something within a node calls a function."""
    found: list[Node] = []
    post_order(node, lambda n: found.append(n) if isinstance(n, Call) and n.op == op else None)
    return bool(found)

"""What an expression does beside having a value."""

from sterna.ir.expr import Call, Expr
from sterna.ir.node import Node
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

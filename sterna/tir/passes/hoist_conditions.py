"""Ask a question once, before a loop, instead of in every iteration."""

from sterna.ir.expr import Call, Expr, Var
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.tir.copy import copy_stmt
from sterna.tir.stmt import BufferLoad, For, IfThenElse, PrimFunc, Stmt


def hoist_conditions(func: PrimFunc) -> PrimFunc:
    """for i in range(n): if m < 4: S   ->   if m < 4: for i in range(n): S

    Only conditions that the loop cannot change: they use neither its variable nor memory.
    """
    return func.with_body(_Hoister().rewrite(func.body))


class _Hoister(Rewriter):
    def visit_For(self, loop: For) -> Stmt:
        body = self.rewrite(loop.body)
        if isinstance(body, IfThenElse) and _is_fixed(body.condition, loop.var):
            then = loop.with_body(body.then)
            otherwise = None
            if body.otherwise is not None:
                otherwise = copy_stmt(loop.with_body(body.otherwise), {})
            return IfThenElse(body.condition, then, otherwise)
        return loop.with_body(body)


def _is_fixed(condition: Expr, var: Var) -> bool:
    """Whether a condition is the same in all iterations of a loop."""
    fixed = True

    def look(node: Node) -> None:
        nonlocal fixed
        if node is var or isinstance(node, BufferLoad):
            fixed = False
        if isinstance(node, Call) and node.op not in ("likely", "if_then_else"):
            fixed = False  # it may have an effect, or read what the loop writes

    post_order(condition, look)
    return fixed

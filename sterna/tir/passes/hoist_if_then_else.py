"""Loop unswitching: ask what a loop cannot change once, before it, not in every iteration."""

import functools
from collections.abc import Iterator

from sterna.ir.expr import And, Call, Expr, Var
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.tir.copy import copy_stmt
from sterna.tir.stmt import BufferLoad, For, IfThenElse, PrimFunc, Stmt
from sterna.tir.threads import has_threads


def hoist_if_then_else(func: PrimFunc) -> PrimFunc:
    """for i in range(n): if m < 4 and i < 3: S   ->   if m < 4: for i in range(n): if i < 3: S

    Only conditions that the loop cannot change: they use neither its variable nor memory.
    """
    if has_threads(func.body):  # where only some threads come by, none can wait for others
        return func
    return func.with_body(_Hoister().rewrite(func.body))


class _Hoister(Rewriter):
    def visit_For(self, loop: For) -> Stmt:
        body = self.rewrite(loop.body)
        if not isinstance(body, IfThenElse):
            return loop.with_body(body)
        if body.otherwise is not None:
            if not _is_fixed(body.condition, loop.var):
                return loop.with_body(body)
            otherwise = copy_stmt(loop.with_body(body.otherwise), {})
            return IfThenElse(body.condition, loop.with_body(body.then), otherwise)
        parts = list(conjuncts(body.condition))
        fixed = [part for part in parts if _is_fixed(part, loop.var)]
        if not fixed:
            return loop.with_body(body)
        rest = [part for part in parts if part not in fixed]
        inner = IfThenElse(_all_of(rest), body.then) if rest else body.then
        return IfThenElse(_all_of(fixed), loop.with_body(inner))


def conjuncts(condition: Expr) -> Iterator[Expr]:
    """The conditions that hold together if the whole does."""
    if isinstance(condition, And):
        yield from conjuncts(condition.a)
        yield from conjuncts(condition.b)
    else:
        yield condition


def _all_of(conditions: list[Expr]) -> Expr:
    return functools.reduce(And, conditions)


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

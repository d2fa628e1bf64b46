"""Assertion removal: remove all checks."""

from typing import Any

from sterna.ir.expr import Call, Expr
from sterna.ir.visitor import Rewriter
from sterna.tir.passes.remove_no_op import remove_no_op_in
from sterna.tir.stmt import AssertStmt, Evaluate, PrimFunc, Stmt, nothing


def skip_assert(func: PrimFunc) -> PrimFunc:
    """assert n < 4, ValueError("n is large"); S   ->   S"""
    body = _Remover().rewrite(func.body)
    return func if body is func.body else func.with_body(remove_no_op_in(body))


class _Remover(Rewriter):
    def rewrite(self, node: Any) -> Any:
        return node if isinstance(node, Expr) else super().rewrite(node)

    def visit_AssertStmt(self, check: AssertStmt) -> Stmt:
        return nothing()

    def visit_Evaluate(self, stmt: Evaluate) -> Stmt:
        checks = isinstance(stmt.value, Call) and stmt.value.op == "check_array"
        return nothing() if checks else stmt

"""Copy and constant propagation: put values in the place of the names that stand for them."""

from typing import Any

from sterna.arith import substitute
from sterna.ir.expr import HANDLE, Expr, FloatImm, IntImm, Var
from sterna.ir.visitor import Rewriter
from sterna.tir.stmt import LetStmt, PrimFunc, Stmt


def inline_lets(func: PrimFunc) -> PrimFunc:
    """x = n; y = 4; z = n*8; A[x + y + z] = 0   ->   z = n*8; A[n + 4 + z] = 0

    Names of anything larger stay: what has a name is computed once, and its integers may wrap.
    """
    opener = _Opener()
    body = opener.rewrite(func.body)
    return func.with_body(substitute(body, opener.values))


class _Opener(Rewriter):
    """Takes away the lets, and remembers what their names stand for."""

    def __init__(self) -> None:
        self.values: dict[Var, Expr] = {}

    def rewrite(self, node: Any) -> Any:
        return node if isinstance(node, Expr) else super().rewrite(node)

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        value = let.value
        # An address may be that of a buffer, which goes by the variable itself.
        if isinstance(value, (Var, IntImm, FloatImm)) and let.var.dtype != HANDLE:
            known = self.values.get(value, value) if isinstance(value, Var) else value
            self.values[let.var] = known
            inner: Stmt = self.rewrite(let.body)
            return inner
        body = self.rewrite(let.body)
        return let if body is let.body else LetStmt(let.var, value, body)

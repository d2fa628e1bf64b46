"""Dead code elimination: remove statements that do nothing."""

from typing import Any

from sterna.ir import build
from sterna.ir.expr import HANDLE, Expr, Var
from sterna.ir.node import Node
from sterna.ir.structural import structural_equal
from sterna.ir.visitor import Rewriter
from sterna.tir.effects import has_effect
from sterna.tir.stmt import (
    Allocate,
    AttrStmt,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    is_nothing,
    nothing,
    seq,
)


def remove_no_op(func: PrimFunc) -> PrimFunc:
    """for i in range(n): pass;  for j in range(0): S;  A[k] = A[k];  if c: pass else: T

    ->  if not c: T
    """
    return func.with_body(remove_no_op_in(func.body))


def remove_no_op_in(stmt: Stmt) -> Stmt:
    """A statement without those inside it that do nothing."""
    done: Stmt = _Remover().rewrite(stmt)
    return done


class _Remover(Rewriter):
    def rewrite(self, node: Any) -> Any:
        return node if isinstance(node, Expr) else super().rewrite(node)

    def visit_For(self, loop: For) -> Stmt:
        count = build.int_value(loop.extent)
        if count is not None and count <= 0:
            return _only(loop.min)
        body = self.rewrite(loop.body)
        return _only(loop.min, loop.extent) if is_nothing(body) else loop.with_body(body)

    def visit_IfThenElse(self, branch: IfThenElse) -> Stmt:
        then = self.rewrite(branch.then)
        otherwise = None if branch.otherwise is None else self.rewrite(branch.otherwise)
        if otherwise is not None and is_nothing(otherwise):
            otherwise = None
        if not is_nothing(then):
            same = then is branch.then and otherwise is branch.otherwise
            return branch if same else IfThenElse(branch.condition, then, otherwise)
        if otherwise is None:
            return _only(branch.condition)
        return IfThenElse(build.logical_not(branch.condition), otherwise)

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        body = self.rewrite(let.body)
        if not has_effect(let.value) and not _uses(body, let.var):
            kept: Stmt = body
            return kept
        return let if body is let.body else LetStmt(let.var, let.value, body)

    def visit_SeqStmt(self, sequence: SeqStmt) -> Stmt:
        stmts = [self.rewrite(stmt) for stmt in sequence.stmts]
        same = all(a is b for a, b in zip(stmts, sequence.stmts, strict=True))
        return sequence if same and not any(map(is_nothing, stmts)) else seq(*stmts)

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        body = self.rewrite(allocate.body)
        if is_nothing(body):
            return nothing()
        return allocate if body is allocate.body else Allocate(allocate.buffer, body)

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        body = self.rewrite(attr.body)
        if is_nothing(body):
            return nothing()
        return attr if body is attr.body else AttrStmt(attr.key, attr.node, attr.value, body)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        value = store.value
        if (
            isinstance(value, BufferLoad)
            and value.buffer is store.buffer
            and structural_equal(value.indices, store.indices)
        ):
            return nothing()
        return store

    def visit_Evaluate(self, evaluate: Evaluate) -> Stmt:
        return evaluate if has_effect(evaluate.value) else nothing()


def _only(*exprs: Expr) -> Stmt:
    """What is left of a statement that only evaluates these."""
    return seq(*[Evaluate(expr) for expr in exprs if has_effect(expr)])


def _uses(stmt: Stmt, var: Var) -> bool:
    if var.dtype == HANDLE:
        return True  # it may be the address of a buffer
    stack: list[Node] = [stmt]
    while stack:
        found = stack.pop()
        if found is var:
            return True
        stack.extend(found.children())
    return False

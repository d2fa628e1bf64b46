"""Algebraic simplification of every expression under what is known where it stands."""

from collections.abc import Iterable, Mapping
from typing import Any

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike, Var
from sterna.ir.visitor import Rewriter
from sterna.tir.stmt import (
    AssertStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    nothing,
)


def simplify(func: PrimFunc, keep_trivial_loops: bool = False) -> PrimFunc:
    """for i in range(8): if likely(i*4 + 3 < 32): A[i*4//4] = ...   ->   ... A[i] = ...

    A loop of one iteration becomes that iteration, unless trivial loops shall be kept.
    """
    return func.with_body(_Simplifier(keep_trivial_loops).rewrite(func.body))


def simplify_stmt(
    stmt: Stmt,
    ranges: Mapping[Var, tuple[ExprLike, ExprLike]] | None = None,
    keep_trivial_loops: bool = False,
) -> Stmt:
    """A statement, simplified under known first values and extents of variables."""
    return simplify_stmts([stmt], ranges, keep_trivial_loops)[0]


def simplify_stmts(
    stmts: Iterable[Stmt],
    ranges: Mapping[Var, tuple[ExprLike, ExprLike]] | None = None,
    keep_trivial_loops: bool = False,
) -> list[Stmt]:
    """Statements of one place, each simplified as simplify_stmt does."""
    simplifier = _Simplifier(keep_trivial_loops)
    for var, (start, extent) in (ranges or {}).items():
        simplifier.analyzer.bind(var, start, extent)
    return [simplifier.rewrite(stmt) for stmt in stmts]


class _Simplifier(Rewriter):
    def __init__(self, keep_trivial_loops: bool) -> None:
        self.keep_trivial_loops = keep_trivial_loops
        self.analyzer = Analyzer()

    def rewrite(self, node: Any) -> Any:
        if isinstance(node, Expr):
            return self.analyzer.simplify(node)
        return super().rewrite(node)

    def visit_For(self, loop: For) -> Stmt:
        start, extent = self.rewrite(loop.min), self.rewrite(loop.extent)
        count = build.int_value(extent)
        if count == 1 and loop.kind != "thread" and not self.keep_trivial_loops:
            once: Stmt = self.rewrite(substitute(loop.body, {loop.var: start}))
            return once
        body = loop.body
        if count is None or count > 0:
            self.analyzer.bind(loop.var, start, extent)
            body = self.rewrite(body)
            self.analyzer.unbind(loop.var)
        if start is loop.min and extent is loop.extent and body is loop.body:
            return loop
        return For(loop.var, start, extent, loop.kind, body, loop.thread, loop.annotations)

    def visit_IfThenElse(self, branch: IfThenElse) -> Stmt:
        condition = self.rewrite(branch.condition)
        if build.is_const(condition, 1) or self.analyzer.can_prove(condition):
            taken: Stmt = self.rewrite(branch.then)
            return taken
        if build.is_const(condition, 0):
            return nothing() if branch.otherwise is None else self.rewrite(branch.otherwise)
        with self.analyzer.assuming(condition):
            then = self.rewrite(branch.then)
        otherwise = branch.otherwise
        if otherwise is not None:
            with self.analyzer.assuming(build.logical_not(condition)):
                otherwise = self.rewrite(otherwise)
        if (
            condition is branch.condition
            and then is branch.then
            and otherwise is branch.otherwise
        ):
            return branch
        return IfThenElse(condition, then, otherwise)

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        value = self.rewrite(let.value)
        body = self.rewrite(let.body)
        same = value is let.value and body is let.body
        return let if same else LetStmt(let.var, value, body)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer  # one object for all its uses, whose expressions do not see its shape

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        value = self.rewrite(store.value)
        indices = tuple(self.rewrite(i) for i in store.indices)
        predicate = None if store.predicate is None else self.rewrite(store.predicate)
        if predicate is not None and build.is_const(predicate, 1):
            predicate = None
        if (
            value is store.value
            and predicate is store.predicate
            and all(a is b for a, b in zip(indices, store.indices, strict=True))
        ):
            return store
        return BufferStore(store.buffer, value, indices, predicate)

    def visit_Evaluate(self, evaluate: Evaluate) -> Stmt:
        value = self.rewrite(evaluate.value)
        return evaluate if value is evaluate.value else Evaluate(value)

    def visit_AssertStmt(self, check: AssertStmt) -> Stmt:
        condition = self.rewrite(check.condition)
        if build.is_const(condition, 1):
            return nothing()
        if condition is check.condition:
            return check
        return AssertStmt(condition, check.kind, check.message, check.values)

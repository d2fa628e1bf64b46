"""Bounds checking: check every index before it is used."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Let, Shuffle, Var
from sterna.ir.visitor import Rewriter
from sterna.tir.stmt import (
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    seq,
)

Wrap = Callable[[Expr], Expr]

# Calls whose argument names an element without reading it.
_PLACES = ("address_of", "prefetch", "view_of")


def instrument_bound_checkers(func: PrimFunc) -> PrimFunc:
    """B[i] = if_then_else(c, A[i + 1], 0)

    ->  assert if_then_else(c, 0 <= i + 1 < n, true), IndexError("f: A[i + 1] ... is {}", i + 1, n)
        assert 0 <= i < m, IndexError("f: B[i] is outside: index 0 is {} of {}", i, m)
        B[i] = if_then_else(c, A[i + 1], 0)
    """
    return func.with_body(_Instrumenter(func.name).rewrite(func.body))


@dataclass(frozen=True, slots=True)
class _Access:
    """An element that is used, under what conditions, and with what names in scope."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    guard: Wrap
    """The truth of a condition where the access is evaluated, and true elsewhere."""
    scope: Wrap
    """An expression in the scope of the lets around the access."""


def _same(expr: Expr) -> Expr:
    return expr


class _Instrumenter(Rewriter):
    def __init__(self, function: str) -> None:
        self.function = function

    def rewrite(self, node: Any) -> Any:
        return node if isinstance(node, Expr) else super().rewrite(node)

    # ---- statements ----

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        parts = [*store.indices, store.value]
        guard: Wrap = _same
        if store.predicate is not None:
            predicate = store.predicate
            parts.append(predicate)
            guard = lambda check: build.logical_or(build.logical_not(predicate), check)  # noqa: E731
        own = _Access(store.buffer, store.indices, guard, _same)
        return self.checked(store, parts, [own])

    def visit_For(self, loop: For) -> Stmt:
        return self.checked(loop.with_body(self.rewrite(loop.body)), [loop.min, loop.extent])

    def visit_IfThenElse(self, branch: IfThenElse) -> Stmt:
        return self.checked(self.rewrite_children(branch), [branch.condition])

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        return self.checked(self.rewrite_children(let), [let.value])

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        return self.checked(self.rewrite_children(attr), [attr.value])

    def visit_AssertStmt(self, check: AssertStmt) -> Stmt:
        return self.checked(check, [check.condition])

    def visit_Evaluate(self, evaluate: Evaluate) -> Stmt:
        return self.checked(evaluate, [evaluate.value])

    def checked(
        self, stmt: Stmt, parts: list[Expr], more: list[_Access] | None = None
    ) -> Stmt:
        """A statement after the checks of what its parts read."""
        accesses: list[_Access] = []
        for part in parts:
            _collect(part, _same, _same, accesses)
        checks: dict[str, Stmt] = {}
        for access in [*accesses, *(more or [])]:
            for check in self.checks(access):
                checks.setdefault(str(check), check)
        return seq(*checks.values(), stmt) if checks else stmt

    # ---- checks ----

    def checks(self, access: _Access) -> list[Stmt]:
        """One check per index, and per lane of it."""
        buffer, indices = access.buffer, access.indices
        lanes = max((index.dtype.lanes for index in indices), default=1)
        place = f"{buffer.name}[{', '.join(map(str, indices))}]"
        found: list[Stmt] = []
        for dim, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
            holds = build.logical_and(build.greater_equal(index, 0), build.less(index, extent))
            guarded = access.guard(holds)
            text = f"{self.function}: {place} is outside the buffer: index {dim} is {{}} of {{}}"
            for lane in range(lanes):
                condition = _lane(guarded, lane)
                value = access.scope(_lane(index, lane))
                found.append(AssertStmt(condition, "IndexError", text, (value, extent)))
        return found


def _lane(expr: Expr, lane: int) -> Expr:
    return Shuffle((expr,), (lane,)) if expr.dtype.lanes > 1 else expr


def _collect(expr: Expr, guard: Wrap, scope: Wrap, found: list[_Access]) -> None:
    """The loads in an expression, those in an index before the load itself."""
    if isinstance(expr, Let):
        _collect(expr.value, guard, scope, found)
        _collect(expr.body, _inside(guard, expr), _inside(scope, expr), found)
        return
    if isinstance(expr, Call) and expr.op == "if_then_else":
        condition, then, otherwise = expr.args
        _collect(condition, guard, scope, found)
        _collect(then, _under(guard, condition), scope, found)
        _collect(otherwise, _under(guard, build.logical_not(condition)), scope, found)
        return
    if isinstance(expr, Call) and expr.op in _PLACES and isinstance(expr.args[0], BufferLoad):
        children: tuple[Expr, ...] = (*expr.args[0].indices, *expr.args[1:])
    elif isinstance(expr, BufferLoad):
        children = expr.indices
    else:
        children = tuple(child for child in expr.children() if isinstance(child, Expr))
    for child in children:
        _collect(child, guard, scope, found)
    if isinstance(expr, BufferLoad):
        found.append(_Access(expr.buffer, expr.indices, guard, scope))


def _inside(outer: Wrap, let: Let) -> Wrap:
    """With the name of a let in scope."""

    def wrapped(expr: Expr) -> Expr:
        own = Var(let.var.name, let.var.dtype)  # a variable is bound once
        return outer(Let(own, let.value, substitute(expr, {let.var: own})))

    return wrapped


def _under(guard: Wrap, condition: Expr) -> Wrap:
    """Only where a condition holds, which is evaluated first."""

    def wrapped(check: Expr) -> Expr:
        yes = build.const(True)
        lanes = max(condition.dtype.lanes, check.dtype.lanes)
        then, otherwise = (build.cast(yes.dtype.with_lanes(lanes), e) for e in (check, yes))
        return guard(Call(then.dtype, "if_then_else", (condition, then, otherwise)))

    return wrapped

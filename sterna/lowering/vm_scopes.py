"""Where each expression of a function with control flow is computed.

A scope is a function's body, a branch or the value of a clause. An expression that one scope reads
is computed there; one that several read, in the innermost scope around all of them. Within a scope
calls of operators are gathered into blocks: as many as possible between two steps of control flow.
"""

from dataclasses import dataclass, field

from sterna.ir.expr import Var as ShapeVar
from sterna.ir.types import TensorType
from sterna.relay.adt import Constructor, Match
from sterna.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RelayExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from sterna.relay.op import Op, record_of
from sterna.relay.steps import Extents, Trim
from sterna.relay.symbols import symbols_in
from sterna.relay.traverse import post_order

ATOMS = (Var, GlobalVar, Constant, Constructor, Op)


@dataclass(eq=False, slots=True)
class Scope:
    """Expressions in the order in which they can be computed."""

    parent: "Scope | None" = None
    depth: int = 0
    exprs: list[RelayExpr] = field(default_factory=list)
    reads: list[RelayExpr] = field(default_factory=list)
    """What it and the scopes inside read of scopes around."""

    def inner(self) -> "Scope":
        """A scope in it."""
        return Scope(self, self.depth + 1)


def inner_values(expr: RelayExpr) -> tuple[RelayExpr, ...]:
    """The values of the scopes that begin in an expression."""
    if isinstance(expr, If):
        return (expr.true_branch, expr.false_branch)
    if isinstance(expr, Match):
        return tuple(clause.rhs for clause in expr.clauses)
    return (expr.body,) if isinstance(expr, Function) else ()


def outer_parts(expr: RelayExpr) -> tuple[RelayExpr, ...]:
    """What an expression reads in its own scope."""
    if isinstance(expr, If):
        return (expr.cond,)
    if isinstance(expr, Match):
        return (expr.data,)
    if isinstance(expr, Function):
        return ()
    if isinstance(expr, Let):
        return (expr.value, expr.body)
    if isinstance(expr, Call) and not isinstance(expr.op, Op):
        return (expr.op, *expr.args)
    parts: tuple[RelayExpr, ...] = expr.operands()  # type: ignore[attr-defined]
    return parts


class Scopes:
    """The scopes of a function, and where its expressions are at home."""

    def __init__(self, function: Function) -> None:
        self.home: dict[int, Scope] = {}
        self.inside: dict[int, tuple[Scope, ...]] = {}
        order = post_order(function)
        self.root = Scope()
        self.inside[id(function)] = (self.root,)
        self._read(function.body, self.root)
        for expr in reversed(order[:-1]):
            if isinstance(expr, ATOMS) or id(expr) not in self.home:
                continue
            self._place(expr, self.home[id(expr)])
        for expr in order[:-1]:
            if id(expr) in self.home:
                self.home[id(expr)].exprs.append(expr)
        for expr in order:
            self._note_reads(expr)

    def _place(self, expr: RelayExpr, scope: Scope) -> None:
        for part in outer_parts(expr):
            self._read(part, scope)
        values = inner_values(expr)
        if values:
            self.inside[id(expr)] = tuple(scope.inner() for _ in values)
            for value, own in zip(values, self.inside[id(expr)], strict=True):
                self._read(value, own)

    def _read(self, part: RelayExpr, scope: Scope) -> None:
        if isinstance(part, ATOMS):
            return
        known = self.home.get(id(part))
        self.home[id(part)] = scope if known is None else _common(known, scope)

    def _note_reads(self, expr: RelayExpr) -> None:
        """Tell the scopes between a reader and what it reads that they depend on it."""
        if id(expr) in self.home:
            for part in outer_parts(expr):
                self._note(part, self.home[id(expr)])
        for value, own in zip(inner_values(expr), self.inside.get(id(expr), ()), strict=False):
            self._note(value, own)

    def _note(self, part: RelayExpr, scope: Scope) -> None:
        if isinstance(part, GlobalVar | Constant | Constructor | Op):
            return
        home = self.home.get(id(part))
        at: Scope | None = scope
        while at is not None and at is not home:
            at.reads.append(part)
            at = at.parent


def _common(a: Scope, b: Scope) -> Scope:
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        assert a.parent is not None
        a = a.parent
    return a


# ---- blocks ----


@dataclass(eq=False, slots=True)
class Level:
    """A block, and the steps of control flow that follow it."""

    calls: list[Call] = field(default_factory=list)
    steps: list[RelayExpr] = field(default_factory=list)


def is_step(expr: RelayExpr) -> bool:
    """Whether an expression is a step of control flow, no call of an operator and no tuple."""
    return record_of(expr) is None and not isinstance(expr, Tuple | TupleGetItem | Let)


def levels_of(scope: Scope, scopes: Scopes) -> list[Level]:
    """The blocks and steps of a scope in order.

    The level of an expression is that of the latest thing it needs, and one more if that is a step
    and itself a call of an operator. Steps keep their order: some have effects. A call whose result
    has an extent that a step counted needs the step.
    """
    level: dict[int, int] = {}
    counted: dict[ShapeVar, RelayExpr] = {}
    made: list[Level] = [Level()]
    names = {expr.var: expr.value for expr in scope.exprs if isinstance(expr, Let)}
    latest = 0
    for expr in scope.exprs:
        reads = list(outer_parts(expr))
        for own in scopes.inside.get(id(expr), ()):
            reads += own.reads
        if isinstance(expr, Trim | Extents) and isinstance(expr.extent, ShapeVar):
            counted[expr.extent] = expr
        elif counted and isinstance(expr, Call) and isinstance(expr.checked_type, TensorType):
            symbols = symbols_in([expr.checked_type])
            reads += [counted[symbol] for symbol in symbols if symbol in counted]
        needed = 0
        for part in reads:
            while isinstance(part, Var) and part in names:
                part = names[part]
            if id(part) in level:
                is_late = is_step(part) and not is_step(expr)
                needed = max(needed, level[id(part)] + is_late)
        if is_step(expr):
            needed = latest = max(latest, needed)
        level[id(expr)] = needed
        while len(made) <= needed:
            made.append(Level())
        if record_of(expr) is not None:
            assert isinstance(expr, Call)
            made[needed].calls.append(expr)
        elif is_step(expr):
            made[needed].steps.append(expr)
    return made

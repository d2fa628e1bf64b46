"""Vectorization (SIMD): turn loops that are marked vectorized into vector operations."""

from collections.abc import Iterator
from functools import reduce
from itertools import pairwise

from sterna.arith import detect_linear, substitute
from sterna.ir import build
from sterna.ir.expr import (
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Expr,
    Let,
    Not,
    Ramp,
    Select,
    Var,
    variables_in,
)
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.tir.copy import copy_stmt
from sterna.tir.intrinsics import INTRINSICS
from sterna.tir.passes.loop_partition import (
    Answered,
    Settled,
    borders,
    excess_of,
    likely_guards,
)
from sterna.tir.passes.simplify import simplify_stmt
from sterna.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    Tensorized,
    seq,
    statements_in,
)
from sterna.tir.threads import has_threads


def vectorize_loop(func: PrimFunc, enable: bool = True) -> PrimFunc:
    """for i in range(8):  # vectorized: C[i] = A[i] + x   ->   C[ramp] = A[ramp] + broadcast(x)

    A loop that a border crosses becomes a vector on each side of it:

    for i in range(8):  # vectorized: C[i] = if_then_else(i >= 1, A[i - 1], 0)
    ->  C[0] = 0; C[ramp(1, 1, 7)] = A[ramp(0, 1, 7)]

    One whose guards hold for all iterations or turn somewhere in it, which only the run knows, is a
    vector in the first case:

    for i in range(8):  # vectorized: if likely(o*8 + i < n): C[o*8 + i] = x
    ->  if likely(o*8 + 7 < n): C[ramp] = broadcast(x)
        else: for i in range(8): if likely(o*8 + i < n): C[o*8 + i] = x

    So is one with a choice whose border only the run knows, where all are on one side of it.

    One whose iterations take other ways (a condition on the loop's variable that no earlier pass
    could remove, an inner loop whose bounds depend on it) becomes a serial loop; without enable,
    every one does.
    """
    return func.with_body(_Loops(enable, not has_threads(func.body)).rewrite(func.body))


# Calls that cannot be widened: they take addresses, vectors, or functions that somebody else wrote.
_ONE_BY_ONE = (
    "address_of", "view_of", "dot4", "dot2", "add_pairs", "call_pure_extern",
    "call_llvm_pure_intrin",
)

# Parts that a border cuts a vector into at most, and statements that are written out for each.
MOST_PARTS, MOST_STATEMENTS = 4, 8


class _Divergent(Exception):
    """The iterations take different ways."""


class _Loops(Rewriter):
    def __init__(self, enable: bool, cut: bool) -> None:
        self.enable, self.cut = enable, cut

    def visit_For(self, loop: For) -> Stmt:
        body = self.rewrite(loop.body)
        if loop.kind != "vectorized":
            return loop.with_body(body)
        if not self.enable:
            return loop.with_body(body, "serial")
        lanes = build.int_value(loop.extent)
        if lanes is None:
            raise ValueError(
                f"the loop {loop.var.name} cannot be vectorized: its extent {loop.extent} is not "
                "constant; split it by a constant factor first"
            )
        if lanes == 1:
            single: Stmt = substitute(body, {loop.var: loop.min})
            return single
        try:
            vector: Stmt = _Vectorizer(loop.var, loop.min, lanes).rewrite(body)
        except _Divergent:
            parts = cut_at_borders(loop.with_body(body)) if self.cut else []
            if parts:
                return seq(*map(self.rewrite, parts))
            made = whole_or_guarded(loop.with_body(body), lanes) if self.cut else None
            return loop.with_body(body, "serial") if made is None else made
        return vector


def whole_or_guarded(loop: For, lanes: int) -> Stmt | None:
    """A vector where the guards hold for all of its elements, else the loop with its guards.

    A choice, as between tensors that are joined, is a vector of either side where all elements are
    on that one.
    """
    if len(statements_in(loop.body)) > MOST_STATEMENTS:
        return None
    conditions = [c for c, _ in likely_guards(loop.body, {}) if loop.var in variables_in(c)]
    body = Settled({id(condition): True for condition in conditions}).rewrite(loop.body)
    guarded = loop.with_body(loop.body, "serial")
    inner = _by_sides(loop, lanes, body, guarded, MOST_PARTS)
    holds = [_throughout(condition, loop, True) for condition in conditions]
    known = [each for each in holds if each is not None]
    if inner is None or len(known) < len(conditions):
        return None
    if not known:
        return inner
    return _branch(reduce(build.logical_and, known), inner, guarded)


def _by_sides(loop: For, lanes: int, body: Stmt, guarded: Stmt, most: int) -> Stmt | None:
    """The vector of a body; where choices part its elements, that of each side, else the loop."""
    try:
        vector: Stmt = _Vectorizer(loop.var, loop.min, lanes).rewrite(body)
        return copy_stmt(vector, {})
    except _Divergent:
        pass
    choice = next(choices_on(loop.var, body), None) if most else None
    if choice is None:
        return None
    made = guarded
    for side in (False, True):
        condition = _throughout(choice, loop, side)
        answered = Answered({id(choice): side}).rewrite(body)
        inner = _by_sides(loop, lanes, answered, guarded, most - 1)
        if condition is None or inner is None:
            return None
        made = _branch(condition, inner, made)
    return made


def _branch(condition: Expr, then: Stmt, otherwise: Stmt) -> Stmt:
    likely = Call(condition.dtype, "likely", (condition,))
    return IfThenElse(likely, then, copy_stmt(otherwise, {}))


def choices_on(var: Var, body: Stmt) -> Iterator[Expr]:
    """The conditions of if_then_else that a variable has a say in."""
    found: list[Expr] = []

    def look(node: Node) -> None:
        if isinstance(node, Call) and node.op == "if_then_else" and var in variables_in(
            node.args[0]
        ):
            found.append(node.args[0])

    post_order(body, look)
    yield from reversed(found)  # the outermost first


def _throughout(condition: Expr, loop: For, holds: bool) -> Expr | None:
    """Whether a condition holds, or fails, in all iterations: what it is where it turns last."""
    excess = excess_of(condition)
    linear = None if excess is None else detect_linear(excess, [loop.var])
    step = None if linear is None else build.int_value(linear[0])
    if step is None or not _is_known_before(condition, loop.body):
        return None
    last = build.add(loop.min, build.sub(loop.extent, 1))
    worst = last if (step > 0) is holds else loop.min
    found: Expr = substitute(condition, {loop.var: worst})
    return found if holds else build.logical_not(found)


def _is_known_before(condition: Expr, body: Stmt) -> bool:
    """Whether a condition reads no memory, and no variable that a body binds."""
    loads: list[Node] = []
    bound: list[Var] = []
    post_order(condition, lambda n: loads.append(n) if isinstance(n, BufferLoad) else None)
    post_order(body, lambda n: bound.append(n.var) if isinstance(n, For | LetStmt | Let) else None)
    return not loads and not {*bound} & {*variables_in(condition)}


def cut_at_borders(loop: For) -> list[Stmt]:
    """The loop in parts in which each condition on its variable holds or fails; none if too many.

    Only comparisons with constants are borders: loops of fixed extents begin and end there.
    """
    first, count = build.int_value(loop.min), build.int_value(loop.extent)
    if first is None or count is None or len(statements_in(loop.body)) > MOST_STATEMENTS:
        return []
    points = {_turning_point(condition, loop.var) for condition, _ in borders(loop.body, {})}
    inside = sorted(point for point in points if point is not None and 0 < point - first < count)
    if not inside or len(inside) >= MOST_PARTS:
        return []
    return [_part(loop, begin, end) for begin, end in pairwise([first, *inside, first + count])]


def _turning_point(condition: Expr, var: Var) -> int | None:
    """The first value of a variable at which a condition on it alone turns."""
    excess = excess_of(condition)
    linear = None if excess is None else detect_linear(excess, [var])
    step, rest = (None, None) if linear is None else map(build.int_value, linear)
    if not step or rest is None:
        return None
    return -(rest // step) if step > 0 else rest // -step + 1


def _part(loop: For, begin: int, end: int) -> Stmt:
    """The iterations from one on, without what is decided there."""
    var, dtype = Var(loop.var.name, loop.var.dtype), loop.var.dtype
    body = copy_stmt(loop.body, {loop.var: var})
    first, count = build.const(begin, dtype), build.const(end - begin, dtype)
    made: Stmt = simplify_stmt(For(var, first, count, loop.kind, body))
    return made


def _spread(expr: Expr, lanes: int) -> Expr:
    return expr if expr.dtype.lanes == lanes else Broadcast(expr, lanes)


class _Vectorizer(Rewriter):
    """Rebuilds the body of one loop with the loop's variable as a vector."""

    def __init__(self, var: Var, start: Expr, lanes: int) -> None:
        self.lanes = lanes
        self.vectors: dict[Var, Expr] = {var: Ramp(start, build.const(1, var.dtype), lanes)}

    def together(self, *exprs: Expr) -> list[Expr]:
        """Expressions with the same number of lanes: vectors if one is."""
        done = [self.rewrite(e) for e in exprs]
        lanes = max(e.dtype.lanes for e in done)
        if any(e.dtype.lanes not in (1, lanes) for e in done):
            raise _Divergent
        return [_spread(e, lanes) for e in done] if lanes > 1 else done

    def scalar(self, expr: Expr) -> Expr:
        done: Expr = self.rewrite(expr)
        if done.dtype.lanes != expr.dtype.lanes:
            raise _Divergent
        return done

    # ---- expressions ----

    def visit_Var(self, var: Var) -> Expr:
        return self.vectors.get(var, var)

    def visit_BinaryExpr(self, expr: BinaryExpr) -> Expr:
        a, b = self.together(expr.a, expr.b)
        if a is expr.a and b is expr.b:
            return expr
        folded = _ramp_arithmetic(expr, a, b)
        return type(expr)(a, b) if folded is None else folded

    def visit_Not(self, expr: Not) -> Expr:
        return Not(self.rewrite(expr.a))

    def visit_Select(self, expr: Select) -> Expr:
        condition = self.rewrite(expr.condition)
        then, otherwise = self.together(expr.then, expr.otherwise)
        lanes = max(condition.dtype.lanes, then.dtype.lanes)
        if condition.dtype.lanes > 1:
            then, otherwise = _spread(then, lanes), _spread(otherwise, lanes)
        return Select(condition, then, otherwise)

    def visit_Cast(self, expr: Cast) -> Expr:
        value = self.rewrite(expr.value)
        return Cast(expr.dtype.with_lanes(value.dtype.lanes), value)

    def visit_Call(self, expr: Call) -> Expr:
        if expr.op == "if_then_else":
            condition = self.scalar(expr.args[0])
            then, otherwise = self.together(*expr.args[1:])
            return Call(then.dtype, expr.op, (condition, then, otherwise))
        known = INTRINSICS.get(expr.op)
        if known is None or known.has_effect:
            raise _Divergent  # it happens once per iteration
        if expr.op in _ONE_BY_ONE or any(arg.dtype.lanes > 1 for arg in expr.args):
            return Call(expr.dtype, expr.op, tuple(self.scalar(a) for a in expr.args))
        args = self.together(*expr.args)
        return Call(expr.dtype.with_lanes(args[0].dtype.lanes), expr.op, tuple(args))

    def visit_Let(self, expr: Let) -> Expr:
        value = self.rewrite(expr.value)
        var = self.bound(expr.var, value)
        return Let(var, value, self.rewrite(expr.body))

    def bound(self, var: Var, value: Expr) -> Var:
        if value.dtype.lanes == var.dtype.lanes:
            return var
        wide = Var(var.name, value.dtype)
        self.vectors[var] = wide
        return wide

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        indices = tuple(self.rewrite(i) for i in load.indices)
        same = all(a is b for a, b in zip(indices, load.indices, strict=True))
        return load if same else BufferLoad(load.buffer, indices)

    def visit_Ramp(self, ramp: Ramp) -> Expr:
        return Ramp(self.scalar(ramp.base), self.scalar(ramp.stride), ramp.lanes)

    def visit_Broadcast(self, broadcast: Broadcast) -> Expr:
        return Broadcast(self.scalar(broadcast.value), broadcast.lanes)

    # ---- statements ----

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        value, *indices = self.together(store.value, *store.indices)
        if store.predicate is not None:
            raise _Divergent
        if value.dtype.lanes > 1 and all(isinstance(i, Broadcast) for i in indices):
            raise _Divergent  # every iteration writes the same element
        return BufferStore(store.buffer, value, tuple(indices))

    def visit_For(self, loop: For) -> Stmt:
        start, extent = self.scalar(loop.min), self.scalar(loop.extent)
        body = self.rewrite(loop.body)
        return For(loop.var, start, extent, loop.kind, body, loop.thread, loop.annotations)

    def visit_IfThenElse(self, branch: IfThenElse) -> Stmt:
        condition = self.scalar(branch.condition)
        otherwise = None if branch.otherwise is None else self.rewrite(branch.otherwise)
        return IfThenElse(condition, self.rewrite(branch.then), otherwise)

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        value = self.rewrite(let.value)
        return LetStmt(self.bound(let.var, value), value, self.rewrite(let.body))

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        return AttrStmt(attr.key, attr.node, self.scalar(attr.value), self.rewrite(attr.body))

    def visit_Evaluate(self, evaluate: Evaluate) -> Stmt:
        if self.rewrite(evaluate.value) is not evaluate.value:
            raise _Divergent
        return evaluate

    def visit_AssertStmt(self, check: AssertStmt) -> Stmt:
        values = tuple(self.scalar(value) for value in check.values)
        return AssertStmt(self.scalar(check.condition), check.kind, check.message, values)

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        raise _Divergent  # each iteration has memory of its own

    def visit_Tensorized(self, tensorized: Tensorized) -> Stmt:
        raise _Divergent  # it happens once per iteration


def _ramp_arithmetic(expr: BinaryExpr, a: Expr, b: Expr) -> Expr | None:
    """Additions and multiplications of ramps stay ramps."""
    if type(expr).__name__ not in ("Add", "Sub", "Mul"):
        return None
    make = {"Add": build.add, "Sub": build.sub, "Mul": build.mul}[type(expr).__name__]
    if isinstance(a, Ramp) and isinstance(b, Broadcast):
        stride = make(a.stride, b.value) if make is build.mul else a.stride
        return Ramp(make(a.base, b.value), stride, a.lanes)
    if isinstance(a, Broadcast) and isinstance(b, Ramp):
        if make is build.sub:
            return Ramp(a.value - b.base, build.mul(b.stride, -1), b.lanes)
        stride = build.mul(a.value, b.stride) if make is build.mul else b.stride
        return Ramp(make(a.value, b.base), stride, b.lanes)
    if isinstance(a, Ramp) and isinstance(b, Ramp) and make is not build.mul:
        return Ramp(make(a.base, b.base), make(a.stride, b.stride), a.lanes)
    return None

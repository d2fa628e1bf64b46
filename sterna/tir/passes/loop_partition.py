"""Loop partitioning: peel the iterations whose guard may fail; the others run without it."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from sterna.arith import Analyzer, detect_linear, interval
from sterna.ir import build
from sterna.ir.expr import (
    GE,
    GT,
    LE,
    LT,
    Call,
    CompareExpr,
    Expr,
    Let,
    Max,
    Min,
    Select,
    Var,
    variables_in,
)
from sterna.ir.node import Node
from sterna.ir.structural import structural_equal
from sterna.ir.visitor import Rewriter
from sterna.tir.config import LoopPartitionConfig
from sterna.tir.copy import copy_stmt
from sterna.tir.passes.hoist_if_then_else import conjuncts
from sterna.tir.passes.remove_no_op import remove_no_op_in
from sterna.tir.passes.simplify import simplify_stmt
from sterna.tir.stmt import (
    CLIPPED,
    STAYS_ROLLED,
    AttrStmt,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    is_nothing,
    nothing,
    seq,
    statements_in,
)
from sterna.tir.threads import has_threads

Loops = dict[Var, tuple[Expr, Expr]]
"""The first and last values of loops' variables."""

HINT = "pragma_loop_partition_hint"
# Short loops of one store each, as inputs that are concatenated give: from so many on they stay
# loops, of a few stores, and of one where there are very many. Compilers would write all of them
# out as one block of straight code, and take a time for scheduling it that grows with the square
# of its length.
MANY_PIECES, VERY_MANY_PIECES = 3, 12
STORES_AT_ONCE = 4
# Statements of a vector that are written out for what is left over.
MOST_STATEMENTS = 8
# The most rows of a tile for which each number of rows that are left over has loops of its own.
MOST_WAYS = 16
_DEFAULT = LoopPartitionConfig()
_OPPOSITE: dict[type[CompareExpr], type[CompareExpr]] = {LT: GE, GE: LT, LE: GT, GT: LE}


def loop_partition(func: PrimFunc, config: LoopPartitionConfig = _DEFAULT) -> PrimFunc:
    """for i in range(4): if likely(i*8 + j < 30): S

    ->  for i in range(3): S
        for i in range(3, 4): if likely(i*8 + j < 30): S

    Where only the run knows how many whole tiles there are, the rows that are left over have loops
    of their own for each number of them, without guards, if these are unrolled:

    for i in range((n + 3) // 4): unroll j in range(4): if likely(i*4 + j < n): S
    ->  for i in range(n // 4): unroll j in range(4): S
        for i in range(n // 4, (n + 3) // 4): if n - i*4 == 1: S elif n - i*4 == 2: ...

    A loop with the pragma loop_partition_hint is split wherever a condition in it begins to hold or
    to fail, so that a border does not slow down what lies inside it.
    """
    if has_threads(func.body):  # threads would disagree about which part an iteration is in
        return func
    return func.with_body(_Partitioner(config).rewrite(func.body))


def likely_guards(stmt: Node, inner: dict[Var, tuple[Expr, Expr]]) -> Iterator[tuple[Expr, dict]]:  # type: ignore[type-arg]
    """The conditions marked likely inside a statement, with the loops around them."""
    if isinstance(stmt, For):
        last = stmt.min + stmt.extent - 1
        inner = {**inner, stmt.var: (stmt.min, last)}
        yield from likely_guards(stmt.body, inner)
        return
    if isinstance(stmt, IfThenElse):
        condition = stmt.condition
        if isinstance(condition, Call) and condition.op == "likely":
            yield condition.args[0], inner
    for child in stmt.children():
        if isinstance(child, Stmt):
            yield from likely_guards(child, inner)


def borders(stmt: Node, inner: dict[Var, tuple[Expr, Expr]]) -> Iterator[tuple[Expr, dict]]:  # type: ignore[type-arg]
    """The conditions inside a statement, and those of clamped indices, with the loops around."""
    if isinstance(stmt, For):
        inner = {**inner, stmt.var: (stmt.min, stmt.min + stmt.extent - 1)}
    if isinstance(stmt, Select) or (isinstance(stmt, IfThenElse) and not _is_clipped(stmt.then)):
        yield from ((part, inner) for part in conjuncts(stmt.condition))
    if isinstance(stmt, Select) and isinstance(stmt.condition, LT | GE | LE | GT):
        yield _opposite(stmt.condition), inner
    if isinstance(stmt, Min | Max) and stmt.dtype.is_integer:
        yield (stmt.a <= stmt.b if isinstance(stmt, Min) else stmt.a >= stmt.b), inner
        yield (stmt.b <= stmt.a if isinstance(stmt, Min) else stmt.b >= stmt.a), inner
    if isinstance(stmt, Call) and stmt.op == "if_then_else":
        yield from ((part, inner) for part in conjuncts(stmt.args[0]))
        if isinstance(stmt.args[0], LT | GE | LE | GT):
            yield _opposite(stmt.args[0]), inner
    bound = stmt.var if isinstance(stmt, Let | LetStmt) else None
    for child in (stmt.body,) if _is_clipped(stmt) else stmt.children():
        if not child.CHILD_FIELDS:
            continue
        for condition, loops in borders(child, inner):
            if bound is None or bound not in variables_in(condition):
                yield condition, loops


def _opposite(condition: LT | GE | LE | GT) -> CompareExpr:
    return _OPPOSITE[type(condition)](condition.a, condition.b)


def _is_clipped(stmt: Node) -> TypeGuard[For]:
    """Whether it is a loop that ends at a border by itself; see clip_loops.py."""
    return isinstance(stmt, For) and CLIPPED in stmt.annotations


def _is_hinted(loop: For) -> bool:
    return isinstance(loop.body, AttrStmt) and loop.body.key == HINT


def _staying_rolled(loop: For, pieces: int) -> For:
    """A loop that becomes so many, with a mark for compilers where these are many of one store."""
    if pieces < MANY_PIECES or loop.kind != "serial" or STAYS_ROLLED in loop.annotations:
        return loop
    inside = statements_in(loop.body)
    stores = sum(isinstance(stmt, BufferStore) for stmt in inside)
    if stores != 1 or any(isinstance(stmt, For) and stmt.kind == "serial" for stmt in inside):
        return loop
    at_once = STORES_AT_ONCE if pieces < VERY_MANY_PIECES else 1
    annotations = {**loop.annotations, STAYS_ROLLED: at_once}
    return For(loop.var, loop.min, loop.extent, loop.kind, loop.body, loop.thread, annotations)


def _few_at_once(loop: For) -> For:
    """A loop that stays one with a few iterations written out in a row, as many as divide it."""
    count, most = build.int_value(loop.extent) or 1, loop.annotations[STAYS_ROLLED]
    few = max(n for n in range(1, most + 1) if count % n == 0)
    dtype = loop.var.dtype
    outer, inner = Var(f"{loop.var.name}.few", dtype), Var(loop.var.name, dtype)
    value = build.add(loop.min, build.add(build.mul(outer, few), inner))
    body = copy_stmt(loop.body, {loop.var: value})
    zero, whole, written = (build.const(n, dtype) for n in (0, count // few, few))
    annotations = {**loop.annotations, STAYS_ROLLED: 1}
    row = For(inner, zero, written, "unrolled", body)
    return For(outer, zero, whole, loop.kind, row, loop.thread, annotations)


def excess_of(condition: Expr) -> Expr | None:
    """What is below 0 while the condition holds."""
    if isinstance(condition, Call) and condition.op == "likely":
        condition = condition.args[0]
    match condition:
        case LT():
            return condition.a - condition.b
        case LE():
            return condition.a - condition.b - 1
        case GT():
            return condition.b - condition.a
        case GE():
            return condition.b - condition.a - 1
    return None


@dataclass(frozen=True, slots=True)
class _Border:
    """Where a condition on a loop's variable turns: it holds below one value, and fails from
    another on, which is the same unless loops inside have a say."""

    holds_below: int
    fails_from: int


class Answered(Rewriter):
    """Choices whose conditions, by their identities, have known answers."""

    def __init__(self, known: Mapping[int, bool]) -> None:
        self.known = known

    def visit_Call(self, call: Call) -> Expr:
        while call.op == "if_then_else":
            answer = self.known.get(id(call.args[0]))
            if answer is None:
                break
            taken = call.args[1 if answer else 2]
            if not isinstance(taken, Call):
                found: Expr = self.rewrite(taken)
                return found
            call = taken
        made: Expr = self.rewrite_children(call)
        return made


@dataclass(frozen=True, slots=True)
class _RowsLeft:
    """A guard of an unrolled loop that holds while its index is below what is left."""

    index: Var
    left: Expr
    most: int
    """The extent of the loop."""


def _is_unrolled(var: Var, body: Stmt) -> bool:
    return any(
        isinstance(stmt, For) and stmt.var is var and stmt.kind == "unrolled"
        for stmt in statements_in(body)
    )


class Settled(Rewriter):
    """Guards, by the identity of their conditions, that hold, fail or are said in other words."""

    def __init__(self, known: Mapping[int, bool | Expr]) -> None:
        self.known = known

    def visit_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        condition = stmt.condition
        if isinstance(condition, Call) and condition.op == "likely":
            answer = self.known.get(id(condition.args[0]))
            if answer is False and stmt.otherwise is None:
                return nothing()
            if answer is True:
                done: Stmt = self.rewrite(stmt.then)
                return done
            if isinstance(answer, Expr):
                made: IfThenElse = self.rewrite_children(stmt)
                return IfThenElse(answer, made.then, made.otherwise)
        kept: Stmt = self.rewrite_children(stmt)
        return kept


class _Rolled(Rewriter):
    """What is left over, as loops: written out, every element would have a guard of its own.

    Of vectors that a guard ends, what is left over are ever shorter ones.
    """

    def visit_For(self, loop: For) -> Stmt:
        made: For = self.rewrite_children(loop)
        inside = (variables_in(condition) for condition, _ in likely_guards(made.body, {}))
        if made.kind not in ("unrolled", "vectorized") or not any(made.var in v for v in inside):
            return made
        shorter = _shorter_vectors(made) if made.kind == "vectorized" else None
        serial = For(made.var, made.min, made.extent, "serial", made.body)
        return serial if shorter is None else shorter


def _shorter_vectors(loop: For) -> Stmt | None:
    """vectorized i in range(8): if likely(o + i < n): S

    ->  with left = min(8, n - o), of 8, 4, 2 and 1 each p that is a digit of it:
        vectorized i in range(p): S of i + left // (2*p) * (2*p)
    """
    if len(statements_in(loop.body)) > MOST_STATEMENTS:
        return None
    lanes, condition = build.int_value(loop.extent), _only_guard(loop)
    excess = None if condition is None else excess_of(condition)
    linear = None if excess is None else detect_linear(excess, [loop.var])
    if lanes is None or linear is None or build.int_value(linear[0]) != 1:
        return None
    begin = build.cast(loop.var.dtype, build.sub(0, linear[1]))  # from which on the guard fails
    left = build.maximum(build.minimum(build.sub(begin, loop.min), lanes), 0)
    body = Settled({id(condition): True}).rewrite(loop.body)
    parts: list[Stmt] = []
    for digit in reversed(range(lanes.bit_length())):
        size = 1 << digit
        var = Var(loop.var.name, loop.var.dtype)
        first = build.add(loop.min, build.mul(build.floordiv(left, 2 * size), 2 * size))
        part = copy_stmt(body, {loop.var: build.add(first, var)})
        vector = For(var, build.const(0, var.dtype), build.const(size, var.dtype), loop.kind, part)
        is_digit = build.equal(build.floormod(build.floordiv(left, size), 2), 1)
        parts.append(IfThenElse(is_digit, vector))
    return seq(*parts)


def _only_guard(loop: For) -> Expr | None:
    """The guard that a loop's variable has a say in, if there is one and all lies behind it."""
    found = [c for c, _ in likely_guards(loop.body, {}) if loop.var in variables_in(c)]
    inner = loop.body
    while isinstance(inner, IfThenElse) and inner.otherwise is None and len(found) == 1:
        condition = inner.condition
        if isinstance(condition, Call) and condition.args[0] is found[0]:
            return found[0]
        inner = inner.then
    return None


class _Partitioner(Rewriter):
    def __init__(self, config: LoopPartitionConfig) -> None:
        self.config = config
        self.analyzer = Analyzer()
        self.around: dict[Var, tuple[Expr, Expr]] = {}

    def bind(self, var: Var, start: Expr, extent: Expr) -> None:
        self.analyzer.bind(var, start, extent)
        self.around[var] = (start, extent)

    def unbind(self, var: Var) -> None:
        self.analyzer.unbind(var)
        del self.around[var]

    def visit_For(self, loop: For) -> Stmt:
        is_constant = build.int_value(loop.extent) is not None
        if loop.kind != "thread" and (self.config.partition_const_loop or not is_constant):
            points = self.split_points(loop)
            if points:
                halved = _is_hinted(loop) and loop.kind != "parallel"
                marked = _staying_rolled(loop, len(points) + 1)
                if halved and is_constant and len(points) + 1 >= MANY_PIECES:
                    return self.pieces(marked, points)
                point = points[len(points) // 2 if halved else 0]
                return self.partition(marked, point)
        self.bind(loop.var, loop.min, loop.extent)
        kept: For = self.rewrite_children(loop)
        self.unbind(loop.var)
        return _few_at_once(kept) if loop.annotations.get(STAYS_ROLLED, 1) > 1 else kept

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        done: Stmt = self.rewrite(attr.body) if attr.key == HINT else self.rewrite_children(attr)
        return done

    def split_points(self, loop: For) -> list[Expr]:
        """The first values of the variable for which a guard may fail, as far as that is of help.

        Of a loop with a hint also the first from which on a border's condition always holds. A
        loop is split at one of them, and the others are found again: in what follows the first,
        and with a hint in both halves, which hold fewer conditions each.
        """
        points = []
        hinted = _is_hinted(loop)
        guards = borders(loop.body, {}) if hinted else likely_guards(loop.body, {})
        for condition, inner in guards:
            point = self.turning_point(loop, condition, inner, hinted)
            if point is not None and self.splits(loop, point):
                points.append(point)
        constants = {number for p in points if (number := build.int_value(p)) is not None}
        if constants:
            return [build.const(number, loop.var.dtype) for number in sorted(constants)]
        return points[:1]

    def splits(self, loop: For, point: Expr) -> bool:
        """Whether a point lies, or may lie, inside the loop's range and is fit to split it."""
        if build.int_value(point) is None and (
            loop.kind in ("vectorized", "unrolled")  # their extents must stay constant
            or (build.int_value(loop.extent) is not None and self.moves(point))
        ):
            return False
        begin, end = loop.min, loop.min + loop.extent
        return not (
            self.analyzer.can_prove(point <= begin) or self.analyzer.can_prove(point >= end)
        )

    def moves(self, point: Expr) -> bool:
        """Whether a point is another one in each iteration of a loop around."""
        return any(var in self.around for var in variables_in(point))

    def turning_point(
        self, loop: For, condition: Expr, inner: dict[Var, tuple[Expr, Expr]], both: bool
    ) -> Expr | None:
        """The first value of the loop's variable for which the condition may fail.

        both: or, if it may fail for low values, the first for which it does not any more.
        """
        excess = excess_of(condition)
        worst = None if excess is None else interval(excess, inner)[1]
        if worst is None:
            return None
        linear = detect_linear(worst, [loop.var])
        if linear is None:
            return None
        coefficient, rest = (self.analyzer.simplify(e) for e in linear)
        step = build.int_value(coefficient)
        if not step or any(v in inner for v in variables_in(rest)):
            return None
        if step > 0:  # the least v with step * v + rest >= 0
            point = build.floordiv(build.sub(step - 1, rest), step)
        elif both:  # the least v with step * v + rest < 0
            point = build.floordiv(rest - step, -step)
        else:
            return None
        return self.analyzer.simplify(build.cast(loop.var.dtype, point))

    def pieces(self, loop: For, points: list[Expr]) -> Stmt:
        """A loop split at all points at once; what each piece answers is not asked in it."""
        answered = list(self.answers(loop))  # they live on: identities tell them apart
        borders_of = {id(condition): each for condition, each in answered}
        ends = [loop.min, *points, self.analyzer.simplify(loop.min + loop.extent)]
        made = []
        for begin, end in itertools.pairwise(ends):
            first, last = build.int_value(begin), build.int_value(end)
            known = {} if first is None or last is None else {
                place: last <= each.holds_below for place, each in borders_of.items()
                if last <= each.holds_below or first >= each.fails_from
            }
            body = Answered(known).rewrite(loop.body)
            made.append(self.part(loop.with_body(body), begin, end, True))
        return seq(*made)

    def answers(self, loop: For) -> Iterator[tuple[Expr, "_Border"]]:
        """The conditions in a loop that hold up to a value of its variable and fail from one on."""
        for condition, inner in borders(loop.body, {}):
            excess = excess_of(condition)
            if excess is None:
                continue
            lowest, highest = (self.line(each, loop.var) for each in interval(excess, inner))
            if lowest is not None and highest is not None and lowest[0] == highest[0] > 0:
                step = lowest[0]
                yield condition, _Border(-(highest[1] // step), -(lowest[1] // step))

    def line(self, expr: Expr | None, var: Var) -> tuple[int, int] | None:
        """An expression as a multiple of a variable and a number beside it; None: it is no such."""
        linear = None if expr is None else detect_linear(expr, [var])
        if linear is None:
            return None
        step, rest = (build.int_value(self.analyzer.simplify(part)) for part in linear)
        return None if step is None or rest is None else (step, rest)

    def partition(self, loop: For, point: Expr) -> Stmt:
        begin, end = loop.min, loop.min + loop.extent
        inside = self.analyzer.simplify(build.maximum(build.minimum(point, end), begin))
        again = build.int_value(inside) is not None  # other guards may fail later
        whole, rest = loop, loop
        if not again and (not _is_hinted(loop) or self.turning_here(loop, point)):
            whole, rest = self.without_guards(loop, point), self.by_what_is_left(loop, point)
        if loop.kind == "parallel":
            return self.branch(loop, inside, whole, rest)
        nested = again and _is_hinted(loop)  # a border may have hidden another
        return seq(self.part(whole, begin, inside, nested), self.part(rest, inside, end, again))

    def turning_here(self, loop: For, point: Expr) -> list[tuple[Expr, Loops]]:
        """The guards that may fail from a point on, and never before it."""
        return [
            (condition, inner) for condition, inner in likely_guards(loop.body, {})
            if (turns := self.turning_point(loop, condition, inner, False)) is not None
            and structural_equal(turns, point)
        ]

    def without_guards(self, loop: For, point: Expr) -> For:
        """The loop before a point, where guards hold that only the run could prove."""
        held = [id(condition) for condition, _ in self.turning_here(loop, point)]
        return loop.with_body(Settled(dict.fromkeys(held, True)).rewrite(loop.body))

    def by_what_is_left(self, loop: For, point: Expr) -> For:
        """The loop behind a point, with ways of its own for each number of rows that are left.

        Only where no other guards are inside, with which the number of ways would multiply.
        """
        guards = self.turning_here(loop, point)
        failing = {id(condition): False for condition, inner in guards
                   if not any(var in inner for var in variables_in(condition))}
        if failing:  # no loop inside has a say
            return loop.with_body(Settled(failing).rewrite(loop.body))
        if len(guards) < sum(1 for _ in likely_guards(loop.body, {})):
            return loop.with_body(_Rolled().rewrite(loop.body))
        rows = [self.rows_left(condition, inner, loop.body) for condition, inner in guards]
        found = [row for row in rows if row is not None]
        if not found or len(found) < len(rows) or not all(
            row.most == found[0].most and structural_equal(row.left, found[0].left) for row in found
        ):
            return loop.with_body(_Rolled().rewrite(loop.body))
        body = _Rolled().rewrite(loop.body)
        for count in range(1, found[0].most):
            settled: dict[int, bool | Expr] = {
                id(condition): build.less(row.index, count)
                for (condition, _), row in zip(guards, found, strict=True)
            }
            way = copy_stmt(Settled(settled).rewrite(loop.body), {})
            body = IfThenElse(build.equal(found[0].left, count), way, body)
        return loop.with_body(body)

    def rows_left(
        self, condition: Expr, inner: Loops, body: Stmt
    ) -> "_RowsLeft | None":
        """How many iterations of an unrolled loop a guard lets through; None if it is no such."""
        excess = excess_of(condition)
        if excess is None:
            return None
        used = [var for var in variables_in(excess) if var in inner]
        if len(used) != 1 or not _is_unrolled(used[0], body):
            return None
        first, last = (build.int_value(each) for each in inner[used[0]])
        linear = detect_linear(excess, [used[0]])
        if linear is None or first != 0 or last is None or last >= MOST_WAYS:
            return None
        coefficient, rest = (self.analyzer.simplify(e) for e in linear)
        if not build.is_const(coefficient, 1):
            return None
        return _RowsLeft(used[0], self.analyzer.simplify(build.sub(0, rest)), last + 1)

    def part(self, loop: For, begin: Expr, end: Expr, again: bool) -> Stmt:
        var = Var(loop.var.name, loop.var.dtype)
        extent = self.analyzer.simplify(end - begin)
        value: Expr = var
        if STAYS_ROLLED in loop.annotations:  # counted from 0, addresses are simple
            value, begin = build.add(var, begin), build.const(0, var.dtype)
        body = copy_stmt(loop.body, {loop.var: value})
        piece = For(var, begin, extent, loop.kind, body, loop.thread, loop.annotations)
        return self.finish(piece, again)

    def finish(self, stmt: Stmt, again: bool = True) -> Stmt:
        """Simplify under what is known here, and go on: inside, or with the loop itself again."""
        simple = remove_no_op_in(simplify_stmt(
            stmt, dict(self.around), self.config.no_unroll_loop_with_extent_one
        ))
        if is_nothing(simple):
            return simple
        is_same_loop = isinstance(stmt, For) and isinstance(simple, For) and simple.var is stmt.var
        if is_same_loop and not again:
            assert isinstance(simple, For)
            self.bind(simple.var, simple.min, simple.extent)
            body = self.rewrite(simple.body)
            self.unbind(simple.var)
            return simple.with_body(body)
        done: Stmt = self.rewrite(simple)
        return done

    def branch(self, loop: For, point: Expr, whole: For, last: For) -> Stmt:
        """A parallel loop stays one loop, whose iterations take one way or another."""
        if whole is loop:
            return loop.with_body(self.ways(loop, loop.min, point))
        end = loop.min + loop.extent
        return loop.with_body(IfThenElse(
            build.less(loop.var, point), self.way(whole, loop.min, point),
            self.way(last, point, end),
        ))

    def ways(self, loop: For, begin: Expr, point: Expr) -> Stmt:
        end = loop.min + loop.extent
        rest = For(loop.var, point, self.analyzer.simplify(end - point), loop.kind, loop.body)
        further = self.split_points(rest) if build.int_value(point) is not None else []
        first = self.way(loop, begin, point)
        second = self.ways(rest, point, further[0]) if further else self.way(loop, point, end)
        return IfThenElse(build.less(loop.var, point), first, second)

    def way(self, loop: For, begin: Expr, end: Expr) -> Stmt:
        extent = self.analyzer.simplify(end - begin)
        values: dict[Var, Expr] = {loop.var: begin} if build.is_const(extent, 1) else {}
        body = copy_stmt(loop.body, values)
        self.bind(loop.var, begin, extent)
        made = self.finish(body)
        self.unbind(loop.var)
        return made

"""Index-set narrowing: a loop that runs over those iterations alone in which its body does work."""

import functools
from collections.abc import Iterator
from dataclasses import replace

from sterna.arith import Analyzer, detect_linear
from sterna.ir import build
from sterna.ir.expr import And, Call, Expr, Var, variables_in
from sterna.ir.visitor import Rewriter
from sterna.tir.copy import copy_stmt
from sterna.tir.passes.hoist_if_then_else import conjuncts
from sterna.tir.passes.loop_partition import excess_of
from sterna.tir.stmt import CLIPPED, AttrStmt, For, IfThenElse, Stmt


def clip_loops(stmt: Stmt, var: Var, known: set[Var]) -> Stmt:
    """for r in range(5): if 2 <= h + r and h + r < 16: S

    ->  if h >= 2 and h < 12: for r in range(5): S
        else: for r in range(max(0, 2 - h), min(5, 16 - h)): S

    Serial loops whose whole body is guarded by what depends on var and on other known variables.
    Guards are left to simplifying, which finds that they hold.
    """
    return stmt if var not in known else _Clipper(var, known).rewrite(stmt)


class _Clipper(Rewriter):
    def __init__(self, var: Var, known: set[Var]) -> None:
        self.var = var
        self.known = known
        self.analyzer = Analyzer()

    def visit_For(self, loop: For) -> Stmt:
        body = self.rewrite(loop.body)
        first, end = loop.min, build.add(loop.min, loop.extent)
        begins, ends = self.limits(loop) if loop.kind == "serial" else ([], [])
        if not begins and not ends:
            return loop.with_body(body)
        inside = [each <= first for each in begins] + [each >= end for each in ends]
        for each in begins:
            first = build.maximum(first, build.cast(loop.var.dtype, each))
        for each in ends:
            end = build.minimum(end, build.cast(loop.var.dtype, each))
        noted = replace(loop, body=body, annotations={**loop.annotations, CLIPPED: 1})
        border = replace(noted, min=first, extent=build.sub(end, first))
        return IfThenElse(functools.reduce(And, inside), noted, copy_stmt(border, {}))

    def limits(self, loop: For) -> tuple[list[Expr], list[Expr]]:
        """What the loop's variable must reach, and what it must stay below, for any work."""
        begins: list[Expr] = []
        ends: list[Expr] = []
        for condition in _guards_of(loop.body):
            excess = excess_of(condition)
            linear = None if excess is None else detect_linear(excess, [loop.var])
            if linear is None:
                continue
            step, rest = build.int_value(linear[0]), self.analyzer.simplify(linear[1])
            used = {*variables_in(rest)}
            if self.var not in used or not used <= self.known:
                continue
            if step == 1:  # v + rest < 0
                ends.append(self.analyzer.simplify(build.sub(0, rest)))
            elif step == -1:  # rest - v < 0
                begins.append(self.analyzer.simplify(build.add(rest, 1)))
        return begins, ends


def _guards_of(stmt: Stmt) -> Iterator[Expr]:
    """The conditions without any of which a statement does nothing."""
    while True:
        if isinstance(stmt, For | AttrStmt):
            stmt = stmt.body
        elif isinstance(stmt, IfThenElse) and stmt.otherwise is None:
            condition = stmt.condition
            if isinstance(condition, Call) and condition.op == "likely":
                condition = condition.args[0]
            yield from conjuncts(condition)
            stmt = stmt.then
        else:
            return

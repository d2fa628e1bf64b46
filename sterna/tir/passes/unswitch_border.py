"""Loop unswitching at a border: one question an iteration, and a body that needs no others."""

import functools

from sterna.arith import Analyzer, interval
from sterna.ir import build
from sterna.ir.expr import And, Expr, Var, variables_in
from sterna.ir.structural import structural_equal
from sterna.ir.visitor import Rewriter
from sterna.tir.copy import copy_stmt
from sterna.tir.passes.clip_loops import clip_loops
from sterna.tir.passes.loop_partition import borders, excess_of
from sterna.tir.passes.simplify import simplify_stmt
from sterna.tir.stmt import STAYS_ROLLED, AttrStmt, For, IfThenElse, PrimFunc, Stmt
from sterna.tir.threads import has_threads

HINT = "pragma_loop_unswitch_hint"


def unswitch_border(func: PrimFunc) -> PrimFunc:
    """for h in range(8): for r in range(3):  # unrolled: if 1 <= h + r and h + r < 9: S

    ->  for h in range(8):
            if h >= 1 and h < 7: for r in range(3):  # unrolled: S
            else: for r in range(3): if 1 <= h + r and h + r < 9: S

    In loops with the pragma loop_unswitch_hint. The body of the border, which few iterations take,
    keeps its questions, and its loops around them stay loops: it is short. Where the questions
    are those of a loop that is not unrolled, that loop alone has two forms; see clip_loops.py.
    """
    if has_threads(func.body):  # where only some threads come by, none can wait for others
        return func
    return func.with_body(_Unswitcher().rewrite(func.body))


class _Unswitcher(Rewriter):
    def __init__(self) -> None:
        self.around: dict[Var, tuple[Expr, Expr]] = {}

    def visit_For(self, loop: For) -> Stmt:
        self.around[loop.var] = loop.min, loop.extent
        if isinstance(loop.body, AttrStmt) and loop.body.key == HINT:
            made: Stmt = loop.with_body(self.both(loop.var, loop.body.body))
        else:
            made = self.rewrite_children(loop)
        del self.around[loop.var]
        return made

    def both(self, var: Var, body: Stmt) -> Stmt:
        """The body without its questions where all hold, and as it is where not."""
        clipped = clip_loops(body, var, {*self.around})
        if clipped is not body:
            return simplify_stmt(clipped, dict(self.around), keep_trivial_loops=True)
        border = copy_stmt(body, {})
        parts, asking = self.where_inside(var, border)
        if not parts:
            return body
        branch = IfThenElse(functools.reduce(And, parts), body, _Roller(asking).rewrite(border))
        return simplify_stmt(branch, dict(self.around), keep_trivial_loops=True)

    def where_inside(self, var: Var, body: Stmt) -> tuple[list[Expr], set[Var]]:
        """What holds in the iterations in which the conditions that depend on them always hold.

        Beside it the variables of the loops inside that these conditions ask about.
        """
        analyzer = Analyzer()
        for each, (start, extent) in self.around.items():
            analyzer.bind(each, start, extent)
        parts: list[Expr] = []
        asking: set[Var] = set()
        for condition, inner in borders(body, {}):
            excess = excess_of(condition)
            worst = None if excess is None else interval(excess, inner)[1]
            if worst is None:
                continue
            part = analyzer.simplify(build.less(worst, 0))
            used = {*variables_in(part)}
            if var not in used or not used <= self.around.keys():
                continue
            asking.update(each for each in variables_in(condition) if each in inner)
            if not any(structural_equal(part, other) for other in parts):
                parts.append(part)
        return parts, asking


class _Roller(Rewriter):
    """Lets loops over some variables stay loops."""

    def __init__(self, variables: set[Var]) -> None:
        self.variables = variables

    def visit_For(self, loop: For) -> Stmt:
        body = self.rewrite(loop.body)
        if loop.kind != "unrolled" or loop.var not in self.variables:
            return loop.with_body(body)
        annotations = {**loop.annotations, STAYS_ROLLED: 1}
        return For(loop.var, loop.min, loop.extent, "serial", body, loop.thread, annotations)

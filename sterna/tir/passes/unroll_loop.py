"""Loop unrolling: write out loops whose extent is constant."""

from dataclasses import replace

from sterna.ir import build
from sterna.ir.expr import Expr, Var, variables_in
from sterna.ir.visitor import Rewriter
from sterna.tir.config import UnrollLoopConfig
from sterna.tir.copy import copy_stmt
from sterna.tir.stmt import (
    AttrStmt,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    PrimFunc,
    Stmt,
    nothing,
    seq,
)

_DEFAULT = UnrollLoopConfig()


def unroll_loop(func: PrimFunc, config: UnrollLoopConfig = _DEFAULT) -> PrimFunc:
    """for i in range(2):  # unrolled: A[i] = 0   ->   A[0] = 0; A[1] = 0

    Loops that are marked, and those around and beside them that config or a pragma lets.
    """
    return func.with_body(_Unroller(config).rewrite(func.body))


class _Unroller(Rewriter):
    """What it has seen inside the statement at hand stands in steps, depth, loops and local."""

    def __init__(self, config: UnrollLoopConfig) -> None:
        self.config = config
        self.steps = 0
        """Stores and calls, those of written-out iterations counted each."""
        self.depth = 0
        """Loops that are written out, inside one another."""
        self.has_loop = False
        """Whether a loop stays a loop."""
        self.local: set[Var] = set()
        """Variables that index memory of scope local."""

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        outer = self.config
        self.config = _with_pragma(outer, attr)
        body: Stmt = self.rewrite(attr.body)
        is_obeyed, self.config = self.config is not outer, outer
        if is_obeyed:
            return body
        return attr if body is attr.body else AttrStmt(attr.key, attr.node, attr.value, body)

    def visit_For(self, loop: For) -> Stmt:
        before = self.steps, self.depth, self.has_loop
        self.steps, self.depth, self.has_loop = 0, 0, False
        config = _inside(self.config, loop.body)
        body: Stmt = self.rewrite(loop.body)
        count = build.int_value(loop.extent)
        if count is None or not (loop.kind == "unrolled" or self.is_small(loop, count, config)):
            self.leave(before, 1, True)
            return loop.with_body(body)
        if not config.explicit_unroll:
            self.leave(before, 1, True)
            return loop.with_body(body, "unrolled")
        self.leave(before, count, self.has_loop)
        copies = [copy_stmt(body, {loop.var: build.add(loop.min, i)}) for i in range(count)]
        return seq(*copies) if copies else nothing()

    def is_small(self, loop: For, count: int, config: UnrollLoopConfig) -> bool:
        """Whether a loop that nobody marked shall be written out."""
        if loop.kind != "serial" or self.has_loop:
            return False
        if config.unroll_local_access and loop.var in self.local:
            return True
        return self.depth < config.auto_max_depth and (
            count * self.steps <= config.auto_max_step or count <= config.auto_max_extent
        )

    def leave(self, before: tuple[int, int, bool], count: int, has_loop: bool) -> None:
        steps, depth, loops = before
        self.steps = steps + count * self.steps
        self.depth = max(depth, self.depth + 1)
        self.has_loop = loops or has_loop

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        self.steps += 1
        if self.config.unroll_local_access:
            self.note(store.buffer.scope, store.indices)
            self.rewrite_children(store)
        return store

    def visit_Evaluate(self, evaluate: Evaluate) -> Stmt:
        self.steps += 1
        return evaluate

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        self.note(load.buffer.scope, load.indices)
        return load

    def note(self, scope: str, indices: tuple[Expr, ...]) -> None:
        if scope == "local":
            for index in indices:
                self.local.update(variables_in(index))


def _with_pragma(config: UnrollLoopConfig, attr: AttrStmt) -> UnrollLoopConfig:
    value = build.int_value(attr.value)
    if value is not None and attr.key == "pragma_auto_unroll_max_step":
        return replace(config, auto_max_step=value)
    if value is not None and attr.key == "pragma_unroll_explicit":
        return replace(config, explicit_unroll=bool(value))
    return config


def _inside(config: UnrollLoopConfig, body: Stmt) -> UnrollLoopConfig:
    """The settings of a loop, whose pragmas stand at the beginning of its body."""
    while isinstance(body, AttrStmt):
        config = _with_pragma(config, body)
        body = body.body
    return config

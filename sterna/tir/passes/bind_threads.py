"""Let threads of a device do what no schedule has bound to them.

Operators that are written as statements have loops of their own. Of those the outermost parallel
ones become blocks and threads; what has none, one thread does, as it is written.
"""

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import Expr, Var
from sterna.ir.node import Node, post_order
from sterna.tir.effects import has_effect
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
    SeqStmt,
    Stmt,
    seq,
)
from sterna.tir.threads import rank_of_scope

# Threads of a block that runs iterations of a parallel loop: rows differ in length.
ROW_THREADS = 32


def bind_threads(func: PrimFunc) -> PrimFunc:
    """parallel for i in n: S   ->   for b in ceil(n / 32):  # blockIdx.x
                                        for t in 32:  # threadIdx.x
                                            if b*32 + t < n: S

    S   ->   for t in 1: S  # threadIdx.x
    """
    return func.with_body(_bound(func.body))


def _bound(stmt: Stmt) -> Stmt:
    if isinstance(stmt, SeqStmt):
        return seq(*[_bound(part) for part in stmt.stmts])
    if isinstance(stmt, Allocate) and rank_of_scope(stmt.buffer.scope) == 0:
        return Allocate(stmt.buffer, _bound(stmt.body))
    if isinstance(stmt, AttrStmt):
        return AttrStmt(stmt.key, stmt.node, stmt.value, _bound(stmt.body))
    if isinstance(stmt, For) and stmt.kind == "thread":
        return stmt
    if not _works(stmt):
        return stmt
    if isinstance(stmt, For) and stmt.kind == "parallel" and not _reads(stmt.min, stmt.extent):
        return _rows(stmt)
    if isinstance(stmt, LetStmt) and _shares(stmt.body) and not _reads(stmt.value):
        return LetStmt(stmt.var, stmt.value, _bound(stmt.body))
    is_loop = isinstance(stmt, For) and not _reads(stmt.min, stmt.extent)
    if isinstance(stmt, For) and is_loop and _shares(stmt.body):
        return stmt.with_body(_bound(stmt.body), "serial")
    if isinstance(stmt, IfThenElse) and _shares(stmt) and not _reads(stmt.condition):
        other = None if stmt.otherwise is None else _bound(stmt.otherwise)
        return IfThenElse(stmt.condition, _bound(stmt.then), other)
    zero, one = build.const(0), build.const(1)
    return For(Var("thread", zero.dtype), zero, one, "thread", stmt, "threadIdx.x")


def _rows(loop: For) -> Stmt:
    """A parallel loop as blocks of threads."""
    dtype = loop.var.dtype
    size = build.const(ROW_THREADS, dtype)
    blocks = build.floordiv(loop.extent + (ROW_THREADS - 1), size)
    block, thread = Var(f"{loop.var.name}.block", dtype), Var(f"{loop.var.name}.thread", dtype)
    number = block * size + thread
    body: Stmt = substitute(loop.body, {loop.var: loop.min + number})
    extent = build.int_value(loop.extent)
    if extent is None or extent % ROW_THREADS:
        body = IfThenElse(number < loop.extent, body)
    zero = build.const(0, dtype)
    body = For(thread, zero, size, "thread", body, "threadIdx.x")
    return For(block, zero, blocks, "thread", body, "blockIdx.x")


def _works(stmt: Stmt) -> bool:
    """Whether a statement changes or reads memory."""
    found: list[Node] = []

    def look(node: Node) -> None:
        is_call = isinstance(node, Evaluate) and has_effect(node.value)
        if is_call or isinstance(node, BufferStore | BufferLoad):
            found.append(node)

    post_order(stmt, look)
    return bool(found) and not isinstance(stmt, AssertStmt)


def _shares(stmt: Stmt) -> bool:
    """Whether there is a loop inside whose iterations threads can share."""
    found: list[Node] = []

    def look(node: Node) -> None:
        if isinstance(node, For) and node.kind in ("parallel", "thread"):
            found.append(node)

    post_order(stmt, look)
    return bool(found)


def _reads(*exprs: Expr) -> bool:
    """Whether memory says what a value is."""
    found: list[Node] = []
    for expr in exprs:
        post_order(expr, lambda n: found.append(n) if isinstance(n, BufferLoad) else None)
    return bool(found)

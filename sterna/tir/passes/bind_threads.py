"""Let threads of a device do what no schedule has bound to them.

Operators that are written as statements have loops of their own. Of those the outermost parallel
ones become blocks and threads, and so do loops whose iterations touch different elements, each its
own; what has none, one thread does, as it is written.
"""

from collections.abc import Sequence

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.tir.effects import has_effect
from sterna.tir.stmt import (
    Allocate,
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
    if isinstance(stmt, For) and not _shares(stmt) and (apart := _apart(stmt)) is not None:
        return _rows(apart)
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


def _apart(stmt: For) -> For | None:
    """for i in n: for j in m: a[j, b[i]] = x   ->   parallel for j in m: for i in n: ...

    Loops of a nest by whose variables all that is written, and read again, is indexed: what such an
    iteration touches no other does, so that they can be in front of the rest, and are one loop.
    """
    nest: list[For | LetStmt] = []
    loops: list[For] = []
    body: Stmt = stmt
    while isinstance(body, For | LetStmt):
        if isinstance(body, For):
            ends = {*variables_in(body.min), *variables_in(body.extent)}
            known = {each.var for each in nest}
            if body.kind == "parallel" or known & ends or _reads(body.min, body.extent):
                break
            if build.is_const(body.extent, 0):
                return None  # nothing is done
            loops.append(body)
        nest.append(body)
        body = body.body
    named = [each for each in nest if isinstance(each, LetStmt)]
    places = _own_places([body, *(each.value for each in named)], {loop.var for loop in loops})
    if not places:
        return None
    outer = [loop for loop in loops if loop.var in places]
    for each in reversed(nest):
        if isinstance(each, LetStmt):
            body = LetStmt(each.var, each.value, body)
        elif each not in outer:
            body = each.with_body(body, "serial")
    if len(outer) == 1:
        return outer[0].with_body(body, "parallel")
    dtype = outer[0].var.dtype
    number, count = Var("element", dtype), build.const(1, dtype)
    left: Expr = number
    for loop in reversed(outer):
        extent = build.cast(dtype, loop.extent)
        place = build.cast(loop.var.dtype, build.floormod(left, extent))
        body = LetStmt(loop.var, loop.min + place, body)
        left, count = build.floordiv(left, extent), count * extent
    return For(number, build.const(0, dtype), count, "parallel", body)


def _own_places(parts: Sequence[Node], loops: set[Var]) -> set[Var]:
    """The loops whose variable is an index, always the same one, of all that is written."""
    private: set[Buffer] = set()
    touched: dict[Buffer, list[tuple[Expr, ...]]] = {}
    written: set[Buffer] = set()
    others: list[Node] = []

    def look(node: Node) -> None:
        if isinstance(node, Allocate):
            private.add(node.buffer)
        elif isinstance(node, BufferStore | BufferLoad):
            touched.setdefault(node.buffer, []).append(node.indices)
            if isinstance(node, BufferStore):
                written.add(node.buffer)
        elif isinstance(node, AssertStmt) or (isinstance(node, Call) and has_effect(node)):
            others.append(node)

    for part in parts:
        post_order(part, look)
    found = set() if others else set(loops)
    for buffer in written - private:
        positions = [
            {index for uses in touched[buffer] for index in uses[place : place + 1]}
            for place in range(len(buffer.shape))
        ]
        found &= {
            index for same in positions if len(same) == 1 for index in same
            if isinstance(index, Var)
        }
    return found if written - private else set()


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

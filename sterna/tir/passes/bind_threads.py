"""Let threads of a device do what no schedule has bound to them.

Operators that are written as statements have loops of their own. Of those the outermost parallel
ones become blocks and threads, and so do loops whose iterations touch different elements, each its
own. Where memory says which element a step changes, each thread takes all steps and does those that
change elements of its own, in their order; what else is left, one thread does, as it is written.
"""

import math
from collections.abc import Sequence

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.ir.structural import structural_equal
from sterna.ir.visitor import Rewriter
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
    row_major,
    seq,
)
from sterna.tir.threads import rank_of_scope

# Threads of a block that runs iterations of a parallel loop: rows differ in length.
ROW_THREADS = 32
# Threads that share elements among them, and the fewest iterations that keep a device busy.
OWNERS, FEW_ITERATIONS = 16384, 256


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
    if isinstance(stmt, For) and not _shares(stmt) and (shared := _shared(stmt)) is not None:
        return _rows(shared)
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


def _shared(stmt: For) -> For | None:
    """A loop that threads can share; None if the steps wait for each other."""
    outer = _independent_loops(stmt)
    count = 1 if outer is None else build.int_value(outer.extent)
    if count is None or count >= FEW_ITERATIONS:
        return outer
    inner: Stmt = stmt if outer is None else outer.body
    owned = _owned(inner, _loops(stmt) - _loops(inner), OWNERS // count)
    if owned is None:
        return outer
    owner, owners, body = owned
    if outer is None:
        return For(owner, build.const(0, owner.dtype), owners, "parallel", body)
    number, extent = Var("step", owner.dtype), build.const(count, owner.dtype)
    own = build.cast(outer.var.dtype, build.floormod(number, extent))
    body = LetStmt(owner, build.floordiv(number, extent), body)
    body = LetStmt(outer.var, outer.min + own, body)
    return For(number, build.const(0, owner.dtype), owners * extent, "parallel", body)


def _loops(stmt: Stmt) -> set[Var]:
    """The variables of loops."""
    found: set[Var] = set()
    post_order(stmt, lambda n: found.add(n.var) if isinstance(n, For) else None)
    return found


def _owned(stmt: Stmt, fixed: set[Var], most: int) -> tuple[Var, Expr, Stmt] | None:
    """for i in n: a[b[i], j] += x   ->   for i in n: if b[i] % owners == owner: a[b[i], j] += x

    Loops that change one array, a single element in each step, and read it nowhere else: the
    owner, how many there are at most, and what each does. Indices that are fixed tell no owner.
    """
    stores: list[BufferStore] = []
    loads: list[BufferLoad] = []
    own: list[BufferLoad] = []
    others: list[Node] = []

    def look(node: Node) -> None:
        if isinstance(node, BufferStore):
            stores.append(node)
        elif isinstance(node, BufferLoad):
            loads.append(node)
        elif isinstance(node, AssertStmt | Allocate | Call | For) and _forbids(node):
            others.append(node)

    post_order(stmt, look)
    if len(stores) != 1 or others:
        return None
    (store,) = stores
    buffer = store.buffer
    if rank_of_scope(buffer.scope) or not store.indices or not loads:
        return None
    post_order(store.value, lambda n: own.append(n) if isinstance(n, BufferLoad) else None)
    own = [load for load in own if load.buffer is buffer]
    same = all(structural_equal(load.indices, store.indices) for load in own)
    if len(own) != sum(load.buffer is buffer for load in loads) or not same:
        return None
    told = [
        (extent, index) for extent, index in zip(buffer.shape, store.indices, strict=True)
        if index not in fixed
    ]
    if not told:
        return None
    sizes = [build.int_value(extent) for extent, _ in told]
    known = [size for size in sizes if size is not None]
    elements = math.prod(known) if len(known) == len(sizes) else most
    owners = 1 << max(0, min(most, elements).bit_length() - 1)
    wide = "int64" if any(index.dtype.bits > 32 for _, index in told) else "int32"
    owner = Var("owner", build.const(0, wide).dtype)
    place = row_major(
        tuple(build.cast(wide, extent) for extent, _ in told),
        tuple(build.cast(wide, index) for _, index in told),
    )
    count = build.const(owners, wide)
    return owner, count, _Guarded(build.floormod(place, count).equal(owner)).rewrite(stmt)


def _forbids(node: Node) -> bool:
    """Whether steps around it are left to one thread: it has effects, or there are none."""
    if isinstance(node, Call):
        return has_effect(node)
    return not isinstance(node, For) or build.is_const(node.extent, 0)


class _Guarded(Rewriter):
    """Stores that are done under a condition."""

    def __init__(self, condition: Expr) -> None:
        self.condition = condition

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        return IfThenElse(self.condition, store)


def _independent_loops(stmt: For) -> For | None:
    """for i in n: for j in m: a[j, b[i]] = x   ->   parallel for j in m: for i in n: ...

    Loops of a nest by whose variables all that is written, and read again, is indexed: what such an
    iteration touches no other does, so that they can be in front of the rest, and are one loop.
    """
    nest: list[For | LetStmt | IfThenElse] = []
    loops: list[For] = []
    body: Stmt = stmt
    while isinstance(body, For | LetStmt) or (
        isinstance(body, IfThenElse) and body.otherwise is None
    ):
        if isinstance(body, For):
            ends = {*variables_in(body.min), *variables_in(body.extent)}
            known = {each.var for each in nest if not isinstance(each, IfThenElse)}
            if body.kind == "parallel" or known & ends or _reads(body.min, body.extent):
                break
            if build.is_const(body.extent, 0):
                return None  # nothing is done
            loops.append(body)
        nest.append(body)
        body = body.then if isinstance(body, IfThenElse) else body.body
    known_by = [
        each.value if isinstance(each, LetStmt) else each.condition
        for each in nest if not isinstance(each, For)
    ]
    places = _own_places([body, *known_by], {loop.var for loop in loops})
    if not places:
        return None
    outer = [loop for loop in loops if loop.var in places]
    for each in reversed(nest):
        if isinstance(each, LetStmt):
            body = LetStmt(each.var, each.value, body)
        elif isinstance(each, IfThenElse):
            body = IfThenElse(each.condition, body)
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


def _reads(*exprs: Node) -> bool:
    """Whether memory says what a value is."""
    found: list[Node] = []
    for expr in exprs:
        post_order(expr, lambda n: found.append(n) if isinstance(n, BufferLoad) else None)
    return bool(found)

"""Software pipelining of loads: an iteration loads what the next one begins with.

A processor starts few instructions ahead of those that wait. Where all loads of an iteration stand
at its head, its first multiply-adds wait for them, in every iteration of a register tile's sum.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Ramp, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.ir.structural import structural_equal
from sterna.ir.visitor import Rewriter
from sterna.tir.passes.simplify import simplify_stmts
from sterna.tir.stmt import (
    LOADS_AHEAD,
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)

HINT = "pragma_load_ahead"


def load_ahead(func: PrimFunc) -> PrimFunc:
    """for k in range(8): a = allocate(4); a[0:4] = A[k*4 : k*4 + 4]; S(a, B[k*8 : k*8 + 8])

    ->  a = allocate(4); b = allocate(8)
        a[0:4] = A[0:4]; b[0:8] = B[0:8]
        for k in range(8):
            S(a, b)
            a[0:4] = A[min(k + 1, 7)*4 : ...]; b[0:8] = B[min(k + 1, 7)*8 : ...]

    In loops with the pragma load_ahead: what is loaded into registers before the first sum, and
    what that sum reads of memory as vectors. A register is filled again right behind its last use,
    so that no more of them are taken; the last iteration loads its own numbers once more.
    """
    return func.with_body(_Pipeliner().rewrite(func.body))


class _Pipeliner(Rewriter):
    def __init__(self) -> None:
        self.around: dict[Var, tuple[Expr, Expr]] = {}

    def visit_For(self, loop: For) -> Stmt:
        self.around[loop.var] = loop.min, loop.extent
        if isinstance(loop.body, AttrStmt) and loop.body.key == HINT:
            made = self.pipelined(loop.with_body(loop.body.body))
        else:
            made = self.rewrite_children(loop)
        del self.around[loop.var]
        return made

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        kept: Stmt = self.rewrite(attr.body) if attr.key == HINT else self.rewrite_children(attr)
        return kept

    def pipelined(self, loop: For) -> Stmt:
        iteration = _iteration_of(loop)
        last = build.int_value(loop.min + loop.extent - 1)
        if iteration is None or last is None or last <= (build.int_value(loop.min) or 0):
            return loop
        following = build.minimum(loop.var + 1, build.const(last, loop.var.dtype))

        def load(at: Expr) -> list[Stmt]:
            made = (substitute(each, {loop.var: at}) for each in iteration.loads)
            return simplify_stmts(made, self.around)

        behind: dict[int, list[Stmt]] = {}
        for again, place in zip(load(following), iteration.last_uses(), strict=True):
            behind.setdefault(place, []).append(again)
        sums = enumerate(iteration.sums)
        body = [each for n, stmt in sums for each in (stmt, *behind.get(n, ()))]
        body.sort(key=_place_of)
        noted = replace(loop, body=seq(*body), annotations={**loop.annotations, LOADS_AHEAD: 1})
        done = seq(*load(loop.min), noted)
        for buffer in iteration.buffers:
            done = Allocate(buffer, done)
        return done


@dataclass(slots=True)
class _Iteration:
    """An iteration: loads into registers, and the sums that use them."""

    loads: list[BufferStore]
    sums: list[Stmt]
    buffers: list[Buffer]
    vectors: int = 0
    """How many of the loads, the last ones, are of vectors that the first sum reads."""

    def last_uses(self) -> list[int]:
        """For each load the place of the last sum that needs its register.

        Those of vectors hold what later sums read until the end.
        """
        rows = self.loads[: len(self.loads) - self.vectors]
        end = len(self.sums) - 1
        reads = [
            (place, found.buffer, _places(found.indices[0]))
            for place, stmt in enumerate(self.sums)
            for found in _loads_in(stmt)
        ]
        found = []
        for load in rows:
            held = _places(load.indices[0])
            used = [p for p, b, read in reads if b is load.buffer and _overlap(read, held)]
            found.append(max(used, default=end))
        return [*found, *[end] * self.vectors]


def _iteration_of(loop: For) -> _Iteration | None:
    """The parts of an iteration; None unless it is a line of loads and one of sums behind it."""
    stmts: list[Stmt] = []
    buffers: list[Buffer] = []
    if loop.kind != "serial" or not _flatten(loop.body, stmts, buffers):
        return None
    written = {stmt.buffer for stmt in stmts if isinstance(stmt, BufferStore)}
    loads: list[BufferStore] = []
    sums: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, BufferStore) and stmt.buffer in buffers:
            read = stmt.value
            if not isinstance(read, BufferLoad) or read.buffer in written or _used(stmt, sums):
                return None
            loads.append(stmt)
        else:
            sums.append(stmt)
    if not loads or len({*buffers}) != len({load.buffer for load in loads}):
        return None
    return _with_vectors(loop.var, _Iteration(loads, sums, buffers), written)


def _used(load: BufferStore, sums: list[Stmt]) -> bool:
    """Whether sums before a load read the same buffer: it holds one thing after the other."""
    return any(found.buffer is load.buffer for stmt in sums for found in _loads_in(stmt))


def _flatten(stmt: Stmt, stmts: list[Stmt], buffers: list[Buffer]) -> bool:
    """Lists the statements of a straight line, and what is allocated in it."""
    if isinstance(stmt, SeqStmt):
        return all(_flatten(part, stmts, buffers) for part in stmt.stmts)
    if isinstance(stmt, Allocate):
        buffers.append(stmt.buffer)
        return stmt.buffer.scope == "local" and _flatten(stmt.body, stmts, buffers)
    stmts.append(stmt)
    return _is_prefetch(stmt) or (
        isinstance(stmt, BufferStore) and stmt.predicate is None and len(stmt.indices) == 1
        and stmt.buffer.scope == "local"
    )


def _place_of(stmt: Stmt) -> int:
    """Where a statement stands in an iteration, as measured: loads do not pass prefetches.

    A single one comes last. The addresses of several lines would take registers from what is
    loaded there: those come first.
    """
    if not _is_prefetch(stmt):
        return 1
    return 0 if isinstance(stmt, For) else 2


def _is_prefetch(stmt: Stmt) -> bool:
    """Whether a statement only brings lines closer, one or a loop of them."""
    if isinstance(stmt, For):
        return _is_prefetch(stmt.body)
    if not isinstance(stmt, Evaluate) or not isinstance(stmt.value, Call):
        return False
    return stmt.value.op == "prefetch"


def _with_vectors(var: Var, iteration: _Iteration, written: set[Buffer]) -> _Iteration:
    """The same with what the first sum reads as vectors loaded before it, too."""
    first = next((stmt for stmt in iteration.sums if isinstance(stmt, BufferStore)), None)
    read: list[BufferLoad] = []
    for load in _loads_in(first) if first is not None else ():
        moves = any(var in variables_in(index) for index in load.indices)
        if moves and load.dtype.lanes > 1 and load.buffer not in {*written, *iteration.buffers}:
            read.append(load)
    kept: list[tuple[BufferLoad, BufferLoad]] = []
    for load in read:
        lanes = load.dtype.lanes
        scalar = load.dtype.with_lanes(1)
        held = Buffer(f"{load.buffer.name}.ahead", scalar, (build.const(lanes),), "local")
        place = Ramp(build.const(0), build.const(1), lanes)
        iteration.loads.append(BufferStore(held, load, (place,)))
        iteration.buffers.append(held)
        iteration.vectors += 1
        kept.append((load, BufferLoad(held, (place,))))
    if kept:
        replacer = _Replacer(kept)
        iteration.sums = [replacer.rewrite(stmt) for stmt in iteration.sums]
    return iteration


class _Replacer(Rewriter):
    """Loads that are known to be made replaced by what holds them."""

    def __init__(self, kept: list[tuple[BufferLoad, BufferLoad]]) -> None:
        self.kept = kept
        self.buffers = {load.buffer for load, _ in kept}

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        if load.buffer not in self.buffers:
            return load
        is_it = (to for made, to in self.kept if structural_equal(load, made))
        return next(is_it, load)


def _loads_in(node: Node) -> Iterator[BufferLoad]:
    found: list[BufferLoad] = []

    def look(each: Node) -> None:
        if isinstance(each, BufferLoad):
            found.append(each)

    post_order(node, look)
    return iter(found)


def _places(index: Expr) -> range | None:
    """The elements that an index means; None if that is not known."""
    if isinstance(index, Ramp):
        start, stride = build.int_value(index.base), build.int_value(index.stride)
        if start is None or stride != 1:
            return None
        return range(start, start + index.lanes)
    start = build.int_value(index)
    return None if start is None else range(start, start + 1)


def _overlap(one: range | None, other: range | None) -> bool:
    if one is None or other is None:
        return True
    return one.start < other.stop and other.start < one.stop

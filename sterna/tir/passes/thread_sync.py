"""Barriers: where threads of a block must wait for each other before they go on.

A statement may read what others wrote, or write what others read or wrote, only behind a barrier.
The statements of a kernel are walked in the order in which they run, with what was read and
written of shared memory since the last barrier; a loop is walked as if it had run before. Barriers
stand where all threads come by, or none: a branch that only some take can have none inside.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import (
    Add,
    BinaryExpr,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Ramp,
    Sub,
    Var,
    variables_in,
)
from sterna.ir.node import Node, post_order
from sterna.tir.fragments import WRITES, element_of, touched
from sterna.tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    Tensorized,
    seq,
)
from sterna.tir.threads import THREAD, barrier, is_barrier, is_shared, rank_of_scope

# Indices of more values are not computed to see whether they differ.
MOST_VALUES = 1 << 16


class DivergentBarrierError(ValueError):
    """A barrier is needed where only some of the threads come by."""


@dataclass(frozen=True, slots=True)
class Accesses:
    """What was read and written since the last barrier."""

    reads: frozenset[Buffer] = frozenset()
    writes: frozenset[Buffer] = frozenset()

    def joined(self, other: "Accesses") -> "Accesses":
        """Both."""
        return Accesses(self.reads | other.reads, self.writes | other.writes)

    def conflicts(self, later: "Accesses") -> bool:
        """Whether later accesses must wait for these."""
        return bool(later.writes & (self.reads | self.writes) or later.reads & self.writes)


NOTHING = Accesses()


def thread_sync(body: Stmt, threads: Mapping[Var, Expr], shares_global: bool = False) -> Stmt:
    """S[t] = A[t]; B[t] = S[t + 1]   ->   S[t] = A[t]; barrier; B[t] = S[t + 1]

    threads: the variables of a block's threads, and how many there are. shares_global: whether
    global memory is looked at too, which a kernel of one block may use to pass on values.
    """
    planner = _Planner(dict(threads), set(threads), shares_global)
    return planner.visit(body, NOTHING)[0]


def is_one_to_one(index: Expr, spans: Mapping[Var, Expr]) -> bool:
    """Whether an index differs wherever one of some variables does: all its values are computed.

    i*64 + j*8 + k for i, j and k below 8   ->   True
    """
    counts = {var: build.int_value(extent) for var, extent in spans.items()}
    if any(var not in counts for var in variables_in(index)):
        return False  # what else it depends on may be anything
    known = {var: count for var, count in counts.items() if count is not None}
    if len(known) < len(counts) or math.prod(known.values()) > MOST_VALUES:
        return False
    axes = np.meshgrid(*[np.arange(count) for count in known.values()], indexing="ij")
    values = _values(index, dict(zip(known, axes, strict=True)))
    if values is None:
        return False
    whole = np.broadcast_to(values, tuple(known.values()))
    return len(np.unique(whole)) == math.prod(known.values())


def _values(expr: Expr, known: Mapping[Var, Any]) -> Any:
    """An expression for all values of its variables at once; None if it is more than numbers."""
    if isinstance(expr, Var):
        return known[expr]
    if isinstance(expr, IntImm):
        return np.int64(expr.value)
    if isinstance(expr, Cast) or (isinstance(expr, Call) and expr.op in ("exact", "likely")):
        return _values(expr.value if isinstance(expr, Cast) else expr.args[0], known)
    if isinstance(expr, Call) and expr.op in _BITS:
        parts, compute = expr.args, _BITS[expr.op]
    elif isinstance(expr, BinaryExpr) and type(expr) in _COMPUTE:
        parts, compute = (expr.a, expr.b), _COMPUTE[type(expr)]
    else:
        return None
    a, b = (_values(part, known) for part in parts)
    return None if a is None or b is None else compute(a, b)


_COMPUTE: dict[type[Expr], Any] = {
    Add: np.add, Sub: np.subtract, Mul: np.multiply, FloorDiv: np.floor_divide,
    FloorMod: np.mod,
}
_BITS: dict[str, Any] = {
    "bitwise_xor": np.bitwise_xor, "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or,
    "shift_left": np.left_shift, "shift_right": np.right_shift,
}


@dataclass(slots=True)
class _Planner:
    threads: dict[Var, Expr]
    """The threads of a block, and how many there are."""
    uneven: set[Var]
    """Variables that differ between threads."""
    shares_global: bool
    known: dict[int, tuple[Node, Accesses]] = field(default_factory=dict)
    lets: list[tuple[Var, Expr]] = field(default_factory=list)
    around: dict[Var, Expr] = field(default_factory=dict)
    """The loops around a statement that begin at 0, and how often they run."""

    # ---- what a statement touches ----

    def counts(self, buffer: Buffer) -> bool:
        return is_shared(buffer.scope) or (self.shares_global and rank_of_scope(buffer.scope) == 0)

    def accesses(self, stmt: Node) -> Accesses:
        found = self.known.get(id(stmt))
        if found is not None:
            return found[1]
        reads: set[Buffer] = set()
        writes: set[Buffer] = set()

        stack: list[Node] = [stmt]
        while stack:
            node = stack.pop()
            if isinstance(node, Call) and node.op in WRITES:
                for kind, parts in zip((reads, writes), touched(node), strict=True):
                    kind.update(buffer for buffer in parts if self.counts(buffer))
                for arg in node.args:
                    is_place = isinstance(arg, Call) and arg.op == "address_of"
                    stack.extend(element_of(arg).indices if is_place else [arg])
                continue
            if isinstance(node, BufferLoad) and self.counts(node.buffer):
                reads.add(node.buffer)
            elif isinstance(node, BufferStore) and self.counts(node.buffer):
                writes.add(node.buffer)
            elif isinstance(node, Call) and node.op in ("address_of", "store_bits", "tile_store"):
                load = node.args[0]
                if isinstance(load, BufferLoad) and self.counts(load.buffer):
                    writes.add(load.buffer)
            stack.extend(node.children())
        made = Accesses(frozenset(reads), frozenset(writes))
        self.known[id(stmt)] = stmt, made
        return made

    def differs(self, expr: Expr) -> bool:
        """Whether threads may disagree about a value."""
        found: list[Node] = []

        def look(node: Node) -> None:
            is_own = isinstance(node, BufferLoad) and rank_of_scope(node.buffer.scope) == THREAD
            if is_own or (isinstance(node, Var) and node in self.uneven):
                found.append(node)

        post_order(expr, look)
        return bool(found)

    # ---- the walk ----

    def visit(self, stmt: Stmt, before: Accesses) -> tuple[Stmt, Accesses]:
        """The statement with its barriers, and what is open behind it."""
        if is_barrier(stmt):
            return stmt, NOTHING
        if isinstance(stmt, SeqStmt):
            return self.sequence(stmt, before)
        if isinstance(stmt, For) and not self.differs(stmt.extent) and not self.differs(stmt.min):
            return self.loop(stmt, before)
        if isinstance(stmt, IfThenElse) and not self.differs(stmt.condition):
            return self.branch(stmt, before)
        if isinstance(stmt, LetStmt):
            return self.let(stmt, before)
        if isinstance(stmt, Allocate):
            body, after = self.visit(stmt.body, before)
            return Allocate(stmt.buffer, body) if body is not stmt.body else stmt, after
        if isinstance(stmt, AttrStmt):
            body, after = self.visit(stmt.body, before)
            made = AttrStmt(stmt.key, stmt.node, stmt.value, body)
            return made if body is not stmt.body else stmt, after
        if isinstance(stmt, Tensorized):
            body, after = self.visit(stmt.body, before)
            return Tensorized(stmt.name, body, stmt.meaning), after
        if isinstance(stmt, For | IfThenElse):
            self.check_inside(stmt)
        own = self.accesses(stmt)
        if before.conflicts(own):
            return seq(barrier(), stmt), own
        return stmt, before.joined(own)

    def let(self, stmt: LetStmt, before: Accesses) -> tuple[Stmt, Accesses]:
        """A name for a value, which may be read from memory that others write."""
        own = self.accesses(stmt.value)
        if before.conflicts(own):
            made, after = self.let(stmt, NOTHING)
            return seq(barrier(), made), after
        if self.differs(stmt.value):
            self.uneven.add(stmt.var)
        self.lets.append((stmt.var, stmt.value))
        body, after = self.visit(stmt.body, before.joined(own))
        self.lets.pop()
        return LetStmt(stmt.var, stmt.value, body) if body is not stmt.body else stmt, after

    def sequence(self, stmt: SeqStmt, before: Accesses) -> tuple[Stmt, Accesses]:
        made: list[Stmt] = []
        for part in stmt.stmts:
            done, before = self.visit(part, before)
            made.append(done)
        same = all(new is old for new, old in zip(made, stmt.stmts, strict=True))
        return stmt if same else seq(*made), before

    def loop(self, stmt: For, before: Accesses) -> tuple[Stmt, Accesses]:
        """What an iteration leaves open, the next one finds."""
        waits = before.conflicts(self.accesses(stmt))
        if waits:  # once before the loop, not in each iteration
            before = NOTHING
        if build.is_const(stmt.min, 0):
            self.around[stmt.var] = stmt.extent
        _, left = self.visit(stmt.body, before)
        body, after = self.visit(stmt.body, before.joined(self.carried(stmt, left)))
        self.around.pop(stmt.var, None)
        runs = build.int_value(stmt.extent)
        if runs is None or runs < 1:
            after = after.joined(before)
        made = stmt.with_body(body)
        return seq(barrier(), made) if waits else made, after

    def carried(self, loop: For, left: Accesses) -> Accesses:
        """What is open at the end of an iteration, without elements that no other one touches."""
        own = {b for b in left.writes if self.writes_apart(loop, b)}
        return Accesses(left.reads, left.writes - own)

    def writes_apart(self, loop: For, buffer: Buffer) -> bool:
        """Whether all iterations and threads write each its own elements, and none reads them: also
        those of other iterations of the loops around that decide which these are."""
        stores: list[BufferStore] = []
        others: list[Node] = []
        inside: list[tuple[Var, Expr]] = []
        spans: dict[Var, Expr] = {loop.var: loop.extent}

        def look(node: Node) -> None:
            if isinstance(node, For):
                spans[node.var] = node.extent
            elif isinstance(node, BufferStore) and node.buffer is buffer:
                stores.append(node)
            elif isinstance(node, BufferLoad) and node.buffer is buffer:
                others.append(node)
            elif isinstance(node, LetStmt):
                inside.append((node.var, node.value))

        post_order(loop.body, look)
        lets = [*self.lets, *reversed(inside)]
        if len(stores) != 1 or others or len(stores[0].indices) != 1:
            return False
        index = stores[0].indices[0]
        if isinstance(index, Ramp):
            lane = Var("lane", index.base.dtype)
            spans[lane] = build.const(index.lanes)
            index = index.base + lane * index.stride
        for var, value in reversed(lets):
            index = substitute(index, {var: value})
        used = variables_in(index)
        spans.update({var: count for var, count in self.around.items() if var in used})
        return is_one_to_one(index, {**self.threads, **spans})

    def branch(self, stmt: IfThenElse, before: Accesses) -> tuple[Stmt, Accesses]:
        """A branch that all threads take, or none: they wait before it rather than inside, where
        drivers have mistaken barriers."""
        if before.conflicts(self.accesses(stmt)):
            made, after = self.branch(stmt, NOTHING)
            return seq(barrier(), made), after
        before = before.joined(self.accesses(stmt.condition))
        then, after = self.visit(stmt.then, before)
        otherwise, other = stmt.otherwise, before
        if otherwise is not None:
            otherwise, other = self.visit(otherwise, before)
        if then is stmt.then and otherwise is stmt.otherwise:
            return stmt, after.joined(other)
        return IfThenElse(stmt.condition, then, otherwise), after.joined(other)

    def check_inside(self, stmt: For | IfThenElse) -> None:
        """What only some threads run must need no barrier within."""
        parts = [stmt.body] if isinstance(stmt, For) else [stmt.then, stmt.otherwise]
        inner = _Planner({}, set(), self.shares_global, self.known)
        for part in parts:
            if part is None or not any(self.accesses(part).writes):
                continue
            done, left = inner.visit(part, NOTHING)
            again = isinstance(stmt, For) and left.conflicts(self.accesses(part))
            if done is not part or again:
                raise DivergentBarrierError(
                    "threads must wait for each other inside a branch or loop that only some of "
                    f"them run: {str(stmt)[:200]}"
                )

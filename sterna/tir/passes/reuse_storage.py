"""Let buffers that are not needed at the same time share memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Var
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.tir.stmt import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)

# Smaller buffers live in registers or on the stack, where sharing would keep them from registers.
SMALLEST_BYTES = 16 * 1024


def reuse_storage(func: PrimFunc) -> PrimFunc:
    """A = allocate(n); make A; B = allocate(n); make B from A; C = allocate(n); make C from B

    ->  A = allocate(n); B = allocate(n); make A; make B from A; make C, in A's memory, from B
    """
    return func.with_body(_Sharer().rewrite(func.body))


@dataclass
class _Slot:
    """Memory that several buffers use one after the other."""

    buffer: Buffer
    size: int
    last_use: int


class _Sharer(Rewriter):
    def __init__(self) -> None:
        self.shared: dict[Buffer, Buffer] = {}

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        buffers, stmts = _open(allocate)
        slots = self.assign(buffers, stmts)
        if len(slots) == len(buffers):
            kept: Stmt = self.rewrite_children(allocate)
            return kept
        body = seq(*[self.rewrite(stmt) for stmt in stmts])
        for buffer in reversed(slots):
            body = Allocate(buffer, body)
        return body

    def assign(self, buffers: Sequence[Buffer], stmts: Sequence[Stmt]) -> list[Buffer]:
        """The buffers to allocate; those that share another one's memory are remembered."""
        slots: list[_Slot] = []
        alone: list[Buffer] = []
        uses = {buffer: _uses(buffer, stmts) for buffer in buffers}
        for buffer in sorted(buffers, key=lambda b: uses[b][0]):
            size = build.int_value(buffer.shape[0]) if len(buffer.shape) == 1 else None
            if size is None or size * buffer.dtype.bytes < SMALLEST_BYTES:
                alone.append(buffer)
                continue
            first, last = uses[buffer]
            fitting = [s for s in slots if s.last_use < first and _alike(s.buffer, buffer)]
            if not fitting:
                slots.append(_Slot(buffer, size, last))
                continue
            slot = min(fitting, key=lambda s: abs(s.size - size))
            slot.last_use, slot.size = last, max(slot.size, size)
            self.shared[buffer] = slot.buffer
        return [*alone, *[self.grown(slot) for slot in slots]]

    def grown(self, slot: _Slot) -> Buffer:
        """The slot's buffer, large enough for all that share it."""
        old = slot.buffer
        if build.int_value(old.shape[0]) == slot.size:
            return old
        size = (build.const(slot.size, old.shape[0].dtype),)
        made = Buffer(old.name, old.dtype, size, old.scope, (), old.alignment)
        for buffer, target in list(self.shared.items()):
            if target is old:
                self.shared[buffer] = made
        self.shared[old] = made
        return made

    def visit_Var(self, var: Var) -> Var:
        return next((new.data for old, new in self.shared.items() if old.data is var), var)

    def visit_BufferLoad(self, load: BufferLoad) -> Node:
        indices = tuple(self.rewrite(i) for i in load.indices)
        buffer = self.shared.get(load.buffer, load.buffer)
        same = buffer is load.buffer and all(
            a is b for a, b in zip(indices, load.indices, strict=True)
        )
        return load if same else BufferLoad(buffer, indices)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        indices = tuple(self.rewrite(i) for i in store.indices)
        value = self.rewrite(store.value)
        predicate = None if store.predicate is None else self.rewrite(store.predicate)
        buffer = self.shared.get(store.buffer, store.buffer)
        return BufferStore(buffer, value, indices, predicate)


def _open(allocate: Allocate) -> tuple[list[Buffer], list[Stmt]]:
    """The buffers of nested allocations, and the statements between and inside them."""
    buffers: list[Buffer] = []
    stmts: list[Stmt] = []
    rest: Stmt = allocate
    while True:
        if isinstance(rest, Allocate):
            buffers.append(rest.buffer)
            rest = rest.body
        elif isinstance(rest, SeqStmt):
            stmts.extend(rest.stmts[:-1])
            rest = rest.stmts[-1]
        else:
            stmts.append(rest)
            return buffers, stmts


def _alike(a: Buffer, b: Buffer) -> bool:
    return a.dtype == b.dtype and a.scope == b.scope and a.alignment == b.alignment


def _uses(buffer: Buffer, stmts: Sequence[Stmt]) -> tuple[int, int]:
    """The first and the last statement that touch a buffer."""
    touched = [i for i, stmt in enumerate(stmts) if _touches(stmt, buffer)]
    return (touched[0], touched[-1]) if touched else (0, len(stmts))


def _touches(stmt: Stmt, buffer: Buffer) -> bool:
    found = False

    def look(node: Node) -> None:
        nonlocal found
        if isinstance(node, (BufferLoad, BufferStore)):
            found = found or node.buffer is buffer
        elif isinstance(node, Var):
            found = found or node is buffer.data

    post_order(stmt, look)
    return found

"""Storage reuse by liveness: let buffers share memory that are not needed at the same time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Var
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.tir.in_place import can_take_over
from sterna.tir.stmt import (
    Allocate,
    Buffer,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)

# Smaller buffers live in registers or on the stack, where sharing would keep them from registers.
SMALLEST_BYTES = 16 * 1024


def storage_rewrite(func: PrimFunc) -> PrimFunc:
    """A = allocate(n); make A; B = allocate(n); make B from A; C = allocate(n); make C from B

    ->  A = allocate(n); B = allocate(n); make A; make B from A; make C, in A's memory, from B

    and even B in A's memory, if each of its elements is made from the same element of A.
    """
    return func.with_body(_Sharer().rewrite(func.body))


@dataclass
class _Slot:
    """Memory that several buffers use one after the other."""

    buffer: Buffer
    size: int
    latest: Buffer
    """The one that uses it now."""
    last_use: int


class _Sharer(Rewriter):
    def __init__(self) -> None:
        self.shared: dict[Buffer, Buffer] = {}
        self.addresses: dict[Var, Var] = {}

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
        sizes = {buffer: size for buffer in buffers if (size := _size(buffer)) is not None}
        if len(sizes) < 2:
            return list(buffers)
        slots: list[_Slot] = []
        uses = _uses(sizes, stmts)
        for buffer in sorted(sizes, key=lambda b: uses[b][0]):
            size, (first, last) = sizes[buffer], uses[buffer]
            fitting = [s for s in slots if _alike(s.buffer, buffer)]
            free = [
                s
                for s in fitting
                if s.last_use < first
                or can_take_over(s.latest, buffer, stmts[first : s.last_use + 1])
            ]
            if not free:
                slots.append(_Slot(buffer, size, buffer, last))
                continue
            slot = min(free, key=lambda s: (abs(s.size - size), s.last_use < first))
            slot.latest, slot.last_use = buffer, max(slot.last_use, last)
            slot.size = max(slot.size, size)
            self.share(buffer, slot.buffer)
        alone = [buffer for buffer in buffers if buffer not in sizes]
        return [*alone, *[self.sized(slot) for slot in slots]]

    def share(self, buffer: Buffer, memory: Buffer) -> None:
        self.shared[buffer] = memory
        self.addresses[buffer.data] = memory.data

    def sized(self, slot: _Slot) -> Buffer:
        """The slot's buffer, large enough for all that share it."""
        old = slot.buffer
        if build.int_value(old.shape[0]) == slot.size:
            return old
        size = (build.const(slot.size, old.shape[0].dtype),)
        made = Buffer(old.name, old.dtype, size, old.scope, (), old.alignment)
        for buffer, target in list(self.shared.items()):
            if target is old:
                self.share(buffer, made)
        self.share(old, made)
        return made

    def visit_Var(self, var: Var) -> Var:
        return self.addresses.get(var, var)

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.shared.get(buffer, buffer)


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


def _size(buffer: Buffer) -> int | None:
    """The number of elements of a buffer that is worth sharing; None for others."""
    size = build.int_value(buffer.shape[0]) if len(buffer.shape) == 1 else None
    return None if size is None or buffer.dtype.bytes_of(size) < SMALLEST_BYTES else size


def _alike(a: Buffer, b: Buffer) -> bool:
    return a.dtype == b.dtype and a.scope == b.scope and a.alignment == b.alignment


def _uses(buffers: Iterable[Buffer], stmts: Sequence[Stmt]) -> dict[Buffer, tuple[int, int]]:
    """The first and the last statement that touch each buffer."""
    owners = {id(one): buffer for buffer in buffers for one in (buffer, buffer.data)}
    uses: dict[Buffer, tuple[int, int]] = {}
    for place, stmt in enumerate(stmts):
        touched: set[Buffer] = set()

        def look(node: Node, touched: set[Buffer] = touched) -> None:
            if id(node) in owners:
                touched.add(owners[id(node)])

        post_order(stmt, look)
        for buffer in touched:
            uses[buffer] = (uses.get(buffer, (place, place))[0], place)
    return {buffer: uses.get(buffer, (0, len(stmts))) for buffer in buffers}

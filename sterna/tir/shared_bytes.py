"""Data races on sub-byte elements: buffers whose bytes several parallel iterations touch.

Elements of less than a byte share their bytes. Iterations that write different elements of one byte
must not undo each other's work; where it is certain that no two touch the same byte, all is easy.
"""

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Ramp
from sterna.ir.visitor import ExprVisitor
from sterna.tir.stmt import Allocate, Buffer, BufferLoad, BufferStore, For


def shared_in(loop: For, analyzer: Analyzer) -> set[Buffer]:
    """The buffers of packed elements that a parallel loop writes, and whose bytes its iterations
    may share; the analyzer knows about everything around the loop."""
    accesses = _Accesses(loop, analyzer)
    accesses.visit(loop.body)
    certain = loop.kind == "parallel"  # the threads of a GPU are several loops deep
    touched = accesses.written - accesses.own
    return {buffer for buffer in touched if not (certain and accesses.is_disjoint(buffer))}


class _Accesses(ExprVisitor):
    def __init__(self, loop: For, analyzer: Analyzer) -> None:
        self.loop = loop
        self.analyzer = analyzer
        self.written: set[Buffer] = set()
        self.own: set[Buffer] = set()
        # The bytes from one iteration to the next, and the first and last byte of the first one;
        # None: unknown.
        self.bytes: dict[Buffer, list[tuple[int, int, int] | None]] = {}

    def is_disjoint(self, buffer: Buffer) -> bool:
        """Whether no two iterations touch the same byte."""
        known = [access for access in self.bytes[buffer] if access is not None]
        if len(known) < len(self.bytes[buffer]):
            return False
        steps = {step for step, _, _ in known}
        first, last = min(access[1] for access in known), max(access[2] for access in known)
        return len(steps) == 1 and last - first < abs(steps.pop())

    def visit_For(self, loop: For) -> None:
        self.analyzer.bind(loop.var, loop.min, loop.extent)
        self.visit_children(loop)
        self.analyzer.unbind(loop.var)

    def visit_Allocate(self, allocate: Allocate) -> None:
        self.own.add(allocate.buffer)
        self.visit_children(allocate)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.note(load.buffer, load.indices)
        self.visit_children(load)

    def visit_BufferStore(self, store: BufferStore) -> None:
        if store.buffer.dtype.is_packed:
            self.written.add(store.buffer)
        self.note(store.buffer, store.indices)
        self.visit_children(store)

    def visit_Call(self, call: Call) -> None:
        if call.op in ("address_of", "view_of") and isinstance(call.args[0], BufferLoad):
            buffer = call.args[0].buffer
            if buffer.dtype.is_packed:  # whoever gets the address may do anything
                self.written.add(buffer)
                self.bytes.setdefault(buffer, []).append(None)
        self.visit_children(call)

    def note(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        if buffer.dtype.is_packed:
            self.bytes.setdefault(buffer, []).append(self.reach(buffer, indices))

    def reach(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[int, int, int] | None:
        ends = [_ends(index) for index in indices]
        if len(ends) != 1 or ends[0] is None:
            return None
        bits, var = buffer.dtype.bits, self.loop.var
        first, last = ends[0]
        step = self.analyzer.simplify(substitute(first, {var: var + 1}) - first)
        count = build.int_value(step)
        if not count or count * bits % 8:
            return None
        start = substitute(first, {var: self.loop.min})
        lowest = self.analyzer.bound(self.analyzer.simplify(start))
        highest = self.analyzer.bound(
            self.analyzer.simplify(substitute(last, {var: self.loop.min}))
        )
        if not (isinstance(lowest[0], int) and isinstance(highest[1], int)):
            return None
        final = (highest[1] * bits + bits - 1) // 8
        return count * bits // 8, lowest[0] * bits // 8, final


def _ends(index: Expr) -> tuple[Expr, Expr] | None:
    """The smallest and the largest index, where they are known."""
    if index.dtype.lanes == 1:
        return index, index
    stride = build.int_value(index.stride) if isinstance(index, Ramp) else None
    if not isinstance(index, Ramp) or stride is None:
        return None
    other = index.base + (index.lanes - 1) * stride
    return (index.base, other) if stride >= 0 else (other, index.base)

"""Double buffering (software pipelining): make what the next iteration needs before this one."""

from collections.abc import Mapping

from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.tir.config import InjectDoubleBufferConfig
from sterna.tir.copy import copy_stmt
from sterna.tir.external import explicit_view, view_at
from sterna.tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Stmt,
    nothing,
    seq,
    statements_in,
)

KEY = "double_buffer"

_DEFAULT = InjectDoubleBufferConfig()


def inject_double_buffer(
    func: PrimFunc, config: InjectDoubleBufferConfig = _DEFAULT
) -> PrimFunc:
    """for i in range(n): B = allocate(m); attr double_buffer(B): make B of i; use B

    ->  B = allocate(2, m)
        if 0 < n: make B[0] of 0
        for i in range(n):
            if likely(i + 1 < n): make B[(i + 1) % 2] of i + 1
            use B[i % 2]
    """
    if config.split_loop < 1:
        raise ValueError(
            f"tir.InjectDoubleBuffer: split_loop is {config.split_loop}, but must be 1 or more"
        )
    done = func.with_body(_Injector(config.split_loop).rewrite(func.body))
    for stmt in statements_in(done.body):
        _refuse_rest(stmt)
    return done


def _refuse_rest(found: Stmt) -> None:
    if isinstance(found, AttrStmt) and found.key == KEY and isinstance(found.node, Buffer):
        raise ValueError(
            f"{found.node.name} is double buffered, but not made and kept in each iteration of a "
            "loop: Double buffer scope must be inside a loop; use compute_at"
        )


class _Injector(Rewriter):
    def __init__(self, written_out: int) -> None:
        self.written_out = written_out

    def visit_For(self, loop: For) -> Stmt:
        body = self.rewrite(loop.body)
        ahead = _Ahead()
        rest = ahead.rewrite(body)
        if not ahead.parts or set(ahead.buffers) != set(ahead.allocated):
            return loop.with_body(body)
        _check(loop, ahead, rest)
        return _pipelined(loop, ahead, rest, self.written_out)


class _Ahead(Rewriter):
    """Takes what is made for double buffers out of a loop's body, and their allocations."""

    def __init__(self) -> None:
        self.parts: list[Stmt] = []
        self.buffers: list[Buffer] = []
        self.allocated: list[Buffer] = []
        self.conditions: list[Expr] = []

    def visit_AttrStmt(self, attr: AttrStmt) -> Stmt:
        if attr.key != KEY:
            kept: Stmt = self.rewrite_children(attr)
            return kept
        part: Stmt = attr
        while isinstance(part, AttrStmt) and part.key == KEY:
            assert isinstance(part.node, Buffer)
            self.buffers.append(part.node)
            part = part.body
        for condition in reversed(self.conditions):
            part = IfThenElse(condition, part)
        self.parts.append(part)
        return nothing()

    def visit_IfThenElse(self, branch: IfThenElse) -> Stmt:
        then = self.under(branch.condition, branch.then)
        otherwise = branch.otherwise
        if otherwise is not None:
            otherwise = self.under(build.logical_not(branch.condition), otherwise)
        if then is branch.then and otherwise is branch.otherwise:
            return branch
        return IfThenElse(branch.condition, then, otherwise)

    def under(self, condition: Expr, stmt: Stmt) -> Stmt:
        self.conditions.append(condition)
        done: Stmt = self.rewrite(stmt)
        self.conditions.pop()
        return done

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        body: Stmt = self.rewrite(allocate.body)
        if any(allocate.buffer is buffer for buffer in self.buffers):
            self.allocated.append(allocate.buffer)
            return body
        return allocate if body is allocate.body else Allocate(allocate.buffer, body)

    def visit_SeqStmt(self, sequence: SeqStmt) -> Stmt:
        return seq(*[self.rewrite(stmt) for stmt in sequence.stmts])

    def _leave(self, stmt: Stmt) -> Stmt:
        return stmt  # what is made there belongs to another loop, or needs the variable

    visit_For = visit_LetStmt = _leave


def _check(loop: For, ahead: _Ahead, rest: Stmt) -> None:
    """Refuse what cannot be made one iteration early."""
    names = ", ".join(buffer.name for buffer in ahead.buffers)
    if loop.kind not in ("serial", "unrolled"):
        raise ValueError(
            f"{names} is double buffered at the loop {loop.var.name}, whose iterations run at once "
            f"({loop.kind}); compute it at a serial loop"
        )
    for buffer in ahead.buffers:
        if any(loop.var in variables_in(e) for e in (*buffer.shape, *buffer.strides)):
            raise ValueError(
                f"{buffer.name} is double buffered, but its size changes with {loop.var.name}"
            )
    read, made = _touched(seq(*ahead.parts))
    read_later, changed = _touched(rest)
    for buffer in read_later:
        if buffer in made and buffer not in ahead.buffers:
            raise ValueError(
                f"{names} is double buffered at the loop {loop.var.name}, and {buffer.name} is "
                "made with it but kept otherwise; double buffer that too"
            )
    for buffer in read:
        if buffer in changed or buffer.data in changed:
            raise ValueError(
                f"{names} is double buffered at the loop {loop.var.name} and reads {buffer.name}, "
                f"which that loop makes: double buffer {buffer.name} too, or compute it further out"
            )


def _touched(stmt: Stmt) -> tuple[set[Buffer], set[Buffer | Var]]:
    """The buffers that a statement reads, and those that it may change, some by address only."""
    read: set[Buffer] = set()
    changed: set[Buffer | Var] = set()

    def look(found: Node) -> None:
        if isinstance(found, BufferLoad):
            read.add(found.buffer)
        elif isinstance(found, BufferStore):
            changed.add(found.buffer)
        elif isinstance(found, Call) and found.op in ("address_of", "view_of"):
            changed.update(a.buffer for a in found.args if isinstance(a, BufferLoad))
        elif isinstance(found, Var):
            changed.add(found)

    post_order(stmt, look)
    return read, changed


def _pipelined(loop: For, ahead: _Ahead, rest: Stmt, written_out: int) -> Stmt:
    halves = {buffer: _doubled(buffer) for buffer in ahead.buffers}
    made = seq(*ahead.parts)

    def make(iteration: Expr, half: Expr) -> Stmt:
        return using_half(copy_stmt(made, {loop.var: iteration}), halves, half)

    first, following = loop.min, loop.var + 1
    end = loop.min + loop.extent
    zero = build.const(0, loop.var.dtype)
    inside = following < end
    body = seq(
        IfThenElse(
            Call(inside.dtype, "likely", (inside,)),
            make(following, build.floormod(following - first, 2)),
        ),
        using_half(rest, halves, build.floormod(loop.var - first, 2)),
    )
    steps = _in_rows(loop.with_body(body), written_out)
    done = seq(IfThenElse(zero < loop.extent, make(first, zero)), steps)
    for buffer in reversed(ahead.buffers):
        done = Allocate(halves[buffer], done)
    return done


def _in_rows(loop: For, count: int) -> Stmt:
    """A loop whose iterations are written out so many in a row, and a loop for the rest."""
    if count == 1:
        return loop
    rows = build.floordiv(loop.extent, count)
    row = Var(f"{loop.var.name}.row", loop.var.dtype)
    copies = [
        copy_stmt(loop.body, {loop.var: loop.min + (row * count + place)})
        for place in range(count)
    ]
    zero = build.const(0, loop.var.dtype)
    together = For(row, zero, rows, loop.kind, seq(*copies), "", loop.annotations)
    last = Var(loop.var.name, loop.var.dtype)
    body = copy_stmt(loop.body, {loop.var: last})
    left = loop.extent - rows * count
    return seq(
        together, For(last, loop.min + rows * count, left, loop.kind, body, "", loop.annotations)
    )


def _doubled(buffer: Buffer) -> Buffer:
    strides = buffer.strides
    if strides:
        strides = (strides[0] * buffer.shape[0], *strides)
    shape = (build.const(2), *buffer.shape)
    separators = tuple(place + 1 for place in buffer.axis_separators)
    return Buffer(
        buffer.name, buffer.dtype, shape, buffer.scope, strides, buffer.alignment, separators
    )


def using_half(stmt: Stmt, halves: Mapping[Buffer, Buffer], half: Expr) -> Stmt:
    """The statement with double buffers used in one half."""
    placed: Stmt = _Halves(halves, half).rewrite(stmt)
    return placed


class _Halves(Rewriter):
    def __init__(self, halves: Mapping[Buffer, Buffer], half: Expr) -> None:
        self.halves, self.half = halves, half
        self.addresses = {buffer.data: buffer.name for buffer in halves}

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        if load.buffer not in self.halves:
            kept: Expr = self.rewrite_children(load)
            return kept
        indices = tuple(self.rewrite(i) for i in load.indices)
        return BufferLoad(self.halves[load.buffer], (self.half, *indices))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        if store.buffer not in self.halves:
            kept: Stmt = self.rewrite_children(store)
            return kept
        value, *indices = (self.rewrite(e) for e in (store.value, *store.indices))
        predicate = None if store.predicate is None else self.rewrite(store.predicate)
        doubled = self.halves[store.buffer]
        return BufferStore(doubled, value, (self.half, *indices), predicate)

    def visit_Call(self, call: Call) -> Expr:
        kept: Expr
        if call.op != "view_of":
            kept = self.rewrite_children(call)
            return kept
        # A view of one half has the shape of that half, not of the buffer with both.
        kept = self.rewrite_children(view_at(*explicit_view(call)))
        return kept

    def visit_Var(self, var: Var) -> Var:
        if var in self.addresses:
            raise ValueError(
                f"{self.addresses[var]} is double buffered, but used by its address alone; "
                "take the address of an element instead"
            )
        return var

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.halves.get(buffer, buffer)

"""Alpha renaming: copies of statements whose variables and buffers are their own."""

from collections.abc import Mapping
from typing import Any

from sterna.ir.expr import Expr, Let, Var
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.tir.stmt import Allocate, Buffer, BufferLoad, BufferStore, For, LetStmt, Prefetch, Stmt


def copy_stmt(
    stmt: Stmt, values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer] | None = None
) -> Stmt:
    """A copy in which everything bound inside is new, and these variables have these values.

    Buffers of the outside may be others too; the values then say what their addresses are.
    """
    copied: Stmt = _Copier(values, buffers or {}).rewrite(stmt)
    return copied


def with_own_names(expr: Expr) -> Expr:
    """The expression itself, or a copy with variables of its own if it binds some."""
    found: list[Node] = []
    post_order(expr, lambda node: found.append(node) if isinstance(node, Let) else None)
    copied: Expr = _Copier({}, {}).rewrite(expr) if found else expr
    return copied


class _Copier(Rewriter):
    def __init__(self, values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer]) -> None:
        self.values = dict(values)
        self.buffers = dict(buffers)

    def fresh(self, var: Var) -> Var:
        made = Var(var.name, var.dtype, var.is_size)
        self.values[var] = made
        return made

    def visit_Var(self, var: Var) -> Expr:
        return self.values.get(var, var)

    def visit_For(self, loop: For) -> Stmt:
        start, extent = self.rewrite(loop.min), self.rewrite(loop.extent)
        var = self.fresh(loop.var)
        body = self.rewrite(loop.body)
        return For(var, start, extent, loop.kind, body, loop.thread, loop.annotations)

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        value = self.rewrite(let.value)
        return LetStmt(self.fresh(let.var), value, self.rewrite(let.body))

    def visit_Let(self, let: Let) -> Any:
        value = self.rewrite(let.value)
        return Let(self.fresh(let.var), value, self.rewrite(let.body))

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        old = allocate.buffer
        shape = tuple(self.rewrite(e) for e in old.shape)
        strides = tuple(self.rewrite(e) for e in old.strides)
        made = Buffer(
            old.name, old.dtype, shape, old.scope, strides, old.alignment, old.axis_separators
        )
        self.buffers[old] = made
        self.values[old.data] = made.data
        return Allocate(made, self.rewrite(allocate.body))

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)

    def visit_BufferLoad(self, load: BufferLoad) -> Any:
        indices = tuple(self.rewrite(i) for i in load.indices)
        return BufferLoad(self.buffers.get(load.buffer, load.buffer), indices)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        return BufferStore(
            self.buffers.get(store.buffer, store.buffer),
            self.rewrite(store.value),
            tuple(self.rewrite(i) for i in store.indices),
            None if store.predicate is None else self.rewrite(store.predicate),
        )

    def visit_Prefetch(self, prefetch: Prefetch) -> Stmt:
        return Prefetch(
            self.buffers.get(prefetch.buffer, prefetch.buffer),
            tuple(self.rewrite(e) for e in prefetch.mins),
            tuple(self.rewrite(e) for e in prefetch.extents),
        )

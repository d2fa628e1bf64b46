"""Function inlining: put the bodies of functions in the place of calls of them."""

from collections.abc import Mapping
from typing import Any

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import HANDLE, Call, Expr, FloatImm, IntImm, StringImm, Var
from sterna.ir.module import IRModule
from sterna.ir.node import Node, post_order
from sterna.ir.structural import structural_equal
from sterna.ir.visitor import Rewriter
from sterna.tir.copy import copy_stmt
from sterna.tir.external import explicit_view, view_at
from sterna.tir.stmt import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    LetStmt,
    Prefetch,
    PrimFunc,
    Stmt,
)


def inline_calls(mod: IRModule) -> IRModule:
    """def f(A, n): A[n] = 0;  def g(B): try_call("f", B, 3)   ->   ... def g(B): B[3] = 0

    Calls of functions that call themselves stay, and those that pass memory of another shape or
    type, or from a place that the caller has no buffer for.
    """
    inliner = _Inliner(mod)
    made = {name: inliner.function(name) for name in mod.functions}
    if all(made[name] is mod.functions[name] for name in made):
        return mod
    return IRModule(made, mod.attrs)


class _Inliner:
    """Inlines the functions of a module, each once and after those that it calls."""

    def __init__(self, mod: IRModule) -> None:
        self.functions = mod.functions
        self.done: dict[str, Node] = {}
        self.open: list[str] = []

    def function(self, name: str) -> Node:
        if name not in self.done:
            func = self.functions[name]
            self.open.append(name)
            if isinstance(func, PrimFunc) and not func.attrs.get("packed"):
                func = func.with_body(_Caller(self, func).rewrite(func.body))
            self.open.pop()
            self.done[name] = func
        return self.done[name]

    def callee(self, name: str) -> PrimFunc | None:
        """A function as it can be inlined now; None if it cannot."""
        if name not in self.functions or name in self.open:
            return None
        found = self.function(name)
        return found if isinstance(found, PrimFunc) and not found.attrs.get("packed") else None


class _Caller(Rewriter):
    def __init__(self, inliner: _Inliner, func: PrimFunc) -> None:
        self.inliner = inliner
        self.buffers = {b.data: b for b in func.buffers if b is not None}
        self.buffers.update({
            var: b for var, b in zip(func.params, func.buffers, strict=True) if b is not None
        })

    def rewrite(self, node: Any) -> Any:
        return node if isinstance(node, Expr) else super().rewrite(node)

    def visit_Allocate(self, allocate: Allocate) -> Stmt:
        self.buffers[allocate.buffer.data] = allocate.buffer
        kept: Stmt = self.rewrite_children(allocate)
        return kept

    def visit_Evaluate(self, evaluate: Evaluate) -> Stmt:
        call = evaluate.value
        if isinstance(call, Call) and call.op == "try_call" and isinstance(call.args[0], StringImm):
            callee = self.inliner.callee(call.args[0].value)
            if callee is not None and len(callee.params) == len(call.args) - 1:
                body = self.body_of(callee, call.args[1:])
                return evaluate if body is None else body
        return evaluate

    def body_of(self, callee: PrimFunc, args: tuple[Expr, ...]) -> Stmt | None:
        """What a function does with these arguments; None if that cannot be said here."""
        values: dict[Var, Expr] = {}
        lets: list[tuple[Var, Expr]] = []
        for param, buffer, arg in zip(callee.params, callee.buffers, args, strict=True):
            if buffer is not None:
                continue
            if param.dtype != arg.dtype:
                return None
            if isinstance(arg, (Var, IntImm, FloatImm)) or param.dtype == HANDLE:
                values[param] = arg
            else:
                values[param] = Var(param.name, param.dtype, param.is_size)
                lets.append((values[param], arg))  # type: ignore[arg-type]
        places: dict[Buffer, tuple[Buffer, Expr | None]] = {}
        for buffer, arg in zip(callee.buffers, args, strict=True):
            if buffer is not None:
                place = self.place_of(buffer, arg, values)
                if place is None:
                    return None
                places[buffer] = place
        if not _knows_all(callee):
            return None
        body = copy_stmt(_Moved(callee, places).rewrite(callee.body), values)
        for var, value in reversed(lets):
            body = LetStmt(var, value, body)
        return body

    def place_of(
        self, buffer: Buffer, arg: Expr, values: Mapping[Var, Expr]
    ) -> tuple[Buffer, Expr | None] | None:
        """The caller's buffer for one of the callee, and where in it that begins; None: unknown.

        A beginning of None says that the indices stay as they are.
        """
        start: Expr | None = None
        mine = self.buffers.get(arg) if isinstance(arg, Var) else None
        if isinstance(arg, Call) and arg.op == "address_of":
            load = arg.args[0]
            assert isinstance(load, BufferLoad)
            mine, start = load.buffer, load.buffer.offset_of(load.indices)
        if mine is None or mine.dtype != buffer.dtype or (start is not None and _reads(start)):
            return None
        shape, strides = (
            tuple(substitute(e, values) for e in part) for part in (buffer.shape, buffer.strides)
        )
        at_start = start is None or build.is_const(start, 0)
        if at_start and structural_equal((shape, strides), (mine.shape, mine.strides)):
            return mine, None
        if len(mine.shape) != 1 or mine.strides:
            return None
        return mine, build.const(0, mine.shape[0].dtype) if start is None else start


def _reads(expr: Expr) -> bool:
    """Whether an expression depends on memory, which may change."""
    loads: list[Node] = []
    post_order(expr, lambda found: loads.append(found) if isinstance(found, BufferLoad) else None)
    return bool(loads)


def _knows_all(callee: PrimFunc) -> bool:
    """Whether the shapes of a function's buffers have no variables but its parameters."""
    known = set(callee.params)
    unknown: list[Node] = []

    def look(found: Node) -> None:
        if isinstance(found, Var) and found not in known:
            unknown.append(found)

    for buffer in callee.buffers:
        for part in (*buffer.shape, *buffer.strides) if buffer is not None else ():
            post_order(part, look)
    return not unknown


class _Moved(Rewriter):
    """A body whose buffers are the caller's."""

    def __init__(
        self, callee: PrimFunc, places: Mapping[Buffer, tuple[Buffer, Expr | None]]
    ) -> None:
        self.places = places
        self.addresses: dict[Var, Expr] = {}
        for param, buffer in zip(callee.params, callee.buffers, strict=True):
            if buffer is not None:
                mine, start = places[buffer]
                address: Expr = mine.data
                if start is not None and not build.is_const(start, 0):
                    address = Call(HANDLE, "address_of", (BufferLoad(mine, (start,)),))
                self.addresses[param] = self.addresses[buffer.data] = address

    def visit_Var(self, var: Var) -> Expr:
        return self.addresses.get(var, var)

    def moved(self, buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        own = tuple(self.rewrite(index) for index in indices)
        if buffer not in self.places:
            return buffer, own
        mine, start = self.places[buffer]
        return mine, own if start is None else (build.add(start, buffer.offset_of(own)),)

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        return BufferLoad(*self.moved(load.buffer, load.indices))

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        buffer, indices = self.moved(store.buffer, store.indices)
        predicate = None if store.predicate is None else self.rewrite(store.predicate)
        return BufferStore(buffer, self.rewrite(store.value), indices, predicate)

    def visit_Call(self, call: Call) -> Expr:
        if call.op == "view_of":
            # The view has the callee's shape, which the caller's buffer may not have.
            call = view_at(*explicit_view(call))
        kept: Expr = self.rewrite_children(call)
        return kept

    def visit_Prefetch(self, prefetch: Prefetch) -> Stmt:
        place = self.places.get(prefetch.buffer)
        if place is None or place[1] is None:
            buffer = prefetch.buffer if place is None else place[0]
            mins, extents = (
                tuple(self.rewrite(e) for e in part) for part in (prefetch.mins, prefetch.extents)
            )
            return Prefetch(buffer, mins, extents)
        first = BufferLoad(*self.moved(prefetch.buffer, prefetch.mins))
        return Evaluate(Call(build.const(0).dtype, "prefetch", (first,)))

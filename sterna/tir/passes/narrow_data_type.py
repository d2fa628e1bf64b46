"""Index narrowing: compute indices in fewer bits where their bounds allow it."""

from collections.abc import Callable
from typing import Any

from sterna.arith import Analyzer
from sterna.arith.bounds import fits
from sterna.ir import build
from sterna.ir.expr import (
    INT32,
    Add,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Ramp,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.ir.node import Node
from sterna.ir.visitor import Rewriter
from sterna.support.dtype import DataType
from sterna.tir.stmt import BufferLoad, BufferStore, For, LetStmt, PrimFunc, Stmt

_ARITHMETIC = (Add, Sub, Mul, FloorDiv, FloorMod, TruncDiv, TruncMod, Min, Max)


def narrow_data_type(func: PrimFunc, bits: int = 32) -> PrimFunc:
    """for i: int64 in range(8): B[i*4 + 3] = A[cast(int64, n)]

    ->  for i: int32 in range(8): B[i*4 + 3] = A[n]

    Loop variables, indices and comparisons of 64 bits become 32 where no value on the way can be
    too large. Indices have at least 32 bits, so with bits=64 there is nothing to do.
    """
    if bits not in (32, 64):
        raise ValueError(f"indices can have 32 or 64 bits, not {bits}")
    if bits == 64 or not _has_wide(func.body):
        return func
    return func.with_body(_Narrower().rewrite(func.body))


def _is_wide(dtype: DataType) -> bool:
    return dtype.is_int and dtype.bits == 64


def _has_wide(stmt: Stmt) -> bool:
    stack: list[Node] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, Expr) and _is_wide(node.dtype):
            return True
        stack.extend(node.children())
    return False


class _TooLarge(Exception):
    """A value may not fit."""


class _Narrower(Rewriter):
    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.narrow_vars: dict[Var, Var] = {}

    # ---- where wide integers stand ----

    def visit_For(self, loop: For) -> Stmt:
        start, extent = self.tried(loop.min), self.tried(loop.extent)
        end = self.analyzer.bound(loop.min + loop.extent)
        self.analyzer.bind(loop.var, loop.min, loop.extent)
        var = loop.var
        if _is_wide(var.dtype) and start is not None and extent is not None and fits(end, INT32):
            var = Var(var.name, INT32, var.is_size)
            self.narrow_vars[loop.var] = var
        else:
            start, extent = self.rewrite(loop.min), self.rewrite(loop.extent)
        body = self.rewrite(loop.body)
        self.analyzer.unbind(loop.var)
        if var is loop.var and start is loop.min and extent is loop.extent and body is loop.body:
            return loop
        return For(var, start, extent, loop.kind, body, loop.thread, loop.annotations)

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        if _is_wide(let.var.dtype) and let.var.dtype.lanes == 1:
            low, high = self.analyzer.bound(let.value)
            if fits(self.analyzer.bound(let.value), let.var.dtype):
                self.analyzer.bind(let.var, int(low), int(high - low + 1))
        kept: Stmt = self.rewrite_children(let)
        return kept

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        indices = tuple(map(self.index, load.indices))
        same = all(a is b for a, b in zip(indices, load.indices, strict=True))
        return load if same else BufferLoad(load.buffer, indices)

    def visit_BufferStore(self, store: BufferStore) -> Stmt:
        indices = tuple(map(self.index, store.indices))
        value = self.rewrite(store.value)
        predicate = None if store.predicate is None else self.rewrite(store.predicate)
        same = all(a is b for a, b in zip(indices, store.indices, strict=True))
        if same and value is store.value and predicate is store.predicate:
            return store
        return BufferStore(store.buffer, value, indices, predicate)

    def index(self, expr: Expr) -> Expr:
        narrow = self.tried(expr)
        return self.rewrite(expr) if narrow is None else narrow

    def visit_CompareExpr(self, compare: CompareExpr) -> Expr:
        a, b = self.tried(compare.a), self.tried(compare.b)
        if a is None or b is None:
            kept: Expr = self.rewrite_children(compare)
            return kept
        return type(compare)(a, b)

    def visit_Var(self, var: Var) -> Expr:
        narrow = self.narrow_vars.get(var)
        return var if narrow is None else Cast(var.dtype, narrow)

    # ---- making them narrow ----

    def tried(self, expr: Expr) -> Expr | None:
        """A wide integer in 32 bits, or None if it may not fit or is none."""
        if not _is_wide(expr.dtype):
            return None
        try:
            return self.narrow(expr)
        except _TooLarge:
            return None

    def narrow(self, expr: Expr) -> Expr:
        method = _METHODS.get(type(expr))
        if method is None or not _is_wide(expr.dtype):
            raise _TooLarge
        return method(self, expr)

    def require_fit(self, expr: Expr) -> None:
        if not fits(self.analyzer.bound(expr), INT32):
            raise _TooLarge

    def _number(self, expr: IntImm) -> Expr:
        self.require_fit(expr)
        return IntImm(INT32, expr.value)

    def _variable(self, expr: Var) -> Expr:
        narrow = self.narrow_vars.get(expr)
        if narrow is not None:
            return narrow
        self.require_fit(expr)
        return Cast(INT32, expr)

    def _arithmetic(self, expr: BinaryExpr) -> Expr:
        a, b = self.narrow(expr.a), self.narrow(expr.b)
        self.require_fit(expr)
        return type(expr)(a, b)

    def _cast(self, expr: Cast) -> Expr:
        source = expr.value.dtype
        if not source.is_integer or source.bits > (32 if source.is_int else 31):
            raise _TooLarge
        value: Expr = self.rewrite(expr.value)
        return build.cast(INT32.with_lanes(source.lanes), value)

    def _select(self, expr: Select) -> Expr:
        then, otherwise = self.narrow(expr.then), self.narrow(expr.otherwise)
        return Select(self.rewrite(expr.condition), then, otherwise)

    def _call(self, expr: Call) -> Expr:
        if expr.op != "if_then_else":
            raise _TooLarge
        then, otherwise = self.narrow(expr.args[1]), self.narrow(expr.args[2])
        return Call(then.dtype, expr.op, (self.rewrite(expr.args[0]), then, otherwise))

    def _ramp(self, expr: Ramp) -> Expr:
        base, stride = self.narrow(expr.base), self.narrow(expr.stride)
        self.require_fit(expr)
        return Ramp(base, stride, expr.lanes)

    def _broadcast(self, expr: Broadcast) -> Expr:
        return Broadcast(self.narrow(expr.value), expr.lanes)


_METHODS: dict[type[Expr], Callable[[_Narrower, Any], Expr]] = {
    IntImm: _Narrower._number,
    Var: _Narrower._variable,
    **dict.fromkeys(_ARITHMETIC, _Narrower._arithmetic),
    Cast: _Narrower._cast,
    Select: _Narrower._select,
    Call: _Narrower._call,
    Ramp: _Narrower._ramp,
    Broadcast: _Narrower._broadcast,
}

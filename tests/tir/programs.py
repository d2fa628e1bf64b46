"""Functions that several tests use."""

from typing import Any

from sterna.ir import Expr, StringImm, Var, build, const
from sterna.ir import expr as E
from sterna.support.dtype import DataType
from sterna.tir import (
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
    Prefetch,
    PrimFunc,
    SeqStmt,
    Stmt,
    Tensorized,
)

F32 = DataType("float32")
HANDLE = DataType("handle")
ZERO = const(0)


def function(name: str, body: Stmt, *params: Buffer | Var, **attrs: Any) -> PrimFunc:
    """A function of buffers and numbers."""
    variables = tuple(p.data if isinstance(p, Buffer) else p for p in params)
    buffers = tuple(p if isinstance(p, Buffer) else None for p in params)
    return PrimFunc(name, variables, buffers, body, attrs)


def vecadd() -> PrimFunc:
    """C = A + B"""
    a, b, c = (Buffer(name, F32, (const(1024),)) for name in "ABC")
    i = Var("i")
    value = BufferLoad(a, (i,)) + BufferLoad(b, (i,))
    return function("vecadd", For(i, ZERO, const(1024), "parallel", BufferStore(c, value, (i,))),
                    a, b, c)


def everything() -> PrimFunc:
    """Every kind of statement."""
    n = Var("n", is_size=True)
    a = Buffer("A", F32, (n, const(4)), strides=(const(8), const(1)), alignment=64)
    half = Buffer("half", DataType("float16"), (n,))
    table = Buffer("T", DataType("int64"), (const(16),), "local")
    extra = Buffer("T", F32, (n,), alignment=16)
    i, j, j2, q, k = Var("i"), Var("j"), Var("j"), Var("q"), Var("k", DataType("int64"))
    x, m = Var("x", F32), Var("m", DataType("int64"))
    lanes = E.Ramp(i, const(1), 4)
    wide = E.Broadcast(x, 4)
    row = E.Broadcast(i, 4)
    inner: Stmt = SeqStmt((
        IfThenElse(
            build.call_intrinsic("likely", i * 4 + j < n),
            BufferStore(a, const(0.0), (i, j)),
            IfThenElse(build.equal(i, 3), BufferStore(half, const(0.5, "float16"), (i,)),
                       Evaluate(ZERO)),
        ),
        AttrStmt("pragma", i, const(1), LetStmt(
            x, BufferLoad(a, (i, ZERO)) * 2.0,
            BufferStore(a, wide, (row, lanes), build.less(lanes, E.Broadcast(n, 4))))),
    ))
    lets = LetStmt(m, const(7, "int64"), Allocate(table, SeqStmt((
        For(k, const(2, "int64"), const(5, "int64"), "unrolled",
            BufferStore(table, k * 3 + m, (k,)), annotations={"pragma": 1, "of": ("a", None, 2.5)}),
        For(j2, n, const(4), "serial", Evaluate(E.Call(E.INT32, "call_extern", (
            StringImm("f\n"), build.call_intrinsic("address_of", BufferLoad(table, (j2,)),
                                                   dtype="handle"))))),
    ))))
    body = SeqStmt((
        AssertStmt(n > 0, "ValueError", 'n is "0"'),
        Allocate(extra, BufferStore(extra, const(float("inf")), (ZERO,))),
        lets,
        For(i, ZERO, n, "parallel", For(j, const(1), const(4), "vectorized", inner)),
        AttrStmt("hint", a, const(2), Evaluate(ZERO)),
        AttrStmt("none", None, const(2), Evaluate(ZERO)),
        Prefetch(a, (n - 2, ZERO), (const(2), const(4))),
        Tensorized("zero", Evaluate(ZERO), For(q, ZERO, n, "serial", Evaluate(ZERO))),
    ))
    return function("everything", body, a, half, n, target="c", level=3)


def packed() -> PrimFunc:
    """A packed function that doubles its one array."""
    self_, args, ret = (Var(name, HANDLE) for name in ("self", "args", "ret"))
    count, size, x = Var("n"), Var("size", is_size=True), Var("x", HANDLE)
    a = Buffer("A", F32, (size,))
    i = Var("i")

    def ask(op: str, *of: Any, dtype: str) -> Expr:
        return E.Call(DataType(dtype), op, tuple(build.as_expr(part) for part in of))

    body: Stmt = For(i, ZERO, size, "serial", BufferStore(a, BufferLoad(a, (i,)) * 2.0, (i,)))
    body = LetStmt(a.data, ask("tensor_data", x, dtype="handle"), body)
    body = LetStmt(size, ask("tensor_shape", x, 0, dtype="int64").astype("int32"), body)
    body = LetStmt(x, ask("any_tensor", args, 0, dtype="handle"), body)
    body = SeqStmt((AssertStmt(build.equal(count, 1), "TypeError", "it takes one array"), body))
    return PrimFunc("double", (self_, args, count, ret), (None,) * 4, body, {"packed": True})


ALL = {"vecadd": vecadd, "everything": everything, "packed": packed}

"""The interpreter does what the IR says, and refuses what has no meaning."""

from typing import Any

import numpy as np
import pytest

from sterna.ir import StringImm, Var, build, const
from sterna.ir import expr as E
from sterna.support.dtype import DataType
from sterna.tir import (
    Allocate,
    AssertStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    LetStmt,
    SeqStmt,
    Stmt,
    parse,
)
from sterna.tir.interpreter import run
from sterna.tir.memory import Tensor
from tests.tir.programs import F32, ZERO, function, packed, vecadd


def test_vecadd() -> None:
    a, b = np.arange(1024, dtype=np.float32), np.ones(1024, np.float32)
    c = np.zeros(1024, np.float32)
    run(vecadd(), a, b, c)
    np.testing.assert_array_equal(c, a + b)


def test_buffers_of_several_dimensions_and_of_one() -> None:
    text = """
def f(A: Buffer[(n, 3), "float32"], F: Buffer[(n*3,), "float32"], n: Size[int32]):
    for i in range(n):
        for j in range(3):
            F[i*3 + j] = A[i, j] + 1.0
"""
    a, flat = np.random.rand(4, 3).astype(np.float32), np.zeros((4, 3), np.float32)
    run(parse(text), a, flat, 4)
    np.testing.assert_array_equal(flat, a + np.float32(1))


def test_what_is_tensorized_is_run_by_its_meaning() -> None:
    text = """
def f(A: Buffer[(4,), "float32"]):
    with tensorized("ones"):
        call_extern("nobody knows", address_of(A[0]))
    means:
        for i in range(4):
            A[i] = 1.0
"""
    a = np.zeros(4, np.float32)
    run(parse(text), a)
    np.testing.assert_array_equal(a, 1)


def test_strides() -> None:
    text = """
def f(A: Buffer[(4, 3), "float32", strides=(6, 2)], B: Buffer[(4, 3), "float32"]):
    for i in range(4):
        for j in range(3):
            B[i, j] = A[i, j]
"""
    whole = np.random.rand(4, 6).astype(np.float32)
    out = np.zeros((4, 3), np.float32)
    run(parse(text), whole[:, ::2], out)
    np.testing.assert_array_equal(out, whole[:, ::2])


def test_shapes_bind_their_variables() -> None:
    text = 'def f(A: Buffer[(m,), "int32"]):\n    for i in range(m):\n        A[i] = m\n'
    a = np.zeros(5, np.int32)
    run(parse(text), a)
    assert list(a) == [5] * 5


def test_outside_a_buffer() -> None:
    text = """
def f(A: Buffer[(4,), "float32"]):
    for i in range(4):
        A[i] = A[i + 1]
"""
    message = r"A\[4\] is outside the buffer \(index 0 is 4 of 4\), in: A\[i\] = A\[i \+ 1\]"
    with pytest.raises(IndexError, match=message):
        run(parse(text), np.zeros(4, np.float32))


def test_a_shape_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"A has the shape \(1024,\), not \(5,\)"):
        run(vecadd(), *[np.zeros(5, np.float32)] * 3)
    with pytest.raises(TypeError, match="A is an array of float32, not float64"):
        run(vecadd(), *[np.zeros(1024)] * 3)
    with pytest.raises(TypeError, match="vecadd takes 3 arguments, not 1"):
        run(vecadd(), np.zeros(1024, np.float32))


@pytest.mark.parametrize(("dtype", "check"), [("float32", np.isnan), ("int32", lambda x: x != 0)])
def test_memory_begins_as_garbage(dtype: str, check: Any) -> None:
    kind = DataType(dtype)
    out, scratch = Buffer("out", kind, (const(1),)), Buffer("scratch", kind, (const(3),))
    body = Allocate(scratch, BufferStore(out, BufferLoad(scratch, (const(2),)), (ZERO,)))
    values = np.zeros(1, dtype)
    run(function("f", body, out), values)
    assert check(values[0])


def test_parallel_loops_run_in_an_order_of_their_own() -> None:
    seen = Buffer("seen", DataType("int32"), (const(8),))
    at = Buffer("at", DataType("int32"), (const(1),))
    i = Var("i")
    here = BufferLoad(at, (ZERO,))
    body: Stmt = SeqStmt((BufferStore(seen, i, (here,)), BufferStore(at, here + 1, (ZERO,))))
    orders = set()
    for kind in ("serial", "parallel", "vectorized"):
        for seed in (1, 2):
            found = np.zeros(8, np.int32)
            run(function("f", For(i, ZERO, const(8), kind, body), seen, at),
                found, np.zeros(1, np.int32), seed=seed)
            assert sorted(found) == list(range(8))
            orders.add(tuple(found))
            assert kind != "serial" or list(found) == list(range(8))
    assert len(orders) == 3


def evaluate(expr: E.Expr, *args: Any, params: tuple[Var, ...] = ()) -> Any:
    out = Buffer("out", expr.dtype.element, (const(expr.dtype.lanes),))
    lanes = expr.dtype.lanes
    index = E.Ramp(ZERO, const(1), lanes) if lanes > 1 else ZERO
    kind = np.uint16 if expr.dtype.element == "bfloat16" else str(expr.dtype.element)
    values = np.zeros(lanes, kind)
    run(function("f", BufferStore(out, expr, (index,)), out, *params), values, *args)
    return values if lanes > 1 else values[0]


X, N = Var("x", F32), Var("n")


def test_values() -> None:
    ramp = E.Ramp(N, const(3), 4)
    assert list(evaluate(ramp * ramp, 2, params=(N,))) == [4, 25, 64, 121]
    assert list(evaluate(E.Shuffle((ramp, E.Broadcast(N, 2)), (5, 0, 3)), 2, params=(N,))) == [
        2, 2, 11,
    ]
    assert evaluate(N * N, 1 << 20, params=(N,)) == 0
    assert evaluate(E.FloorDiv(N, const(-1)), -(2**31), params=(N,)) == -(2**31)
    assert evaluate(X + 2.0**-24, 1.0, params=(X,)) == 1.0
    assert evaluate(build.call_intrinsic("saturate", X, dtype="uint8"), 300.7, params=(X,)) == 255
    assert evaluate(const(1.5).astype("bfloat16")) == 0x3FC0
    assert evaluate(E.Min(X, const(float("nan"))), 1.0, params=(X,)) != 1.0
    bits = build.call_intrinsic("reinterpret", X, dtype="int32")
    assert evaluate(bits, 1.0, params=(X,)) == 0x3F800000
    y = Var("y", F32)
    assert evaluate(E.Let(y, X * 2.0, y * y), 1.5, params=(X,)) == 9


def test_only_the_taken_branch_runs() -> None:
    a = Buffer("A", F32, (const(2),))
    value = build.if_then_else(N < 2, BufferLoad(a, (N,)), -1.0)
    assert evaluate(value, np.array([5, 6], np.float32), 7, params=(a, N)) == -1.0  # type: ignore[arg-type]
    eager = E.Select(N < 2, BufferLoad(a, (N,)), const(-1.0))
    with pytest.raises(IndexError):
        evaluate(eager, np.array([5, 6], np.float32), 7, params=(a, N))  # type: ignore[arg-type]


def test_a_store_with_a_predicate() -> None:
    a = Buffer("A", F32, (const(4),))
    lanes = E.Ramp(ZERO, const(1), 8)
    small = build.less(lanes, E.Broadcast(const(3), 8))
    body = BufferStore(a, E.Broadcast(const(2.0), 8), (lanes,), small)
    values = np.zeros(4, np.float32)
    run(function("f", body, a), values)
    assert list(values) == [2, 2, 2, 0]


def test_asserts_raise_what_they_name() -> None:
    body = AssertStmt(N > 3, "KeyError", "n is small")
    run(function("f", body, N), 4)
    with pytest.raises(KeyError, match="n is small"):
        run(function("f", body, N), 3)


def test_external_functions() -> None:
    a = Buffer("A", F32, (const(4),))
    call = E.Call(E.INT32, "call_extern", (StringImm("note"), StringImm("hi"), N + 1))
    heard: list[Any] = []
    run(function("f", Evaluate(call), N), 2, externs={"note": lambda *args: heard.append(args)})
    assert heard == [("hi", 3)]
    with pytest.raises(NameError, match="no external function 'note'"):
        run(function("f", Evaluate(call), N), 2)
    pointer = build.call_intrinsic("address_of", BufferLoad(a, (const(1),)), dtype="handle")
    fill = Evaluate(E.Call(E.INT32, "call_extern", (StringImm("fill"), pointer)))
    values = np.zeros(4, np.float32)

    def fill_rest(target: Any) -> None:
        target.memory[target.offset :] = 7

    run(function("f", fill, a), values, externs={"fill": fill_rest})
    assert list(values) == [0, 7, 7, 7]


def test_packed_functions() -> None:
    values = np.arange(5, dtype=np.float32)
    run(packed(), values)
    assert list(values) == [0, 2, 4, 6, 8]
    with pytest.raises(TypeError, match="it takes one array"):
        run(packed())
    with pytest.raises(TypeError, match="argument 0 is taken for an array but is 3"):
        run(packed(), 3)


def test_packed_arguments() -> None:
    out = Buffer("out", DataType("int64"), (const(8),))
    args = Var("args", DataType("handle"))
    kinds = [E.Call(E.INT32, "any_type", (args, const(i))).astype("int64") for i in range(6)]
    x = Var("t", DataType("handle"))
    tensor = E.Call(DataType("handle"), "any_tensor", (args, const(5)))
    dtype = E.Call(E.INT32, "tensor_dtype", (x,)).astype("int64")
    count = E.Call(DataType("int64"), "any_value", (args, ZERO))
    values = [*kinds, dtype, count]
    body: Stmt = LetStmt(x, tensor, SeqStmt(
        tuple(BufferStore(out, value, (const(i),)) for i, value in enumerate(values))))
    self_, ret = Var("self", DataType("handle")), Var("ret", DataType("handle"))
    target = E.Call(DataType("handle"), "any_tensor", (args, const(6)))
    data = E.Call(DataType("handle"), "tensor_data", (target,))
    func = function("f", LetStmt(out.data, data, body), self_, args, Var("n"), ret, packed=True)
    found = np.zeros(8, np.int64)
    half = Tensor(np.zeros(3, np.uint16), DataType("bfloat16"))
    run(func, 42, True, 1.5, "text", None, half, found)
    assert list(found) == [1, 2, 3, 65, 0, 70, 4 | 16 << 8 | 1 << 16, 42]

"""What the verifier lets pass and what it does not."""

from typing import Any

import pytest

from sterna.ir import StringImm, Var, build, const
from sterna.ir import expr as E
from sterna.support.dtype import DataType
from sterna.support.errors import InternalError
from sterna.tir import (
    Allocate,
    AssertStmt,
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
)
from sterna.tir.verify import verify
from tests.tir.programs import ALL, F32, ZERO, function

A = Buffer("A", F32, (const(4),))
B = Buffer("B", F32, (const(4), const(4)))
K, J, N = Var("i"), Var("j"), Var("n")
L = Var("l", DataType("int64"))
X = Var("x", F32)
ONE = const(1.0)


def put(value: E.Expr, *indices: E.Expr, predicate: E.Expr | None = None) -> Stmt:
    return BufferStore(A, value, indices or (ZERO,), predicate)


def loop(body: Stmt, var: Var = K, **options: Any) -> Stmt:
    fields: dict[str, Any] = {"min": ZERO, "extent": const(4), "kind": "serial", **options}
    return For(var, body=body, **fields)


STRAY = Buffer("S", F32, (const(4),))
VECTOR = E.Ramp(ZERO, const(1), 4)

BAD: list[tuple[Stmt, str]] = [
    (put(X), "the variable x is used outside what binds it"),
    (SeqStmt((loop(put(ONE)), put(ONE, K))), "the variable i is used outside"),
    (loop(loop(put(ONE))), "the variable i is bound twice"),
    (SeqStmt((loop(put(ONE)), loop(put(ONE)))), "the variable i is bound twice"),
    (loop(put(ONE), kind="sideways"), "there is no loop of kind 'sideways'"),
    (loop(put(ONE), kind="thread"), "names its thread"),
    (loop(put(ONE), thread="threadIdx.x"), "names its thread"),
    (loop(put(ONE), extent=const(4, "int64")), "the loop variable i is int32, its bound int64"),
    (loop(put(ONE), Var("f", F32)), "the loop variable f is no integer"),
    (BufferStore(STRAY, ONE, (ZERO,)), "the buffer S is used outside what binds it"),
    (put(BufferLoad(STRAY, (ZERO,))), "the buffer S is used outside what binds it"),
    (Allocate(A, put(ONE)), "the buffer A is allocated twice"),
    (put(ONE, ZERO, ZERO), "A has 1 dimensions but 2 indices"),
    (put(BufferLoad(B, (ZERO,))), "B has 2 dimensions but 1 indices"),
    (put(ONE, const(1.0)), "the index 1.0 has type float32"),
    (put(const(1)), "a value of type int32 is stored where float32 belongs"),
    (put(ONE, VECTOR), "float32 is stored where float32x4 belongs"),
    (put(ONE, predicate=const(1)), "the predicate has type int32, not bool"),
    (put(E.Add(ONE, const(1.0, "float64"))), "have the types float32 and float64"),
    (put(E.Div(const(1), const(2)).astype("float32")), "1 / 2 needs floats, not int32"),
    (put(E.Add(ONE, E.FloorDiv(ONE, ONE))), "1.0 // 1.0 needs integers"),
    (IfThenElse(N, put(ONE)), "a condition has type int32, not bool"),
    (Prefetch(B, (ZERO,), (ZERO,)), "B has 2 dimensions but 1 indices"),
    (Prefetch(STRAY, (ZERO,), (ZERO,)), "the buffer S is used outside what binds it"),
    (Prefetch(A, (ONE,), (ZERO,)), "1.0 is no place in A"),
    (AssertStmt(N, "E", "m"), "a condition has type int32, not bool"),
    (AssertStmt(N > 0, "E", "{} m", (N, N)), "a message has 1 places for 2 values"),
    (AssertStmt(N > 0, "E", "{} m", (const(0.5),)), "a message says 0.5 of type float32"),
    (IfThenElse(E.And(N, N), put(ONE)), "n and n needs bools"),
    (LetStmt(X, N, put(ONE)), "the variable x of type float32 is bound to a value of type int32"),
    (put(E.Let(X, N, ONE)), "the variable x of type float32 is bound to a value of type int32"),
    (LetStmt(J, N, LetStmt(J, N, put(ONE))), "the variable j is bound twice"),
    (put(E.Add(E.Let(X, ONE, X), X)), "the variable x is used outside"),
    (put(E.Select(N > 0, ONE, const(1.0, "float64"))), "the branches of .* have the types"),
    (put(E.Select(N, ONE, ONE)), "the condition of .* has type int32"),
    (put(E.Cast(F32, E.Broadcast(N, 4))), "changes the lanes of int32x4"),
    (put(E.Cast(F32, A.data)), "casts a handle"),
    (put(E.Call(F32, "exp", (ONE, ONE))), "exp takes 1 arguments, not 2"),
    (put(E.Call(F32, "exp", (N,))), "has type float32, not int32"),
    (put(E.Call(F32, "pow", (ONE, N))), "the arguments of .* have different types"),
    (put(E.Broadcast(ONE, 4), E.Ramp(N, const(1, "int64"), 4)), "the base and the stride"),
    (put(E.Broadcast(E.Broadcast(ONE, 2), 4), VECTOR), "repeats a vector"),
    (put(E.Shuffle((E.Broadcast(ONE, 2),), (0, 2)), E.Ramp(ZERO, const(1), 2)), "from 2 lanes"),
    (put(E.Cast(F32, E.IntImm(DataType("int8"), 200))), "does not fit in int8"),
    (Evaluate(E.Call(E.INT32, "call_extern", ())), "does not name what it calls"),
    (Evaluate(E.Call(E.INT32, "call_packed", (N,))), "does not name what it calls"),
    (Evaluate(E.Call(E.INT32, "call_packed", (StringImm("f"), VECTOR))), "the vector ramp"),
    (Evaluate(E.Call(E.INT32, "call_packed", (StringImm("f"), E.Call(E.HANDLE, "view_of", (N,))))),
     "is no element, or no array that begins there"),
]


@pytest.mark.parametrize(("body", "message"), BAD, ids=[message for _, message in BAD])
def test_a_broken_rule_is_named(body: Stmt, message: str) -> None:
    with pytest.raises(InternalError, match=f"^f: .*{message}") as caught:
        verify(function("f", body, A, B, N))
    assert ", in\n    " in str(caught.value)


@pytest.mark.parametrize("name", ALL)
def test_sound_functions_pass(name: str) -> None:
    func = ALL[name]()
    assert verify(func) is func
    verify(func, "scopes")


def test_levels() -> None:
    wrong_type = function("f", put(const(1)), A, B, N)
    verify(wrong_type, "off")
    wrong_scope = function("f", put(X), A, B, N)
    verify(wrong_scope, "off")
    with pytest.raises(InternalError):
        verify(wrong_scope, "scopes")
    with pytest.raises(ValueError, match="levels off, scopes and full"):
        verify(wrong_scope, "most")  # type: ignore[arg-type]


def test_the_message_shows_the_statement() -> None:
    with pytest.raises(InternalError) as caught:
        verify(function("f", loop(SeqStmt((put(ONE, K), put(X, K)))), A, B, N))
    message = str(caught.value)
    assert message == "f: the variable x is used outside what binds it, in\n    A[i] = x"


def test_parameters() -> None:
    with pytest.raises(InternalError, match="2 parameters but 1 buffers"):
        verify(PrimFunc("f", (A.data, N), (A,), put(ONE)))
    with pytest.raises(InternalError, match="the parameter n is no handle"):
        verify(PrimFunc("f", (N,), (A,), put(ONE)))
    with pytest.raises(InternalError, match="a packed function takes"):
        verify(PrimFunc("f", (N,), (None,), Evaluate(ZERO), {"packed": True}))


def test_deep_expressions() -> None:
    value: E.Expr = ONE
    for _ in range(5000):
        value = E.Add(value, ONE)
    verify(function("f", put(value), A, B, N))


def test_shapes_name_parameters_too() -> None:
    a = Buffer("a", F32, (N, build.as_expr(N * 2)))
    verify(function("f", BufferStore(a, ONE, (N - 1, ZERO)), a))

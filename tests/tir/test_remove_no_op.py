"""Removing statements that do nothing."""

import pytest

from sterna.ir import Var, build, const
from sterna.ir.expr import Call
from sterna.tir import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
)
from sterna.tir.passes.remove_no_op import remove_no_op, remove_no_op_in
from sterna.tir.passes.simplify import simplify
from sterna.tir.stmt import nothing
from sterna.tir.verify import verify
from tests.tir.programs import F32, ZERO, function
from tests.tir.random_programs import assert_same, draw

A = Buffer("A", F32, (const(8),))
X, N = Var("i"), Var("n")
CALL = Evaluate(Call(const(0).dtype, "call_extern", (build.as_expr("f"),)))
STORE = BufferStore(A, const(1.0), (ZERO,))


@pytest.mark.parametrize(
    ("stmt", "expected"),
    [
        (For(X, ZERO, N, "serial", nothing()), "pass"),
        (For(X, ZERO, ZERO, "serial", STORE), "pass"),
        (For(X, ZERO, const(-2), "parallel", STORE), "pass"),
        (IfThenElse(N < 3, nothing()), "pass"),
        (IfThenElse(N < 3, nothing(), nothing()), "pass"),
        (IfThenElse(N < 3, STORE, nothing()), "if n < 3:\n    A[0] = 1.0"),
        (IfThenElse(N < 3, nothing(), STORE), "if not n < 3:\n    A[0] = 1.0"),
        (LetStmt(Var("x"), N * 2, STORE), "A[0] = 1.0"),
        (LetStmt(Var("x"), N * 2, nothing()), "pass"),
        (Allocate(Buffer("t", F32, (N,)), nothing()), "pass"),
        (AttrStmt("hint", None, N, nothing()), "pass"),
        (BufferStore(A, BufferLoad(A, (N * 2,)), (N * 2,)), "pass"),
        (Evaluate(N * 2), "pass"),
        (SeqStmt((nothing(), STORE, nothing())), "A[0] = 1.0"),
        (For(X, ZERO, N, "serial", IfThenElse(N < 3, Evaluate(X + 1))), "pass"),
    ],
)
def test_what_does_nothing_goes(stmt: Stmt, expected: str) -> None:
    assert str(remove_no_op_in(stmt)) == expected


@pytest.mark.parametrize(
    "stmt",
    [
        CALL,
        STORE,
        LetStmt(X, N * 2, BufferStore(A, const(1.0), (X,))),
        LetStmt(Var("x"), CALL.value, STORE),
        BufferStore(A, BufferLoad(A, (N,)), (N + 1,)),
        For(X, ZERO, N, "serial", CALL),
    ],
)
def test_what_does_something_stays(stmt: Stmt) -> None:
    assert remove_no_op_in(stmt) is stmt


def test_effects_of_conditions_and_bounds_stay() -> None:
    asked = Call(const(True).dtype, "call_extern", (build.as_expr("ask"),))
    assert str(remove_no_op_in(IfThenElse(asked, nothing()))) == str(Evaluate(asked))
    loop = For(X, ZERO, CALL.value, "serial", nothing())
    assert str(remove_no_op_in(loop)) == str(CALL)


def test_addresses_stay() -> None:
    address = Var("A", A.data.dtype)
    let = LetStmt(address, Call(A.data.dtype, "tensor_data", (Var("t", A.data.dtype),)), STORE)
    assert remove_no_op_in(let) is let


def test_simplify_leaves_it_to_this_pass() -> None:
    func = function("f", IfThenElse(const(1) > 2, STORE), A)
    assert "pass" in str(simplify(func))
    looped = function("f", For(X, ZERO, const(4), "serial", IfThenElse(X > 9, STORE)), A)
    assert "for" in str(simplify(looped))
    assert "for" not in str(remove_no_op(simplify(looped)))


@pytest.mark.parametrize("seed", range(60))
def test_the_numbers_stay(seed: int) -> None:
    program = draw(seed)
    done = remove_no_op(program.func)
    verify(done)
    assert_same(program, done)
    simple = remove_no_op(simplify(program.func))
    verify(simple)
    assert_same(program, simple)

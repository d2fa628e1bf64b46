"""Checks of every index, in the interpreter and in compiled code."""

import shutil
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.ir import Expr, IRModule, Var, build, const
from sterna.ir.expr import Let, Ramp
from sterna.ir.transform import PassContext
from sterna.te.lower import lower_schedule
from sterna.tir import (
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    address_of,
    interpreter,
    parse,
)
from sterna.tir.op import if_then_else
from sterna.tir.passes.instrument_bound_checkers import instrument_bound_checkers
from sterna.tir.passes.simplify import simplify
from sterna.tir.verify import verify
from tests.tir.programs import F32, ZERO, function
from tests.tir.random_programs import assert_same, draw

TARGETS = ["interpreter", "llvm", *(["c"] if shutil.which("cc") else [])]
CHECKED = {"tir.instrument_bound_checkers": True}

A, B = Buffer("A", F32, (const(8),)), Buffer("B", F32, (const(4),))
T = Buffer("T", Var("i").dtype, (const(4),))
X, N = Var("i"), Var("n")


def run(func: PrimFunc, target: str, *args: Any) -> None:
    """Run a function with checks."""
    if target == "interpreter":
        done = instrument_bound_checkers(func)
        verify(done)
        interpreter.run(done, *args)
        return
    with PassContext(config=CHECKED):
        tvm.build(IRModule({func.name: func}), target=target)(*args)


def gather() -> PrimFunc:
    """B[i] = A[T[i]]"""
    store = BufferStore(B, BufferLoad(A, (BufferLoad(T, (X,)),)), (X,))
    return function("gather", For(X, ZERO, const(4), "serial", store), A, T, B)


@pytest.mark.parametrize("target", TARGETS)
def test_a_bad_index_is_named(target: str) -> None:
    values, out = np.arange(8, dtype="float32"), np.zeros(4, "float32")
    run(gather(), target, values, np.array([7, 0, 3, 3], "int32"), out)
    np.testing.assert_array_equal(out, [7, 0, 3, 3])
    for bad in (8, -1, 2**31 - 1, -(2**31)):
        table = np.array([7, 0, bad, 3], "int32")
        with pytest.raises(IndexError) as error:
            run(gather(), target, values, table, out)
        expected = f"gather: A[T[i]] is outside the buffer: index 0 is {bad} of 8"
        assert str(error.value) == expected


@pytest.mark.parametrize("target", TARGETS)
def test_stores_and_symbolic_extents(target: str) -> None:
    n = te.size_var("n")
    c = Buffer("C", F32, (n, const(4)))
    func = function("put", BufferStore(c, const(1.0), (N, const(2))), c, N, n)
    memory = np.zeros((3, 4), "float32")
    run(func, target, memory, 2, 3)
    assert memory[2, 2] == 1
    with pytest.raises(IndexError, match=r"put: C\[n_?1?, 2\] is .* index 0 is 3 of 3"):
        run(func, target, memory, 3, 3)


@pytest.mark.parametrize("target", TARGETS)
def test_64_bits_and_parallel_loops(target: str) -> None:
    k = Var("k", tvm.DataType("int64"))
    store = BufferStore(A, const(1.0), (build.cast("int64", X) + k,))
    func = function("far", For(X, ZERO, const(4), "parallel", store), A, k)
    run(func, target, np.zeros(8, "float32"), 4)
    for at in (1 << 40, -(1 << 62)):
        with pytest.raises(IndexError, match=r"far: A.* index 0 is (-?\d+) of 8") as error:
            run(func, target, np.zeros(8, "float32"), at)
        assert any(f" {at + i} of 8" in str(error.value) for i in range(4))


def test_guards_are_respected() -> None:
    inside = build.logical_and(X >= 0, X < 8)
    value = if_then_else(inside, BufferLoad(A, (X,)), const(0.0))
    # the quotient has no meaning unless the guard holds
    other = if_then_else(build.not_equal(N, 0), BufferLoad(A, (build.floordiv(X, N),)), 0.0)
    func = function("f", For(X, const(-2), const(12), "serial",
                             BufferStore(B, value + other, (ZERO,))), A, B, N)
    checked = instrument_bound_checkers(func)
    interpreter.run(checked, np.zeros(8, "float32"), np.zeros(4, "float32"), 0)
    broken = if_then_else(X < 9, BufferLoad(A, (X,)), const(0.0))
    func = function("f", For(X, ZERO, const(12), "serial", BufferStore(B, broken, (ZERO,))), A, B)
    checked = instrument_bound_checkers(func)
    with pytest.raises(IndexError, match=r"f: A\[i\] is outside the buffer: index 0 is 8 of 8"):
        interpreter.run(checked, np.zeros(8, "float32"), np.zeros(4, "float32"))


def test_names_inside_expressions() -> None:
    y = Var("y")
    named = Let(y, BufferLoad(T, (ZERO,)) + 1, BufferLoad(A, (y,)) + BufferLoad(A, (y,)))
    guarded = if_then_else(N > 0, named, const(0.0))
    func = function("f", BufferStore(B, guarded, (ZERO,)), A, T, B, N)
    done = instrument_bound_checkers(func)
    verify(done)
    arrays = [np.zeros(8, "float32"), np.full(4, 7, "int32"), np.zeros(4, "float32")]
    interpreter.run(done, *arrays, 0)
    with pytest.raises(IndexError, match="index 0 is 8 of 8"):
        interpreter.run(done, *arrays, 1)


@pytest.mark.parametrize(
    "stmt",
    [
        For(X, ZERO, BufferLoad(T, (N,)), "serial", BufferStore(B, const(0.0), (ZERO,))),
        IfThenElse(BufferLoad(T, (N,)) > 0, BufferStore(B, const(0.0), (ZERO,))),
        LetStmt(X, BufferLoad(T, (N,)), BufferStore(B, const(0.0), (ZERO,))),
        Evaluate(BufferLoad(T, (N,))),
        BufferStore(B, const(0.0), (BufferLoad(T, (N,)),)),
        BufferStore(A, BufferLoad(A, (Ramp(N, const(1), 4),)), (Ramp(ZERO, const(1), 4),)),
    ],
)
def test_every_statement_is_checked(stmt: Stmt) -> None:
    func = function("f", stmt, A, T, B, N)
    done = instrument_bound_checkers(func)
    verify(done)
    arrays = [np.zeros(8, "float32"), np.zeros(4, "int32"), np.zeros(4, "float32")]
    interpreter.run(done, *arrays, 3)
    for bad in (-1, 8):
        with pytest.raises(IndexError, match=f"is outside the buffer: index 0 is {bad} of"):
            interpreter.run(done, *arrays, bad)


def test_lanes_that_are_not_stored_are_not_checked() -> None:
    lanes: Expr = Ramp(N, const(1), 4)
    store = BufferStore(A, build.cast("float32x4", 1.0), (lanes,), lanes < 8)
    done = instrument_bound_checkers(function("f", store, A, N))
    verify(done)
    memory = np.zeros(8, "float32")
    interpreter.run(done, memory, 6)
    np.testing.assert_array_equal(memory, [0, 0, 0, 0, 0, 0, 1, 1])
    with pytest.raises(IndexError, match="index 0 is -1 of 8"):
        interpreter.run(done, memory, -1)


def test_addresses_are_not_reads() -> None:
    func = function("f", Evaluate(address_of(BufferLoad(A, (N,)))), A, N)
    assert instrument_bound_checkers(func) is func


def test_simplifying_removes_what_is_certain() -> None:
    n = te.size_var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], factor=8)
    done = simplify(instrument_bound_checkers(lower_schedule(s, [a, b], "f")))
    assert "assert" not in str(done)


def test_text_of_a_check() -> None:
    done = instrument_bound_checkers(gather())
    assert tvm.ir.structural_equal(parse(str(done)), done)


@pytest.mark.parametrize("seed", range(40))
def test_correct_functions_pass(seed: int) -> None:
    program = draw(seed)
    done = instrument_bound_checkers(program.func)
    verify(done)
    assert_same(program, done)

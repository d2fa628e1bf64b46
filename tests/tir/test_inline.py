"""Inlining of names and of calls."""

from typing import Any

import numpy as np
import pytest

from sterna.ir import Expr, IRModule, StringImm, Var, build, const
from sterna.ir.expr import INT32, Call
from sterna.tir import (
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    LetStmt,
    PrimFunc,
    Stmt,
    address_of,
    call_packed,
    interpreter,
)
from sterna.tir import transform as T
from sterna.tir.passes.inline_calls import inline_calls
from sterna.tir.passes.inline_lets import inline_lets
from sterna.tir.stmt import seq
from sterna.tir.verify import verify
from tests.tir.programs import F32, ZERO, function
from tests.tir.random_programs import assert_same, draw

# ---- lets ----


def test_inline_lets_of_constants_and_variables() -> None:
    a = Buffer("A", F32, (const(64),))
    n, x, y, z, w = (Var(name) for name in "nxyzw")
    body: Stmt = BufferStore(a, const(0.0), (x + y + z + w,))
    body = LetStmt(z, n * 8, LetStmt(w, x, body))
    func = function("f", LetStmt(x, n, LetStmt(y, const(4), body)), a, n)
    assert str(inline_lets(func).body) == "z: int32 = n*8\nA[n + 4 + z + n] = 0.0"
    assert T.InlineLets()(IRModule({"f": func}))["f"].body is not func.body


def test_inline_lets_leaves_addresses_and_values() -> None:
    a = Buffer("A", F32, (const(64),))
    pointer, x = Var("p", a.data.dtype), Var("x", F32)
    body = LetStmt(x, BufferLoad(a, (ZERO,)), BufferStore(a, x, (ZERO,)))
    func = function("f", LetStmt(a.data, pointer, body), pointer)
    assert inline_lets(func) is func


@pytest.mark.parametrize("seed", range(20))
def test_inline_lets_keeps_the_numbers(seed: int) -> None:
    program = draw(seed)
    done = inline_lets(program.func)
    verify(done)
    assert_same(program, done)


# ---- calls ----


def call(name: str, *args: Expr) -> Stmt:
    return Evaluate(Call(INT32, "try_call", (StringImm(name), *args)))


def fill() -> PrimFunc:
    """def fill(A, n, x): A[i] = A[i]*2 + x for the first n"""
    a = Buffer("A", F32, (const(8),))
    n, x, i = Var("n"), Var("x", F32), Var("i")
    store = BufferStore(a, BufferLoad(a, (i,)) * 2.0 + x, (i,))
    return function("fill", For(i, ZERO, n, "serial", store), a, n, x)


def caller(*stmts: Stmt, shape: tuple[int, ...] = (8,)) -> tuple[Buffer, Any]:
    """A buffer, and what makes a module of a function of it that does these."""
    b = Buffer("B", F32, tuple(map(const, shape)))

    def make(*done: Stmt) -> IRModule:
        return IRModule({"fill": fill(), "main": function("main", seq(*done), b)})

    return b, make


def same_numbers(mod: IRModule, *arrays: Any) -> PrimFunc:
    """The module's main after inlining, which does what it did before."""
    after = inline_calls(mod)["main"]
    verify(after)
    functions = [f for f in mod.functions.values() if isinstance(f, PrimFunc)]
    expected, result = ([a.copy() for a in arrays] for _ in range(2))
    interpreter.run(mod["main"], *expected, functions=functions)
    interpreter.run(after, *result)
    for a, b in zip(expected, result, strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(after, PrimFunc)
    return after


def test_a_call_becomes_the_body() -> None:
    b, make = caller()
    mod = make(call("fill", b.data, const(3), const(0.5)))
    text = str(same_numbers(mod, np.arange(8, dtype="float32")).body)
    assert text == "for i in range(3):\n    B[i] = B[i]*2.0 + 0.5"
    assert "try_call" not in str(T.InlineCalls()(mod))


def test_two_calls_have_their_own_variables() -> None:
    b, make = caller()
    mod = make(
        call("fill", b.data, const(3), const(0.5)), call("fill", b.data, const(8), const(1.0))
    )
    same_numbers(mod, np.arange(8, dtype="float32"))


def test_arguments_that_are_expressions_are_computed_once() -> None:
    b, make = caller()
    value = BufferLoad(b, (const(7),)) + 1.0
    after = same_numbers(make(call("fill", b.data, const(8), value)), np.arange(8, dtype="float32"))
    assert str(after.body).startswith("x: float32 = B[7] + 1.0\n")


def test_a_part_of_a_buffer() -> None:
    b, make = caller(shape=(20,))
    mod = make(call("fill", address_of(BufferLoad(b, (const(5),))), const(4), const(0.5)))
    after = same_numbers(mod, np.arange(20, dtype="float32"))
    assert "B[i + 5]" in str(after.body) or "B[5 + i]" in str(after.body)


def test_calls_of_calls() -> None:
    c = Buffer("C", F32, (const(8),))
    middle = function("middle", call("fill", c.data, const(2), const(3.0)), c)
    b, _ = caller()
    main = function("main", call("middle", b.data), b)
    mod = IRModule({"main": main, "middle": middle, "fill": fill()})
    assert "try_call" not in str(same_numbers(mod, np.arange(8, dtype="float32")))


def test_addresses_follow() -> None:
    a = Buffer("A", F32, (const(4),))
    use = function("use", Evaluate(Call(INT32, "call_extern", (StringImm("f"), a.data))), a)
    pack = function("pack", Evaluate(call_packed("g", a)), a)
    b = Buffer("B", F32, (const(8),))
    part = address_of(BufferLoad(b, (const(4),)))
    main = function("main", seq(call("use", part), call("pack", part), call("use", b.data)), b)
    text = str(inline_calls(IRModule({"main": main, "use": use, "pack": pack}))["main"].body)
    first, second, third = text.splitlines()
    assert "address_of(B[4])" in first
    assert "view_of(B[4], 1, 4, " in second
    assert third.endswith("B.data)")


def test_what_cannot_be_inlined_stays() -> None:
    b = Buffer("B", F32, (const(2), const(4)))
    wide = Buffer("W", "float64", (const(8),))  # type: ignore[arg-type]
    other, number = Var("p", b.data.dtype), Var("n")
    again = function("again", call("again", b.data), b)
    calls = [
        call("fill", b.data, const(3), const(0.5)),  # another shape
        call("fill", wide.data, const(3), const(0.5)),  # another type
        call("fill", other, const(3), const(0.5)),  # no buffer
        call("fill", b.data, number),  # too few arguments
        call("elsewhere", b.data),
        call("again", b.data),
    ]
    mod = IRModule({
        "main": function("main", seq(*calls[:-1]), b, wide, other, number),
        "fill": fill(),
        "again": again,
    })
    assert inline_calls(mod) is mod


def test_a_function_that_calls_itself_is_inlined_once() -> None:
    b, c = Buffer("B", F32, (const(8),)), Buffer("C", F32, (const(8),))
    again = function("again", call("again", b.data), b)
    main = function("main", call("again", c.data), c)
    after = inline_calls(IRModule({"main": main, "again": again}))
    assert str(after["main"].body) == str(call("again", c.data))


def test_symbolic_shapes() -> None:
    n, m = Var("n", is_size=True), Var("m", is_size=True)
    a, b = Buffer("A", F32, (n, const(4))), Buffer("B", F32, (m, const(4)))
    i = Var("i")
    body = For(i, ZERO, n, "serial", BufferStore(a, const(1.0), (i, const(2))))
    mod = IRModule({
        "f": function("f", body, a, n),
        "main": function("main", call("f", b.data, m), b, m),
    })
    after = inline_calls(mod)["main"]
    verify(after)
    assert str(after.body) == "for i in range(m):\n    B[i, 2] = 1.0"


@pytest.mark.parametrize("seed", range(20))
def test_inlined_random_functions_keep_the_numbers(seed: int) -> None:
    program = draw(seed)
    func = program.func
    mine = [None if b is None else Buffer(f"my{b.name}", b.dtype, b.shape) for b in func.buffers]
    k = Var("k", func.params[-1].dtype)
    args = [k if b is None else b.data for b in mine]
    main = PrimFunc(
        "main", tuple(args), tuple(mine),
        seq(call("random", *args), call("random", *args[:-1], build.sub(2, k))),
    )
    after = inline_calls(IRModule({"main": main, "random": func}))["main"]
    verify(after)
    assert "try_call" not in str(after)
    expected, result = ([a.copy() for a in program.arrays] for _ in range(2))
    interpreter.run(main, *expected, program.scalar, functions=[func])
    interpreter.run(after, *result, program.scalar)
    for x, y in zip(expected, result, strict=True):
        np.testing.assert_array_equal(x, y)

"""Narrowing of 64-bit indices."""

import random

import numpy as np
import pytest

from sterna import te
from sterna.ir import Expr, Var, build, const
from sterna.ir.expr import Ramp
from sterna.support.dtype import DataType
from sterna.te.lower import lower_schedule
from sterna.testing.fuzz.fuzzers.schedules import random_schedule
from sterna.tir import (
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    LetStmt,
    PrimFunc,
    interpreter,
    pipeline,
)
from sterna.tir.passes.flatten_buffer import flatten_buffer
from sterna.tir.passes.narrow_data_type import narrow_data_type
from sterna.tir.passes.simplify import simplify
from sterna.tir.verify import verify
from tests.tir.programs import F32, function
from tests.tir.random_programs import assert_same, draw

INT64 = DataType("int64")
X = Var("i", INT64)


def wide(value: int) -> Expr:
    return const(value, "int64")


def one_loop(index: Expr, extent: int = 8, size: int = 1 << 40, *params: Var) -> PrimFunc:
    """for i in range(extent): B[index] = 0"""
    b = Buffer("B", F32, (wide(size),))
    loop = For(X, wide(0), wide(extent), "serial", BufferStore(b, const(0.0), (index,)))
    return function("f", loop, b, *params)


def narrowed(func: PrimFunc) -> str:
    done = narrow_data_type(func)
    verify(done)
    return str(done.body)


def test_loops_and_indices_become_32_bits() -> None:
    func = one_loop(X * 4 + 3)
    assert "int64" in str(func.body)
    assert narrowed(func) == "for i in range(8):\n    B[i*4 + 3] = 0.0"


def test_what_may_be_too_large_stays() -> None:
    big = one_loop(X * (1 << 20), 1 << 20)
    text = narrowed(big)
    # the loop itself is small enough
    assert "for i in range(1048576)" in text and "int64" in text
    endless = one_loop(X, 1 << 40)
    assert narrow_data_type(endless) is endless
    # the whole fits, but a part of it does not
    part = one_loop(build.floordiv(X * (1 << 30), 1 << 28))
    assert "int64" in narrowed(part)


def test_the_edge_of_the_range() -> None:
    assert "int64" not in narrowed(one_loop(X + ((1 << 31) - 8)))
    assert "int64" in narrowed(one_loop(X + ((1 << 31) - 7)))


def test_sizes_are_not_known() -> None:
    n, m = Var("n", INT64, True), Var("m", is_size=True)
    text = narrowed(one_loop(X * n, 8, 1 << 40, n))
    assert "int64(i)*n" in text
    assert "int64" not in narrowed(one_loop(build.cast("int64", m), 8, 1 << 40, m))
    assert "int64" in narrowed(one_loop(build.cast("int64", m) + 1, 8, 1 << 40, m))


def test_loaded_indices_are_not_known() -> None:
    table = Buffer("T", INT64, (wide(8),))
    b = Buffer("B", F32, (wide(8),))
    store = BufferStore(b, const(0.0), (BufferLoad(table, (X,)),))
    func = function("f", For(X, wide(0), wide(8), "serial", store), table, b)
    assert narrowed(func) == "for i in range(8):\n    B[T[i]] = 0.0"


def test_values_keep_their_type() -> None:
    out = Buffer("O", INT64, (wide(8),))
    store = BufferStore(out, X * (1 << 40), (X,))
    func = function("f", For(X, wide(0), wide(8), "serial", store), out)
    done = narrow_data_type(func)
    verify(done)
    result = np.zeros(8, "int64")
    interpreter.run(done, result)
    np.testing.assert_array_equal(result, np.arange(8) << 40)


def test_lets_vectors_and_choices() -> None:
    b = Buffer("B", F32, (wide(64),))
    y = Var("y", INT64)
    lane = Ramp(build.select(y < 9, y, wide(9)), wide(2), 4)
    store = BufferStore(b, build.cast("float32x4", 1.0), (lane,))
    let = LetStmt(y, X * 3, store)
    func = function("f", For(X, wide(0), wide(8), "serial", let), b)
    text = narrowed(func)
    assert "B[ramp(select(int32(y) < 9, int32(y), 9), 2, 4)]" in text


def test_a_schedule_of_64_bits() -> None:
    n = wide(6)
    a = te.placeholder((n, n), name="a")
    b = te.compute((n, n), lambda i, j: a[j, i] + 1.0, name="b")
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[1], factor=4)
    loops = flatten_buffer(simplify(lower_schedule(s, [a, b], "f")))
    done = narrow_data_type(loops)
    verify(done)
    assert "int64" in str(loops.body) and "int64" not in str(done.body)
    values, result = np.arange(36, dtype="float32"), np.zeros(36, "float32")
    interpreter.run(done, values, result)
    np.testing.assert_array_equal(result.reshape(6, 6), values.reshape(6, 6).T + 1)


@pytest.mark.parametrize("seed", range(20))
def test_random_schedules_of_64_bits(seed: int) -> None:
    rng = random.Random(seed)
    n, m, depth = (rng.randint(1, 9) for _ in range(3))
    a = te.placeholder((wide(n), wide(depth)), name="a")
    b = te.placeholder((wide(depth), wide(m)), name="b")
    k = te.reduce_axis((wide(0), wide(depth)), name="k")
    c = te.compute((wide(n), wide(m)), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute(
        (wide(n), wide(m)), lambda i, j: te.if_then_else(j > 0, c[i, j - 1], 0.0) + c[i, j],
        name="d",
    )
    loops = lower_schedule(random_schedule(rng, [c, d]), [a, b, d], "f")
    verify(loops)
    done = pipeline.run(loops)
    lines = [line for line in str(done.body).splitlines() if "allocate(" not in line]
    assert "int64" not in "\n".join(lines)
    numbers = np.random.default_rng(seed)
    x, y = (numbers.integers(-4, 5, size).astype("float32") for size in ((n, depth), (depth, m)))
    result = np.full(n * m, np.nan, "float32")
    interpreter.run(done, x.reshape(-1), y.reshape(-1), result)
    expected = x @ y
    expected[:, 1:] += (x @ y)[:, :-1]
    np.testing.assert_array_equal(result.reshape(n, m), expected)


def test_only_some_widths() -> None:
    func = one_loop(X)
    assert narrow_data_type(func, 64) is func
    with pytest.raises(ValueError, match="indices can have 32 or 64 bits, not 16"):
        narrow_data_type(func, 16)


def large_index(rng: random.Random, variables: list[Expr], depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.7:
            return rng.choice(variables)
        return wide(rng.choice([1, -1, 3, 1 << 15, (1 << 31) - 1, -1 << 31, 1 << 33]))
    a, b = (large_index(rng, variables, depth - 1) for _ in range(2))
    divisor = wide(rng.choice([2, 7, 1 << 16, -3]))
    return rng.choice([
        a + b, a - b, a * rng.choice([2, 5, 1 << 12]), build.minimum(a, b), build.maximum(a, b),
        build.floordiv(a, divisor), build.floormod(a, divisor), build.truncdiv(a, divisor),
        build.truncmod(a, divisor), build.select(a < b, a, b),
    ])


@pytest.mark.parametrize("seed", range(150))
def test_numbers_near_the_edges(seed: int) -> None:
    rng = random.Random(seed)
    i, j = (Var(name, INT64) for name in "ij")
    out = Buffer("O", INT64, (wide(7),))
    table = Buffer("T", INT64, (wide(11),))
    at = build.floormod(large_index(rng, [i, j], 3), 7)
    value = BufferLoad(table, (build.floormod(large_index(rng, [i, j], 3), 11),))
    body = BufferStore(out, BufferLoad(out, (at,)) * 3 + value, (at,))
    loops = body
    for var in (i, j):
        start = rng.choice([0, -2, (1 << 31) - 3, (1 << 31) - 2, -1 << 31, (-1 << 31) - 1, 1 << 16])
        loops = For(var, wide(start), wide(2), "serial", loops)  # type: ignore[assignment]
    func = function("f", loops, table, out)
    done = narrow_data_type(func)
    verify(done)
    numbers = np.random.default_rng(seed).integers(-9, 9, 11)
    expected, result = np.ones(7, "int64"), np.ones(7, "int64")
    interpreter.run(func, numbers, expected)
    interpreter.run(done, numbers, result)
    np.testing.assert_array_equal(result, expected, err_msg=f"{func}\n{done}")


@pytest.mark.parametrize("seed", range(40))
def test_random_functions_keep_their_numbers(seed: int) -> None:
    program = draw(seed)
    done = narrow_data_type(flatten_buffer(program.func))
    verify(done)
    assert_same(program, done)

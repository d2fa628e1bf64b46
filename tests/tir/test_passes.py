"""Each pass: what it does to a small function, and that the numbers stay."""

import itertools
from typing import Any

import numpy as np
import pytest

from sterna import te
from sterna.ir.expr import Expr, Var
from sterna.te.lower import lower_schedule
from sterna.tir import PrimFunc, interpreter
from sterna.tir.passes.flatten_buffer import flatten_buffer
from sterna.tir.passes.hoist_if_then_else import hoist_if_then_else
from sterna.tir.passes.loop_partition import MANY_PIECES, VERY_MANY_PIECES, loop_partition
from sterna.tir.passes.simplify import simplify
from sterna.tir.passes.unroll_loop import unroll_loop
from sterna.tir.passes.unswitch_border import unswitch_border
from sterna.tir.passes.vectorize_loop import vectorize_loop
from sterna.tir.verify import verify


def scaled(n: Any, factor: int, mark: str = "") -> PrimFunc:
    """b[i] = a[i] * 2 with a split loop, whose inner part is marked."""
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    s = te.create_schedule(b.op)
    _, inner = s[b].split(b.op.axis[0], factor=factor)
    if mark:
        getattr(s[b], mark)(inner)
    return lower_schedule(s, [a, b], "scaled")


def same_numbers(before: PrimFunc, after: PrimFunc, n: int, *more: int) -> None:
    values = np.arange(n, dtype="float32")
    first, second = np.zeros(n, "float32"), np.zeros(n, "float32")
    interpreter.run(before, values, first, *more)
    interpreter.run(after, values, second, *more)
    np.testing.assert_array_equal(first, second)


def test_simplify_keeps_a_buffer_one_object() -> None:
    n = te.size_var("n")
    a = te.placeholder((n,), name="a")
    k = te.reduce_axis((0, 3), "k")
    b = te.compute((n - 3 + 1,), lambda i: te.sum(a[i + k], axis=k), name="b")
    c = te.compute((n - 3 + 1,), lambda i: b[i] * 2.0, name="c")
    func = lower_schedule(te.create_schedule(c.op), [a, c], "f")
    done = verify(simplify(func))
    values, result = np.arange(5, dtype="float32"), np.zeros(3, "float32")
    interpreter.run(done, values, result, 5)
    np.testing.assert_array_equal(result, [6, 12, 18])


def test_partition_loops_peels_the_tail() -> None:
    func = scaled(22, 8)
    done = loop_partition(simplify(func))
    verify(done)
    text = str(done)
    assert "for i.outer in range(2):" in text and "in range(6):" in text
    assert "likely" not in text and "pass" not in text
    same_numbers(func, done, 22)


def test_partition_loops_with_a_symbolic_extent() -> None:
    n = te.size_var("n")
    func = scaled(n, 8)
    done = loop_partition(simplify(func))
    verify(done)
    assert "n // 8" in str(done)
    for size in (0, 5, 8, 22):
        same_numbers(func, done, size, size)


@pytest.mark.parametrize("count", [2, 5, 15])
def test_partition_loops_at_every_border_and_keeps_many_pieces_rolled(count: int) -> None:
    n = 4 * count
    parts = [te.placeholder((4,), name=f"p{k}") for k in range(count)]

    def pick(i: Var) -> Expr:
        value: Expr = parts[-1][i - 4 * (count - 1)]
        for k in reversed(range(count - 1)):
            value = te.if_then_else(i < 4 * (k + 1), parts[k][i - 4 * k], value)
        return value

    out = te.compute((n,), pick, name="out")
    s = te.create_schedule(out.op)
    s[out].pragma(out.op.axis[0], "loop_partition_hint", True)
    func = lower_schedule(s, [*parts, out], "f")
    done = loop_partition(simplify(func))
    verify(done)
    text = str(done)
    assert "if_then_else" not in text
    written = count if MANY_PIECES <= count < VERY_MANY_PIECES else 0
    assert text.count("stays_rolled") == (count if count >= MANY_PIECES else 0)
    assert text.count("  # unrolled") == written and text.count("for i") == count + written
    given = [np.arange(4, dtype="float32") + 10 * k for k in range(count)]
    result = np.zeros(n, "float32")
    interpreter.run(done, *given, result)
    np.testing.assert_array_equal(result, np.concatenate(given))


@pytest.mark.parametrize("widths", [(5, 3, 8, 1, 7, 12), (2,) * 9, (16, 4, 4, 4, 4)])
def test_partition_answers_borders_within_a_vector_too(widths: tuple[int, ...]) -> None:
    parts = [te.placeholder((w,), name=f"p{k}") for k, w in enumerate(widths)]
    starts = [sum(widths[:k]) for k in range(len(widths))]

    def element(i: Var) -> Expr:
        found: Expr = parts[-1][i - starts[-1]]
        for part, begin, end in zip(parts[-2::-1], starts[-2::-1], starts[:0:-1], strict=True):
            found = te.if_then_else(i < end, part[i - begin], found)
        return found

    out = te.compute((sum(widths),), element, name="out")
    s = te.create_schedule(out.op)
    outer, inner = s[out].split(out.op.axis[0], factor=4)
    s[out].vectorize(inner)
    s[out].pragma(outer, "loop_partition_hint", True)
    done = verify(loop_partition(simplify(lower_schedule(s, [*parts, out], "f"))))
    values = [np.arange(w, dtype="float32") + 100 * k for k, w in enumerate(widths)]
    result = np.zeros(sum(widths), "float32")
    interpreter.run(done, *values, result)
    np.testing.assert_array_equal(result, np.concatenate(values))


def test_hoist_conditions_asks_before_the_loop() -> None:
    n, flag = te.size_var("n"), te.var("flag")
    a = te.placeholder((n, 8), name="a")
    b = te.compute((n, 8), lambda i, j: a[i, j] * 2.0, name="b")
    s = te.create_schedule(b.op)
    s[b].set_store_predicate(flag > 0)
    func = lower_schedule(s, [a, b, flag], "f")
    done = hoist_if_then_else(simplify(func))
    verify(done)
    lines = [line.strip() for line in str(done).splitlines()]
    assert lines[1].startswith("if ") and "flag" in lines[1] and lines[2].startswith("for i")
    for value in (0, 1):
        x, y = np.ones((3, 8), "float32"), np.zeros((3, 8), "float32")
        interpreter.run(done, x, y, value, 3)
        np.testing.assert_array_equal(y, 2.0 * value)


def test_hoist_conditions_leaves_what_depends_on_the_loop() -> None:
    func = simplify(scaled(22, 8))
    assert hoist_if_then_else(func) is func


@pytest.mark.parametrize("rows", [2, 9])
def test_unswitch_border_asks_once_an_iteration(rows: int) -> None:
    a = te.placeholder((rows, 4), name="a")
    padded = te.compute(
        (rows + 2, 4),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < rows + 1), a[i - 1, j], 0.0), name="padded",
    )
    k = te.reduce_axis((0, 3), "k")
    out = te.compute((rows, 4), lambda i, j: te.sum(padded[i + k, j], axis=k), name="out")
    s = te.create_schedule(out.op)
    s[padded].compute_inline()
    s[out].pragma(out.op.axis[0], "loop_unswitch_hint", True)
    s[out].unroll(k)
    func = simplify(lower_schedule(s, [a, out], "f"))
    done = unswitch_border(func)
    verify(done)
    inside, _, border = str(done).partition("else:")
    assert "if i >= 1 and i < 8" in inside if rows == 9 else not border
    assert inside.count("if_then_else") == (0 if rows == 9 else 1)
    assert ("stays_rolled" in border and "if_then_else" in border) is (rows == 9)
    values, result = np.arange(rows * 4, dtype="float32").reshape(rows, 4), np.zeros((rows, 4), "f")
    interpreter.run(done, values, result)
    wide = np.pad(values, ((1, 1), (0, 0)))
    np.testing.assert_array_equal(result, wide[:-2] + wide[1:-1] + wide[2:])


@pytest.mark.parametrize(("rows", "taps"), [(9, 5), (4, 5), (2, 7)])
def test_unswitch_border_clips_loops_that_stay(rows: int, taps: int) -> None:
    """A loop over rows that are there asks nothing, and what follows it is written once."""
    around = taps // 2
    a = te.placeholder((rows, 4), name="a")
    k = te.reduce_axis((0, taps), "k")
    out = te.compute((rows, 4), lambda i, j: te.sum(
        a[i + k - around, j], axis=k, where=te.all(i + k >= around, i + k < rows + around)
    ), name="out")
    s = te.create_schedule(out.op)
    s[out].reorder(out.op.axis[0], k, out.op.axis[1])
    s[out].pragma(out.op.axis[0], "loop_unswitch_hint", True)
    func = simplify(lower_schedule(s, [a, out], "f"))
    done = unswitch_border(func)
    verify(done)
    assert "clipped" in str(done) and str(done).count("out[") < 2 * str(func).count("out[") + 1
    values, result = np.arange(rows * 4, dtype="float32").reshape(rows, 4), np.zeros((rows, 4), "f")
    interpreter.run(done, values, result)
    wide = np.pad(values, ((around, around), (0, 0)))
    np.testing.assert_array_equal(result, sum(wide[n : n + rows] for n in range(taps)))


def test_vectorize_loops_makes_vectors() -> None:
    func = scaled(24, 8, "vectorize")
    done = vectorize_loop(flatten_buffer(simplify(func)))
    verify(done)
    assert "ramp(i.outer*8, 1, 8)" in str(done)
    same_numbers(func, done, 24)


def test_vectorize_loops_leaves_divergent_loops_serial() -> None:
    a = te.placeholder((24,), name="a")
    b = te.compute((24,), lambda i: te.if_then_else(a[i] > 3.0, a[i] * 2.0, 0.0), name="b")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].split(b.op.axis[0], factor=8)[1])
    func = lower_schedule(s, [a, b], "f")
    done = vectorize_loop(flatten_buffer(simplify(func)))
    assert "ramp" not in str(done) and "vectorized" not in str(done)
    same_numbers(func, done, 24)


@pytest.mark.parametrize("open_extent", [False, True])
def test_vectorize_loops_asks_a_guard_once_for_a_whole_vector(open_extent: bool) -> None:
    func = scaled(te.size_var("n") if open_extent else 22, 8, "vectorize")
    done = vectorize_loop(flatten_buffer(simplify(func)))
    verify(done)
    whole, _, guarded = str(done).partition("else:")
    assert "i.outer*8 + 7 < " in whole and "ramp(i.outer*8, 1, 8)" in whole
    assert "for i.inner in range(8)" in guarded and "likely" in guarded
    for size in (0, 5, 8, 22) if open_extent else (22,):
        same_numbers(func, done, size, *[size] * open_extent)


@pytest.mark.parametrize("count", [2, 3])
def test_vectorize_loops_asks_a_choice_once_for_a_whole_vector(count: int) -> None:
    """Tensors that are joined, of widths that only the run knows."""
    widths = [te.size_var(f"n{i}") for i in range(count)]
    parts = [te.placeholder((n,), name=f"a{i}") for i, n in enumerate(widths)]
    ends = [sum(widths[1:k + 1], widths[0]) for k in range(count)]

    def joined(i: Any, k: int) -> Any:
        value = parts[k][i - ends[k - 1] if k else i]
        return value if k == count - 1 else te.if_then_else(i < ends[k], value, joined(i, k + 1))

    out = te.compute((ends[-1],), lambda i: joined(i, 0), name="out")
    s = te.create_schedule(out.op)
    s[out].vectorize(s[out].split(out.op.axis[0], factor=4)[1])
    func = lower_schedule(s, [*parts, out], "f")
    done = verify(vectorize_loop(flatten_buffer(simplify(loop_partition(simplify(func))))))
    assert str(done).count("ramp") >= 2 * count
    for sizes in itertools.product((0, 1, 4, 7, 13), repeat=count):
        values = [np.arange(n, dtype="float32") + n for n in sizes]
        result = np.zeros(sum(sizes), "float32")
        interpreter.run(done, *values, result, *sizes)
        np.testing.assert_array_equal(result, np.concatenate(values))


@pytest.mark.parametrize("hint", [False, True])
def test_partition_loops_behind_parts_of_an_open_extent(hint: bool) -> None:
    """The parts of a loop that threads share end at a place that differs from part to part."""
    n = te.size_var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    s = te.create_schedule(b.op)
    outer, lanes = s[b].split(b.op.axis[0], factor=4)
    _, inner = s[b].split(outer, nparts=3)
    s[b].vectorize(lanes)
    if hint:
        s[b].pragma(inner, "loop_partition_hint", True)
    func = lower_schedule(s, [a, b], "f")
    done = verify(loop_partition(simplify(func)))
    text = str(done)
    assert "likely" not in text, done
    assert all(f"in range({size}):  # vectorized" in text for size in (4, 2)), done
    for size in (0, 1, 7, 8, 12, 13, 31, 48):
        same_numbers(func, done, size, size)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 0), (0, 2), (9, 9), (5, 6)])
def test_vectorize_loops_cuts_vectors_at_borders(before: int, after: int) -> None:
    """On each side of a border lies a vector: no element is asked about."""
    size = 8 - before % 8
    a = te.placeholder((3, size), name="a")
    width = size + before + after
    out = te.compute((3, width), lambda i, j: te.if_then_else(
        te.all(j >= before, j < before + size), a[i, j - before], 7.0), name="out")
    s = te.create_schedule(out.op)
    s[out].vectorize(out.op.axis[1])
    done = simplify(vectorize_loop(flatten_buffer(simplify(lower_schedule(s, [a, out], "f")))))
    verify(done)
    assert "if_then_else" not in str(done) and "for j" not in str(done)
    assert ("ramp" in str(done)) is (size > 1 or max(before, after) > 1)
    values = np.arange(3 * size, dtype="float32").reshape(3, size)
    result = np.zeros((3, width), "float32")
    interpreter.run(done, values, result)
    expected = np.pad(values, ((0, 0), (before, after)), constant_values=7.0)
    np.testing.assert_array_equal(result, expected)


def test_vectorize_loops_keeps_many_borders_serial() -> None:
    """Vectors of an element each are no vectors."""
    a = te.placeholder((8,), name="a")
    out = te.compute((8,), lambda i: te.if_then_else(te.any(i < 1, te.all(i >= 2, i < 3), te.all(
        i >= 4, i < 5), i >= 6), a[i], 0.0), name="out")
    s = te.create_schedule(out.op)
    s[out].vectorize(out.op.axis[0])
    done = vectorize_loop(flatten_buffer(simplify(lower_schedule(s, [a, out], "f"))))
    assert "for i in range(8)" in str(done)
    values, result = np.arange(8, dtype="float32") + 1, np.zeros(8, "f")
    interpreter.run(done, values, result)
    np.testing.assert_array_equal(result, np.where(np.isin(np.arange(8), (1, 3, 5)), 0, values))


def test_unroll_loops_writes_iterations_out() -> None:
    func = scaled(8, 4, "unroll")
    done = simplify(unroll_loop(simplify(func)))
    verify(done)
    assert str(done).count("b[") == 4 and "unrolled" not in str(done)
    same_numbers(func, done, 8)


def test_flatten_buffers_makes_one_index() -> None:
    a = te.placeholder((3, 5), name="a")
    b = te.compute((3, 5), lambda i, j: a[i, j] + 1.0, name="b")
    func = lower_schedule(te.create_schedule(b.op), [a, b], "f")
    done = flatten_buffer(func)
    assert "b[i*5 + j] = a[i*5 + j] + 1.0" in str(done)


def test_an_unchanged_function_stays_the_same_object() -> None:
    func = simplify(scaled(16, 4))
    assert simplify(func) is func
    assert unroll_loop(func) is func
    assert vectorize_loop(func) is func

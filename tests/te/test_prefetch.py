"""Prefetching: what is hinted at, the code that it becomes, and that it changes no number."""

import itertools
import random
import re
import shutil
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.ir import Var, const, explain_difference
from sterna.te.lower import lower_schedule
from sterna.testing.fuzz.fuzzers.schedules import (
    COMPUTATIONS,
    expected_result,
    extents,
    random_schedule,
)
from sterna.tir import Buffer, Prefetch, interpreter, parse, pipeline
from sterna.tir.passes.inject_prefetch import inject_prefetch
from sterna.tir.verify import verify
from tests.tir.programs import F32, function

TARGETS = ["llvm", *(["c"] if shutil.which("cc") else [])]


def matmul(n: int = 32, m: int = 48, kk: int = 70) -> Any:
    a, b = te.placeholder((n, kk), name="A"), te.placeholder((kk, m), name="B")
    k = te.reduce_axis((0, kk), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    i, j = c.op.axis
    xo, yo, xi, yi = s[c].tile(i, j, 8, 16)
    ko, ki = s[c].split(k, 4)
    s[c].reorder(xo, yo, ko, ki, xi, yi)
    s[c].vectorize(yi)
    return s, a, b, c, ko, yi


def rectangles(func: Any) -> list[str]:
    return re.findall(r"prefetch_region\((.*)\)\n", str(func))


def test_the_rectangle_is_what_a_later_iteration_reads() -> None:
    s, a, b, c, ko, _ = matmul()
    s[c].prefetch(a, ko, 1)
    s[c].prefetch(b, ko, 2)
    func = verify(lower_schedule(s, [a, b, c], "f"))
    assert rectangles(func) == [
        "A, (i.outer*8, k.outer*4 + 4), (8, 4)",
        "B, (k.outer*4 + 8, j.outer*16), (4, 16)",
    ]
    assert explain_difference(func, parse(str(func))) is None


def test_behind_a_row_lies_the_next_row() -> None:
    a = te.placeholder((4, 32), name="A")
    b = te.compute((4, 32), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    outer, _ = s[b].split(b.op.axis[1], 16)
    s[b].prefetch(a, outer, 1)
    text = str(inject_prefetch(lower_schedule(s, [a, b], "f")))
    assert "prefetch(A[0, min(i*32 + 16, 111) + (row*32 + (j.outer + line)*16)])" in text


def test_lines_stay_inside_the_buffer() -> None:
    s, a, b, c, ko, _ = matmul()
    s[c].prefetch(b, ko, 2)
    text = str(inject_prefetch(lower_schedule(s, [a, b, c], "f")))
    assert "for row in range(4):\n" in text
    assert "prefetch(B[min(k.outer*4 + row + 8, 69), (j.outer + line)*16])" in text


@pytest.mark.parametrize("target", TARGETS)
def test_code_prefetches_and_numbers_stay(target: str) -> None:
    s, a, b, c, ko, _ = matmul()
    s[c].prefetch(a, ko, 1)
    s[c].prefetch(b, ko, 2)
    module = tvm.build(s, [a, b, c], target)
    wanted = r"call void @\"llvm\.prefetch" if target == "llvm" else r"STERNA_PREFETCH\(&[AB]\["
    assert len(re.findall(wanted, module.get_source())) >= 2
    if target == "llvm" and "x86_64" in module.get_source():
        assert "prefetcht0" in module.get_source("asm")
    if target == "c":
        assert "#define STERNA_PREFETCH(address) __builtin_prefetch(address)" in module.get_source()
    x = np.random.default_rng(0).integers(-4, 5, (32, 70)).astype("float32")
    y = np.random.default_rng(1).integers(-4, 5, (70, 48)).astype("float32")
    out = np.zeros((32, 48), "float32")
    module(x, y, out)
    np.testing.assert_array_equal(out, x @ y)


def test_what_is_computed_inside_the_loop_counts_as_read() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((60,), lambda i: b[i] + b[i + 4], name="C")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], 10)
    s[b].compute_at(s[c], outer)
    s[c].prefetch(a, outer, 1)
    assert rectangles(lower_schedule(s, [a, c], "f")) == ["A, (i.outer*10 + 10,), (14,)"]


def test_an_index_out_of_memory_is_refused() -> None:
    a, at = te.placeholder((64,), name="A"), te.placeholder((8,), "int32", name="at")
    c = te.compute((8,), lambda i: a[at[i]], name="C")
    s = te.create_schedule(c.op)
    s[c].prefetch(a, c.op.axis[0], 1)
    said = r"prefetch of A in the loop i: at\[i\], the index of A\[at\[i\]\], is not known ahead"
    with pytest.raises(ValueError, match=said):
        lower_schedule(s, [a, at, c], "f")


def region(shape: tuple[int, ...], mins: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    buffer = Buffer("A", F32, tuple(map(const, shape)))
    stmt = Prefetch(buffer, tuple(map(const, mins)), tuple(map(const, sizes)))
    return function("f", stmt, buffer)


@pytest.mark.parametrize(
    ("shape", "mins", "sizes", "lines"),
    [
        ((100,), (3,), (16,), 1),
        ((100,), (3,), (17,), 2),
        ((8, 100), (0, 4), (3, 32), 6),
        ((8, 4), (0, 0), (8, 4), 2),  # rows without gaps are one run
        ((8, 4), (2, 1), (6, 2), 6),
        ((4, 4, 16), (1, 0, 0), (2, 4, 16), 8),
        ((), (), (), 1),
    ],
)
def test_each_line_once(
    shape: tuple[int, ...], mins: tuple[int, ...], sizes: tuple[int, ...], lines: int
) -> None:
    func = verify(inject_prefetch(region(shape, mins, sizes)))
    product = 1
    for count in re.findall(r"range\((\d+)\)", str(func)):
        product *= int(count)
    assert product == lines, str(func)


def test_rows_that_are_far_apart_and_symbolic_shapes() -> None:
    n = Var("n", is_size=True)
    buffer = Buffer("A", F32, (n, const(4)), strides=(const(8), const(1)))
    stmt = Prefetch(buffer, (const(0), const(0)), (n, const(4)))
    assert "for row in range(n)" in str(inject_prefetch(function("f", stmt, buffer)))
    flat = Buffer("A", F32, (n,))
    text = str(inject_prefetch(function("f", Prefetch(flat, (const(0),), (n,)), flat)))
    assert "for line in range((n + 15) // 16):" in text


@pytest.mark.parametrize("seed", range(24))
def test_random_schedules_with_prefetches(seed: int) -> None:
    rng = random.Random(seed)
    inputs, tensors = COMPUTATIONS[seed % len(COMPUTATIONS)](rng)
    output = tensors[-1]
    numbers = np.random.default_rng(seed)
    arrays = [numbers.integers(-4, 5, extents(t)).astype("float32") for t in inputs]
    expected = expected_result(inputs, output, arrays)
    schedule = random_schedule(rng, tensors)
    args = [*inputs, output]
    for stage in schedule.stages:
        for tensor in stage.op.input_tensors if stage.attach_type != "inline" else []:
            loop = rng.choice(stage.leaf_iter_vars)
            stage.prefetch(tensor, loop, rng.randint(-1, 3))
            try:
                verify(lower_schedule(schedule, args, "f"))
            except ValueError as error:
                assert re.search("does not read it|vectorized loop|Cannot find", str(error))
                stage.iter_var_attrs[loop].prefetches.pop()
    result = np.full_like(expected, np.nan)
    interpreter.run(lower_schedule(schedule, args, "f"), *arrays, result)
    np.testing.assert_array_equal(result, expected)
    flat = np.full(expected.size, np.nan, "float32")
    passed = verify(pipeline.run(lower_schedule(schedule, args, "f")))
    interpreter.run(passed, *[x.reshape(-1) for x in arrays], flat)
    np.testing.assert_array_equal(flat.reshape(expected.shape), expected)
    compiled = np.full_like(expected, np.nan)
    tvm.build(schedule, args, "llvm")(*arrays, compiled)
    np.testing.assert_array_equal(compiled, expected)


def test_refusals() -> None:
    s, a, b, c, ko, yi = matmul()
    with pytest.raises(TypeError, match="stage C: a tensor is prefetched, not 3"):
        s[c].prefetch(3, ko, 1)
    with pytest.raises(TypeError, match="prefetch of A: its offset counts iterations"):
        s[c].prefetch(a, ko, 1.5)
    with pytest.raises(ValueError, match="that has already been split"):
        s[c].prefetch(a, c.op.axis[0], 1)
    s[c].prefetch(a, yi, 1)
    with pytest.raises(ValueError, match=r"prefetch of A in the loop j\.inner of C: a vectorized"):
        lower_schedule(s, [a, b, c], "f")


def test_what_the_loop_does_not_read_is_refused() -> None:
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((64,), lambda i: b[i] + 4.0, name="C")
    s = te.create_schedule(c.op)
    s[c].prefetch(a, c.op.axis[0], 1)
    with pytest.raises(ValueError, match="prefetch of A in the loop i of C: the loop does not re"):
        lower_schedule(s, [a, c], "f")


def test_an_outer_loop_s_next_reads_are_dealt_out_to_the_iterations_inside() -> None:
    a, b = te.placeholder((24, 64), name="A"), te.placeholder((4, 64, 32), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute(
        (24, 128), lambda i, j: te.sum(a[i, k] * b[j // 32, k, j % 32], axis=k), name="C"
    )
    s = te.create_schedule(c.op)
    tile = s.cache_write(c, "local")
    i, j = c.op.axis
    io, jo, ii, ji = s[c].tile(i, j, 3, 32)
    s[c].reorder(jo, io, ii, ji)
    s[tile].compute_at(s[c], io)
    ko, ki = s[tile].split(s[tile].op.reduce_axis[0], 4)
    s[tile].reorder(ko, ki, *s[tile].op.axis)
    s[tile].prefetch(b, ko, 1, jo)
    func = verify(lower_schedule(s, [a, b, c], "f"))
    assert rectangles(func) == [
        "B, (j.outer + 1, 0, i.outer*256 + k.outer*16), (1, 1, 16)"
    ]
    x, w = np.random.rand(24, 64).astype("float32"), np.random.rand(4, 64, 32).astype("float32")
    made = np.zeros((24, 128), "float32")
    tvm.build(s, [a, b, c], target="llvm")(x, w, made)
    np.testing.assert_allclose(made, x @ w.transpose(1, 0, 2).reshape(64, 128), rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "steps", "wide"), [(7, 64, 32), (4, 24, 32), (2, 3, 40), (9, 5, 8)]
)
def test_one_piece_is_spread_over_all_iterations(
    rows: int, steps: int, wide: int
) -> None:
    """All of the piece, and never more at a time than needed."""
    a = te.placeholder((3, steps, wide), name="A")
    k = te.reduce_axis((0, wide), name="k")
    b = te.compute((3, rows, steps), lambda i, j, c: te.sum(a[i, c, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    s[b].prefetch(a, b.op.axis[2], 1, b.op.axis[0])
    (text,) = rectangles(lower_schedule(s, [a, b], "f"))
    found = re.fullmatch(r"A, \(i \+ 1, 0, (.*)\), \(1, 1, (\d+)\)", text)
    assert found is not None, text
    first, count = found[1], int(found[2])
    starts = [eval(first, {"j": j, "c": c}) for j in range(rows) for c in range(steps)]
    assert starts == sorted(starts) and starts[0] == 0
    apart = [after - before for before, after in itertools.pairwise([*starts, steps * wide])]
    assert max(apart) <= count < wide / rows + 16


def test_few_iterations_take_whole_rows() -> None:
    a = te.placeholder((8, 40, 7), name="A")
    b = te.compute((8, 40, 6), lambda i, j, k: a[i, j, k] + 1.0, name="B")
    s = te.create_schedule(b.op)
    i, j, _ = b.op.axis
    jo, _ = s[b].split(j, 5)
    s[b].prefetch(a, jo, 2, i)
    assert rectangles(lower_schedule(s, [a, b], "f")) == ["A, (i + 2, j.outer*5, 0), (1, 5, 6)"]


def test_a_loop_that_is_not_around_cannot_be_the_reader() -> None:
    s, a, b, c, ko, yi = matmul()
    s[c].prefetch(b, ko, 1, yi)
    with pytest.raises(ValueError, match=r"the loop j\.inner, which reads it, is not around it"):
        lower_schedule(s, [a, b, c], "f")


def test_a_loop_of_no_iterations_has_no_shares() -> None:
    a = te.placeholder((4, 3), name="A")
    b = te.compute((4, 0), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    i, j = b.op.axis
    s[b].prefetch(a, j, 1, i)
    func = lower_schedule(s, [a, b], "f")
    assert rectangles(func) == ["A, (i + 1, 0), (1, 0)"]
    assert "prefetch" not in str(inject_prefetch(func))


def test_a_function_without_prefetches_stays_the_same_object() -> None:
    s, a, b, c, _, _ = matmul()
    func = lower_schedule(s, [a, b, c], "plain")
    assert inject_prefetch(func) is func

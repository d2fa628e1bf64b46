"""Double buffers: two halves, the next one filled ahead, and what cannot be filled ahead."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from sterna.te.lower import lower_schedule
from sterna.tir import interpreter, pipeline
from sterna.tir.config import InjectDoubleBufferConfig
from sterna.tir.passes.inject_double_buffer import inject_double_buffer
from sterna.tir.verify import verify


def window(n: Any = 22, factor: int = 5) -> tuple[Any, Any, Any, Any]:
    """c reads two neighbours of b, which is computed for a block of c."""
    a = te.placeholder((n + 2,), name="a")
    b = te.compute((n + 2,), lambda i: a[i] * 2.0, name="b")
    c = te.compute((n,), lambda i: b[i] + b[i + 2], name="c")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], factor=factor)
    s[b].compute_at(s[c], outer)
    return s, a, b, c


def runs(schedule: Any, args: list[Any], arrays: list[Any], expected: Any, *more: int) -> None:
    """The loops after each pass, and the machine code, give what is expected."""
    func = lower_schedule(schedule, args, "f")
    mod = tvm.IRModule({"f": func})
    for transform in (None, *pipeline.passes()):
        mod = mod if transform is None else transform(mod)
        func = mod["f"]
        verify(func)
        out = np.full_like(expected, np.nan)
        interpreter.run(func, *[x.reshape(-1) for x in arrays], out.reshape(-1), *more)
        np.testing.assert_array_equal(out, expected, err_msg=str(func))
    out = np.full_like(expected, np.nan)
    tvm.build(schedule, args)(*arrays, out)
    np.testing.assert_array_equal(out, expected)


def test_the_next_block_is_made_before_this_one_is_used() -> None:
    s, a, b, c = window()
    s[b].double_buffer()
    func = inject_double_buffer(lower_schedule(s, [a, c], "f"))
    text = str(func)
    assert 'allocate((2, 7), "float32", "global")' in text
    assert "if likely(i.outer + 1 < 5):" in text
    ahead, used = text.index("b[(i.outer + 1) % 2"), text.index("c[i.outer*5")
    assert text.index("b[0, ") < text.index("for i.outer") < ahead < used
    x = np.arange(24, dtype="float32")
    runs(s, [a, c], [x], x[:22] * 2 + x[2:] * 2)


def test_the_last_iteration_is_peeled() -> None:
    s, a, b, c = window(20, 5)
    s[b].double_buffer()
    assert "likely" not in str(tvm.lower(s, [a, c]))
    assert "likely" in str(tvm.lower(s, [a, c], simple_mode=True))


@pytest.mark.parametrize("split_loop", [1, 2, 3])
def test_a_symbolic_extent_may_be_zero(split_loop: int) -> None:
    n = te.size_var("n")
    s, a, b, c = window(n)
    s[b].double_buffer()
    func = lower_schedule(s, [a, c, n], "f")
    injected = inject_double_buffer(func, InjectDoubleBufferConfig(split_loop))
    with tvm.transform.PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": split_loop}}):
        passed = pipeline.run(func)
    for size in (0, 1, 5, 13, 24, 25):
        x, y = np.arange(size + 2, dtype="float32"), np.zeros(size, "float32")
        for done in (verify(injected), verify(passed)):
            interpreter.run(done, x, y, size)
            np.testing.assert_array_equal(y, x[:size] * 2 + x[2:] * 2)


def test_iterations_written_out_know_their_half() -> None:
    s, a, b, c = window(40, 5)
    s[b].double_buffer()
    with tvm.transform.PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": 2}}):
        text = str(tvm.lower(s, [a, c]))
        x = np.arange(42, dtype="float32")
        runs(s, [a, c], [x], x[:40] * 2 + x[2:] * 2)
    assert "% 2" not in text
    with pytest.raises(ValueError, match="split_loop is 0"):
        inject_double_buffer(lower_schedule(s, [a, c], "f"), InjectDoubleBufferConfig(0))


def test_a_reduction_is_buffered_with_its_start() -> None:
    a, b = te.placeholder((6, 8), name="a"), te.placeholder((8, 10), name="b")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((6, 10), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((6, 10), lambda i, j: c[i, j] + 1.0, name="d")
    s = te.create_schedule(d.op)
    s[c].compute_at(s[d], d.op.axis[0])
    s[c].double_buffer()
    s[c].storage_align(c.op.axis[0], 16, 1)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, shape).astype("float32") for shape in ((6, 8), (8, 10)))
    runs(s, [a, b, d], [x, y], x @ y + 1)


def test_two_buffers_may_follow_each_other() -> None:
    s, a, b, c = window()
    local = s.cache_read(b, "local", [c])
    s[local].compute_at(s[c], s[c].leaf_iter_vars[0])
    s[local].double_buffer()
    with pytest.raises(
        ValueError, match=r"b\.local is double buffered .*reads b, which that loop makes"
    ):
        pipeline.run(lower_schedule(s, [a, c], "f"))
    s[b].double_buffer()
    x = np.arange(24, dtype="float32")
    runs(s, [a, c], [x], x[:22] * 2 + x[2:] * 2)


def test_a_buffer_inside_a_double_buffer() -> None:
    s, a, b, c = window()
    local = s.cache_read(a, "local", [b])
    s[local].compute_at(s[b], s[b].op.axis[0])
    s[local].double_buffer()
    s[b].double_buffer()
    x = np.arange(24, dtype="float32")
    runs(s, [a, c], [x], x[:22] * 2 + x[2:] * 2)


def test_a_double_buffer_inside_a_rolling_one() -> None:
    s, a, b, c = window(12, 1)
    local = s.cache_read(a, "local", [b])
    s[b].rolling_buffer()
    s[local].compute_at(s[b], s[b].op.axis[0])
    s[local].double_buffer()
    text = str(inject_double_buffer(lower_schedule(s, [a, c], "f")))
    assert "if i.outer == 0 or i + 1 >= 2:" in text  # what is not there yet is made ahead
    x = np.arange(14, dtype="float32")
    runs(s, [a, c], [x], x[:12] * 2 + x[2:] * 2)


def test_a_call_gets_a_view_of_one_half() -> None:
    buffer, out = tir.decl_buffer((4,), name="B"), tir.decl_buffer((3, 4), name="out")
    i, j, zero = te.var("i"), te.var("j"), te.const(0)
    fill = tir.Evaluate(tir.call_packed("fill", buffer, i))
    made = tir.AttrStmt("double_buffer", buffer, te.const(1), fill)
    used = tir.For(j, zero, te.const(4), "serial", tir.BufferStore(out, buffer[j], (i, j)))
    body = tir.Allocate(buffer, tir.SeqStmt((made, used)))
    loop = tir.For(i, zero, te.const(3), "serial", body)
    func = tir.PrimFunc("f", (out.data,), (out,), loop)

    def fill_array(array: Any, number: int) -> None:
        assert array.shape == (4,)
        array[:] = number * 10

    for done in (func, pipeline.run(func)):
        verify(done)
        result = np.zeros((3, 4), "float32")
        shaped = result if done is func else result.reshape(-1)
        interpreter.run(done, shaped, externs={"fill": fill_array})
        np.testing.assert_array_equal(result, [[0] * 4, [10] * 4, [20] * 4])


def test_what_is_made_ahead_must_be_doubled() -> None:
    whole, one = 'Buffer[(8,), "float32"]', 'Buffer[(1,), "float32"]'
    text = f"""def f(A: {whole}, T: {one}, C: {whole}):
    for i in range(8):
        B = allocate((1,), "float32", "global")
        with attr("double_buffer", B, 1):
            T[0] = A[i]
            B[0] = T[0]
        C[i] = B[0] + T[0]
"""
    with pytest.raises(ValueError, match="T is made with it but kept otherwise"):
        inject_double_buffer(tir.parse(text))


def test_what_is_refused() -> None:
    s, a, b, c = window()
    with pytest.raises(ValueError, match="Cannot apply double buffer on output c"):
        s[c].double_buffer()
    with pytest.raises(ValueError, match="input a is not computed"):
        s[a].double_buffer()
    s[b].double_buffer()
    s[c].parallel(s[c].leaf_iter_vars[0])
    with pytest.raises(ValueError, match=r"b is double buffered at the loop i\.outer, .*paral"):
        tvm.lower(s, [a, c])
    s[b].compute_root()
    with pytest.raises(ValueError, match="Double buffer scope must be inside a loop"):
        tvm.lower(s, [a, c])
    s[b].compute_inline()
    with pytest.raises(ValueError, match="b cannot have a double buffer and be inlined"):
        tvm.lower(s, [a, c])

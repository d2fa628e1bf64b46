"""Rolling buffers: what iterations share is kept, only the rest is made, and where that fails."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.te.lower import lower_schedule
from sterna.tir import BufferStore, interpreter, pipeline
from sterna.tir.verify import verify


def pooling(rows: int, window: int, stride: int) -> tuple[Any, Any, Any, Any]:
    """Sums over windows of rows that slide by a stride over what b makes."""
    height = (rows - 1) * stride + window
    a = te.placeholder((height, 6), name="a")
    b = te.compute((height, 6), lambda i, j: a[i, j] * 2.0, name="b")
    r = te.reduce_axis((0, window), name="r")
    c = te.compute((rows, 6), lambda i, j: te.sum(b[i * stride + r, j], axis=r), name="c")
    return te.create_schedule(c.op), a, b, c


def pooled(x: Any, rows: int, window: int, stride: int) -> Any:
    return np.stack([2 * x[i * stride : i * stride + window].sum(0) for i in range(rows)])


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).integers(-8, 9, shape).astype("float32")


def runs(schedule: Any, args: list[Any], arrays: list[Any], expected: Any) -> None:
    """The loops, with and without passes, and the machine code give what is expected."""
    func = lower_schedule(schedule, args, "f")
    for done in (func, pipeline.run(func)):
        verify(done)
        out = np.full_like(expected, np.nan)
        interpreter.run(done, *[x.reshape(-1) for x in arrays], out.reshape(-1))
        np.testing.assert_array_equal(out, expected, err_msg=str(done))
    out = np.full_like(expected, np.nan)
    tvm.build(schedule, args)(*arrays, out)
    np.testing.assert_array_equal(out, expected)


def stores(schedule: Any, args: list[Any], arrays: list[Any], out: Any, name: str) -> int:
    """How often a buffer is written to."""
    count = 0
    original = interpreter._STMTS[BufferStore]

    def counting(self: Any, stmt: BufferStore) -> None:
        nonlocal count
        count += stmt.buffer.name == name
        original(self, stmt)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(interpreter._STMTS, BufferStore, counting)
        interpreter.run(lower_schedule(schedule, args, "f"), *arrays, out)
    return count


def test_each_row_is_made_once() -> None:
    s, a, b, c = pooling(rows=7, window=3, stride=1)
    s[b].compute_at(s[c], c.op.axis[0])
    x, out = numbers(9, 6), np.zeros((7, 6), "float32")
    assert stores(s, [a, c], [x], out, "b") == 7 * 3 * 6
    s[b].rolling_buffer()
    assert stores(s, [a, c], [x], out, "b") == 9 * 6
    text = str(lower_schedule(s, [a, c], "f"))
    assert text.index('b = allocate((3, 6), "float32"') < text.index("for i in range(7):")
    assert "if i == 0 or i_1 >= 2:" in text
    runs(s, [a, c], [x], pooled(x, 7, 3, 1))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("tile", [1, 2, 3, 4, 8])
def test_strides_tiles_and_tails(stride: int, tile: int) -> None:
    s, a, b, c = pooling(rows=7, window=4, stride=stride)
    outer, _ = s[c].split(c.op.axis[0], factor=tile)
    s[b].compute_at(s[c], outer)
    s[b].rolling_buffer()
    x = numbers((7 - 1) * stride + 4, 6)
    runs(s, [a, c], [x], pooled(x, 7, 4, stride))


def test_only_the_innermost_moving_loop_rolls() -> None:
    s, a, b, c = pooling(rows=8, window=3, stride=1)
    i, j = c.op.axis
    io, jo, ii, ji = s[c].tile(i, j, 2, 3)
    s[c].reorder(jo, io, ii, ji)
    s[b].compute_at(s[c], io)
    s[b].rolling_buffer()
    text = str(lower_schedule(s, [a, c], "f"))
    assert text.index("for j.outer") < text.index("allocate((4, 3)") < text.index("for i.outer")
    s[c].parallel(jo)
    x = numbers(10, 6)
    runs(s, [a, c], [x], pooled(x, 8, 3, 1))


def test_loops_that_move_nothing_may_lie_inside() -> None:
    a = te.placeholder((9,), name="a")
    b = te.compute((9,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((7, 4), lambda i, j: b[i] * b[i + 2] + j.astype("float32"), name="c")
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], c.op.axis[1])
    s[b].rolling_buffer()
    x = numbers(9)
    y = x + 1
    runs(s, [a, c], [x], (y[:7] * y[2:])[:, None] + np.arange(4, dtype="float32"))


def test_the_stage_itself_may_be_scheduled() -> None:
    s, a, b, c = pooling(rows=9, window=5, stride=2)
    outer, _ = s[c].split(c.op.axis[0], factor=2)
    s[b].compute_at(s[c], outer)
    s[b].rolling_buffer()
    i, j = s[b].op.axis
    io, ii = s[b].split(i, factor=3)
    s[b].reorder(j, io, ii)
    s[b].unroll(ii)
    s[b].vectorize(j)
    s[b].storage_align(i, 8, 1)
    x = numbers(21, 6)
    runs(s, [a, c], [x], pooled(x, 9, 5, 2))


def test_a_chain_of_reductions_rolls_together() -> None:
    n = 8
    a = te.placeholder((n + 4, 5), name="a")
    r, q = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 3), name="q")
    b = te.compute((n + 2, 5), lambda i, j: te.sum(a[i + r, j], axis=r), name="b")
    c = te.compute((n, 5), lambda i, j: te.sum(b[i + q, j], axis=q), name="c")
    s = te.create_schedule(c.op)
    local = s.cache_read(a, "local", [b])
    outer, _ = s[c].split(c.op.axis[0], factor=3)
    for tensor in (b, local):
        s[tensor].compute_at(s[c], outer)
        s[tensor].rolling_buffer()
    bi, bj = s[b].op.axis
    s[b].reorder(s[b].op.reduce_axis[0], bj, bi)  # the start gets loops of its own
    x, out = numbers(n + 4, 5), np.zeros((n, 5), "float32")
    assert stores(s, [a, c], [x], out, "a.local") == (n + 4) * 5
    rows = x[:-2] + x[1:-1] + x[2:]
    runs(s, [a, c], [x], rows[:-2] + rows[1:-1] + rows[2:])


def test_what_is_computed_in_a_rolling_stage_is_skipped_with_it() -> None:
    s, a, b, c = pooling(rows=7, window=3, stride=1)
    local = s.cache_read(a, "local", [b])
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].rolling_buffer()
    s[local].compute_at(s[b], s[b].op.axis[0])
    x, out = numbers(9, 6), np.zeros((7, 6), "float32")
    assert stores(s, [a, c], [x], out, "a.local") == 9 * 6
    runs(s, [a, c], [x], pooled(x, 7, 3, 1))


def test_a_reader_under_a_guard() -> None:
    n = 10
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 3.0, name="b")
    c = te.compute(
        (n,), lambda i: te.if_then_else(i >= 2, b[i - 2], 0.0) + b[i], name="c"
    )
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].rolling_buffer()
    x = numbers(n)
    runs(s, [a, c], [x], 3 * np.concatenate([[0, 0], x[:-2]]).astype("float32") + 3 * x)


def test_a_loop_of_one_iteration_leaves_a_plain_buffer() -> None:
    s, a, b, c = pooling(rows=1, window=3, stride=1)
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].rolling_buffer()
    x = numbers(3, 6)
    runs(s, [a, c], [x], pooled(x, 1, 3, 1))


def test_one_rolling_buffer_inside_another() -> None:
    _, a, b, c = pooling(rows=8, window=3, stride=1)
    d = te.compute((6, 6), lambda i, j: c[i, j] + c[i + 2, j], name="d")
    s = te.create_schedule(d.op)
    s[c].compute_at(s[d], d.op.axis[0])
    s[c].rolling_buffer()
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].rolling_buffer()
    with pytest.raises(ValueError, match="b cannot roll with i of c, which skips iterations"):
        lower_schedule(s, [a, d], "f")
    x = numbers(10, 6)
    rows = pooled(x, 8, 3, 1)
    s[b].compute_at(s[d], d.op.axis[0])
    runs(s, [a, d], [x], rows[:6] + rows[2:])


def test_what_is_refused() -> None:
    s, a, b, c = pooling(rows=8, window=2, stride=2)

    def refuses(text: str) -> None:
        with pytest.raises(ValueError, match=text):
            lower_schedule(s, [a, c], "f")

    with pytest.raises(ValueError, match="Cannot apply rolling buffer on output c"):
        s[c].rolling_buffer()
    with pytest.raises(ValueError, match="input a is not computed"):
        s[a].rolling_buffer()
    s[b].rolling_buffer()
    with pytest.raises(ValueError, match="a double and a rolling buffer"):
        s[b].double_buffer()
    refuses("rolling buffer b must be computed at a loop")
    i = c.op.axis[0]
    s[b].compute_at(s[c], i)
    refuses(r"b does not roll: iteration i needs 2 from i\*2 on, of which the one before has none")
    with pytest.raises(ValueError, match="rolling_buffer cannot change b: its memory is the c"):
        lower_schedule(s, [a, b, c], "f")
    s[c].parallel(i)
    refuses("computed inside i of c, whose iterations run at once")

    s, a, b, c = pooling(rows=8, window=3, stride=1)
    fused = s[c].fuse(*c.op.axis)
    s[b].rolling_buffer()
    s[b].compute_at(s[c], fused)
    refuses(r"can move along one axis, but i\.j\.fused moves it along i, j")

    s, a, b, c = pooling(rows=8, window=3, stride=1)
    s[c].reorder(c.op.axis[1], c.op.axis[0], c.op.reduce_axis[0])
    s[b].compute_at(s[c], c.op.axis[1])
    s[b].rolling_buffer()
    refuses("does not roll|of which the one before has none")
    s[b].compute_inline()
    refuses("b cannot have a rolling buffer and be inlined")

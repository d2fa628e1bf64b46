"""Primitives that decide what is guarded, stored and padded: split, store predicates, threads."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from sterna.te.lower import lower_schedule
from sterna.tir import interpreter


def doubled(n: Any) -> tuple[Any, Any, Any]:
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    return te.create_schedule(b.op), a, b


def row_sums(n: int, m: int) -> tuple[Any, Any, Any]:
    a = te.placeholder((n, m), name="a")
    k = te.reduce_axis((0, m), name="k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="b")
    return te.create_schedule(b.op), a, b


# ---- split without guards ----


@pytest.mark.parametrize("how", [{"factor": 4}, {"nparts": 4}])
def test_a_split_that_divides_has_no_guard_and_is_checked_once(how: dict[str, int]) -> None:
    s, a, b = doubled(te.size_var("n"))
    s[b].split(b.op.axis[0], **how, disable_predication=True)
    assert "likely" not in str(lower_schedule(s, [a, b], "f"))
    module = tvm.build(s, [a, b])
    x, y = np.arange(12, dtype="float32"), np.zeros(12, "float32")
    module(x, y)
    np.testing.assert_array_equal(y, x * 2)
    with pytest.raises(ValueError, match=r"extent n of the axis i of b is no multiple of 4"):
        module(x[:10], y[:10].copy())


def test_a_split_that_does_not_divide_is_refused_when_that_is_known() -> None:
    s, a, b = doubled(10)
    s[b].split(b.op.axis[0], factor=4, disable_predication=True)
    with pytest.raises(ValueError, match="extent 10 of the axis i of b is no multiple of 4"):
        lower_schedule(s, [a, b], "f")


def test_a_factor_beyond_the_extent_divides() -> None:
    s, a, b = doubled(10)
    s[b].split(b.op.axis[0], factor=16, disable_predication=True)
    assert "range(10)" in str(lower_schedule(s, [a, b], "f"))


# ---- store predicates ----


def test_a_store_predicate_may_use_every_axis() -> None:
    s, a, b = doubled(12)
    i = b.op.axis[0]
    outer, inner = s[b].split(i, factor=4)
    x, y = np.arange(12, dtype="float32"), np.full(12, -1, "float32")
    n = np.arange(12)
    for predicate, chosen in (
        (inner < 2, n % 4 < 2), (outer.equal(1), n // 4 == 1), (i >= 5, n >= 5),
    ):
        s[b].set_store_predicate(predicate)
        y[:] = -1
        interpreter.run(lower_schedule(s, [a, b], "f"), x, y)
        np.testing.assert_array_equal(y, np.where(chosen, x * 2, -1))


def test_a_store_predicate_holds_for_all_of_a_reduction() -> None:
    s, a, b = row_sums(6, 5)
    s[b].set_store_predicate(b.op.axis[0] < 4)
    x, y = np.ones((6, 5), "float32"), np.full(6, -1, "float32")
    tvm.build(s, [a, b])(x, y)
    np.testing.assert_array_equal(y, [5, 5, 5, 5, -1, -1])


def test_a_store_predicate_may_pick_a_thread() -> None:
    s, a, b = row_sums(4, 8)
    tx = te.thread_axis((0, 8), "threadIdx.x")
    partial = s.rfactor(b, b.op.reduce_axis[0])
    s[b].bind(s[b].op.reduce_axis[0], tx)
    s[partial].compute_at(s[b], s[b].op.reduce_axis[0])
    s[b].set_store_predicate(te.all(tx.var.equal(0), b.op.axis[0] < 3))
    func = lower_schedule(s, [a, b], "f")
    assert "thread threadIdx.x" in str(func) and "if i < 3:" in str(func)
    # whoever stores the result, every thread's share is in it
    x, y = np.ones((4, 8), "float32"), np.zeros(4, "float32")
    interpreter.run(func, x, y)
    np.testing.assert_array_equal(y, [8, 8, 8, 0])


# ---- threads ----


def test_bind_checks_its_axes() -> None:
    s, _, b = row_sums(4, 8)
    tx, ty = te.thread_axis("threadIdx.x"), te.thread_axis("threadIdx.y")
    i, k = b.op.axis[0], b.op.reduce_axis[0]
    with pytest.raises(ValueError, match="Cannot rebase by k, only thread axis is allowed"):
        s[b].bind(i, k)
    s[b].bind(i, tx)
    with pytest.raises(ValueError, match=r"the axis i is already bound to threadIdx\.x"):
        s[b].bind(i, ty)
    with pytest.raises(ValueError, match=r"the axis i of stage b is bound to threadIdx\.x already"):
        s[b].bind(k, te.thread_axis("threadIdx.x"))
    s[b].bind(k, ty)


def test_a_loop_must_fit_its_threads() -> None:
    s, a, b = doubled(64)
    s[b].bind(b.op.axis[0], te.thread_axis((0, 32), "threadIdx.x"))
    with pytest.raises(ValueError, match=r"64 iterations, but threadIdx\.x, .*has 32 threads"):
        lower_schedule(s, [a, b], "f")


def test_virtual_threads_may_be_several() -> None:
    s, a, b = doubled(64)
    outer, inner = s[b].split(b.op.axis[0], factor=8)
    for axis in (outer, inner):
        s[b].bind(axis, te.thread_axis((0, 8), "vthread"))
    x, y = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    interpreter.run(lower_schedule(s, [a, b], "f"), x, y)
    np.testing.assert_array_equal(y, x * 2)


# ---- padding ----


@pytest.mark.parametrize(("factor", "offset", "stride"), [(8, 1, 9), (16, 0, 16), (7, 8, 8)])
def test_storage_align_pads_each_row(factor: int, offset: int, stride: int) -> None:
    a = te.placeholder((4, 8), name="a")
    b = te.compute((4, 8), lambda i, j: a[i, j] * 2.0, name="b")
    c = te.compute((4, 8), lambda i, j: b[i, j] + 1.0, name="c")
    s = te.create_schedule(c.op)
    s[b].storage_align(b.op.axis[0], factor, offset)
    assert ("strides=" in str(lower_schedule(s, [a, c], "f"))) and stride % factor == (
        offset % factor
    )
    assert f"({4 * stride},)" in str(tvm.lower(s, [a, c]))
    x, y = np.random.default_rng(0).random((4, 8), "float32"), np.zeros((4, 8), "float32")
    tvm.build(s, [a, c])(x, y)
    np.testing.assert_array_equal(y, x * 2 + 1)


def test_storage_align_checks_what_it_pads() -> None:
    s, a, b = doubled(8)
    outer, _ = s[b].split(b.op.axis[0], factor=2)
    with pytest.raises(ValueError, match=r"i\.outer is no axis of the tensor b; it has the axes i"):
        s[b].storage_align(outer, 8, 0)
    with pytest.raises(ValueError, match="by 0"):
        s[b].storage_align(b.op.axis[0], 0, 0)
    s[b].storage_align(b.op.axis[0], 8, 0)
    with pytest.raises(ValueError, match="storage_align cannot change b: its memory is the c"):
        lower_schedule(s, [a, b], "f")


# ---- step predicates ----


def sums_of_shifted(size: int, window: int) -> tuple[Any, Any, Any]:
    """b[i] = the sum of a[i + r - window // 2], zeros outside."""
    a = te.placeholder((size,), name="a")
    r = te.reduce_axis((0, window), name="r")

    def shifted(i: Any) -> Any:
        at = i + r - window // 2
        return tir.if_then_else(te.all(at >= 0, at < size), a[at], 0.0)

    b = te.compute((size,), lambda i: te.sum(shifted(i), axis=r), name="b")
    return te.create_schedule(b.op), a, b


def test_steps_that_add_nothing_are_skipped_where_their_loops_tell() -> None:
    s, a, b = sums_of_shifted(12, 9)
    outer, inner = s[b].split(b.op.axis[0], factor=4)
    r = b.op.reduce_axis[0]
    s[b].reorder(outer, r, inner)
    first = b.op.axis[0] - inner + r - 4
    s[b].set_step_predicate(te.all(first >= -3, first < 12))
    func = lower_schedule(s, [a, b], "f")
    text = str(func).splitlines()
    asked = [i for i, line in enumerate(text) if line.strip().startswith("if")]
    loops = [i for i, line in enumerate(text) if "range(4)" in line]
    assert len(asked) == 2 and max(asked) < loops[-1]  # outside of the loop over a tile
    x, y = np.arange(12, dtype="float32"), np.zeros(12, "float32")
    interpreter.run(func, x, y)
    np.testing.assert_array_equal(y, np.convolve(x, np.ones(9), "same").astype("float32"))


def test_a_step_predicate_leaves_the_start_of_a_sum() -> None:
    s, a, b = row_sums(6, 5)
    s[b].set_step_predicate(b.op.axis[0] < 4)
    x, y = np.ones((6, 5), "float32"), np.full(6, -1, "float32")
    tvm.build(s, [a, b])(x, y)
    np.testing.assert_array_equal(y, [5, 5, 5, 5, 0, 0])


def test_a_step_predicate_is_said_to_the_stage_that_sums() -> None:
    s, a, b = row_sums(6, 8)
    s[b].set_step_predicate(b.op.reduce_axis[0] < 5)
    with pytest.raises(ValueError, match="apply rfactor to b before set_step_predicate"):
        s.rfactor(b, b.op.reduce_axis[0])
    s.cache_write(b, "local")
    with pytest.raises(ValueError, match="b is no sum; after cache_write the stage"):
        lower_schedule(s, [a, b], "f")


def test_a_step_predicate_is_of_a_sum() -> None:
    s, a, b = doubled(12)
    s[b].set_step_predicate(b.op.axis[0] < 4)
    with pytest.raises(ValueError, match="b is no sum"):
        lower_schedule(s, [a, b], "f")

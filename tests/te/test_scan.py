"""Recurrences over time, under every kind of schedule, beside NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.te.lower import lower_schedule
from sterna.tir import interpreter
from tests.te.running import check

T, N = 7, 5


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype("float32")


def cumulative_sum(t: Any = T, n: Any = N) -> tuple[Any, ...]:
    x = te.placeholder((t, n), name="x")
    state = te.placeholder((t, n), name="state")
    init = te.compute((1, n), lambda _, i: x[0, i], name="init")
    update = te.compute((t, n), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    return x, state, init, update, te.scan(init, update, state, inputs=[x], name="sums")


X = numbers(T, N)


def test_rows_are_stored_where_they_stay() -> None:
    x, _, _, _, sums = cumulative_sum()
    assert sums.op.scan_axis.name == "sums.idx" and sums.op.scan_axis.iter_type == 3
    assert [axis.name for axis in sums.op.spatial_axis_] == ["sums.out0.i1"]
    schedule = te.create_schedule(sums.op)
    text = check(schedule, [x, sums], [X], [X.cumsum(0)])
    assert "allocate" not in text and "sums[sums.idx + t + 1 - 1, i_1] + x[" in text


def test_times_may_be_unknown() -> None:
    t, n = te.size_var("t"), te.size_var("n")
    x, _, _, update, sums = cumulative_sum(t, n)
    schedule = te.create_schedule(sums.op)
    schedule[sums].split(sums.op.scan_axis, factor=4)
    _, inner = schedule[update].split(update.op.axis[1], factor=4)
    schedule[update].vectorize(inner)
    module = tvm.build(schedule, [x, sums])
    for rows, columns in [(1, 3), (2, 1), (8, 4), (11, 9)]:
        values, result = numbers(rows, columns), np.zeros((rows, columns), "float32")
        module(values, result)
        np.testing.assert_array_equal(result, values.cumsum(0))
    with pytest.raises(ValueError, match="the scan sums has t rows, fewer than the 1 of its init"):
        module(np.zeros((0, 3), "float32"), np.zeros((0, 3), "float32"))


def test_loops_of_every_part_are_scheduled() -> None:
    x, _, init, update, sums = cumulative_sum()
    out = te.compute((T, N), lambda i, j: sums[i, j] * 2.0, name="out")
    schedule = te.create_schedule(out.op)
    outer, inner = schedule[sums].split(sums.op.scan_axis, factor=4)
    schedule[sums].unroll(inner)
    schedule[init].parallel(init.op.axis[1])
    _, lanes = schedule[update].split(update.op.axis[1], factor=2)
    schedule[update].vectorize(lanes)
    assert outer.name == "sums.idx.outer"
    check(schedule, [x, out], [X], [X.cumsum(0) * 2])


def test_a_scan_is_computed_whole_inside_its_readers_loop() -> None:
    x, _, _, _, sums = cumulative_sum()
    out = te.compute((N, T), lambda j, i: sums[i, j] * 2.0, name="out")
    schedule = te.create_schedule(out.op)
    schedule[sums].compute_at(schedule[out], out.op.axis[0])
    text = check(schedule, [x, out], [X], [(X.cumsum(0) * 2).T])
    assert text.index("for j") < text.index("for sums.idx")


def test_two_states_and_an_init_of_two_rows() -> None:
    """Fibonacci-like: a[t] = a[t-1] + b[t-2], b[t] = a[t-1] - x[t]."""
    x = te.placeholder((T, N), name="x")
    sa, sb = te.placeholder((T, N), name="sa"), te.placeholder((T, N), name="sb")
    ia = te.compute((2, N), lambda t, i: x[t, i] + 1.0, name="ia")
    ib = te.compute((2, N), lambda t, i: x[t, i] - 1.0, name="ib")
    ua = te.compute((T, N), lambda t, i: sa[t - 1, i] + sb[t - 2, i], name="ua")
    ub = te.compute((T, N), lambda t, i: sa[t - 1, i] - x[t, i], name="ub")
    a, b = te.scan([ia, ib], [ua, ub], [sa, sb], inputs=[x])
    schedule = te.create_schedule([a.op])
    schedule[ub].parallel(ub.op.axis[1])
    first, second = X + 1, X - 1
    for t in range(2, T):
        first[t] = first[t - 1] + second[t - 2]
        second[t] = first[t - 1] - X[t]
    check(schedule, [x, a, b], [X], [first, second])
    check(te.create_schedule(b.op), [x, b], [X], [second])  # the other one is kept inside


def lstm() -> tuple[list[Any], list[Any], list[Any]]:
    """A long short-term memory cell over a sequence: inputs, stages of the cell, states."""
    batch, hidden, features = 2, 3, 4
    x = te.placeholder((T, batch, features), name="x")
    wx = te.placeholder((4, hidden, features), name="wx")
    wh = te.placeholder((4, hidden, hidden), name="wh")
    sh = te.placeholder((T, batch, hidden), name="sh")
    sc = te.placeholder((T, batch, hidden), name="sc")
    zero = [
        te.compute((1, batch, hidden), lambda *i: te.const(0.0), name=f"{what}0") for what in "hc"
    ]
    k, f = te.reduce_axis((0, hidden), name="k"), te.reduce_axis((0, features), name="f")
    i2h = te.compute(
        (T, 4, batch, hidden),
        lambda t, g, b, j: te.sum(x[t, b, f] * wx[g, j, f], axis=f), name="i2h",
    )
    h2h = te.compute(
        (T, 4, batch, hidden),
        lambda t, g, b, j: te.sum(sh[t - 1, b, k] * wh[g, j, k], axis=k), name="h2h",
    )
    gates = te.compute(
        (T, 4, batch, hidden), lambda *i: i2h(*i) + h2h(*i), name="gates"
    )
    c = te.compute(
        (T, batch, hidden),
        lambda t, b, j: te.sigmoid(gates[t, 0, b, j]) * sc[t - 1, b, j]
        + te.sigmoid(gates[t, 1, b, j]) * te.tanh(gates[t, 2, b, j]),
        name="c",
    )
    h = te.compute(
        (T, batch, hidden),
        lambda t, b, j: te.sigmoid(gates[t, 3, b, j]) * te.tanh(c[t, b, j]), name="h",
    )
    states = te.scan(zero, [h, c], [sh, sc], inputs=[x, wx, wh], name="lstm")
    return [x, wx, wh], [i2h, h2h, gates, c, h], states


def run_lstm(x: Any, wx: Any, wh: Any) -> list[Any]:
    def sigmoid(value: Any) -> Any:
        return 1 / (1 + np.exp(-value))

    h = np.zeros((T, 2, 3), "float32")
    c = np.zeros((T, 2, 3), "float32")
    for t in range(1, T):
        i, f, g, o = np.einsum("bf,gjf->gbj", x[t], wx) + np.einsum("bk,gjk->gbj", h[t - 1], wh)
        c[t] = sigmoid(i) * c[t - 1] + sigmoid(f) * np.tanh(g)
        h[t] = sigmoid(o) * np.tanh(c[t])
    return [h, c]


def inline_gates(schedule: Any, stages: list[Any], states: list[Any]) -> None:
    schedule[stages[2]].compute_inline()


def in_the_step(schedule: Any, stages: list[Any], states: list[Any]) -> None:
    schedule[stages[0]].compute_at(schedule[states[0]], states[0].op.scan_axis)


def inside_each_other(schedule: Any, stages: list[Any], states: list[Any]) -> None:
    _, h2h, gates, c, _ = stages
    schedule[h2h].compute_at(schedule[gates], gates.op.axis[2])
    schedule[c].parallel(c.op.axis[1])


def cached(schedule: Any, stages: list[Any], states: list[Any]) -> None:
    _, h2h, gates, _, h = stages
    state = next(t for t in h2h.op.input_tensors if t.name == "sh")
    copied = schedule.cache_read(state, "local", [h2h])
    schedule.cache_write(h, "local")
    schedule[copied].compute_at(schedule[h2h], schedule[h2h].op.axis[2])
    schedule[gates].unroll(schedule[gates].op.axis[1])


def partial_sums(schedule: Any, stages: list[Any], states: list[Any]) -> None:
    h2h = stages[1]
    _, inner = schedule[h2h].split(h2h.op.reduce_axis[0], factor=2)
    partial = schedule.rfactor(h2h, inner)
    schedule[partial].vectorize(partial.op.axis[-1])


@pytest.mark.parametrize(
    "change",
    [lambda *a: None, inline_gates, in_the_step, inside_each_other, cached, partial_sums],
)
def test_a_cell_of_many_stages(change: Callable[..., None]) -> None:
    inputs, stages, states = lstm()
    schedule = te.create_schedule(states[0].op)
    change(schedule, stages, states)
    values = [numbers(*[int(e) for e in t.shape], seed=i) / 4 for i, t in enumerate(inputs)]
    check(schedule, [*inputs, *states], values, run_lstm(*values), tolerance=1e-5)


def test_one_computation_updates_both_states() -> None:
    x = te.placeholder((T, N), name="x")
    low, high = te.placeholder((T, N), name="low"), te.placeholder((T, N), name="high")
    init = te.compute((1, N), lambda t, i: (x[t, i], x[t, i]), name="init")
    update = te.compute(
        (T, N),
        lambda t, i: (te.min(low[t - 1, i], x[t, i]), te.max(high[t - 1, i], x[t, i])),
        name="update",
    )
    results = te.scan(init, update, [low, high], name="range")
    schedule = te.create_schedule(results[0].op)
    expected = [np.minimum.accumulate(X), np.maximum.accumulate(X)]
    text = check(schedule, [x, *results], [X], expected)
    assert "allocate" not in text
    assert [t.name for t in results] == ["range.v0", "range.v1"]


def test_what_others_need_too_is_copied() -> None:
    """An init that is an input, one that is an output, and an update that is made elsewhere."""
    first, x = te.placeholder((1, N), name="first"), te.placeholder((T, N), name="x")
    state, other = te.placeholder((T, N), name="state"), te.placeholder((T, N), name="other")
    start = te.compute((1, N), lambda t, i: first[t, i] * 3.0, name="start")
    update = te.compute((T, N), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    doubled = te.compute((T, N), lambda t, i: x[t, i] * 2.0, name="doubled")
    sums, copies = te.scan([first, start], [update, doubled], [state, other])
    out = te.compute((T, N), lambda t, i: doubled[t, i] + copies[t, i] + sums[t, i], name="out")
    schedule = te.create_schedule([out.op, start.op])
    values = numbers(1, N, seed=3)
    total = np.concatenate([values, X[1:]]).cumsum(0)
    twice = np.concatenate([values * 3, X[1:] * 2])
    check(schedule, [first, x, out, start], [values, X], [X * 2 + twice + total, values * 3])


def test_the_same_update_for_two_states() -> None:
    x, state, init, update, _ = cumulative_sum()
    other = te.placeholder((T, N), name="other")
    again = te.compute((1, N), lambda _, i: x[0, i] * 0.0, name="again")
    a, b = te.scan([init, again], [update, update], [state, other])
    expected = X.cumsum(0)
    second = expected.copy()
    second[0] = 0
    check(te.create_schedule(a.op), [x, a, b], [X], [expected, second])


def test_scans_follow_each_other() -> None:
    x, _, _, _, sums = cumulative_sum()
    state = te.placeholder((T, N), name="state2")
    init = te.compute((1, N), lambda _, i: sums[0, i], name="init2")
    update = te.compute((T, N), lambda t, i: state[t - 1, i] + sums[t, i], name="update2")
    again = te.scan(init, update, state, name="again")
    check(te.create_schedule(again.op), [x, again], [X], [X.cumsum(0).cumsum(0)])


def test_integers_and_time_alone() -> None:
    """One dimension, an integer type, and the time itself in the update."""
    state = te.placeholder((T,), "int64", name="state")
    init = te.compute((1,), lambda t: te.const(1, "int64"), name="init")
    update = te.compute((T,), lambda t: state[t - 1] * t.astype("int64"), name="update")
    factorial = te.scan(init, update, state)
    schedule = te.create_schedule(factorial.op)
    loops = lower_schedule(schedule, [factorial], "f")
    result = np.zeros(T, "int64")
    interpreter.run(loops, result)
    np.testing.assert_array_equal(result, [1, 1, 2, 6, 24, 120, 720])
    again = np.zeros(T, "int64")
    tvm.build(schedule, [factorial])(again)
    np.testing.assert_array_equal(again, result)


# ---- what is refused ----


def test_the_parts_must_fit_together() -> None:
    x, state, init, update, _ = cumulative_sum()
    wide = te.placeholder((T, N + 1), name="wide")
    whole = te.placeholder((T, N), "int32", name="whole")
    flat = te.placeholder((T,), name="flat")
    late = te.compute((T + 1, N), lambda t, i: te.const(0.0), name="late")
    cases: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((init, update, [state, state]), ValueError, "a tensor for each state, not 1, 1 and 2"),
        (([], [], []), ValueError, "a tensor for each state"),
        ((init, update, update), ValueError, "the state update is no placeholder"),
        ((init, update, whole), TypeError, "different types: float32, float32 and int32"),
        ((init, update, wide), ValueError, "the shapes of init .* do not fit"),
        ((init, update, flat), ValueError, "the same dimensions"),
        ((x.op, update, state), TypeError, "init is made of tensors"),
        ((late, update, state), ValueError, "init has 8 rows, more than the 7"),
    ]
    for given, kind, message in cases:
        with pytest.raises(kind, match=message):
            te.scan(*given)


def test_time_runs_in_order() -> None:
    x, _, _, update, sums = cumulative_sum()
    schedule = te.create_schedule(sums.op)
    axis = sums.op.scan_axis
    with pytest.raises(ValueError, match=r"Cannot run the axis sums\.idx in parallel"):
        schedule[sums].parallel(axis)
    with pytest.raises(ValueError, match="Cannot vectorize on Ordered"):
        schedule[sums].vectorize(axis)
    outer, _ = schedule[sums].split(axis, factor=2)
    schedule[update].compute_at(schedule[sums], outer)
    with pytest.raises(ValueError, match=r"update depends .* in the loop sums\.idx\.inner"):
        tvm.lower(schedule, [x, sums])


def test_the_state_exists_only_in_the_step() -> None:
    x, state, init, update, sums = cumulative_sum()
    leak = te.compute((T, N), lambda t, i: update[t, i] + sums[t, i], name="leak")
    with pytest.raises(ValueError, match="leak depends on the state of the scan sums"):
        tvm.lower(te.create_schedule(leak.op), [x, leak])
    schedule = te.create_schedule([sums.op, update.op])
    with pytest.raises(ValueError, match="update depends on the state of the scan sums"):
        tvm.lower(schedule, [x, sums, update])
    for part in (state, init, update):
        with pytest.raises(ValueError, match=f"{part.name} is kept in the memory of the scan"):
            tvm.lower(te.create_schedule(sums.op), [x, sums, part])
    schedule = te.create_schedule(sums.op)
    schedule[update].compute_inline()
    with pytest.raises(ValueError, match="update cannot be inlined into sums"):
        tvm.lower(schedule, [x, sums])


def test_a_state_belongs_to_one_scan() -> None:
    x, state, _, update, sums = cumulative_sum()
    again = te.compute((1, N), lambda _, i: x[0, i], name="again")
    other = te.compute((T, N), lambda t, i: state[t - 1, i] * 2.0, name="other")
    twice = te.scan(again, other, state, name="twice")
    out = te.compute((T, N), lambda t, i: sums[t, i] + twice[t, i], name="out")
    with pytest.raises(ValueError, match="state is the state of two recurrences"):
        tvm.lower(te.create_schedule(out.op), [x, out])
    with pytest.raises(ValueError, match="the init update of the scan scan depends on its state"):
        loop = te.scan(update, update, state)
        tvm.lower(te.create_schedule(loop.op), [x, loop])

"""Any legal schedule of a recurrence, and of what is around it, gives the same numbers.

As in test_random_schedules.py, with stages that only some primitives fit: scans, the stages inside
their steps, and externs.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sterna import te, tir
from sterna.testing.fuzz.fuzzers.schedules import (
    attachable,
    extents,
    readers_of,
    schedule_loops,
)
from tests.te.running import check

Drawn = tuple[list[te.Tensor], list[te.Tensor], Callable[..., list[Any]]]
"""Inputs, outputs, and the outputs' values as NumPy computes them."""


def filtered(rng: random.Random) -> Drawn:
    """A filter over time whose step has stages of its own and looks at its neighbours."""
    t, n, rows = rng.randint(2, 7), rng.randint(1, 9), rng.randint(1, 2)
    x = te.placeholder((t, n), name="x")
    state = te.placeholder((t, n), name="state")
    init = te.compute((rows, n), lambda r, i: x[r, i] * 2.0, name="init")
    kept = te.compute((t, n), lambda r, i: state[r - rows, i] + x[r, i], name="kept")
    mixed = te.compute((t, n), lambda r, i: kept[r, i] - kept[r, n - 1 - i], name="mixed")
    update = te.compute((t, n), lambda r, i: mixed[r, i] + state[r - 1, i], name="update")
    result = te.scan(init, update, state, name="filtered")
    out = te.compute((t, n), lambda r, i: result[r, i] + x[r, i], name="out")

    def reference(x: Any) -> list[Any]:
        value = np.zeros_like(x)
        value[:rows] = x[:rows] * 2
        for r in range(rows, t):
            kept = value[r - rows] + x[r]
            value[r] = kept - kept[::-1] + value[r - 1]
        return [value + x]

    return [x], [out], reference


def recurrent(rng: random.Random) -> Drawn:
    """Two states, one of them a product with a matrix, and an extern behind."""
    t, n = rng.randint(2, 5), rng.randint(1, 6)
    x, w = te.placeholder((t, n), name="x"), te.placeholder((n, n), name="w")
    sh, sc = te.placeholder((t, n), name="sh"), te.placeholder((t, n), name="sc")
    h0 = te.compute((1, n), lambda r, i: x[r, i], name="h0")
    c0 = te.compute((1, n), lambda r, i: x[r, i] + 1.0, name="c0")
    k = te.reduce_axis((0, n), name="k")
    product = te.compute((t, n), lambda r, i: te.sum(sh[r - 1, k] * w[i, k], axis=k), name="wh")
    c = te.compute((t, n), lambda r, i: te.max(sc[r - 1, i], product[r, i]), name="c")
    h = te.compute((t, n), lambda r, i: te.min(c[r, i] - x[r, i], 8.0), name="h")
    states = te.scan([h0, c0], [h, c], [sh, sc], inputs=[x, w], name="cell")
    total = te.extern((t,), [states[0]], sum_rows, name="total")
    out = te.compute((t, n), lambda r, i: total[r] + states[1][r, i], name="out")

    def reference(x: Any, w: Any) -> list[Any]:
        h, c = x.copy(), x + 1
        for r in range(1, t):
            c[r] = np.maximum(c[r - 1], w @ h[r - 1])
            h[r] = np.minimum(c[r] - x[r], 8)
        return [h.sum(1, keepdims=True) + c]

    return [x, w], [out], reference


def sum_rows(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
    """outs[0][i] = sum of ins[0][i, :]"""
    ib = tir.ir_builder.create()
    x, y = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
    with ib.for_range(0, ins[0].shape[0]) as i:
        y[i] = 0.0
        with ib.for_range(0, ins[0].shape[1]) as j:
            y[i] = y[i] + x[i, j]
    return ib.get()


def random_schedule(rng: random.Random, outputs: list[te.Tensor]) -> Any:
    schedule = te.create_schedule([t.op for t in outputs])
    if rng.random() < 0.4:
        cache_something(rng, schedule)
    for stage in reversed(schedule.stages):
        if isinstance(stage.op, te.ComputeOp):
            schedule_loops(rng, stage)
        elif isinstance(stage.op, te.ScanOp):
            schedule_time(rng, stage)
    for stage in reversed(schedule.stages):
        place_stage(rng, schedule, stage)
    return schedule


def cache_something(rng: random.Random, schedule: Any) -> None:
    """Copies of an input or of a state for the computations that read it."""
    sources = [s for s in schedule.stages if isinstance(s.op, te.PlaceholderOp)]
    source = rng.choice(sources)
    readers = [s.op for s in readers_of(schedule, source) if isinstance(s.op, te.ComputeOp)]
    if readers:
        schedule.cache_read(source.op.output(0), "local", readers)


def schedule_time(rng: random.Random, stage: Any) -> None:
    """Time runs in order, but in pieces if that is asked for."""
    for _ in range(rng.randint(0, 2)):
        stage.split(rng.choice(stage.leaf_iter_vars), factor=rng.randint(1, 4))
    for axis in stage.leaf_iter_vars:
        if rng.random() < 0.2:
            stage.unroll(axis)


def place_stage(rng: random.Random, schedule: Any, stage: Any) -> None:
    """Inline a stage or compute it inside its only reader, where both are computations."""
    if isinstance(stage.op, te.PlaceholderOp) or stage.is_output:
        return
    readers = readers_of(schedule, stage)
    if len(readers) != 1 or readers[0].attach_type == "inline":
        return
    choice = rng.random()
    computes = isinstance(readers[0].op, te.ComputeOp)
    is_plain = isinstance(stage.op, te.ComputeOp) and not stage.op.reduce_axis
    if choice < 0.2 and computes and is_plain:
        stage.compute_inline()
    elif choice < 0.7 and computes and attachable(readers[0]):
        stage.compute_at(readers[0], rng.choice(attachable(readers[0])))


@pytest.mark.parametrize("seed", range(40))
def test_random_schedule(seed: int) -> None:
    rng = random.Random(seed)
    inputs, outputs, reference = (filtered, recurrent)[seed % 2](rng)
    numbers = np.random.default_rng(seed)
    values = [numbers.integers(-2, 3, extents(t)).astype("float32") for t in inputs]
    schedule = random_schedule(rng, outputs)
    # A C compiler takes its time: every fifth drawing is compiled by it too.
    targets = ("llvm", "c") if seed % 5 == 0 else ("llvm",)
    check(schedule, [*inputs, *outputs], values, reference(*values), targets=targets)

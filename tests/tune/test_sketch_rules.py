"""Sketch rules of a user's own: loops split by rules, lengths found by search."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import auto_scheduler, te
from sterna.auto_scheduler import PreloadCustomSketchRule
from sterna.auto_scheduler.loop_state import State

LENGTH = 16


@auto_scheduler.register_workload("ruled_product")
def ruled_product(n: int) -> list[te.Tensor]:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def meets(policy: Any, state: State, stage: int) -> int:
    own = auto_scheduler.loop_state.State(state, policy.search_task.compute_dag)
    if own.stages[stage].op.name == "C":
        return PreloadCustomSketchRule.APPLY_AND_SKIP_REST
    return PreloadCustomSketchRule.PASS


def applies(policy: Any, state: State, stage: int) -> list[list[Any]]:
    own = auto_scheduler.loop_state.State(state, policy.search_task.compute_dag)
    c = own.stage_ops[stage]
    i, j, k = own[c].iters
    i0, i1, i2 = own.split(c, i, [None, None])
    j0, j1 = own.follow_split(c, j, len(own.transform_steps) - 1, 1)
    k0, k1 = own.split(c, k, [None])
    own.reorder(c, [i0, j0, i1, k0, k1, i2, j1])
    return [[own.state_object, -1]]


def test_what_rules_leave_open_is_searched(tmp_path: Path) -> None:
    task = auto_scheduler.SearchTask(func=ruled_product, args=(LENGTH,), target="llvm")
    rule = PreloadCustomSketchRule(meets, applies, "tiles")
    policy = auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule], verbose=0)
    (first,) = policy.generate_sketches()
    assert [step.code for step in first.transform_steps] == ["SP", "FSP", "SP", "RE", "AN"]
    log = tmp_path / "product.json"
    task.tune(auto_scheduler.TuningOptions(
        num_measure_trials=3, verbose=0, measure_callbacks=[auto_scheduler.RecordToFile(log)],
        runner=auto_scheduler.LocalRunner(number=1, min_repeat_ms=0),
    ), policy)
    found = {str(asked.state.transform_steps[0].lengths)
             for asked, result in auto_scheduler.load_records(log) if not result.error_no}
    assert len(found) > 1, "several lengths ran"
    schedule, args = task.apply_best(log)
    given = [np.random.default_rng(0).random((LENGTH, LENGTH), "float32") for _ in range(3)]
    sterna.build(schedule, args, "llvm")(*given)
    np.testing.assert_allclose(given[2], given[0] @ given[1], rtol=1e-5)


def test_rules_that_pass_change_nothing() -> None:
    task = auto_scheduler.SearchTask(func=ruled_product, args=(LENGTH,), target="llvm")
    rule = PreloadCustomSketchRule(lambda *_: PreloadCustomSketchRule.PASS, applies)
    ruled = auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule])
    plain = auto_scheduler.SketchPolicy(task)
    assert [str(s) for s in ruled.generate_sketches()] == [
        str(s) for s in plain.generate_sketches()
    ]


@pytest.mark.parametrize(("says", "gives", "message"), [
    (7, applies, "'odd' says 7 to stage 2"),
    (1, lambda *_: [["nothing", -1]], "'odd' gives pairs"),
])
def test_what_rules_may_not_do(says: int, gives: Any, message: str) -> None:
    task = auto_scheduler.SearchTask(func=ruled_product, args=(LENGTH,), target="llvm")
    rule = PreloadCustomSketchRule(lambda *_: says, gives, "odd")
    with pytest.raises((TypeError, ValueError), match=message):
        auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule])

"""Inlining what is cheap, as classic schedules begin."""

from typing import Any

import numpy as np
import pytest

from sterna import te
from tests.te.running import check

auto: Any = te.schedule


@pytest.mark.parametrize(("name", "inlined"), [
    ("AutoInlineElemWise", {"twice"}),
    ("AutoInlineBroadcast", {"twice", "wide"}),
    ("AutoInlineInjective", {"twice", "wide", "turned"}),
])
def test_what_is_inlined(name: str, inlined: set[str]) -> None:
    a, k = te.placeholder((4, 6), name="A"), te.reduce_axis((0, 4), "k")
    row = te.placeholder((6,), name="R")
    twice = te.compute((4, 6), lambda i, j: a[i, j] * 2.0, name="twice")
    wide = te.compute((4, 6), lambda i, j: twice[i, j] + row[j], name="wide")
    turned = te.compute((6, 4), lambda i, j: wide[j, i], name="turned")
    kept = te.compute((6, 4), lambda i, j: turned[i, 3 - j] + 1.0, name="kept")
    total = te.compute((6,), lambda i: te.sum(kept[i, k], axis=k), name="total")
    last = te.compute((6,), lambda i: total[i] * 3.0, name="last")
    schedule = te.create_schedule(last.op)
    schedule[kept].parallel(kept.op.axis[0])
    getattr(auto, name)(schedule)
    found = {stage.op.name for stage in schedule.stages if stage.attach_type == "inline"}
    assert found == inlined
    x, y = np.random.default_rng(1).random((4, 6), "float32"), np.arange(6, dtype="float32")
    wanted = 3 * ((x * 2 + y).T[:, ::-1] + 1).sum(1)
    check(schedule, [a, row, last], [x, y], [wanted], tolerance=1e-5)

"""Normalizing: a copy in which every attached stage is at a loop that runs."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from sterna import te
from sterna.te.lower import lower_schedule
from sterna.te.schedule import Schedule
from sterna.tir import interpreter

REWRITE = Schedule.rewrite_stage


def chain() -> tuple[Any, Any, Any, Any]:
    a = te.placeholder((6, 8), name="a")
    b = te.compute((6, 8), lambda i, j: a[i, j] * 2.0, name="b")
    c = te.compute((6, 8), lambda i, j: b[i, j] + 1.0, name="c")
    return te.create_schedule(c.op), a, b, c


def holds(schedule: Any, a: Any, c: Any) -> None:
    values = np.arange(48, dtype="float32").reshape(6, 8)
    out = np.zeros((6, 8), "float32")
    interpreter.run(lower_schedule(schedule, [a, c], "f"), values, out)
    np.testing.assert_array_equal(out, values * 2 + 1)


def test_it_gives_a_copy_without_inlined_stages() -> None:
    s, _, b, c = chain()
    s[b].compute_inline()
    normal = s.normalize()
    assert [stage.op.name for stage in s.stages] == ["a", "b", "c"]
    assert [stage.op.name for stage in normal.stages] == ["a", "c"]
    assert normal[c] is not s[c] and normal[c].schedule is normal


def test_a_stage_follows_the_inner_loop_of_a_split() -> None:
    s, a, b, c = chain()
    s[b].compute_at(s[c], c.op.axis[0])
    _, inner = s[c].split(c.op.axis[0], factor=2)
    _, innermost = s[c].split(inner, factor=1)
    normal = s.normalize()
    assert normal[b].attach_ivar is innermost and s[b].attach_ivar is c.op.axis[0]
    holds(s, a, c)


def test_a_stage_follows_the_inner_loop_of_a_fusion() -> None:
    s, a, b, c = chain()
    s[b].compute_at(s[c], c.op.axis[1])
    fused = s[c].fuse(*c.op.axis)
    assert s.normalize()[b].attach_ivar is fused
    holds(s, a, c)


def test_a_stage_cannot_follow_the_outer_loop_of_a_fusion() -> None:
    s, _, b, c = chain()
    s[b].compute_at(s[c], c.op.axis[0])
    s[c].fuse(*c.op.axis)
    with pytest.raises(ValueError, match=r"b is computed at i of c, .*compute it at i\.j\.fused"):
        s.normalize()


def test_a_stage_cannot_be_computed_at_an_inlined_one() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((4,), lambda i: b[i] + 1.0, name="c")
    d = te.compute((4,), lambda i: c[i] + 1.0, name="d")
    s = te.create_schedule(d.op)
    s[b].compute_at(s[c], c.op.axis[0])
    s[c].compute_inline()
    with pytest.raises(ValueError, match="b is computed at i of c, which is inlined"):
        lower_schedule(s, [a, d], "f")
    with pytest.raises(ValueError, match="the argument c is inlined"):
        s[b].compute_root()
        lower_schedule(s, [a, c, d], "f")


def test_stages_that_do_not_read_each_other_are_inlined_at_once() -> None:
    """A stage that many others are put into is rewritten once, and not once for each of them."""
    x = te.placeholder((4, 30), name="x")

    def shifted(by: int) -> Any:
        return te.compute((4, 30), lambda i, j: x[i, j] + float(by))

    parts = [shifted(by) for by in range(30)]
    out = te.compute((4, 30), lambda i, j: sum(part[i, j] * part[i, j] for part in parts))
    s = te.create_schedule(out.op)
    for part in parts:
        s[part].compute_inline()
    with patch.object(Schedule, "rewrite_stage", autospec=True, side_effect=REWRITE) as rewrite:
        assert [stage.op.name for stage in s.normalize().stages] == ["x", "compute"]
    assert rewrite.call_count == 1
    values = np.linspace(-1, 1, 120, dtype="float32").reshape(4, 30)
    got = np.zeros((4, 30), "float32")
    interpreter.run(lower_schedule(s, [x, out], "f"), values, got)
    np.testing.assert_allclose(got, sum((values + k) ** 2 for k in range(30)), rtol=1e-5)


def test_what_says_where_to_read_is_inlined_by_itself() -> None:
    x = te.placeholder((6,), name="x")
    at = te.compute((6,), lambda i: te.const(5) - i, name="at")
    place = te.compute((6,), lambda i: at[i], name="place")
    b = te.compute((6,), lambda i: x[i] * 2.0, name="b")
    c = te.compute((6,), lambda i: b[place[i]] + b[i] * b[place[i]], name="c")
    s = te.create_schedule(c.op)
    for each in (at, place, b):
        s[each].compute_inline()
    values = np.arange(6, dtype="float32")
    got = np.zeros(6, "float32")
    interpreter.run(lower_schedule(s, [x, c], "f"), values, got)
    twice = values * 2
    np.testing.assert_array_equal(got, twice[::-1] + twice * twice[::-1])

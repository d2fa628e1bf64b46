"""Groups of stages: what is in them, where they are computed, what they refuse."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.te.lower import lower_schedule
from sterna.tir import interpreter


def chain(n: int = 12) -> tuple[Any, list[Any]]:
    """a -> b -> c -> d -> e, where c and d read neighbours, and d reads a too."""
    a = te.placeholder((n + 4,), name="a")
    b = te.compute((n + 4,), lambda i: a[i] * 2.0, name="b")
    c = te.compute((n + 2,), lambda i: b[i] + b[i + 2], name="c")
    d = te.compute((n,), lambda i: c[i] * c[i + 2] + a[i], name="d")
    e = te.compute((n,), lambda i: d[i] - 1.0, name="e")
    return te.create_schedule(e.op), [a, b, c, d, e]


def names(group: Any) -> str:
    return " ".join(stage.op.name for stage in group.stages)


def check(schedule: Any, tensors: list[Any]) -> None:
    a, e = tensors[0], tensors[-1]
    x = np.random.default_rng(0).integers(-5, 5, 16).astype("float32")
    b = x * 2
    c = b[:-2] + b[2:]
    expected = c[:-2] * c[2:] + x[:12] - 1
    out = np.zeros(12, "float32")
    interpreter.run(lower_schedule(schedule, [a, e], "f"), x, out)
    np.testing.assert_array_equal(out, expected)
    out[:] = 0
    tvm.build(schedule, [a, e])(x, out)
    np.testing.assert_array_equal(out, expected)


def test_a_group_is_what_lies_between() -> None:
    s, (_, b, _, d, _) = chain()
    assert names(s.create_group(outputs=d, inputs=b)) == "c d"
    s, (_, b, _, d, _) = chain()
    assert names(s.create_group(outputs=d, inputs=b, include_inputs=True)) == "b c d"
    s, (a, _, _, d, e) = chain()
    assert names(s.create_group(outputs=[d, e], inputs=[a])) == "b c d e"


def test_a_group_moves_as_a_whole() -> None:
    s, tensors = chain()
    _, b, _, d, e = tensors
    outer, _ = s[e].split(e.op.axis[0], factor=4)
    group = s.create_group(outputs=d, inputs=b, include_inputs=True)
    group.compute_at(s[e], outer)
    text = str(lower_schedule(s, [tensors[0], e], "f"))
    assert text.index("for i.outer") < text.index("allocate((8,)")  # b, for four of e
    check(s, tensors)
    group.compute_root()
    text = str(lower_schedule(s, [tensors[0], e], "f"))
    assert "allocate((16,)" in text
    check(s, tensors)


def test_a_stage_may_be_computed_inside_its_group() -> None:
    s, tensors = chain()
    _, b, c, d, e = tensors
    outer, _ = s[e].split(e.op.axis[0], factor=3)
    group = s.create_group(outputs=d, inputs=b, include_inputs=True)
    group.compute_at(s[e], outer)
    s[b].compute_at(s[c], c.op.axis[0])
    check(s, tensors)
    with pytest.raises(
        ValueError, match="Can only assign compute_at to stages within the same group: e is outside"
    ):
        s[c].compute_at(s[e], outer)


def test_groups_nest() -> None:
    s, tensors = chain()
    a, b, c, d, e = tensors
    inner = s.create_group(outputs=c, inputs=a)
    outer = s.create_group(outputs=d, inputs=a)
    assert inner.group is outer and names(inner) == "b c" and names(outer) == "b c d"
    again = s.create_group(outputs=c, inputs=b)
    assert again.group is inner and names(again) == "c"
    loop, _ = s[e].split(e.op.axis[0], factor=5)
    outer.compute_at(s[e], loop)
    inner.compute_at(s[d], d.op.axis[0])
    check(s, tensors)


def test_new_stages_join_the_group() -> None:
    s, tensors = chain()
    a, b, c, d, e = tensors
    group = s.create_group(outputs=d, inputs=a)
    s.cache_write(d, "local")
    s.cache_read(b, "local", [c])
    assert names(group) == "b b.local c d.local d"
    outer, _ = s[e].split(e.op.axis[0], factor=4)
    group.compute_at(s[e], outer)
    check(s, tensors)


def test_what_a_group_refuses() -> None:
    s, (a, b, c, d, e) = chain()
    s.create_group(outputs=d, inputs=b)
    with pytest.raises(
        ValueError, match="Trying to group region that intersect with an already existed group"
    ):
        s.create_group(outputs=c, inputs=a)
    with pytest.raises(ValueError, match="no stage lies between"):
        s.create_group(outputs=b, inputs=c)
    last = s.create_group(outputs=e, inputs=d)
    with pytest.raises(ValueError, match="the output e must be computed at the root"):
        last.compute_at(s[d], d.op.axis[0])
    with pytest.raises(ValueError, match="cannot be computed at e in it"):
        last.compute_at(s[e], e.op.axis[0])
    with pytest.raises(ValueError, match="Cannot find the axis i in parent's leaf_iter_vars"):
        last.compute_at(s[d], e.op.axis[0])
    s[b].compute_at(s[c], c.op.axis[0])
    with pytest.raises(ValueError, match="b is computed at c, outside of the group to be"):
        s.create_group(outputs=b, inputs=a)

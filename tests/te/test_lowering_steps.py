"""The steps of lowering one by one."""

from sterna import te
from sterna.ir import build
from sterna.te.lowering_steps import InferBound, ScheduleOps


def test_bounds_and_loops() -> None:
    a = te.placeholder((100,), name="a")
    b = te.compute((100,), lambda i: a[i] * 2, name="b")
    c = te.compute((100,), lambda i: b[i] + 1, name="c")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], 32)
    s[b].compute_at(s[c], outer)
    bounds = InferBound(s.normalize())
    axes = (outer, inner, b.op.axis[0])
    assert [build.int_value(bounds[axis].extent) for axis in axes] == [4, 32, 32]
    text = repr(ScheduleOps(s, bounds))
    assert "for i.outer in range(4)" in text and "b = allocate((32,)" in text

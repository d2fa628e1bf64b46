"""The messages that users of schedules know, word for word."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import sterna as tvm
from sterna import te


class Net:
    """a -> b -> c -> d, where d sums the rows of c, and a schedule of it."""

    def __init__(self) -> None:
        self.a = te.placeholder((8, 6), name="a")
        self.b = te.compute((8, 6), lambda i, j: self.a[i, j] + 1.0, name="b")
        self.c = te.compute((8, 6), lambda i, j: self.b[i, j] * 2.0, name="c")
        self.k = te.reduce_axis((0, 6), name="k")
        self.d = te.compute((8,), lambda i: te.sum(self.c[i, self.k], axis=self.k), name="d")
        self.s = te.create_schedule(self.d.op)
        self.i, self.j = self.c.op.axis
        self.outer, self.inner = self.s[self.c].split(self.i, factor=4)
        self.stage = self.s[self.c]


def group_twice(net: Net) -> None:
    net.s.create_group(outputs=net.c, inputs=net.a)
    net.s.create_group(outputs=net.d, inputs=net.b)


def attach_out_of_the_group(net: Net) -> None:
    net.s.create_group(outputs=net.c, inputs=net.a)
    net.s[net.b].compute_at(net.s[net.d], net.d.op.axis[0])


MESSAGES: list[tuple[str, Callable[[Net], Any]]] = [
    ("Operate on iter var i of stage c that has already been split", lambda n: n.stage.unroll(n.i)),
    ("Operate on iter var k of stage c that is not part of the schedule",
     lambda n: n.stage.unroll(n.k)),
    ("Can only fuse iterations that are consecutive between each other",
     lambda n: n.stage.fuse(n.outer, n.j)),
    ("Same axis can not appear more than once", lambda n: n.stage.reorder(n.j, n.j)),
    ("Cannot find the axis k in parent's leaf_iter_vars",
     lambda n: n.s[n.b].compute_at(n.stage, n.k)),
    ("Cannot vectorize on CommReduce", lambda n: n.s[n.d].vectorize(n.k)),
    ("Cannot apply double buffer on output d", lambda n: n.s[n.d].double_buffer()),
    ("Cannot apply rolling buffer on output d", lambda n: n.s[n.d].rolling_buffer()),
    ("Trying to group region that intersect with an already existed group", group_twice),
    ("Can only assign compute_at to stages within the same group", attach_out_of_the_group),
    ("Do not need to provide both outer and nparts",
     lambda n: n.stage.split(n.j, factor=2, nparts=2)),
    ("Either nparts or factor need to be provided", lambda n: n.stage.split(n.j)),
    ("Cannot rebase by j, only thread axis is allowed so far",
     lambda n: n.stage.bind(n.inner, n.j)),
    ("Cannot split on ThreadIndex", lambda n: n.stage.split(te.thread_axis("threadIdx.x"), 2)),
    ("env_threads is only valid for composite ops such as ScanOp",
     lambda n: n.stage.env_threads([te.thread_axis((0, 2), "threadIdx.x")])),
    ("Cannot find the operation", lambda n: n.s[te.placeholder((1,), name="other")]),
    ("Create cache_write before doing split/fuse/reorder",
     lambda n: n.s.cache_write(n.c, "local")),
    ("cache write only take ComputeOp as writers", lambda n: n.s.cache_write(n.a, "local")),
    ("create_schedule takes operations", lambda n: te.create_schedule(n.d)),
    ("create_schedule takes at least one operation", lambda n: te.create_schedule([])),
    ("args must be given for lowering a schedule", lambda n: tvm.build(n.s)),
]


@pytest.mark.parametrize(("text", "mistake"), MESSAGES, ids=[text for text, _ in MESSAGES])
def test_the_message_is_the_one_that_users_know(text: str, mistake: Callable[[Net], Any]) -> None:
    with pytest.raises(ValueError) as caught:
        mistake(Net())
    assert text in str(caught.value)


def test_specialized_conditions_nest() -> None:
    n = te.size_var("n")
    assert te.SpecializedCondition.current() is None
    with te.SpecializedCondition(n > 16) as outer:
        assert te.SpecializedCondition.current() is outer and len(outer.clauses) == 1
        with te.SpecializedCondition([n > 32, n < 64]) as inner:
            assert te.SpecializedCondition.current() is inner and len(inner.clauses) == 2
            seen: list[Any] = []
            thread = threading.Thread(target=lambda: seen.append(te.SpecializedCondition.current()))
            thread.start()
            thread.join()
            assert seen == [None]  # another thread has said nothing
        assert te.SpecializedCondition.current() is outer
    assert te.SpecializedCondition.current() is None
    with pytest.raises(TypeError, match="Only support list of comparision expr"):
        te.SpecializedCondition(n + 1)

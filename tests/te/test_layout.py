"""Layouts: where elements lie, how loops run through them, who reads them, what is refused."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.te.lower import lower_schedule
from sterna.tir import IndexMap
from tests.te.running import check


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).integers(-8, 9, shape).astype("float32")


def chain(n: Any, m: Any) -> tuple[Any, Any, Any, Any]:
    a = te.placeholder((n, m), name="a")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="b")
    c = te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="c")
    return te.create_schedule(c.op), a, b, c


X = numbers(6, 8)


def test_loops_run_through_the_new_memory() -> None:
    s, a, b, c = chain(6, 8)
    axes = s[b].transform_layout(lambda i, j: [j // 4, i, j % 4])
    assert axes is not None and [axis.name for axis in axes] == ["axis0", "i", "axis2"]
    assert s[b].leaf_iter_vars == axes and s[b].op.axis == axes
    s[b].vectorize(axes[2])
    text = check(s, [a, c], [X], [X * 2 + 1])
    assert 'b = allocate((2, 6, 4), "float32", "global")' in text
    assert "b[axis0, i, axis2] = a[i, axis0*4 + axis2]*2.0" in text
    assert "b[j // 4, i_1, j % 4]" in text and "likely" not in text


def test_an_output_is_stored_in_its_layout() -> None:
    s, a, _, c = chain(6, 8)
    s[c].transform_layout(lambda i, j: [j, i])
    text = check(s, [a, c], [X], [(X * 2 + 1).T])
    assert 'c: Buffer[(8, 6), "float32"]' in text


def test_an_input_is_passed_in_its_layout() -> None:
    s, a, _, c = chain(6, 8)
    blocked = lambda i, j: [i // 3, j, i % 3]  # noqa: E731
    assert s[a].transform_layout(blocked) is None
    passed = IndexMap.from_func(blocked).map_ndarray(X)
    assert passed.shape == (2, 8, 3)
    check(s, [a, c], [passed], [X * 2 + 1])


def test_gaps_are_neither_stored_nor_read() -> None:
    s, a, b, c = chain(6, 8)
    s[a].transform_layout(lambda i, j: [i, j // 3, j % 3])
    axes = s[b].transform_layout(lambda i, j: [j // 5, i // 4, i % 4, j % 5])
    assert axes is not None
    s[b].vectorize(axes[3])
    passed = np.full((6, 3, 3), np.nan, "float32")
    passed.reshape(6, 9)[:, :8] = X
    text = check(s, [a, c], [passed], [X * 2 + 1])
    assert "if likely(axis1*4 + axis2 < 6):" in text and "if likely(axis0*5 + axis3 < 8):" in text


def test_gaps_of_an_output_keep_what_they_held() -> None:
    s, a, _, c = chain(6, 8)
    s[c].transform_layout(lambda i, j: [i, j // 3, j % 3])
    out = np.full((6, 3, 3), 77, "float32")
    tvm.build(s, [a, c])(X, out)
    expected = np.full((6, 9), 77, "float32")
    expected[:, :8] = X * 2 + 1
    np.testing.assert_array_equal(out.reshape(6, 9), expected)


def test_unknown_extents() -> None:
    n, m = te.size_var("n"), te.size_var("m")
    s, a, b, c = chain(n, m)
    s[b].transform_layout(lambda i, j: [j // 4, i, j % 4])
    module = tvm.build(s, [a, c])
    for shape in ((3, 8), (1, 1), (4, 6)):
        values, out = numbers(*shape), np.zeros(shape, "float32")
        module(values, out)
        np.testing.assert_array_equal(out, values * 2 + 1)


def test_layouts_follow_each_other() -> None:
    s, a, b, c = chain(6, 8)
    s[b].transform_layout(lambda i, j: [j // 3, i, j % 3])
    axes = s[b].transform_layout(lambda x, i, y: [i, y, x])
    assert axes is not None and [axis.name for axis in axes] == ["i", "y", "x"]
    text = check(s, [a, c], [X], [X * 2 + 1])
    assert "allocate((6, 3, 3)" in text


def test_a_reduction_keeps_its_loops() -> None:
    a, b = te.placeholder((6, 8), name="a"), te.placeholder((8, 10), name="b")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((6, 10), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((6, 10), lambda i, j: c[i, j] + 1.0, name="d")
    s = te.create_schedule(d.op)
    ko, ki = s[c].split(k, factor=3)
    s[a].transform_layout(lambda i, k: [k, i])
    axes = s[c].transform_layout(lambda i, j: [i // 4, j // 4, i % 4, j % 4])
    assert axes is not None and s[c].leaf_iter_vars == [*axes, ko, ki]
    s[c].reorder(*axes[:2], ko, ki, *axes[2:])
    s[c].vectorize(axes[3])
    outer, _ = s[d].split(d.op.axis[0], factor=4)
    s[c].compute_at(s[d], outer)
    x, y = numbers(6, 8), numbers(8, 10)
    check(s, [a, b, d], [np.ascontiguousarray(x.T), y], [x @ y + 1])


def test_stages_made_afterwards_have_the_layout() -> None:
    s, a, b, c = chain(6, 8)
    s[a].transform_layout(lambda i, j: [j, i])
    copied = s.cache_read(a, "local", [b])
    assert [e.value for e in copied.shape] == [8, 6]
    s[b].transform_layout(lambda i, j: [j, i])
    kept = s.cache_write(b, "local")
    s[kept].compute_at(s[b], s[b].op.axis[0])
    s[copied].compute_at(s[kept], s[kept].op.axis[1])
    check(s, [a, c], [np.ascontiguousarray(X.T)], [X * 2 + 1])


def test_an_inlined_stage_has_no_layout() -> None:
    s, a, b, c = chain(6, 8)
    s[b].transform_layout(lambda i, j: [j // 3, i, j % 3])
    s[b].compute_inline()
    assert "allocate" not in check(s, [a, c], [X], [X * 2 + 1])


@pytest.mark.parametrize("how", ["double_buffer", "rolling_buffer"])
def test_buffers_of_a_layout_may_be_double_or_roll(how: str) -> None:
    a = te.placeholder((10, 6), name="a")
    b = te.compute((10, 6), lambda i, j: a[i, j] * 2.0, name="b")
    c = te.compute((8, 6), lambda i, j: b[i, j] + b[i + 2, j], name="c")
    s = te.create_schedule(c.op)
    s[b].transform_layout(lambda i, j: [j // 4, i, te.AXIS_SEPARATOR, j % 4])
    s[b].compute_at(s[c], c.op.axis[0])
    getattr(s[b], how)()
    x = numbers(10, 6)
    check(s, [a, c], [x], [2 * x[:8] + 2 * x[2:]])


def test_separators_keep_dimensions_of_the_memory_apart() -> None:
    s, a, b, c = chain(6, 8)
    s[b].transform_layout(lambda i, j: [i // 3, j, te.AXIS_SEPARATOR, i % 3])
    s[c].transform_layout(lambda i, j: [i, te.AXIS_SEPARATOR, j])
    text = check(s, [a, c], [X], [X * 2 + 1])
    assert "allocate((2, 8, 3), " in text and "axis_separators=(2,)" in text
    passed = str(tvm.lower(s, [a, c]))
    assert "allocate((16, 3), " in passed and 'c: Buffer[(6, 8), "float32", axis_sep' in passed
    func = lower_schedule(s, [a, c], "f")
    assert tvm.ir.structural_equal(tvm.tir.parse(str(func)), func)
    s[b].storage_align(s[b].op.axis[0], 8, 0)
    with pytest.raises(ValueError, match="its memory has axes, not strides"):
        lower_schedule(s, [a, c], "f")


def test_what_is_refused() -> None:
    s, a, b, c = chain(6, 8)

    def refuses(stage: Any, mapping: Any, text: str) -> None:
        before = [s.op for s in stage.schedule.stages]
        with pytest.raises(ValueError, match=text):
            stage.transform_layout(mapping)
        assert [s.op for s in stage.schedule.stages] == before

    refuses(s[b], lambda i, j: [i + j], "transform_layout of b: .*has no inverse")
    refuses(s[b], lambda i, j: [i + 1, j], "transform_layout of b: .*begins at 1")
    refuses(s[b], lambda i: [i], "takes 1 indices, but there are 2")
    s[b].vectorize(b.op.axis[1])
    refuses(s[b], lambda i, j: [j, i], "transform_layout gives b new axes: use it before")
    s[c].split(c.op.axis[0], factor=2)
    refuses(s[c], lambda i, j: [j, i], "transform_layout gives c new axes")
    s, a, b, c = chain(6, 8)
    s[a].transform_layout(lambda i, j: [j, i])
    s[b].compute_at(s[c], c.op.axis[0])
    refuses(s[c], lambda i, j: [j, i], "transform_layout gives c new axes")
    s[b].transform_layout(lambda i, j: [j // 3, i, j % 3])
    with pytest.raises(ValueError, match="Create cache_write of b before transform_layout"):
        s.cache_write(b, "local")
    total = te.compute((), lambda: c[0, 0], name="total")
    s = te.create_schedule(total.op)
    refuses(s[total], lambda: [], "inputs and computations with axes, and total is none")


def test_what_others_take_whole_keeps_its_layout() -> None:
    x = te.placeholder((4, 3), name="x")
    state = te.placeholder((4, 3), name="state")
    init = te.compute((1, 3), lambda _, i: x[0, i], name="init")
    update = te.compute((4, 3), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    sums = te.scan(init, update, state, name="sums")
    s = te.create_schedule(sums.op)
    for tensor, text in (
        (update, "cannot change, since sums takes it whole"),
        (state, "state is laid out as the scan sums"),
        (sums, "sums is none"),
    ):
        with pytest.raises(ValueError, match=text):
            s[tensor].transform_layout(lambda i, j: [j, i])
    s[x].transform_layout(lambda i, j: [j, i])
    values = numbers(4, 3)
    check(s, [x, sums], [np.ascontiguousarray(values.T)], [values.cumsum(0)])

"""Schedule primitives: what they do to the loops, and how they refuse what is wrong."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.te.lower import lower_schedule
from sterna.tir import interpreter
from tests.te.running import check


def copy_of(n: int = 8, m: int = 6) -> tuple[Any, Any, Any]:
    a = te.placeholder((n, m), name="a")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="b")
    return te.create_schedule(b.op), a, b


def row_sum(n: int = 4, m: int = 10) -> tuple[Any, Any, Any]:
    a = te.placeholder((n, m), name="a")
    k = te.reduce_axis((0, m), name="k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="b")
    return te.create_schedule(b.op), a, b


def loops(schedule: Any, *args: Any) -> str:
    """The lines of the lowered function that open a loop or a condition."""
    text = str(lower_schedule(schedule, args, "f"))
    kept = [line.strip() for line in text.splitlines()]
    return "\n".join(line for line in kept if line.startswith(("for", "if")))


def test_split_by_a_divisor_needs_no_guard() -> None:
    s, a, b = copy_of(8, 6)
    s[b].split(b.op.axis[0], factor=4)
    assert loops(s, a, b) == (
        "for i.outer in range(2):\nfor i.inner in range(4):\nfor j in range(6):"
    )


def test_split_by_another_factor_is_guarded() -> None:
    s, a, b = copy_of(8, 6)
    s[b].split(b.op.axis[0], factor=3)
    assert "if likely(i.outer*3 + i.inner < 8):" in loops(s, a, b)


def test_split_into_parts() -> None:
    s, a, b = copy_of(8, 6)
    outer, inner = s[b].split(b.op.axis[0], nparts=2)
    assert outer.name == "i.outer" and inner.name == "i.inner"
    assert loops(s, a, b).startswith("for i.outer in range(2):\nfor i.inner in range(4):")


def test_a_factor_beyond_the_extent_is_legal() -> None:
    s, a, b = copy_of(8, 6)
    s[b].split(b.op.axis[0], factor=100)
    assert "range(8)" in loops(s, a, b)


def test_fuse_reorder_tile_and_marks() -> None:
    s, a, b = copy_of(8, 6)
    xo, yo, xi, yi = s[b].tile(b.op.axis[0], b.op.axis[1], 4, 3)
    fused = s[b].fuse(xo, yo)
    s[b].parallel(fused)
    s[b].unroll(xi)
    s[b].vectorize(yi)
    assert fused.name == "i.outer.j.outer.fused"
    assert loops(s, a, b) == (
        "for i.outer.j.outer.fused in range(4):  # parallel\n"
        "for i.inner in range(4):  # unrolled\n"
        "for j.inner in range(3):  # vectorized"
    )


def test_compute_at_covers_what_is_read() -> None:
    a = te.placeholder((12,), name="a")
    b = te.compute((12,), lambda i: a[i] * 2.0, name="b")
    c = te.compute((10,), lambda i: b[i] + b[i + 2], name="c")
    s = te.create_schedule(c.op)
    outer, _ = s[c].split(c.op.axis[0], factor=5)
    s[b].compute_at(s[c], outer)
    func = lower_schedule(s, [a, c], "f")
    assert 'b = allocate((7,), "float32", "global")' in str(func)
    values, out = np.arange(12, dtype="float32"), np.zeros(10, "float32")
    interpreter.run(func, values, out)
    np.testing.assert_array_equal(out, 2 * values[:10] + 2 * values[2:])


def test_storage_align_pads_the_rows() -> None:
    a = te.placeholder((4, 8), name="a")
    b = te.compute((4, 8), lambda i, j: a[i, j] * 2.0, name="b")
    c = te.compute((4, 8), lambda i, j: b[i, j] + 1.0, name="c")
    s = te.create_schedule(c.op)
    s[b].storage_align(s[b].op.axis[0], 8, 1)
    text = str(tvm.lower(s, [a, c], simple_mode=True))
    assert "*9" in text
    module = tvm.build(s, [a, c])
    values, out = np.random.rand(4, 8).astype("float32"), np.zeros((4, 8), "float32")
    module(values, out)
    np.testing.assert_array_equal(out, values * 2 + 1)


@pytest.mark.parametrize("factor_axis", [0, 1, -1])
@pytest.mark.parametrize("which", [0, 1])
def test_rfactor_gives_the_same_sum(factor_axis: int, which: int) -> None:
    s, a, b = row_sum(4, 23)
    axes = s[b].split(b.op.reduce_axis[0], factor=4)
    partial = s.rfactor(b, axes[which], factor_axis)
    assert partial.op.name == "b.rf" and len(partial.shape) == 2
    if which:
        s[partial].compute_at(s[b], s[b].op.axis[0])
    module = tvm.build(s, [a, b])
    values, out = np.random.default_rng(0).integers(-9, 9, (4, 23)).astype("float32"), np.zeros(4)
    result = out.astype("float32")
    module(values, result)
    np.testing.assert_array_equal(result, values.sum(1))


def test_pragmas_reach_the_loops() -> None:
    s, a, b = copy_of()
    s[b].pragma(b.op.axis[0], "auto_unroll_max_step", 16)
    assert "pragma_auto_unroll_max_step" in str(lower_schedule(s, [a, b], "f"))


def test_tensor_operators_broadcast() -> None:
    a, b = te.placeholder((3, 4), name="a"), te.placeholder((4,), name="b")
    c = (a + b) * 2.0 - a / 4.0
    module = tvm.build(te.create_schedule(c.op), [a, b, c])
    x, y = np.random.rand(3, 4).astype("float32"), np.random.rand(4).astype("float32")
    out = np.zeros((3, 4), "float32")
    module(x, y, out)
    np.testing.assert_allclose(out, (x + y) * 2 - x / 4, rtol=1e-6)
    with pytest.raises(ValueError, match="cannot be combined"):
        a + te.placeholder((5,), name="other")


# ---- what is refused ----


def test_the_schedule_is_made_from_operations() -> None:
    _, _, b = copy_of()
    with pytest.raises(ValueError, match=r"tensor\.op"):
        te.create_schedule(b)
    other = te.placeholder((1,), name="other")
    with pytest.raises(ValueError, match="Cannot find the operation"):
        te.create_schedule(b.op)[other]


def test_split_wants_one_of_factor_and_parts() -> None:
    s, _, b = copy_of()
    with pytest.raises(ValueError, match="Do not need to provide both outer and nparts"):
        s[b].split(b.op.axis[0], factor=2, nparts=2)
    with pytest.raises(ValueError, match="Either nparts or factor need to be provided"):
        s[b].split(b.op.axis[0])
    with pytest.raises(ValueError, match="cannot be split by 0"):
        s[b].split(b.op.axis[0], factor=0)


def test_axes_must_be_loops_of_the_stage() -> None:
    s, _, b = copy_of()
    _, _, other = copy_of()
    s[b].split(b.op.axis[0], factor=2)
    with pytest.raises(ValueError, match=r"iter var i .*that has already been split"):
        s[b].split(b.op.axis[0], factor=2)
    with pytest.raises(ValueError, match="that is not part of the schedule"):
        s[b].vectorize(other.op.axis[0])
    with pytest.raises(TypeError, match="expected an axis"):
        s[b].unroll("i")


def test_fuse_and_reorder_check_their_axes() -> None:
    s, _, b = copy_of()
    i, j = b.op.axis
    io, ii = s[b].split(i, factor=2)
    with pytest.raises(
        ValueError, match="Can only fuse iterations that are consecutive between each other"
    ):
        s[b].fuse(io, j)
    with pytest.raises(ValueError, match="Same axis can not appear more than once"):
        s[b].reorder(ii, ii)
    s, _, b = row_sum()
    with pytest.raises(ValueError, match="reduction axis"):
        s[b].fuse(b.op.axis[0], b.op.reduce_axis[0])


def test_reduction_axes_do_not_vectorize_or_run_in_parallel() -> None:
    s, _, b = row_sum()
    with pytest.raises(ValueError, match="Cannot vectorize on CommReduce"):
        s[b].vectorize(b.op.reduce_axis[0])
    with pytest.raises(ValueError, match="rfactor"):
        s[b].parallel(b.op.reduce_axis[0])


def test_compute_at_wants_a_loop_of_the_other_stage() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i], name="b")
    c = te.compute((4,), lambda i: b[i], name="c")
    s = te.create_schedule(c.op)
    with pytest.raises(ValueError, match="Cannot find the axis i in parent's leaf_iter_vars"):
        s[b].compute_at(s[c], b.op.axis[0])
    with pytest.raises(ValueError, match="output c"):
        s[c].compute_inline()


def test_a_reader_outside_of_the_loop_is_named() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i], name="b")
    c = te.compute((4,), lambda i: b[i], name="c")
    d = te.compute((4,), lambda i: b[i] + c[i], name="d")
    s = te.create_schedule(d.op)
    s[b].compute_at(s[c], c.op.axis[0])
    with pytest.raises(ValueError, match="b is computed at i of c, but d reads it outside"):
        tvm.lower(s, [a, d])


def test_cache_write_comes_before_the_loops_change() -> None:
    s, _, b = copy_of()
    s[b].split(b.op.axis[0], factor=2)
    with pytest.raises(ValueError, match="Create cache_write before doing split"):
        s.cache_write(b, "local")


def test_cache_read_wants_a_reader() -> None:
    s, _, b = copy_of()
    other = te.placeholder((1,), name="other")
    with pytest.raises(ValueError, match="Cannot find the operation"):
        s.cache_read(other, "local", [b.op])


def test_compute_checks_its_function() -> None:
    a = te.placeholder((4, 4), name="a")
    with pytest.raises(ValueError, match="ndim=2"):
        te.compute((4, 4), lambda i: a[i, i])
    with pytest.raises(ValueError, match="no defaults"):
        te.compute((4,), lambda i, j=1: a[i, j])
    with pytest.raises(ValueError, match="Need to provide 2 index"):
        te.compute((4,), lambda i: a[i] + 1.0)
    k = te.reduce_axis((0, 4), name="k")
    with pytest.raises(ValueError, match="Reductions are only allowed at the top level"):
        te.compute((4,), lambda i: te.sum(a[i, k], axis=k) + 1.0)
    with pytest.raises(TypeError, match="integers"):
        te.compute((4,), lambda i: a[i, 1.5])
    with pytest.raises(ValueError, match="negative extent"):
        te.placeholder((-1,))


def test_threads_of_a_gpu_cannot_run_on_a_cpu() -> None:
    s, a, b = copy_of()
    s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(ValueError, match="threadIdx"):
        tvm.build(s, [a, b], target="llvm").get_source()


def test_expressions_have_no_truth() -> None:
    a = te.placeholder((4,), name="a")
    with pytest.raises(ValueError, match="if_then_else"):
        te.compute((4,), lambda i: a[i] if i < 2 else 0.0)


def test_what_is_inlined_and_read_twice_is_computed_once() -> None:
    x = te.placeholder((8,), name="x")
    value, stages = x, []
    for step in range(10):
        before = value
        value = te.compute((8,), _squared(before), name=f"value{step}")
        stages.append(value)
    s = te.create_schedule(value.op)
    for stage in stages[:-1]:
        s[stage].compute_inline()
    text = str(tvm.lower(s, [x, value], simple_mode=True))
    assert text.count("x[") == 2, "it would be 1024 without names for what is read twice"


def test_what_a_branch_reads_twice_is_computed_once_in_it() -> None:
    x = te.placeholder((8,), name="x")
    stages = [x]
    for step in range(10):
        stages.append(te.compute((8,), _squared(stages[-1]), name=f"value{step}"))
    last = stages[-1]
    padded = te.compute((9,), lambda i: te.if_then_else(i < 8, last[i], 0.0), name="padded")
    s = te.create_schedule(padded.op)
    for stage in stages[1:]:
        s[stage].compute_inline()
    text = str(tvm.lower(s, [x, padded], simple_mode=True))
    assert text.count("x[") == 2, "it would be 1024 without names in the branch"
    given = np.linspace(-1, 1, 8, dtype="float32")
    check(s, [x, padded], [given], [np.append(given**1024, np.float32(0))])


def _squared(before: Any) -> Any:
    return lambda i: before[i] * before[i]


def rows_and_sums() -> Any:
    """An image and the sums of its rows, both of them results."""
    a = te.placeholder((6, 10), name="a", dtype="int32")
    b = te.compute((6, 10), lambda i, j: a[i, j] * 2, name="b")
    k = te.reduce_axis((0, 10), name="k")
    c = te.compute((6,), lambda i: te.sum(b[i, k], axis=k), name="c")
    return a, b, c, te.create_schedule([b.op, c.op])


@pytest.mark.parametrize("factor", [2, 4])
def test_an_output_is_computed_where_another_reads_all_of_it(factor: int) -> None:
    a, b, c, s = rows_and_sums()
    outer, _ = s[c].split(c.op.reduce_axis[0], factor=factor)
    s[b].compute_at(s[c], outer)
    given = np.arange(60, dtype="int32").reshape(6, 10)
    text = check(s, [a, b, c], [given], [given * 2, (given * 2).sum(1, dtype="int32")])
    assert text.index("b[") < text.rindex("c[")


def test_an_output_of_which_only_a_part_is_read_stays_at_the_root() -> None:
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((4,), lambda i: b[2 * i], name="c")
    s = te.create_schedule([b.op, c.op])
    s[b].compute_at(s[c], c.op.axis[0])
    with pytest.raises(ValueError, match="the output b must be computed at the root, or at a loop"):
        tvm.lower(s, [a, b, c])

"""Loops over threads: what host and kernels do, and what the interpreter reports."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import te
from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import Var
from sterna.ir.node import Node, post_order
from sterna.support.dtype import DataType
from sterna.tir.device_interpreter import DataRaceError, run_on_device
from sterna.tir.passes import split_host_device as split_pass
from sterna.tir.passes.split_host_device import launch_of, split_host_device
from sterna.tir.passes.thread_sync import is_one_to_one
from sterna.tir.stmt import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    seq,
)
from sterna.tir.threads import is_barrier
from tests.gpu.kernels import EXAMPLES, Example, product, row_sums, vector_add


def lowered(example: Example) -> PrimFunc:
    function = tvm.lower(example.schedule, example.args, name="example")["example"]
    assert isinstance(function, PrimFunc)
    return function


def barriers_of(kernel: PrimFunc) -> int:
    found: list[Node] = []
    post_order(kernel, lambda n: found.append(n) if is_barrier(n) else None)  # type: ignore[arg-type]
    return len(found)


@pytest.mark.parametrize("name", EXAMPLES)
def test_threads_in_any_order_compute_the_same(name: str) -> None:
    EXAMPLES[name]().check_interpreted()


def test_a_launch_says_blocks_and_threads() -> None:
    host, (kernel,) = split_host_device(lowered(vector_add(100, 16)))
    launch = launch_of(kernel)
    assert [build.int_value(n) for n in (*launch.grid, *launch.block)] == [7, 1, 1, 16, 1, 1]
    assert launch.block_size == 16
    assert [b.name for b in kernel.buffers if b is not None] == ["C", "A", "B"]
    assert "example_kernel" in str(host)


def test_barriers_stand_where_others_wrote_and_nowhere_else() -> None:
    (alone,) = split_host_device(lowered(vector_add()))[1]
    assert barriers_of(alone) == 0
    (tiled,) = split_host_device(lowered(product()))[1]
    assert barriers_of(tiled) == 2  # before tiles are fetched again, and before they are read
    (sums,) = split_host_device(lowered(row_sums(threads=8)))[1]
    assert barriers_of(sums) == 4  # three halvings, and the result


def test_a_value_that_is_named_is_read_behind_a_barrier() -> None:
    """Thread 0 writes a sum, and all threads divide by it, under a name that stands before."""
    held, thread = Buffer("held", DataType("float32"), (build.const(1),), "shared"), Var("t")
    out = Buffer("out", DataType("float32"), (build.const(32),))
    named = Var("named", held.dtype)
    writes = IfThenElse(thread.equal(0), BufferStore(held, build.const(2.0), (build.const(0),)))
    reads = LetStmt(
        named, BufferLoad(held, (build.const(0),)) + 1.0, BufferStore(out, named, (thread,))
    )
    body = For(thread, build.const(0), build.const(32), "thread",
               Allocate(held, seq(writes, reads)), "threadIdx.x")
    (kernel,) = split_host_device(PrimFunc("f", (out.data,), (out,), body))[1]
    assert barriers_of(kernel) == 1


def test_threads_that_only_fetch_read_nothing_under_a_name() -> None:
    """Eight threads fill shared memory; three of them have elements to read."""
    held = Buffer("held", DataType("float32"), (build.const(8),), "shared")
    a, out = (Buffer(n, DataType("float32"), (build.const(s),)) for n, s in (("a", 6), ("out", 3)))
    thread, fetching, named = Var("t"), Var("u"), Var("named", held.dtype)
    fetch = For(fetching, build.const(0), build.const(8), "thread",
                BufferStore(held, build.const(1.0), (fetching,)), "threadIdx.x")
    reads = LetStmt(named, BufferLoad(a, (thread * 2,)) + BufferLoad(held, (thread + 5,)),
                    BufferStore(out, named, (thread,)))
    body = For(thread, build.const(0), build.const(3), "thread",
               Allocate(held, seq(fetch, reads)), "threadIdx.x")
    given, made = np.arange(6, dtype="float32"), np.zeros(3, "float32")
    run_on_device(PrimFunc("f", (a.data, out.data), (a, out), body), given, made)
    assert made.tolist() == [1, 3, 5]


def test_vectors_that_threads_write_apart_need_no_barrier_between() -> None:
    a = te.placeholder((4, 512), name="A")
    held = te.compute((4, 512), lambda i, j: a[i, j] * 2, name="held")
    b = te.compute((4, 512), lambda i, j: held[i, 511 - j], name="B")
    s = te.create_schedule(b.op)
    s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    s[b].bind(s[b].split(b.op.axis[1], factor=32)[1], te.thread_axis("threadIdx.x"))
    s[held].compute_at(s[b], b.op.axis[0])
    s[held].set_scope("shared")
    outer, lanes = s[held].split(held.op.axis[1], factor=4)
    s[held].bind(s[held].split(outer, factor=32)[1], te.thread_axis("threadIdx.x"))
    s[held].vectorize(lanes)
    example = Example(s, [a, b], lambda a: (2 * a)[:, ::-1])
    (kernel,) = split_host_device(lowered(example))[1]
    assert barriers_of(kernel) == 1
    example.check_interpreted()


@pytest.mark.parametrize("name", ["row_sums", "product", "whole_sum"])
def test_a_missing_barrier_is_a_race(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_pass, "thread_sync", lambda body, threads, shares_global: body)
    with pytest.raises(DataRaceError, match=r"example_kernel: two threads of a block touch one"):
        EXAMPLES[name]().check_interpreted()


def test_blocks_that_write_one_element_race() -> None:
    example = vector_add(8, 1)
    function = lowered(example)
    (block,) = [f for f in [function.body] if isinstance(f, For)]
    same: Stmt = substitute(block.body, {block.var: build.const(0)})
    raced = function.with_body(block.with_body(same))
    with pytest.raises(DataRaceError, match="two blocks touch one element of C"):
        run_on_device(raced, *example.inputs(), np.zeros(8, "float32"))


def test_a_barrier_in_a_branch_of_some_threads_is_moved_out() -> None:
    """Fewer threads reduce than fetch: both share the block."""
    rows, length = 3, 16
    a = te.placeholder((rows, length), name="A")
    k = te.reduce_axis((0, length), "k")
    b = te.compute((rows,), lambda i: te.sum(a[i, k] * 2, axis=k), name="B")
    schedule = te.create_schedule(b.op)
    held = schedule.cache_read(a, "shared", [b])
    outer, inner = schedule[b].split(k, factor=4)
    schedule[b].reorder(inner, outer)
    schedule[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    schedule[b].bind(inner, te.thread_axis("threadIdx.x"))
    schedule[held].compute_at(schedule[b], b.op.axis[0])
    _, fast = schedule[held].split(schedule[held].op.axis[1], factor=8)
    schedule[held].bind(fast, te.thread_axis("threadIdx.x"))
    example = Example(schedule, [a, b], lambda a: 2 * a.sum(1))
    example.check_interpreted()
    (kernel,) = split_host_device(lowered(example))[1]
    assert launch_of(kernel).block_size == 8


def test_threads_wait_before_a_branch_not_inside_it() -> None:
    """Drivers mistake barriers in branches, even in those that all threads take."""
    a = te.placeholder((7,), name="A")
    b = te.compute((7,), lambda i: a[i] * 2, name="B")
    c = te.compute((7,), lambda i: b[6 - i], name="C")
    schedule = te.create_schedule(c.op)
    schedule[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    schedule[b].compute_at(schedule[c], c.op.axis[0])
    schedule[b].set_scope("shared")
    schedule[b].split(b.op.axis[0], factor=4)  # and a rest
    example = Example(schedule, [a, c], lambda a: 2 * a[::-1])
    example.check_interpreted()
    (kernel,) = split_host_device(lowered(example))[1]
    inside: list[Node] = []

    def look(node: Node) -> None:
        if isinstance(node, IfThenElse):
            post_order(node, lambda n: inside.append(n) if is_barrier(n) else None)  # type: ignore[arg-type]

    post_order(kernel.body, look)
    assert barriers_of(kernel) and not inside


def test_threads_that_reduce_have_one_result_in_common() -> None:
    a = te.placeholder((8, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    total = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="total")
    out = te.compute((8,), lambda i: total[i] + 1, name="out")
    schedule = te.create_schedule(out.op)
    schedule[out].bind(out.op.axis[0], te.thread_axis("threadIdx.x"))
    schedule[total].compute_at(schedule[out], out.op.axis[0])
    schedule[total].bind(k, te.thread_axis("threadIdx.x"))
    with pytest.raises(ValueError, match=r"total is reduced by threadIdx.x, .*set_scope"):
        tvm.lower(schedule, [a, out])
    schedule[total].set_scope("shared")
    Example(schedule, [a, out], lambda a: a.sum(1) + 1).check_interpreted()


def test_large_memory_of_a_thread_is_taken_from_the_device() -> None:
    a = te.placeholder((4, 3000), name="A")
    b = te.compute((4, 3000), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((4, 3000), lambda i, j: b[i, 2999 - j], name="C")
    schedule = te.create_schedule(c.op)
    schedule[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    schedule[b].compute_at(schedule[c], c.op.axis[0])
    function = lowered(Example(schedule, [a, c], np.copy))
    host, (kernel,) = split_host_device(function)
    found: list[Node] = []
    post_order(kernel, lambda n: found.append(n) if isinstance(n, Allocate) else None)
    assert not found and "__sterna_take_workspace" in str(host)


def test_the_host_touches_no_memory_of_a_device() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i], name="B")
    with pytest.raises(ValueError, match=r"B is in the memory of a device.*bind a loop"):
        tvm.build(te.create_schedule(b.op), [a, b], "opencl")


def test_the_number_of_threads_is_known_before_the_launch() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1, name="B")
    schedule = te.create_schedule(b.op)
    block, thread = schedule[b].split(b.op.axis[0], factor=8)
    schedule[b].bind(block, te.thread_axis("blockIdx.x"))
    schedule[b].bind(thread, te.thread_axis("threadIdx.x"))
    function = tvm.lower(schedule, [a, b], name="example")["example"]
    for size in (1, 8, 13):
        x, y = np.arange(size, dtype="float32"), np.zeros(size, "float32")
        run_on_device(function, x, y, size)
        np.testing.assert_array_equal(y, x + 1)


def test_an_index_that_differs_for_all_threads_is_seen() -> None:
    i, j, other = (te.var(name) for name in ("i", "j", "other"))
    spans = {i: build.const(4), j: build.const(8)}
    assert is_one_to_one(i * 8 + j, spans)
    assert is_one_to_one((i * 8 + j) // 3 * 3 + (i * 8 + j) % 3, spans)
    assert not is_one_to_one(i * 7 + j, spans)
    assert not is_one_to_one(j, spans)
    assert not is_one_to_one(i * 8 + j + other, spans)


@settings(max_examples=12)
@given(
    rows=st.integers(1, 9), columns=st.integers(1, 9), depth=st.integers(1, 9),
    part=st.integers(1, 5),
)
def test_products_of_any_size_have_no_races(
    rows: int, columns: int, depth: int, part: int
) -> None:
    product(rows, columns, depth, part).check_interpreted(seeds=1)

"""Schedules for GPUs that tests share, small enough for the interpreter."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import sterna as tvm
from sterna import te
from sterna.ir import build
from sterna.te import Schedule, Tensor
from sterna.tir.device_interpreter import run_on_device

Reference = Callable[..., Any]


def shape_of(tensor: Tensor) -> list[int]:
    """The extents of a tensor, which are numbers."""
    return [build.int_value(extent) or 0 for extent in tensor.shape]


@dataclass(frozen=True, slots=True)
class Example:
    """A schedule, its arguments, the last of which is the result, and what it computes."""

    schedule: Schedule
    args: list[Tensor]
    reference: Reference

    def inputs(self, seed: int = 0) -> list[Any]:
        """Arrays for all arguments but the last."""
        rng = np.random.default_rng(seed)
        return [
            rng.standard_normal(shape_of(arg)).astype(arg.dtype) for arg in self.args[:-1]
        ]

    def check_interpreted(self, seeds: int = 2) -> None:
        """Hold the interpreter, with its threads in some orders, against the reference."""
        function = tvm.lower(self.schedule, self.args, name="example")["example"]
        shape = shape_of(self.args[-1])
        for seed in range(seeds):
            arrays, result = self.inputs(), np.zeros(shape, self.args[-1].dtype)
            run_on_device(function, *arrays, result, seed=seed)
            np.testing.assert_allclose(result, self.reference(*arrays), rtol=1e-4, atol=1e-4)

    def check_on(self, target: str) -> None:
        """Hold what a device computes against the reference."""
        built = tvm.build(self.schedule, self.args, target, name="example")
        device = tvm.device(target)
        arrays = self.inputs()
        given = [tvm.nd.array(array, device) for array in arrays]
        shape = shape_of(self.args[-1])
        result = tvm.nd.empty(shape, self.args[-1].dtype, device)
        built(*given, result)
        np.testing.assert_allclose(
            result.numpy(), self.reference(*arrays), rtol=1e-4, atol=1e-4
        )


def vector_add(n: int = 100, threads: int = 16) -> Example:
    """An element for each thread, with a rest."""
    a, b = (te.placeholder((n,), name=name) for name in "AB")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    schedule = te.create_schedule(c.op)
    block, thread = schedule[c].split(c.op.axis[0], factor=threads)
    schedule[c].bind(block, te.thread_axis("blockIdx.x"))
    schedule[c].bind(thread, te.thread_axis("threadIdx.x"))
    return Example(schedule, [a, b, c], np.add)


def row_sums(rows: int = 5, length: int = 20, threads: int = 8, first: bool = True) -> Example:
    """A block for each row, whose threads share the sum; first: their loop is the outer one."""
    a = te.placeholder((rows, length), name="A")
    k = te.reduce_axis((0, length), "k")
    b = te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="B")
    schedule = te.create_schedule(b.op)
    outer, inner = schedule[b].split(k, factor=threads)
    if first:
        schedule[b].reorder(inner, outer)
    schedule[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
    schedule[b].bind(inner, te.thread_axis("threadIdx.x"))
    return Example(schedule, [a, b], lambda a: a.sum(1))


def sums_side_by_side(rows_first: bool = True) -> Example:
    """Several rows to a block, each of which a row of threads shares."""
    a = te.placeholder((6, 9), name="A")
    k = te.reduce_axis((0, 9), "k")
    b = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), name="B")
    schedule = te.create_schedule(b.op)
    block, row = schedule[b].split(b.op.axis[0], factor=3)
    outer, inner = schedule[b].split(k, factor=4)
    order = (block, row, inner, outer) if rows_first else (inner, block, outer, row)
    schedule[b].reorder(*order)
    schedule[b].bind(block, te.thread_axis("blockIdx.x"))
    schedule[b].bind(row, te.thread_axis("threadIdx.y"))
    schedule[b].bind(inner, te.thread_axis("threadIdx.x"))
    return Example(schedule, [a, b], lambda a: a.sum(1))


def sum_that_nobody_shares() -> Example:
    """A sum in shared memory inside a loop over threads, all of which would add to it."""
    a = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), "k")
    total = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="total")
    out = te.compute((4, 6), lambda i, j: a[i, j] - total[i], name="out")
    schedule = te.create_schedule(out.op)
    schedule[out].bind(out.op.axis[0], te.thread_axis("blockIdx.x"))
    schedule[out].bind(out.op.axis[1], te.thread_axis("threadIdx.x"))
    schedule[total].compute_at(schedule[out], out.op.axis[1])
    schedule[total].set_scope("shared")
    return Example(schedule, [a, out], lambda a: a - a.sum(1, keepdims=True))


def helpers_with_registers() -> Example:
    """Threads that have no result of their own, but help to fetch, and need registers for that."""
    a = te.placeholder((2, 8), name="A")
    b = te.compute((2, 8), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((2, 8), lambda i, j: b[i, j] + 1, name="C")
    d = te.compute((2, 8), lambda i, j: c[i, 7 - j], name="D")
    s = te.create_schedule(d.op)
    s[d].bind(d.op.axis[0], te.thread_axis("threadIdx.x"))
    s[c].compute_at(s[d], d.op.axis[0])
    s[c].set_scope("shared")
    s[c].bind(s[c].op.axis[1], te.thread_axis("threadIdx.x"))
    s[b].compute_at(s[c], s[c].op.axis[0])
    s[b].set_scope("local")
    return Example(s, [a, d], lambda a: (2 * a + 1)[:, ::-1])


def whole_sum(length: int = 50, threads: int = 16) -> Example:
    """One block adds everything up."""
    a = te.placeholder((length,), name="A")
    k = te.reduce_axis((0, length), "k")
    b = te.compute((1,), lambda i: te.sum(a[k], axis=k), name="B")
    schedule = te.create_schedule(b.op)
    factored = schedule.rfactor(b, schedule[b].split(k, factor=threads)[1])
    thread = te.thread_axis("threadIdx.x")
    schedule[b].bind(schedule[b].op.reduce_axis[0], thread)
    schedule[factored].compute_at(schedule[b], schedule[b].op.reduce_axis[0])
    schedule[b].set_store_predicate(thread.var.equal(0))
    return Example(schedule, [a, b], lambda a: a.sum(keepdims=True))


def product(rows: int = 12, columns: int = 10, depth: int = 6, part: int = 4) -> Example:
    """Tiles of both operands in shared memory, and a tile of results in registers."""
    a = te.placeholder((rows, depth), name="A")
    b = te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    held = [s.cache_read(tensor, "shared", [c]) for tensor in (a, b)]
    local = s.cache_write(c, "local")
    y, x, y_own, x_own = s[c].tile(c.op.axis[0], c.op.axis[1], 8, 8)
    y_thread, y_own = s[c].split(y_own, nparts=4)
    x_thread, x_own = s[c].split(x_own, nparts=4)
    s[c].reorder(y, x, y_thread, x_thread, y_own, x_own)
    tags = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    for axis, tag in zip((y, x, y_thread, x_thread), tags, strict=True):
        s[c].bind(axis, te.thread_axis(tag))
    s[local].compute_at(s[c], x_thread)
    outer, inner = s[local].split(s[local].op.reduce_axis[0], factor=part)
    s[local].reorder(outer, inner, *s[local].op.axis)
    for tensor in held:
        s[tensor].compute_at(s[local], outer)
        rest, fast = s[tensor].split(s[tensor].fuse(*s[tensor].op.axis), factor=4)
        _, slow = s[tensor].split(rest, factor=4)
        s[tensor].bind(slow, te.thread_axis("threadIdx.y"))
        s[tensor].bind(fast, te.thread_axis("threadIdx.x"))
    return Example(s, [a, b, c], np.matmul)


def product_of_virtual_threads() -> Example:
    """A tile whose columns each thread takes two at a time, far apart."""
    a, b = te.placeholder((4, 6), name="A"), te.placeholder((6, 16), name="B")
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((4, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    held = s.cache_read(b, "shared", [c])
    local = s.cache_write(c, "local")
    virtual, inner = s[c].split(c.op.axis[1], nparts=2)
    thread, own = s[c].split(inner, nparts=4)
    s[c].reorder(c.op.axis[0], virtual, thread, own)
    s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.x"))
    s[c].bind(virtual, te.thread_axis("vthread"))
    s[c].bind(thread, te.thread_axis("threadIdx.x"))
    s[local].compute_at(s[c], thread)
    outer, _ = s[local].split(s[local].op.reduce_axis[0], factor=2)
    s[local].reorder(outer, s[local].op.axis[1])
    s[held].compute_at(s[local], outer)
    _, fast = s[held].split(s[held].fuse(*s[held].op.axis), factor=4)
    s[held].bind(fast, te.thread_axis("threadIdx.x"))
    return Example(s, [a, b, c], np.matmul)


def running_sums(steps: int = 5, width: int = 12) -> Example:
    """A scan in one block, whose threads pass on what they wrote."""
    a = te.placeholder((steps, width), name="A")
    state = te.placeholder((steps, width), name="state")
    init = te.compute((1, width), lambda _, i: a[0, i], name="init")
    update = te.compute(
        (steps, width), lambda t, i: state[t - 1, width - 1 - i] + a[t, i], name="update"
    )
    total = te.scan(init, update, state, inputs=[a], name="total")
    s = te.create_schedule(total.op)
    thread = te.thread_axis((0, 4), "threadIdx.x")
    s[total].env_threads([thread])
    for part in (init, update):
        _, inner = s[part].split(part.op.axis[1], factor=4)
        s[part].bind(inner, thread)

    def reference(a: Any) -> Any:
        rows = [a[0]]
        for row in a[1:]:
            rows.append(rows[-1][::-1] + row)
        return np.stack(rows)

    return Example(s, [a, total], reference)


EXAMPLES: dict[str, Callable[[], Example]] = {
    "vector_add": vector_add, "row_sums": row_sums,
    "row_sums_in_parts": lambda: row_sums(first=False), "whole_sum": whole_sum,
    "sums_side_by_side": sums_side_by_side,
    "sums_side_by_side_in_any_order": lambda: sums_side_by_side(False),
    "sum_that_nobody_shares": sum_that_nobody_shares,
    "helpers_with_registers": helpers_with_registers,
    "product": product, "product_of_virtual_threads": product_of_virtual_threads,
    "running_sums": running_sums,
}

"""Any legal schedule for a GPU gives the same numbers, in whatever order threads run.

Loops of drawn computations are bound to blocks, threads and virtual threads; stages are computed
inside them, in shared memory by all threads together or in registers of each, and sums are shared
by threads. The kernels run in the interpreter with their threads in several orders, which reports
races, barriers that only some threads come to and indices outside of buffers, and on an OpenCL
device where there is one. All is held against the plain schedule's result.
"""

import random
from typing import Any, ClassVar

import numpy as np

from sterna import te
from sterna.driver import build, lower
from sterna.ir.build import int_value
from sterna.runtime import device
from sterna.runtime import ndarray as nd
from sterna.te.bounds import scope_of, threads_around
from sterna.te.tensor import COMM_REDUCE, DATA_PAR
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.fuzzers.schedules import (
    COMPUTATIONS,
    expected_result,
    extents,
    readers_of,
)
from sterna.testing.fuzz.tape import Tape
from sterna.tir.device_interpreter import run_on_device
from sterna.tir.passes.split_host_device import launch_of, split_host_device
from sterna.tir.stmt import For, Stmt
from sterna.tir.threads import LAUNCHED, THREADS, has_threads, is_shared

# Orders of blocks and threads that each case is run in.
ORDERS = 3
# Threads that a drawn block has at most along one of its dimensions, where a loop was cut.
MOST_THREADS = 6
# Statements that the interpreter does in a second or two.
MOST_STEPS = 100_000
# Those of a block that is run on a device: drivers for processors write out what each of them does.
MOST_ON_DEVICE = 64


def bound_tags(stage: Any) -> list[str]:
    """The names of the threads that a stage's own loops are bound to."""
    found = [stage.iter_var_attrs.get(leaf) for leaf in stage.leaf_iter_vars]
    return [each.bind_thread.thread_tag for each in found if each and each.bind_thread is not None]


def cut_loops(rng: random.Random, stage: Any) -> None:
    """Split, fuse and reorder loops at random, so that some have few iterations."""
    for _ in range(rng.randint(0, 3)):
        leaves = stage.leaf_iter_vars
        axis = rng.choice(leaves)
        kind = rng.random()
        if kind < 0.4:
            stage.split(axis, factor=rng.randint(1, MOST_THREADS))
        elif kind < 0.6:
            stage.split(axis, nparts=rng.randint(1, MOST_THREADS))
        elif kind < 0.8 and len(leaves) > 1:
            first, second = leaves[(place := rng.randrange(len(leaves) - 1)) : place + 2]
            if first.iter_type == second.iter_type:
                stage.fuse(first, second)
        else:
            order = list(leaves)
            rng.shuffle(order)
            stage.reorder(*order)


def bind_loops(rng: random.Random, stage: Any, tags: list[str], least: int) -> None:
    """Bind some of a stage's loops to threads of some names, no name twice, and at least so many.

    A loop that reduces goes to threads of a block, which can join what each has reduced.
    """
    tags = rng.sample(tags, len(tags))
    leaves = rng.sample(stage.leaf_iter_vars, len(stage.leaf_iter_vars))
    wanted = max(least, rng.randint(0, min(len(leaves), 4)))
    for axis in leaves:
        if not wanted or axis.iter_type not in (DATA_PAR, COMM_REDUCE):
            continue
        reduces = axis.iter_type == COMM_REDUCE
        tag = next((tag for tag in tags if tag in THREADS or not reduces), None)
        if tag is None:
            continue
        if not reduces and rng.random() < 0.15:
            stage.bind(axis, te.thread_axis("vthread"))
            continue
        tags.remove(tag)
        stage.bind(axis, te.thread_axis(tag))
        wanted -= 1


def schedule_at_root(rng: random.Random, stage: Any) -> None:
    """Let kernels of its own compute a stage."""
    stage.compute_root()
    stage.set_scope("global")
    cut_loops(rng, stage)
    bind_loops(rng, stage, list(LAUNCHED), 1)
    if not any(tag in LAUNCHED for tag in bound_tags(stage)):  # only the sum is left
        axis = next(leaf for leaf in stage.leaf_iter_vars if leaf.iter_type == DATA_PAR)
        stage.bind(stage.split(axis, factor=2)[0], te.thread_axis("blockIdx.x"))


def schedule_inside(rng: random.Random, stage: Any) -> None:
    """Keep what a kernel's threads read in their shared memory, or in registers of each."""
    around = {tag for tag, _ in threads_around(stage) if tag in LAUNCHED}
    chosen = rng.random()
    if chosen < 0.45:
        stage.set_scope("shared")
    elif chosen < 0.7 and around & set(THREADS):
        stage.set_scope("local")
    cut_loops(rng, stage)
    if is_shared(scope_of(stage)):
        bind_loops(rng, stage, list(THREADS), 0)


def place(rng: random.Random, schedule: Any, stage: Any) -> None:
    """Compute a stage inside its only reader's kernel, inline it, or give it one of its own."""
    readers = readers_of(schedule, stage)
    chosen = rng.random()
    if stage.is_output:
        schedule_at_root(rng, stage)
        return
    if chosen < 0.2 and not stage.op.reduce_axis:
        stage.compute_inline()
        return
    if chosen < 0.8 and len(readers) == 1 and readers[0].attach_type != "inline":
        loops = loops_in_kernels(readers[0])
        if loops:
            stage.compute_at(readers[0], rng.choice(loops))
            schedule_inside(rng, stage)
            return
    schedule_at_root(rng, stage)


def loops_in_kernels(reader: Any) -> list[Any]:
    """The loops of a stage that a kernel runs: others can be computed there."""
    is_inside = any(tag in LAUNCHED for tag, _ in threads_around(reader))
    found = []
    for leaf in reader.leaf_iter_vars:
        attributes = reader.iter_var_attrs.get(leaf)
        thread = attributes.bind_thread if attributes is not None else None
        is_inside = is_inside or (thread is not None and thread.thread_tag in LAUNCHED)
        if is_inside:
            found.append(leaf)
    return found


def gpu_schedule(rng: random.Random, tensors: list[te.Tensor]) -> Any:
    """A schedule all of whose stages kernels compute."""
    schedule = te.create_schedule(tensors[-1].op)
    if rng.random() < 0.4:
        schedule.cache_write(tensors[-1], "local")
    for source in [s.op.output(0) for s in schedule.stages if isinstance(s.op, te.PlaceholderOp)]:
        readers = [s.op for s in schedule.stages if source in s.op.input_tensors]
        if rng.random() < 0.5:
            schedule.cache_read(source, "shared", readers)
    for stage in reversed(schedule.stages):
        if not isinstance(stage.op, te.PlaceholderOp):
            place(rng, schedule, stage)
    return schedule


def check_gpu_schedule(rng: random.Random, computation: int, target: str | None) -> str:
    """Draw a schedule, run it in some orders of its threads, and on a device: how it ended."""
    inputs, tensors = COMPUTATIONS[computation](rng)
    output = tensors[-1]
    numbers = np.random.default_rng(rng.getrandbits(16))
    arrays = [numbers.integers(-4, 5, extents(t)).astype("float32") for t in inputs]
    expected = expected_result(inputs, output, arrays)
    schedule = gpu_schedule(rng, tensors)
    args = [*inputs, output]
    first = rng.getrandbits(16)
    function = lower(schedule, args, name="drawn")["drawn"]
    assert has_threads(function.body)
    ending = COMPUTATIONS[computation].__name__
    kernels = split_host_device(function)[1]
    if sum(steps_of(kernel.body) for kernel in kernels) > MOST_STEPS:
        return f"{ending}, too large"
    for order in range(first, first + ORDERS):
        result = np.full_like(expected, np.nan)
        run_on_device(function, *arrays, result, seed=order)
        np.testing.assert_array_equal(result, expected, err_msg=str(function))
    sizes = [launch_of(kernel).block_size or 0 for kernel in kernels]
    if target is None or max(sizes) > MOST_ON_DEVICE:
        return ending
    computed = run_there(schedule, args, arrays, target)
    np.testing.assert_array_equal(computed, expected, err_msg=str(function))
    return f"{ending} on {target}"


def steps_of(stmt: Stmt) -> int:
    """The statements that the interpreter does for a kernel, whose threads are its outer loops."""
    if isinstance(stmt, For):
        return (int_value(stmt.extent) or 1) * (1 + steps_of(stmt.body))
    return 1 + sum(steps_of(part) for part in stmt.children() if isinstance(part, Stmt))


def run_there(schedule: Any, args: list[te.Tensor], arrays: list[Any], target: str) -> Any:
    """What a device computes."""
    built = build(schedule, args, target=target, name="drawn")
    there = [nd.array(array, device(target)) for array in arrays]
    result = np.full(extents(args[-1]), np.nan, "float32")
    computed = nd.array(result, device(target))
    built(*there, computed)
    return computed.numpy()


class GPUSchedules(Fuzzer):
    """Schedules for GPUs against the interpreter, and on a device."""

    name = "gpu-schedules"
    about = "random schedules for GPUs, with their threads in several orders and on OpenCL devices"
    # PoCL asserts about loops in loops with barriers in both, which OpenCL allows.
    faults_of_others: ClassVar = {"lib/llvmopencl/ParallelRegion.cc": "an assertion of PoCL's"}

    def check(self, tape: Tape) -> str:
        """Draw one and run it."""
        computation = tape.randrange(len(COMPUTATIONS))
        # A driver takes its time to compile.
        runs_there = tape.random() > 0.8 and device("opencl").exist
        return check_gpu_schedule(tape, computation, "opencl" if runs_there else None)


FUZZER = GPUSchedules()

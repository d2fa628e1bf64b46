"""Any legal schedule of a computation gives the same numbers.

Computations and schedules are drawn at random; the loops before any pass run in the interpreter,
the loops after all passes in the interpreter and as machine code, and all are held against the
plain schedule's result.
"""

import random
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from sterna import te
from sterna.driver import build
from sterna.ir import IntImm
from sterna.relay.arrays import from_numpy
from sterna.te.bounds import infer_bounds
from sterna.te.lower import lower_schedule
from sterna.te.rolling_buffer import find_roll
from sterna.te.tensor import UNROLLED, VECTORIZED
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.tape import Tape
from sterna.tir import interpreter, pipeline
from sterna.tir.passes import storage_rewrite as sharing

Computation = tuple[list[te.Tensor], list[te.Tensor]]


def elementwise(rng: random.Random) -> Computation:
    """Two stages over a matrix, the second reading neighbours of the first under a guard."""
    n, m = rng.randint(1, 13), rng.randint(1, 17)
    a = te.placeholder((n, m), name="a")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0 + 1.0, name="b")
    shift = rng.randint(0, 2)
    c = te.compute(
        (n, m),
        lambda i, j: te.if_then_else(j >= shift, b[i, j - shift], 0.0) + a[i, j],
        name="c",
    )
    return [a], [b, c]


def matmul(rng: random.Random) -> Computation:
    """A product of matrices and something on top of it."""
    n, m, kk = rng.randint(1, 9), rng.randint(1, 11), rng.randint(1, 10)
    a, b = te.placeholder((n, kk), name="a"), te.placeholder((kk, m), name="b")
    k = te.reduce_axis((0, kk), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    d = te.compute((n, m), lambda i, j: te.max(c[i, j], 0.25), name="d")
    return [a, b], [c, d]


def convolution(rng: random.Random) -> Computation:
    """Padding, a sliding sum and a bias."""
    n, w = rng.randint(3, 14), rng.randint(1, 3)
    a = te.placeholder((n,), name="a")
    padded = te.compute(
        (n + 2 * (w - 1),),
        lambda i: te.if_then_else(te.all(i >= w - 1, i < n + w - 1), a[i - (w - 1)], 0.0),
        name="padded",
    )
    r = te.reduce_axis((0, w), name="r")
    c = te.compute((n + w - 1,), lambda i: te.sum(padded[i + r], axis=r), name="c")
    d = te.compute((n + w - 1,), lambda i: c[i] - 1.0, name="d")
    return [a], [padded, c, d]


def row_maximum(rng: random.Random) -> Computation:
    """Three stages in the shape of a softmax."""
    n, m = rng.randint(1, 6), rng.randint(1, 12)
    a = te.placeholder((n, m), name="a")
    k = te.reduce_axis((0, m), name="k")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    low = te.compute((n, m), lambda i, j: a[i, j] - top[i], name="low")
    k2 = te.reduce_axis((0, m), name="k2")
    total = te.compute((n,), lambda i: te.sum(low[i, k2], axis=k2), name="total")
    out = te.compute((n, m), lambda i, j: low[i, j] * 0.5 + total[i], name="out")
    return [a], [top, low, total, out]


def pooling(rng: random.Random) -> Computation:
    """Maxima over windows that slide along rows by a stride, and something on top of them."""
    n, m = rng.randint(1, 6), rng.randint(1, 5)
    window, stride = rng.randint(1, 4), rng.randint(1, 2)
    height = (n - 1) * stride + window
    a = te.placeholder((height, m), name="a")
    b = te.compute((height, m), lambda i, j: a[i, j] * 0.5, name="b")
    r = te.reduce_axis((0, window), name="r")
    c = te.compute((n, m), lambda i, j: te.max(b[i * stride + r, j], axis=r), name="c")
    d = te.compute((n, m), lambda i, j: c[i, j] + 1.0, name="d")
    return [a], [b, c, d]


COMPUTATIONS: list[Callable[[random.Random], Computation]] = [
    elementwise, matmul, convolution, row_maximum, pooling,
]


def schedule_loops(rng: random.Random, stage: Any) -> None:
    """Split, fuse, reorder and mark loops at random."""
    if stage.is_output and rng.random() < 0.3:  # its extents are known, so a divisor is too
        axis = rng.choice(stage.op.axis)
        extent = axis.dom.extent.value
        factor = rng.choice([f for f in range(1, extent + 1) if extent % f == 0])
        stage.split(axis, factor=factor, disable_predication=True)
    for _ in range(rng.randint(0, 3)):
        axis = rng.choice(stage.leaf_iter_vars)
        kind = rng.random()
        if kind < 0.5:
            if rng.random() < 0.7:
                stage.split(axis, factor=rng.randint(1, 6))
            else:
                stage.split(axis, nparts=rng.randint(1, 4))
        elif kind < 0.75 and len(stage.leaf_iter_vars) > 1:
            place = rng.randrange(len(stage.leaf_iter_vars) - 1)
            first, second = stage.leaf_iter_vars[place : place + 2]
            if first.iter_type == second.iter_type:
                stage.fuse(first, second)
        else:
            order = list(stage.leaf_iter_vars)
            rng.shuffle(order)
            stage.reorder(*order)
    for axis in stage.leaf_iter_vars:
        choice = rng.random()
        if choice < 0.15:
            stage.unroll(axis)
        elif choice < 0.3 and axis.iter_type == 0:
            stage.parallel(axis)
    if rng.random() < 0.1:  # a predicate that always holds, though nobody may see that
        stage.set_store_predicate(rng.choice(stage.all_iter_vars).var * 2 > -1)
    last = stage.leaf_iter_vars[-1]
    if rng.random() < 0.4 and last.iter_type == 0:
        stage.vectorize(last)


def random_schedule(rng: random.Random, tensors: list[te.Tensor]) -> Any:
    """A schedule that computes every stage somewhere it may be computed."""
    schedule = te.create_schedule(tensors[-1].op)
    if rng.random() < 0.3:
        schedule.cache_write(tensors[-1], "local")
    if rng.random() < 0.3:
        inputs = [s.op.output(0) for s in schedule.stages if isinstance(s.op, te.PlaceholderOp)]
        source = rng.choice(inputs)
        readers = [s.op for s in schedule.stages if source in s.op.input_tensors]
        schedule.cache_read(source, "local", readers)
    for stage in reversed(schedule.stages):
        if isinstance(stage.op, te.PlaceholderOp):
            continue
        if not stage.is_output and rng.random() < 0.3:
            transform_layout(rng, stage)
        schedule_loops(rng, stage)
    if rng.random() < 0.3:
        group_producers(rng, schedule)
    for stage in reversed(schedule.stages):
        place_stage(rng, schedule, stage)
    for stage in schedule.stages:
        if stage.attach_type == "scope" and not stage.is_double_buffered and rng.random() < 0.5:
            roll_if_possible(schedule, stage)
    return schedule


def roll_if_possible(schedule: Any, stage: Any) -> None:
    """Make a stage's buffer roll where iterations share some of it."""
    normal = schedule.normalize()
    try:
        find_roll(normal[stage.op], infer_bounds(normal))
    except ValueError:
        return
    stage.rolling_buffer()


def readers_of(schedule: Any, stage: Any) -> list[Any]:
    """The stages that read a stage."""
    return [s for s in schedule.stages if any(schedule[t] is stage for t in s.op.input_tensors)]


def loop_kind(stage: Any, axis: Any) -> int | None:
    """How a loop is marked."""
    kind: int | None = getattr(stage.iter_var_attrs.get(axis), "kind", None)
    return kind


def attachable(stage: Any) -> list[Any]:
    """The loops of a stage that others can be computed at."""
    return [axis for axis in stage.leaf_iter_vars if loop_kind(stage, axis) != VECTORIZED]


def transform_layout(rng: random.Random, stage: Any) -> None:
    """Split an index, mirror another, put all into another order, and some into dimensions."""
    ndim = len(stage.op.axis)
    split, mirror, factor = rng.randrange(ndim), rng.randrange(ndim), rng.randint(1, 5)
    last = stage.op.axis[mirror].dom.extent.value - 1
    order = rng.sample(range(ndim + 1), ndim + 1)
    separated = rng.random() < 0.3

    def mapping(*indices: Any) -> list[Any]:
        mirrored = [last - x if place == mirror else x for place, x in enumerate(indices)]
        parts = [*mirrored[:split], mirrored[split] // factor, mirrored[split] % factor]
        parts += mirrored[split + 1 :]
        moved = [parts[place] for place in order]
        return [moved[0], te.AXIS_SEPARATOR, *moved[1:]] if separated else moved

    stage.transform_layout(mapping)


def group_producers(rng: random.Random, schedule: Any) -> None:
    """Compute all that the output reads, directly or not, at one of its loops."""
    output = schedule.stages[-1]
    inputs = [s.op.output(0) for s in schedule.stages if isinstance(s.op, te.PlaceholderOp)]
    computed = [t for t in output.op.input_tensors if not isinstance(t.op, te.PlaceholderOp)]
    loops = attachable(output)
    if computed and loops:
        schedule.create_group(computed, inputs).compute_at(output, rng.choice(loops))


def place_stage(rng: random.Random, schedule: Any, stage: Any) -> None:
    """Inline a stage, compute it inside its only reader, or leave it at the root."""
    if isinstance(stage.op, te.PlaceholderOp) or stage.is_output:
        return
    if rng.random() < 0.2 and not stage.axis_separators:
        stage.storage_align(rng.choice(stage.op.axis), rng.randint(1, 9), rng.randint(0, 9))
    readers = readers_of(schedule, stage)
    choice = rng.random()
    if choice < 0.25 and not stage.op.reduce_axis:
        stage.compute_inline()
    elif choice < 0.75 and len(readers) == 1 and readers[0].attach_type != "inline":
        reader = readers[0]
        loops = attachable(reader)
        if loops and stage.group is reader.group:
            axis = rng.choice(loops)
            stage.compute_at(reader, axis)
            if loop_kind(reader, axis) in (None, UNROLLED) and rng.random() < 0.3:
                stage.double_buffer()


def extents(tensor: te.Tensor) -> list[int]:
    """A constant shape as numbers."""
    return [e.value for e in tensor.shape if isinstance(e, IntImm)]


def expected_result(inputs: list[te.Tensor], output: te.Tensor, arrays: list[Any]) -> Any:
    """What the plain schedule gives in the interpreter."""
    plain = lower_schedule(te.create_schedule(output.op), [*inputs, output], "plain")
    result = np.zeros(extents(output), "float32")
    interpreter.run(plain, *arrays, result)
    return result


def check_schedule(rng: random.Random, computation: int, targets: tuple[str, ...]) -> None:
    """Draw a schedule of a computation, and hold what it gives against what it must give."""
    before = sharing.SMALLEST_BYTES
    if rng.random() < 0.5:  # these buffers are small; let them share memory all the same
        sharing.SMALLEST_BYTES = 0
    try:
        _check(rng, computation, targets)
    finally:
        sharing.SMALLEST_BYTES = before


def _check(rng: random.Random, computation: int, targets: tuple[str, ...]) -> None:
    inputs, tensors = COMPUTATIONS[computation](rng)
    output = tensors[-1]
    numbers = np.random.default_rng(rng.getrandbits(16))
    arrays = [numbers.integers(-4, 5, extents(t)).astype("float32") for t in inputs]
    expected = expected_result(inputs, output, arrays)
    schedule = random_schedule(rng, tensors)
    args = [*inputs, output]

    loops = lower_schedule(schedule, args, "loops")
    result = np.full_like(expected, np.nan)
    interpreter.run(loops, *arrays, result)
    np.testing.assert_array_equal(result, expected, err_msg=str(loops))

    passed = pipeline.run(loops)
    flat = np.full(expected.size, np.nan, "float32")
    interpreter.run(passed, *[a.reshape(-1) for a in arrays], flat)
    np.testing.assert_array_equal(flat.reshape(expected.shape), expected, err_msg=str(passed))

    for target in targets:
        function = build(schedule, args, target=target, name="drawn")
        compiled = from_numpy(np.full_like(expected, np.nan))
        function(*arrays, compiled)
        np.testing.assert_array_equal(compiled.numpy(), expected, err_msg=str(passed))


class Schedules(Fuzzer):
    """Schedules against the interpreter, and as machine code."""

    name = "schedules"
    about = "random schedules of small computations, held against the interpreter"

    def check(self, tape: Tape) -> str:
        """Draw one and run it."""
        computation = tape.randrange(len(COMPUTATIONS))
        # A C compiler takes its time.
        compiles_c = tape.random() > 0.9 and shutil.which("cc") is not None
        check_schedule(tape, computation, ("llvm", "c") if compiles_c else ("llvm",))
        return COMPUTATIONS[computation].__name__


FUZZER = Schedules()

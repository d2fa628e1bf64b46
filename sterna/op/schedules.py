"""Schedules for operators that ask for nothing special: by the shape of their loops alone."""

import math
from collections.abc import Sequence

from sterna.ir import build
from sterna.op.kernel import Kernel, Processor
from sterna.te import ComputeOp, IterVar, Schedule, Stage

# Work below this many elements is not worth waking threads for.
PARALLEL_ELEMENTS = 8192
# Into how many pieces parallel work is cut: enough to balance over any number of threads.
PIECES = 64


def extent_of(axis: IterVar) -> int | None:
    """The number of iterations of an axis, if it is known."""
    return None if axis.dom is None else build.int_value(axis.dom.extent)


def extents_of(axes: Sequence[IterVar]) -> list[int]:
    """The numbers of iterations; an unknown one counts as many."""
    return [e if e is not None else 1024 for e in map(extent_of, axes)]


def schedule_default(kernel: Kernel) -> None:
    """Every stage by its own loops: outer ones in parallel, the innermost as vectors."""
    for stage in kernel.schedule.stages:
        if isinstance(stage.op, ComputeOp) and stage.attach_type == "root":
            if stage.op.reduce_axis:
                schedule_reduction(kernel.schedule, stage, kernel.processor)
            else:
                schedule_elements(stage, kernel.processor, kernel.is_flat)


def schedule_elements(stage: Stage, processor: Processor, flat: bool = False) -> None:
    """Independent elements: rows in parallel, vectors along the last axis.

    flat: every operand is read at the very index that is written, so all axes can be one.
    """
    axes = list(stage.op.axis)
    if not axes:
        return
    sizes = extents_of(axes)
    lanes = processor.lanes(stage.op.output(0).dtype)
    if flat:
        axes, sizes = [stage.fuse(*axes)], [math.prod(sizes)]
    *outer, inner = axes
    if sizes[-1] > lanes:
        wide, narrow = stage.split(inner, factor=lanes)
        stage.vectorize(narrow)
        outer.append(wide)
        sizes[-1] = -(-sizes[-1] // lanes)
    elif sizes[-1] > 1:
        stage.vectorize(inner)
        sizes.pop()
    if outer and math.prod(sizes) * lanes >= PARALLEL_ELEMENTS:
        _parallelise(stage, outer, sizes)


def _parallelise(stage: Stage, outer: Sequence[IterVar], sizes: Sequence[int]) -> None:
    """Share the outermost loops among threads: enough pieces to balance, no more."""
    count, taken = 1, 0
    while taken < len(outer) and count < PIECES:
        count *= sizes[taken]
        taken += 1
    rows = stage.fuse(*outer[:taken])
    if count > 4 * PIECES:
        rows, _ = stage.split(rows, nparts=PIECES)
    stage.parallel(rows)


def schedule_reduction(schedule: Schedule, stage: Stage, processor: Processor) -> None:
    """Reductions: rows in parallel, vectors along the last axis or across partial results."""
    axes, reduced = list(stage.op.axis), list(stage.op.reduce_axis)
    sizes = extents_of(axes)
    lanes = processor.lanes(stage.op.output(0).dtype)
    work = math.prod(sizes) * math.prod(extents_of(reduced))
    outer = axes
    if axes and sizes[-1] >= lanes:
        wide, narrow = stage.split(axes[-1], factor=lanes)
        stage.reorder(*axes[:-1], wide, *reduced, narrow)
        stage.vectorize(narrow)
        outer = [*axes[:-1], wide]
    if work >= PARALLEL_ELEMENTS and outer:
        rows = stage.fuse(*outer) if len(outer) > 1 else outer[0]
        stage.parallel(rows)

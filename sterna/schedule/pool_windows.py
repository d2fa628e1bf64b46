"""Pooling where neighbours along the last axis lie side by side: a vector of windows at once.

Data that has a border is copied with it into a buffer that stays in the innermost cache, a plane
or the rows that a band of windows sees, so that no vector meets a condition. Where channels are the
last axis their vectors need none of this. Source code for another compiler, often one for a small
machine, does without the buffer.
"""

import math

from sterna.ir.expr import Expr, Var, variables_in
from sterna.schedule.default import loads_of, schedule_default, split_at_borders, vectors_beside
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.loops import PARALLEL_ELEMENTS, extent_of, extents_of, parallelise
from sterna.te import ComputeOp, IterVar, Stage
from sterna.te.tensor import Reduce

# Windows of so many elements are written out.
MOST_UNROLLED = 32
# Rows of larger ones that are reduced at once, where one of these divides them: an element waits
# for the one before it.
ROWS_AT_ONCE = (4, 3, 2)
# Channels of a pixel that are reduced at once where there are no vectors: one of these.
IN_REGISTERS = (4, 3, 2, 1)
# Fewer windows side by side are no vector.
LEAST_WINDOWS = 4


def schedule_windows(kernel: Kernel) -> None:
    """Windows side by side as vectors, out of planes or bands that have their border."""
    stages = [s for s in kernel.schedule.stages if isinstance(s.op, ComputeOp)]
    roots = [s for s in stages if s.attach_type == "root"]
    moving = [stage for stage in roots if _moves_along_last(stage)]
    result = kernel.schedule[kernel.outputs[0]]
    vectors = kernel.target is None or kernel.target.kind.picks_instructions
    fits = vectors and len(moving) == len(kernel.outputs) == 1
    if not fits or len(result.op.axis) != len(moving[0].op.axis):
        _inline_elements(roots)
        least = LEAST_WINDOWS if vectors else 1
        by_channel = [stage for stage in roots if _is_along_channels(stage, least)]
        if len(by_channel) != len(kernel.outputs) or len(by_channel) > 1:
            schedule_default(kernel)
        elif vectors or kernel.processor.has_dot_across:
            _schedule_channels(kernel, result, by_channel[0], is_shared=vectors)
        elif _suits_registers(kernel, result, by_channel[0]):
            _schedule_registers(kernel, result, by_channel[0])
        else:
            schedule_default(kernel)
        return
    window = moving[0]
    source = _source_of(window)
    _inline_elements([stage for stage in roots if stage is not source])
    _schedule(kernel.processor, result, window, source)


def _moves_along_last(stage: Stage) -> bool:
    """Whether the last axis and one of the window's are the last index of what is read."""
    last, reads = _last_indices(stage)
    steps = {axis.var for axis in stage.op.reduce_axis}
    names = [set(variables_in(index)) for index in reads]
    return bool(names) and all(last in each and steps & each for each in names)


def _is_along_channels(stage: Stage, least: int) -> bool:
    """Whether a small window sees so many elements side by side along the last axis, or more."""
    last, reads = _last_indices(stage, least)
    axes = [*stage.op.axis[-1:], *stage.op.reduce_axis]
    if not reads or any(extent_of(axis) is None for axis in axes):
        return False
    is_small = math.prod(extents_of(stage.op.reduce_axis)) <= MOST_UNROLLED
    return is_small and all(index is last for index in reads)


def _last_indices(stage: Stage, least: int = LEAST_WINDOWS) -> tuple[Var | None, list[Expr]]:
    """The last axis of windows that are one result each, and what it is in all that they read.

    Nothing is read where there are too few windows, or the stage has none.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    if not op.reduce_axis or not op.axis or op.num_outputs > 1:
        return None, []
    last, body = op.axis[-1], op.body[0]
    assert isinstance(body, Reduce)
    if (extent_of(last) or 0) < least:
        return None, []
    return last.var, [load.indices[-1] for load in loads_of(body) if load.indices]


def _schedule_channels(
    kernel: Kernel, result: Stage, window: Stage, is_shared: bool
) -> None:
    """Vectors of channels, each window in registers until what follows it is done.

    Channels that fill no vector are cut into those of a power of two and a rest. is_shared: rows
    may be those of several threads, in one loop, which has no border of its own.
    """
    *outer, last = result.op.axis
    sizes = extents_of(result.op.axis)
    lanes = kernel.processor.lanes(window.op.output(0).dtype)
    while lanes > sizes[-1]:
        lanes //= 2
    wide, narrow = result.split(last, factor=lanes)
    pieces = -(-sizes[-1] // lanes)
    rows, threads = math.prod(sizes[:-1]), kernel.processor.threads
    beside = vectors_beside(rows, pieces, threads) if sizes[-1] % lanes == 0 else 1
    wide, vector = result.split(wide, factor=beside)
    steps = list(window.op.reduce_axis)
    if window is result:
        result.reorder(*outer, wide, *steps, vector, narrow)
    else:
        window.compute_at(result, wide)
        *fixed, along = window.op.axis
        several, along = window.split(along, factor=lanes)
        window.reorder(*fixed, *steps, several, along)
        window.unroll(several)
        window.vectorize(along)
    result.unroll(vector)
    result.vectorize(narrow)
    for step in steps:
        window.unroll(step)
    if is_shared and math.prod(sizes) * math.prod(extents_of(steps)) >= PARALLEL_ELEMENTS:
        parallelise(result, [*outer, wide], [*sizes[:-1], pieces // beside])
    split_at_borders(result)


def _suits_registers(kernel: Kernel, result: Stage, window: Stage) -> bool:
    """Whether some channels of a pixel are results that nothing but the result reads."""
    axes = [each.op.axis for each in (result, window)]
    same = len(axes[0]) == len(axes[1]) and all(
        extent_of(one) == extent_of(other) for one, other in zip(*axes, strict=True))
    return same and extent_of(axes[0][-1]) is not None


def _schedule_registers(kernel: Kernel, result: Stage, window: Stage) -> None:
    """Some channels of a pixel in registers: sources for small machines have no vectors."""
    if window is result:
        (made,) = kernel.schedule.cache_write([kernel.outputs[0]], "local")
        window, result = kernel.schedule[made], kernel.schedule[kernel.outputs[0]]
    last = result.op.axis[-1]
    together = next(n for n in IN_REGISTERS if extents_of([last])[0] % n == 0)
    wide, narrow = result.split(last, factor=together)
    result.unroll(narrow)
    window.compute_at(result, wide)
    *fixed, along = window.op.axis
    window.reorder(*fixed, *window.op.reduce_axis, along)
    window.unroll(along)
    split_at_borders(result)


def _inline_elements(stages: list[Stage]) -> None:
    """Compute where it is read what has no window."""
    for stage in stages:
        if not stage.op.reduce_axis and not stage.is_output:
            stage.compute_inline()


def _source_of(window: Stage) -> Stage | None:
    """The stage of the data with its border, if it has one."""
    assert window.schedule is not None and isinstance(window.op, ComputeOp)
    body = window.op.body[0]
    assert isinstance(body, Reduce)
    (source, *others) = {load.tensor.op for load in loads_of(body)}
    if others or not isinstance(source, ComputeOp):
        return None
    stage = window.schedule.stage_map[source]
    return stage if stage.attach_type == "root" and not stage.is_output else None


def _schedule(
    processor: Processor, result: Stage, window: Stage, source: Stage | None
) -> None:
    *outer, last = result.op.axis
    lanes = min(processor.lanes(result.op.output(0).dtype), extents_of([last])[0])
    wide, narrow = result.split(last, factor=lanes)
    result.vectorize(narrow)
    steps = list(window.op.reduce_axis)
    sizes = extents_of(steps)
    written = math.prod(sizes) <= MOST_UNROLLED
    rows = extents_of(outer)[-1] if outer else 1
    beside = 1 if written else next((n for n in ROWS_AT_ONCE if rows % n == 0), 1)
    lines: list[IterVar] = []
    if beside > 1:
        outer[-1], line = result.split(outer[-1], factor=beside)
        result.unroll(line)
        lines = [line]
    if window is result:
        result.reorder(*outer, wide, *steps, *lines, narrow)
    else:
        result.reorder(*outer, wide, *lines, narrow)
        window.compute_at(result, wide)
        *fixed, along = window.op.axis
        lines = [fixed.pop()] if lines else []
        window.reorder(*fixed, *steps, *lines, along)
        window.vectorize(along)
        for line in lines:
            window.unroll(line)
    for step in steps if written else steps[-1:]:
        window.unroll(step)
    work = math.prod(extents_of(result.op.axis)) * math.prod(sizes)
    place = _share(processor, result, outer, rows // beside, source, work >= PARALLEL_ELEMENTS)
    split_at_borders(result)
    if source is not None and place is not None:
        source.compute_at(result, place)
        _, few = source.split(source.op.axis[-1], factor=processor.lanes(source.op.output(0).dtype))
        source.vectorize(few)
        split_at_borders(source)


def _share(
    processor: Processor, result: Stage, outer: list[IterVar], count: int, source: Stage | None,
    parallel: bool,
) -> IterVar | None:
    """Share planes, or rows if these are few, among threads; gives where the source is made.

    count: of the last outer loop.
    """
    if not outer:
        return None
    *planes, row = outer
    if not planes or math.prod(extents_of(planes)) < 2 * processor.threads:
        rows = result.fuse(*outer)
        if parallel:
            result.parallel(rows)
        return rows
    together = result.fuse(*planes)
    if parallel:
        result.parallel(together)
    if source is None:
        return None
    made = source.op.output(0)
    rank = len(source.op.axis) - len(planes)
    plane = math.prod(extents_of(source.op.axis[-rank:])) * made.dtype.bytes
    band = rows_in(processor.l1_bytes // 2, plane, count)
    if band == count:
        return together
    bands, _ = result.split(row, factor=band)
    return bands


def rows_in(bytes_at_once: int, plane: int, rows: int) -> int:
    """How many rows of windows see so many bytes of a plane; a divisor of them if one is near."""
    most = max(1, min(rows, bytes_at_once * rows // plane))
    return next((n for n in range(most, most // 2, -1) if rows % n == 0), most)

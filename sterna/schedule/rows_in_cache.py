"""Rows that are reduced and then used with the result, as in softmax and layer norms."""

import math
from collections.abc import Sequence

from sterna.ir.expr import variables_in
from sterna.ir.node import post_order
from sterna.schedule.default import (
    along_last,
    reduce_by_vectors,
    schedule_default,
    vectors_at_once,
)
from sterna.schedule.kernel import Kernel, Processor
from sterna.schedule.loops import PARALLEL_ELEMENTS, extents_of
from sterna.schedule.moved_elements import LINE_BITS
from sterna.te import ComputeOp, IterVar, Operation, PlaceholderOp, Schedule, Stage, Tensor
from sterna.te.tensor import VECTORIZED, ProducerLoad

# Rows longer than this are long enough for processors to see by themselves what comes next.
LONGEST_FETCHED_ROW = 8192


def schedule_rows(kernel: Kernel) -> None:
    """Operators that reduce rows and use the results in the same rows, such as softmax.

    All stages of a row run one after the other while the row is in the cache.
    """
    schedule, out = kernel.schedule, kernel.outputs[0]
    sums = [s for s in schedule.stages if isinstance(s.op, ComputeOp) and s.op.reduce_axis]
    prefix = min((len(s.op.axis) for s in sums), default=0)
    if len(kernel.outputs) != 1 or prefix >= out.ndim or not all(along_last(s.op) for s in sums):
        schedule_default(kernel)
        return
    result = schedule[out]
    rows = result.fuse(*result.op.axis[:prefix]) if prefix else None
    for stage in list(schedule.stages):
        if not isinstance(stage.op, ComputeOp) or stage.attach_type != "root":
            continue
        partials = reduce_by_vectors(kernel, stage) if stage.op.reduce_axis else []
        if not stage.op.reduce_axis:
            _vectorise_rest(stage, prefix, kernel.processor)
        if stage is not result and rows is not None:
            stage.compute_at(result, rows)
            for partial in partials:
                schedule[partial].compute_at(result, rows)
    if rows is not None and math.prod(extents_of(result.op.axis)) >= PARALLEL_ELEMENTS:
        result.parallel(rows)
        _fetch_next_row(schedule, result, rows, prefix)


def _fetch_next_row(schedule: Schedule, result: Stage, rows: IterVar, prefix: int) -> None:
    """Bring the next row closer while this one is computed.

    Rows that another operator has made lie in the caches of all threads, and the first stage
    would wait for each of their lines.
    """
    within = extents_of(result.op.axis[prefix:])
    if math.prod(within) * result.op.output(0).dtype.bytes > LONGEST_FETCHED_ROW:
        return
    fetched: set[Operation] = set()
    for stage in schedule.stages:
        elementwise = isinstance(stage.op, ComputeOp) and not stage.op.reduce_axis
        if elementwise and (stage is result or stage.attach_ivar is rows):
            marks = stage.iter_var_attrs
            vectors = {axis for axis, mark in marks.items() if mark.kind == VECTORIZED}
            places = [axis for axis in stage.leaf_iter_vars if axis not in vectors]
            for tensor in _read_in_step(schedule, stage.op):
                if tensor.op not in fetched:
                    stage.prefetch(tensor, places[-1], 1, rows)
                    fetched.add(tensor.op)


def _read_in_step(schedule: Schedule, op: Operation) -> list[Tensor]:
    """What lies in memory and is read element by element at the indices of the result."""
    assert isinstance(op, ComputeOp)
    found: dict[Operation, Tensor] = {}

    def look(item: object) -> None:
        if not isinstance(item, ProducerLoad) or len(item.indices) != len(op.axis):
            return
        if any(i is not axis.var for i, axis in zip(item.indices, op.axis, strict=True)):
            return
        source = item.tensor.op
        if isinstance(source, PlaceholderOp):
            found[source] = item.tensor
        elif schedule[item.tensor].attach_type == "inline":
            found.update({tensor.op: tensor for tensor in _read_in_step(schedule, source)})

    post_order(op.body[0], look)
    return list(found.values())


def _vectorise_rest(stage: Stage, prefix: int, processor: Processor) -> None:
    """Vectors along the axes within a row, which are one where all that is read lies so.

    A step that reads memory takes a whole line of the cache where rows have whole ones: a line is
    fetched once, and its vectors share their addresses.
    """
    axes = list(stage.op.axis)[prefix:]
    if not axes:
        return
    dtype = stage.op.output(0).dtype
    lanes = processor.lanes(dtype) * vectors_at_once(stage, processor)
    sizes = extents_of(axes)
    if _lie_in_order(stage.op, axes):
        axes, sizes = [stage.fuse(*axes)], [math.prod(sizes)]
    line = LINE_BITS // max(8, dtype.bits)
    assert stage.schedule is not None
    if lanes > 1 and sizes[-1] % line == 0 and _read_in_step(stage.schedule, stage.op):
        lanes = max(lanes, line)
    if sizes[-1] > lanes:
        _, narrow = stage.split(axes[-1], factor=lanes)
        stage.vectorize(narrow)
    elif sizes[-1] > 1:
        stage.vectorize(axes[-1])


def _lie_in_order(op: Operation, axes: Sequence[IterVar]) -> bool:
    """Whether all that is read along several axes has these as its own last ones, as they are."""
    assert isinstance(op, ComputeOp)
    names = [axis.var for axis in axes]
    reads: list[ProducerLoad] = []

    def look(item: object) -> None:
        if isinstance(item, ProducerLoad):
            reads.append(item)

    for part in op.body:
        post_order(part, look)

    def fits(read: ProducerLoad) -> bool:
        last = list(read.indices[-len(names) :])
        if len(last) == len(names) and all(i is name for i, name in zip(last, names, strict=True)):
            whole = [*read.tensor.shape[-len(names) :]] == [*op.output(0).shape[-len(names) :]]
            others = read.indices[: -len(names)]
        else:
            whole, others = True, read.indices
        return whole and not {v for i in others for v in variables_in(i)} & {*names}

    return len(axes) > 1 and all(fits(read) for read in reads)

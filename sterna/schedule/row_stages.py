"""Stages tagged ROWS: each row is made where a row of the result reads it, in any order.

Resizing images does so: rows are mixed as vectors first, and what lies between the elements of one
row is read from the innermost cache then.
"""

import math

from sterna.ir.node import post_order
from sterna.schedule.kernel import ROWS, Kernel
from sterna.schedule.loops import PARALLEL_ELEMENTS, extents_of, parallelise
from sterna.te import ComputeOp, Operation, Stage
from sterna.te.tensor import ProducerLoad


def rows_of(kernel: Kernel) -> dict[Stage, list[Stage]]:
    """For stages that have rows: the stages tagged ROWS that they alone read, row by row."""
    schedule = kernel.schedule
    made = [s for s in schedule.stages if s.op.tag == ROWS and s.attach_type == "root"]
    readers = [
        s for s in schedule.stages
        if isinstance(s.op, ComputeOp) and s.attach_type == "root" and len(s.op.axis) > 1
    ]
    found: dict[Stage, list[Stage]] = {}
    for rows in made:
        reading = [s for s in readers if s is not rows and _loads(kernel, s.op, rows.op)]
        if len(reading) == 1 and _reads_by_row(kernel, reading[0].op, rows.op):
            found.setdefault(reading[0], []).append(rows)
    return found


def schedule_row_by_row(kernel: Kernel, stage: Stage, made: list[Stage]) -> None:
    """The rows of a stage in parallel, each after the rows that it reads."""
    *outer, last = stage.op.axis
    _vectorise(kernel, stage)
    sizes = extents_of(outer)
    if math.prod(sizes) * extents_of([last])[0] >= PARALLEL_ELEMENTS:
        parallelise(stage, outer, sizes)
    leaves = stage.leaf_iter_vars
    place = leaves[-3] if extents_of([last])[0] > _lanes(kernel, stage) else leaves[-2]
    for rows in made:
        _vectorise(kernel, rows)
        rows.compute_at(stage, place)


def _lanes(kernel: Kernel, stage: Stage) -> int:
    return kernel.processor.lanes(stage.op.output(0).dtype)


def _vectorise(kernel: Kernel, stage: Stage) -> None:
    last = stage.op.axis[-1]
    size, lanes = extents_of([last])[0], _lanes(kernel, stage)
    if size > lanes:
        wide, last = stage.split(last, factor=lanes)
        stage.pragma(wide, "loop_partition_hint", True)
    stage.vectorize(last)


def _loads(kernel: Kernel, op: Operation, rows: Operation) -> list[tuple[ComputeOp, ProducerLoad]]:
    """Where an operation, or what is computed where it reads it, reads of the rows."""
    assert isinstance(op, ComputeOp)
    found: list[tuple[ComputeOp, ProducerLoad]] = []

    def visit(item: object) -> None:
        if not isinstance(item, ProducerLoad):
            return
        source = item.tensor.op
        if source is rows:
            found.append((op, item))
        elif source in kernel.schedule.stage_map:
            maker = kernel.schedule.stage_map[source]
            if maker.attach_type == "inline" and isinstance(source, ComputeOp):
                found.extend(_loads(kernel, source, rows))

    for part in op.body:
        post_order(part, visit)
    return found


def _reads_by_row(kernel: Kernel, op: Operation, rows: Operation) -> bool:
    """Whether each row of the result reads the rows of the same indices, through all between."""
    assert isinstance(op, ComputeOp)
    right = True

    def visit(item: object) -> None:
        nonlocal right
        if not isinstance(item, ProducerLoad):
            return
        source = item.tensor.op
        if source is rows:
            right = right and len(item.indices) == len(op.axis) and all(
                index is axis.var
                for index, axis in zip(item.indices[:-1], op.axis[:-1], strict=True)
            )
        elif source in kernel.schedule.stage_map and isinstance(source, ComputeOp):
            if kernel.schedule.stage_map[source].attach_type != "inline":
                return
            if _loads(kernel, source, rows):
                in_step = len(item.indices) == len(op.axis) and all(
                    index is axis.var for index, axis in zip(item.indices, op.axis, strict=True)
                )
                right = right and in_step and _reads_by_row(kernel, source, rows)

    for part in op.body:
        post_order(part, visit)
    return right

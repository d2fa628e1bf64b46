"""Schedules for operators that ask for nothing special on a GPU: by the shape of their loops."""

import math

from sterna.schedule.default import extents_of
from sterna.schedule.gpu.contraction import schedule_contraction
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.gpu.rows import schedule_rows
from sterna.schedule.kernel import Kernel
from sterna.schedule.registry import generic_schedule
from sterna.te import ComputeOp, IterVar, Stage, thread_axis

# Fewer results than this leave threads idle, so that several share the sum of each.
FEW_RESULTS = 4096
# Sums of fewer elements are not worth sharing.
SHORTEST_SHARED = 32


@generic_schedule("gpu")
def schedule_default(kernel: Kernel) -> None:
    """By the loops: tiles of products, rows for blocks, sums for blocks or elements for threads."""
    limits = Limits.of(kernel.target)
    if schedule_contraction(kernel, limits) or schedule_rows(kernel, limits):
        return
    for stage in list(kernel.schedule.stages):
        if isinstance(stage.op, ComputeOp) and stage.attach_type == "root":
            if is_shared_sum(stage):
                bind_sum(stage, limits)
            else:
                bind_elements(stage, limits)


def is_shared_sum(stage: Stage) -> bool:
    """Whether the threads of a block reduce one element together."""
    length = math.prod(extents_of(stage.op.reduce_axis))
    results = math.prod(extents_of(stage.op.axis))
    return length >= SHORTEST_SHARED and (results < FEW_RESULTS or length >= 1024)


def bind_elements(stage: Stage, limits: Limits) -> None:
    """All elements of a stage, one for each thread."""
    axes: list[IterVar] = list(stage.op.axis)
    if not axes and stage.op.reduce_axis:
        bind_sum(stage, limits)
        return
    fused = stage.fuse(*(axes or [stage.leaf_iter_vars[0]]))
    block, thread = stage.split(fused, factor=limits.threads)
    stage.reorder(block, thread, *stage.op.reduce_axis)
    stage.bind(block, thread_axis("blockIdx.x"))
    stage.bind(thread, thread_axis("threadIdx.x"))


def bind_sum(stage: Stage, limits: Limits) -> None:
    """A block for each result, whose threads share the sum."""
    steps = stage.fuse(*stage.op.reduce_axis)
    length = math.prod(extents_of(stage.op.reduce_axis))
    _, thread = stage.split(steps, factor=shares_of(length, limits))
    if stage.op.axis:
        block = stage.fuse(*stage.op.axis)
        stage.bind(block, thread_axis("blockIdx.x"))
    rest = [leaf for leaf in stage.leaf_iter_vars if leaf is not thread]
    data = rest[: len(rest) - 1]
    stage.reorder(*data, thread, rest[-1])
    stage.bind(thread, thread_axis("threadIdx.x"))


def shares_of(length: int, limits: Limits) -> int:
    """Into how many parts a sum of so many elements is cut: a power of two."""
    return 1 << (min(length, limits.threads).bit_length() - 1)

"""Operators that reduce rows and use the results in the same rows: softmax, norms.

A block has a row; its threads share the sums, and then the elements of the row.
"""

import math

from sterna.schedule.default import extents_of
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.kernel import Kernel
from sterna.te import ComputeOp, Stage, thread_axis

SHORTEST_ROW = 32


def schedule_rows(kernel: Kernel, limits: Limits) -> bool:
    """Schedule a kernel of rows; False if it is none."""
    schedule = kernel.schedule
    stages = [s for s in schedule.stages if s.attach_type == "root"]
    made = [s for s in stages if isinstance(s.op, ComputeOp)]
    if any(not isinstance(s.op, ComputeOp) and s.op.axis for s in stages):
        return False
    sums = [s for s in made if s.op.reduce_axis]
    rest = [s for s in made if not s.op.reduce_axis]
    if not sums or len(rest) != 1 or len(kernel.outputs) != 1 or not rest[0].is_output:
        return False
    out = rest[0]
    prefix = _row_prefix(sums, out)
    if prefix is None:
        return False
    sizes = extents_of(out.op.axis)
    length = math.prod(sizes[prefix:])
    if prefix == 0 or length < SHORTEST_ROW:
        return False
    threads = 1 << (min(length, limits.threads).bit_length() - 1)
    row = out.fuse(*out.op.axis[:prefix])
    _, lane = out.split(out.fuse(*out.op.axis[prefix:]), factor=threads)
    out.bind(row, thread_axis("blockIdx.x"))
    out.bind(lane, thread_axis("threadIdx.x"))
    for stage in sums:
        stage.set_scope("shared")
        stage.compute_at(out, row)
        steps = math.prod(extents_of(stage.op.reduce_axis))
        shares = 1 << (min(steps, threads).bit_length() - 1)
        outer, share = stage.split(stage.fuse(*stage.op.reduce_axis), factor=shares)
        stage.reorder(share, outer)
        stage.bind(share, thread_axis("threadIdx.x"))
    return True


def _row_prefix(sums: list[Stage], out: Stage) -> int | None:
    """How many axes of the result number the rows, if they do so in all sums."""
    shape = extents_of(out.op.axis)
    counts: set[int] = set()
    for stage in sums:
        sizes = extents_of(stage.op.axis)
        while sizes and sizes[-1] == 1 and len(sizes) > 1:
            sizes.pop()
        if sizes != shape[: len(sizes)] or len(stage.op.axis) not in (len(sizes), len(shape)):
            return None
        counts.add(len(sizes))
    return counts.pop() if len(counts) == 1 else None

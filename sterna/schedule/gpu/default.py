"""Schedules for operators that ask for nothing special on a GPU: by the shape of their loops."""

from sterna.schedule.gpu.limits import Limits
from sterna.schedule.kernel import Kernel
from sterna.schedule.registry import generic_schedule
from sterna.te import ComputeOp, Stage, thread_axis


@generic_schedule("gpu")
def schedule_default(kernel: Kernel) -> None:
    """Every stage a kernel of its own: an element for each thread."""
    limits = Limits.of(kernel.target)
    for stage in list(kernel.schedule.stages):
        if isinstance(stage.op, ComputeOp) and stage.attach_type == "root":
            bind_elements(stage, limits)


def bind_elements(stage: Stage, limits: Limits) -> None:
    """All elements of a stage, one for each thread."""
    axes = list(stage.op.axis) or [stage.leaf_iter_vars[0]]
    if axes[0] in stage.op.reduce_axis:
        return
    fused = stage.fuse(*axes)
    block, thread = stage.split(fused, factor=limits.threads)
    stage.reorder(block, thread, *stage.op.reduce_axis)
    stage.bind(block, thread_axis("blockIdx.x"))
    stage.bind(thread, thread_axis("threadIdx.x"))

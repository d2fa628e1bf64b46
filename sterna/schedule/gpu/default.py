"""Schedules for operators that ask for nothing special on a GPU: by the shape of their loops."""

from collections.abc import Container, Sequence

from sterna.schedule.gpu.attention import fused_attention
from sterna.schedule.gpu.contraction import schedule_contraction
from sterna.schedule.gpu.elements import bind_elements, schedule_windows
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.gpu.register_rows import rows_in_registers
from sterna.schedule.gpu.rows import schedule_rows
from sterna.schedule.gpu.sums import (
    bind_sum,
    is_shared_sum,
    is_small_product,
    is_sum_across,
    schedule_sum,
)
from sterna.schedule.gpu.tensor_cores import on_tensor_cores
from sterna.schedule.gpu.transposed_tiles import transposed_tiles
from sterna.schedule.kernel import Kernel, ScheduleTarget
from sterna.schedule.registry import generic_schedule, whole_kernel
from sterna.te import ComputeOp, Tensor


@whole_kernel("gpu")
def write_statements(
    outputs: Sequence[Tensor], target: ScheduleTarget, fixed: Container[Tensor]
) -> Tensor | None:
    """Products on Tensor Cores, attention, rows in registers, transposes; None for the rest."""
    return (
        on_tensor_cores(outputs, target, fixed) or fused_attention(outputs, target)
        or rows_in_registers(outputs, target) or transposed_tiles(outputs, target)
    )


@generic_schedule("gpu")
def schedule_default(kernel: Kernel) -> None:
    """By the loops: tiles of products, rows for blocks, shared sums, windows, or elements."""
    limits = Limits.of(kernel.target)
    inline_between(kernel)
    if is_small_product(kernel) and schedule_sum(kernel, limits):
        return
    for attempt in (schedule_contraction, schedule_rows, schedule_sum, schedule_windows):
        if attempt(kernel, limits):
            return
    for stage in list(kernel.schedule.stages):
        if isinstance(stage.op, ComputeOp) and stage.attach_type == "root":
            is_one = bool(stage.op.reduce_axis) and not stage.op.axis
            if is_shared_sum(stage) or is_sum_across(stage) or is_one:
                bind_sum(stage, limits)
            else:
                bind_elements(kernel, stage, limits)


def inline_between(kernel: Kernel) -> None:
    """Compute what lies between sums and results where it is read: arithmetic costs no memory."""
    stages = list(kernel.schedule.stages)
    statements = [stage.op for stage in stages if not isinstance(stage.op, ComputeOp)]
    whole = {tensor.op for op in statements for tensor in op.input_tensors}
    for stage in stages:
        op = stage.op
        between = stage.attach_type == "root" and not stage.is_output and op not in whole
        if between and isinstance(op, ComputeOp) and not op.reduce_axis and op.num_outputs == 1:
            stage.compute_inline()

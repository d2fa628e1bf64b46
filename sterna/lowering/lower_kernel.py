"""A fused function as loops: its tensors, scheduled and lowered."""

from dataclasses import dataclass
from typing import Any

from sterna.lowering.empty_kernel import (
    IN_ORDER,
    function_of_nothing,
    gives_nothing,
    meets_nothing,
)
from sterna.lowering.external_kernel import CALLED, call_of_other, is_made_elsewhere
from sterna.lowering.kernel_scalars import inner_scalars
from sterna.lowering.kernel_tensors import KernelTensors, kernel_tensors
from sterna.relay.expr import Call, Function, RelayExpr
from sterna.relay.op import AnyOp, record_of
from sterna.relay.traverse import post_order
from sterna.schedule.caches import with_caches
from sterna.schedule.choose import Decision, Scope, deciding
from sterna.schedule.kernel import ROWS, TABLE, Kernel, Processor
from sterna.schedule.registry import FoundSchedule, find_schedule, find_whole_kernel
from sterna.schedule.row_sums import sums_rows
from sterna.target import Target, is_gpu, processor_of
from sterna.te import ComputeOp, Operation, Schedule, Tensor, create_schedule
from sterna.te.lower import lower_schedule
from sterna.tir.passes.bind_threads import bind_threads
from sterna.tir.stmt import Buffer, PrimFunc

# Bytes that divide the addresses of a GPU's arrays: vectors of so many are loaded at once.
DEVICE_ALIGNMENT = 16


@dataclass(slots=True)
class LoweredKernel:
    """The loops of a kernel, and what its schedule chose."""

    function: PrimFunc
    arguments: int
    anchor: AnyOp
    found: FoundSchedule
    choices: dict[str, Any]
    decisions: dict[str, Decision]
    """What was asked, by name."""


def lower_kernel(
    func: Function, name: str, processor: Processor, target: Target | None = None
) -> LoweredKernel:
    """The loops of a primitive function; its arguments are its parameters and then its results.

    target: whose keys say which schedules there are; none: any processor's.
    """
    if gives_nothing(func):
        return _without_schedule(func, function_of_nothing(func, name), IN_ORDER)
    if is_made_elsewhere(func):
        return _without_schedule(func, call_of_other(func, name), CALLED)
    with deciding(scope_of(func)) as scope:
        return _lowered(func, name, processor, target or Target("llvm"), scope)


def ask_kernel(func: Function, target: Target) -> Scope:
    """What the schedule of a primitive function asks for a target, without writing its loops."""
    if gives_nothing(func) or is_made_elsewhere(func):
        return Scope()
    processor = with_caches(processor_of(target))
    with deciding(scope_of(func)) as scope:
        tensors = _tensors(func, target)
        schedule_kernel(tensors, processor, _found(tensors, target), target)
        return scope


def _without_schedule(func: Function, loops: PrimFunc, found: FoundSchedule) -> LoweredKernel:
    """A kernel that asks for nothing; the last operator is the one it is called by."""
    anchor = [record for expr in post_order(func.body) if (record := record_of(expr))][-1]
    return LoweredKernel(loops, len(loops.params), anchor, found, {}, {})


def scope_of(func: Function) -> str:
    """What a kernel is called where its schedule asks: its contraction, or its anchor's result."""
    calls = [expr for expr in post_order(func.body) if record_of(expr) is not None]
    described = [text for call in calls if (text := _contraction_of(call))]
    if described:
        return described[-1]
    last = max(calls, key=lambda call: record_of(call).pattern, default=None)  # type: ignore[union-attr]
    return "" if last is None else f"{last.op} {last.checked_type!r}"  # type: ignore[attr-defined]


def _contraction_of(call: RelayExpr) -> str:
    record = record_of(call)
    assert isinstance(call, Call) and record is not None
    if record.contraction.describe is None:
        return ""
    made = record.contraction.describe(call.attrs, *[arg.checked_type for arg in call.args])
    return "" if made is None else str(made)


def _lowered(
    func: Function, name: str, processor: Processor, target: Target, scope: Scope
) -> LoweredKernel:
    tensors = _tensors(func, target)
    found = _found(tensors, target)
    schedule, choices = schedule_kernel(tensors, processor, found, target)
    inputs = [_argument(schedule, tensor) for tensor in tensors.inputs]
    arguments = [*inputs, *tensors.outputs]
    loops = lower_schedule(schedule, [*arguments, *inner_scalars(func)], name)
    if is_gpu(target):
        loops = bind_threads(loops)
        for buffer in loops.buffers:
            if buffer is not None:
                buffer.alignment = DEVICE_ALIGNMENT
    anchor = tensors.anchor_record
    return LoweredKernel(loops, len(arguments), anchor, found, choices, scope.decisions)


def _tensors(func: Function, target: Target) -> KernelTensors:
    """The tensors of a kernel; on a GPU perhaps as statements that its schedules write."""
    if not is_gpu(target):
        return kernel_tensors(func)
    target.kind.load_schedules()
    return kernel_tensors(func, target, find_whole_kernel(_keys(target)))


def _keys(target: Target) -> list[str]:
    return list(dict.fromkeys([*target.keys, *target.kind.default_keys]))


def _found(tensors: KernelTensors, target: Target) -> FoundSchedule:
    """The schedule of the anchor for a target's keys."""
    if meets_nothing(tensors.outputs):
        return IN_ORDER
    target.kind.load_schedules()
    record = tensors.anchor_record
    return find_schedule(record.name, record.schedules, _keys(target))


def _argument(schedule: Schedule, tensor: Tensor) -> Tensor | Buffer:
    """A parameter; one that is never read, only its shape, is no part of the schedule."""
    if tensor.op in schedule.stage_map:
        return tensor
    return Buffer(tensor.name, tensor.dtype, tensor.shape)


def schedule_kernel(
    tensors: KernelTensors, processor: Processor, found: FoundSchedule, target: Target
) -> tuple[Schedule, dict[str, Any]]:
    """The schedule of a kernel, as it was found for its anchor."""
    schedule = create_schedule([tensor.op for tensor in tensors.outputs])
    _inline_others(schedule, tensors, found.is_generic, found.key == "cpu")
    record, outputs = tensors.anchor_record, list(tensors.outputs)
    sums = outputs.pop() if record.contraction.gives_row_sums and sums_rows(outputs) else None
    kernel = Kernel(schedule, tensors.anchor, outputs, processor, tensors.is_flat, sums, target)
    found.apply(kernel)
    return schedule, kernel.choices


def _inline_others(
    schedule: Schedule, tensors: KernelTensors, all_alike: bool, keep_tables: bool
) -> None:
    """Compute the elementwise operators around the anchor where they are read.

    all_alike: whether the schedule that follows treats the anchor's own stages as any others.
    keep_tables: whether tables stay in memory, and rows where the schedule is the generic one.
    """
    whole = _read_whole(schedule)
    if keep_tables:
        kept = (TABLE, ROWS) if all_alike else (TABLE,)
        whole |= {stage.op for stage in schedule.stages if stage.op.tag in kept}
    for stage in schedule.stages:
        op = stage.op
        if not isinstance(op, ComputeOp) or op.reduce_axis or stage.is_output or op in whole:
            continue
        own = op in tensors.own and not all_alike
        if not own and op.num_outputs == 1 and not _is_anchor_result(op, tensors):
            stage.compute_inline()


def _read_whole(schedule: Schedule) -> set[Operation]:
    """What statements read: they need a buffer, a scalar's too."""
    readers = [stage.op for stage in schedule.stages if not isinstance(stage.op, ComputeOp)]
    return {tensor.op for reader in readers for tensor in reader.input_tensors}


def _is_anchor_result(op: ComputeOp, tensors: KernelTensors) -> bool:
    """A result of an anchor that is more than an expression, such as a softmax: computed once."""
    return tensors.anchor_record.pattern > 2 and any(op is t.op for t in tensors.anchor)

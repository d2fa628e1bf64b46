"""Schedules of tensors for the current target, by the names that classic programs use.

topi.x86.schedule_injective, topi.cuda.schedule_reduce and their kin are all one thing here: the
generic schedule of the target that is current, or of the one that the module's name says.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from sterna.schedule.kernel import Kernel
from sterna.schedule.registry import find_schedule
from sterna.target import Target, processor_of
from sterna.te import ComputeOp, Operation, Schedule, Tensor, create_schedule
from sterna.topi.tag import is_injective


def scheduled(outs: Tensor | Sequence[Tensor], default: str = "llvm") -> Schedule:
    """A schedule of tensors for the current target; default: the target where there is none."""
    outputs = [outs] if isinstance(outs, Tensor) else list(outs)
    if not outputs:
        raise ValueError("a schedule is made of one tensor at least")
    target = Target.current(allow_none=True) or Target(default)
    schedule = create_schedule([tensor.op for tensor in outputs])
    for stage in schedule.stages:
        op = stage.op
        if not isinstance(op, ComputeOp) or op.reduce_axis or stage.is_output:
            continue
        if is_injective(op.tag) or not _is_repeated(schedule, op):
            stage.compute_inline()
    target.kind.load_schedules()
    keys = list(dict.fromkeys([*target.keys, *target.kind.default_keys]))
    anchor = _anchor(outputs)
    kernel = Kernel(schedule, anchor, outputs, processor_of(target), target=target)
    find_schedule("", {}, keys).apply(kernel)
    return schedule


def _is_repeated(schedule: Schedule, op: Operation) -> bool:
    """Whether an element of a stage is read by many, so that it is kept."""
    readers = [stage.op for stage in schedule.stages
               if any(tensor.op is op for tensor in stage.op.input_tensors)]
    return len(readers) != 1 or any(getattr(reader, "reduce_axis", ()) for reader in readers)


def _anchor(outputs: list[Tensor]) -> list[Tensor]:
    """The last sum before the outputs, whose loops a kernel follows; without one an output."""
    stack, seen = [tensor.op for tensor in outputs], set()
    while stack:
        op = stack.pop(0)
        if isinstance(op, ComputeOp) and op.reduce_axis:
            return [op.output(0)]
        seen.add(op)
        stack += [tensor.op for tensor in op.input_tensors if tensor.op not in seen]
    return outputs[:1]


def scheduler(default: str) -> Callable[[str], Any]:
    """The __getattr__ of a target: schedule_x schedules any tensors, all else is topi.nn's."""

    def find(name: str) -> Any:
        if not name.startswith("schedule_"):
            computations = importlib.import_module("sterna.topi.nn")
            if name.startswith("__") or not hasattr(computations, name):
                raise AttributeError(f"no function of topi.nn is named {name}, and no schedule is")
            return getattr(computations, name)  # what is computed does not depend on the target

        def schedule(outs: Any, *_: Any, **__: Any) -> Schedule:
            return scheduled(outs, default)

        schedule.__name__ = schedule.__qualname__ = name
        schedule.__doc__ = "A schedule of these tensors for the current target."
        return schedule

    return find

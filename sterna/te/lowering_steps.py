"""The steps of lowering one by one, as classic programs call them: InferBound, ScheduleOps.

    s = te.create_schedule(C.op)
    bounds = te.schedule.InferBound(s.normalize())
    stmt = te.schedule.ScheduleOps(s, bounds)
"""

from sterna.te.bounds import infer_bounds
from sterna.te.lower import lower_schedule
from sterna.te.normalize import normalize
from sterna.te.schedule import Schedule
from sterna.te.tensor import IterVar, PlaceholderOp, Range
from sterna.tir.stmt import Stmt


def InferBound(sch: Schedule) -> dict[IterVar, Range]:
    """The range of every axis of every stage that is computed."""
    found: dict[IterVar, Range] = {}
    for ranges in infer_bounds(normalize(sch)).ranges.values():
        found.update(ranges)
    return found


def ScheduleOps(sch: Schedule, bounds: dict[IterVar, Range]) -> Stmt:
    """The loops of a schedule; its inputs and outputs lie in the caller's memory.

    bounds: what InferBound says of the schedule; lowering finds it itself.
    """
    inputs = [s.op.output(0) for s in sch.stages if isinstance(s.op, PlaceholderOp)]
    outputs = [tensor for op in sch.outputs for tensor in op.outputs]
    return lower_schedule(sch, [*inputs, *outputs], "main").body

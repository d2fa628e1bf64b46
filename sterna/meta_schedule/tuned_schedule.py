"""Schedules of loops that a record's trace holds, as steps of auto_scheduler."""

from dataclasses import dataclass
from typing import Any

from sterna.auto_scheduler.compute_dag import ComputeDAG
from sterna.auto_scheduler.loop_state import State
from sterna.auto_scheduler.steps import step_of_json
from sterna.driver import lower
from sterna.ir.module import IRModule
from sterna.te import Tensor
from sterna.te.prim_func import tensors_of
from sterna.tir.stmt import PrimFunc

STEPS = "SternaSteps"
# The name of a function that stands alone.
MAIN = "main"


@dataclass(frozen=True)
class ScheduleTrace:
    """What was done to the loops of a function."""

    json: Any
    lines: tuple[str, ...]

    def as_json(self) -> Any:
        """As a record holds it."""
        return self.json

    def as_python(self) -> list[str]:
        """As calls of te."""
        return list(self.lines)

    def show(self) -> None:
        """Print the calls."""
        print("\n".join(self.lines))


@dataclass(frozen=True)
class TunedSchedule:
    """Functions whose loops were chosen by search; trace: of a single one, or of each."""

    mod: IRModule
    trace: Any

    def show(self) -> None:
        """Print the loops."""
        print(self.mod)


def scheduled(name: str, func: PrimFunc, trace: Any) -> tuple[PrimFunc, ScheduleTrace]:
    """A function with the loops that a trace says."""
    state = State(ComputeDAG(computed_by(name, func)), _steps(trace))
    schedule, args = state.apply()
    made = lower(schedule, args, name=name)[name]
    assert isinstance(made, PrimFunc)
    return made, ScheduleTrace(trace, tuple(state.lines()))


def _steps(trace: Any) -> tuple[Any, ...]:
    try:
        name, _, (rows,), _ = trace[0][0]
        if name == STEPS:
            return tuple(step_of_json(row) for row in rows)
    except (IndexError, TypeError, ValueError):
        pass
    raise ValueError("the record's trace holds no steps of a schedule; tune_tir writes such ones")


def computed_by(name: str, func: PrimFunc) -> list[Tensor]:
    """The tensors that a function was made of."""
    found = tensors_of(func)
    if found is None:
        raise TypeError(
            f"the loops of '{name}' were not made by te.create_prim_func in this program, so what "
            "they compute cannot be scheduled anew; make it of tensors (te.compute) there"
        )
    return found

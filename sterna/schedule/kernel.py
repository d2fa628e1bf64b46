"""What a schedule is given: the stages of one fused kernel and the machine that it will run on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sterna.isa.processor import Processor
from sterna.te import Schedule, Tensor

__all__ = ["ROWS", "TABLE", "Kernel", "Processor"]

TABLE = "table"
"""The tag of stages of few elements that many others read: processors compute them once."""
ROWS = "rows"
"""The tag of stages whose last axis is read in any order, and the others as the result has them.

Generic schedules of processors make a row of them for each row of the result.
"""


class ScheduleTargetKind(Protocol):
    """What schedules ask of a kind of target."""

    @property
    def picks_instructions(self) -> bool: ...


class ScheduleTarget(Protocol):
    """What schedules ask of a target."""

    @property
    def kind(self) -> ScheduleTargetKind: ...

    @property
    def keys(self) -> Sequence[str]: ...

    @property
    def attrs(self) -> Mapping[str, str | int | bool | tuple[str, ...]]: ...


@dataclass(slots=True)
class Kernel:
    """One fused function as tensor expressions, to be scheduled.

    Elementwise and injective stages that are neither the anchor's nor outputs are inlined already.
    """

    schedule: Schedule
    anchor: list[Tensor]
    """What the operator that gives the kernel its shape of loops has made."""
    outputs: list[Tensor]
    processor: Processor
    is_flat: bool = False
    """Whether every operand is read at the very index that is written."""
    row_sums: Tensor | None = None
    """One more output: the sums of the rows of the first. Only anchors that give them have it."""
    target: ScheduleTarget | None = None
    """What else is known of where it will run, for schedules of other devices than processors."""
    choices: dict[str, Any] = field(default_factory=dict)
    """Answers to the schedule's questions, kept for the build report."""

"""What a schedule is given: the stages of one fused kernel and the machine that it will run on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sterna.support.dtype import DataType
from sterna.te import Schedule, Tensor


@dataclass(frozen=True, slots=True)
class Pace:
    """What a processor does in a cycle, and how many cycles a multiply-add takes."""

    multiply_adds: int = 2
    loads: int = 2
    latency: int = 4
    issued: int = 4
    counting: int = 3
    """Instructions of a step of a sum that only count."""
    sent: int = 0
    """Cycles until the second cache has sent a vector."""


COMMON = Pace()


@dataclass(frozen=True, slots=True)
class Processor:
    """What schedules ask of a processor."""

    vector_bits: int = 128
    """The widest vector that pays."""
    vector_registers: int = 16
    loaded_ahead: int = 0
    """How many of these compilers fill with operands of products to come."""
    by_element: bool = False
    """Whether a product takes one lane of a register for all lanes of another."""
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    multiplies_bytes: bool = False
    """Whether an instruction adds four products of bytes to each lane."""
    pairs_bytes: bool = False
    """Whether there is only one that adds two, in 16 bits: dot2."""
    threads: int = 1
    """How many kernels are written for; more threads find work in parallel loops too."""
    computes_half: bool = False
    """Whether vectors of float16 are multiplied and added as they are, twice as many at once."""
    spreads_half: bool = True
    """Whether a float16 comes into all lanes of a register as quickly as wider numbers do."""
    tiles: tuple[str, ...] = ()
    """The types of matrices that are multiplied in registers of their own: bfloat16, int8."""
    pace: Pace = COMMON
    pace_beside_others: Pace = COMMON
    """What is left where another program's thread runs on the same core."""

    @property
    def tile_registers(self) -> int:
        """Registers for a tile of accumulators, a row of what it takes, and one more operand."""
        return self.registers_for(1)

    def registers_for(self, together: int) -> int:
        """The same where the numbers of so many steps share a register."""
        ahead = self.loaded_ahead if together == 1 else 0
        return max(2, self.vector_registers - ahead)

    def steps_together(self, dtype: DataType, depth: int) -> int:
        """The steps of a sum whose numbers one load brings, of so many that lie side by side."""
        lanes = self.lanes(dtype)
        return lanes if self.by_element and depth > lanes and depth % lanes == 0 else 1

    def tile_widths(self, dtype: DataType, columns: int) -> tuple[int, ...]:
        """The widths of a register tile of a type that suit so many columns; none: any may do.

        A number that is slow to spread is an operand of one product, which spreads it on the way.
        """
        lanes = self.lanes(dtype)
        slow = dtype == "float16" and self.computes_half and not self.spreads_half
        return (lanes,) if slow and columns % lanes == 0 else ()

    def lanes(self, dtype: DataType) -> int:
        """Elements of a vector."""
        return max(1, self.vector_bits // max(8, dtype.bits))


class ScheduleTarget(Protocol):
    """What schedules ask of a target."""

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

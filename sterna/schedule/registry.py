"""Which schedule a kernel gets: found by the operator that it follows and the keys of its target.

A target's keys say what it is, from narrow to broad: arm_cpu, cpu. An operator's record holds its
own schedules by key, most often one for cpu. A target's files add others without a change there:

    @schedule_for("nn.dense", "toy")
    def schedule_dense(kernel: Kernel) -> None: ...

    @generic_schedule("toy")
    def schedule_rest(kernel: Kernel) -> None: ...

    @whole_kernel("toy")
    def statements(outputs, target, fixed) -> Tensor | None: ...

The operator's schedule for the narrowest key is taken, and where it has none for any of the keys
the narrowest generic one, which goes by the loops alone. The build report says what was taken.
Before that, a function for whole kernels may write a kernel's statements itself.
"""

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sterna.schedule.kernel import Kernel, ScheduleTarget
from sterna.te import Tensor

K = TypeVar("K")
V = TypeVar("V")
ScheduleFunction = Callable[[Kernel], None]
WholeKernel = Callable[[Sequence[Tensor], ScheduleTarget, Container[Tensor]], Tensor | None]
"""The statements that make a kernel's results, or None; the last are operands that no kernel
makes."""

_of_operators: dict[tuple[str, str], ScheduleFunction] = {}
_generic: dict[str, ScheduleFunction] = {}
_whole: dict[str, WholeKernel] = {}


@dataclass(frozen=True, slots=True)
class FoundSchedule:
    """A schedule, and how it was found."""

    apply: ScheduleFunction
    key: str
    is_generic: bool
    """Whether it goes by the loops alone, and not by the operator."""

    @property
    def why(self) -> str:
        """Why this one, and the first line of what it says of itself."""
        whose = f"no schedule of its own, the generic one for {self.key}" if self.is_generic else (
            f"its own schedule for {self.key}"
        )
        doc = (inspect.getdoc(self.apply) or "").partition("\n")[0]
        return f"{whose}: {doc}" if doc else whose


def schedule_for(operator: str, key: str) -> Callable[[ScheduleFunction], ScheduleFunction]:
    """Registers how kernels of an operator run on targets that have a key."""

    what = f"schedules are registered for {operator} and the key '{key}'"
    return partial(_add, _of_operators, (operator, key), what)


def generic_schedule(key: str) -> Callable[[ScheduleFunction], ScheduleFunction]:
    """Registers how other kernels run on targets that have a key."""

    return partial(_add, _generic, key, f"generic schedules are registered for the key '{key}'")


def whole_kernel(key: str) -> Callable[[WholeKernel], WholeKernel]:
    """Registers what writes the statements of kernels on targets that have a key."""

    what = f"functions are registered for whole kernels of the key '{key}'"
    return partial(_add, _whole, key, what)


def _add(table: dict[K, V], key: K, what: str, value: V) -> V:
    """Enters a value once; what: how two of them are spoken of."""
    if table.setdefault(key, value) is not value:
        raise ValueError(f"two {what}")
    return value


def find_whole_kernel(keys: Sequence[str]) -> WholeKernel | None:
    """What writes the statements of kernels for the narrowest key; None if nothing does."""
    return next((_whole[key] for key in keys if key in _whole), None)


def find_schedule(
    operator: str, own: Mapping[str, ScheduleFunction], keys: Sequence[str]
) -> FoundSchedule:
    """How a kernel of an operator runs; own: the schedules in its record, by key."""
    for key in keys:
        found = _of_operators.get((operator, key)) or own.get(key)
        if found is not None:
            return FoundSchedule(found, key, False)
    for key in keys:
        if key in _generic:
            return FoundSchedule(_generic[key], key, True)
    raise ValueError(
        f"{operator} has no schedule for a target with the keys {', '.join(keys) or '(none)'}, and "
        f"none of these has a generic one; the keys that have: {', '.join(sorted(_generic))}"
    )

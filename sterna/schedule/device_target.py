"""The device that an operator's statements are written for, where it decides how."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sterna.schedule.kernel import ScheduleTarget

_AT_HAND: ContextVar[ScheduleTarget | None] = ContextVar("device at hand", default=None)


@contextmanager
def written_for(device: ScheduleTarget | None) -> Iterator[None]:
    """Statements inside are written for a device."""
    token = _AT_HAND.set(device)
    try:
        yield
    finally:
        _AT_HAND.reset(token)


def has_many_barriers() -> bool:
    """Whether blocks of the device at hand meet dozens of times in a kernel at little cost.

    OpenCL's devices may be processors, whose drivers make a loop over all threads between any two
    barriers: one did not run a sort of 60 such within 100 seconds.
    """
    device = _AT_HAND.get()
    return device is not None and "cuda" in device.keys

"""Schedulers of tasks by name: the engine tries all layers of a network at once."""

from collections.abc import Sequence
from typing import Any

from sterna.meta_schedule.names import Named


class TaskScheduler(Named):
    """Decides which task is tuned next; callbacks are told the tasks by it."""

    what = "task_scheduler"
    tasks: Sequence[Any] = ()
    database: Any = None


class GradientBased(TaskScheduler):
    """By this name in most programs."""

    options_known = ("alpha", "window_size", "seed")


class RoundRobin(TaskScheduler):
    """By this name in programs that asked for turns."""


TaskScheduler.kinds = {
    "gradient": GradientBased, "round-robin": RoundRobin, "round_robin": RoundRobin
}
create = TaskScheduler.create

"""What a search may take, as older programs say it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sterna.meta_schedule.search_strategy import SearchStrategy
from sterna.meta_schedule.task_scheduler import TaskScheduler

# What a network is given if nobody says anything else.
TRIALS = 64


class TuneConfig(NamedTuple):
    """How many trials there are, for all tasks and for each; the rest is the engine's to decide."""

    max_trials_global: int | None = None
    num_trials_per_iter: int = 64
    max_trials_per_task: int | None = None
    task_scheduler: str = "gradient"
    strategy: str = "evolutionary"
    task_scheduler_config: Mapping[str, Any] | None = None
    search_strategy_config: Mapping[str, Any] | None = None
    logger_config: Mapping[str, Any] | None = None
    adaptive_training: bool | None = None

    def check(self) -> "TuneConfig":
        """The same; raises ValueError for what no version ever took."""
        SearchStrategy.check(self.strategy)
        TaskScheduler.check(self.task_scheduler)
        for name in ("max_trials_global", "num_trials_per_iter", "max_trials_per_task"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name}={value!r} must be a number of at least 1")
        return self

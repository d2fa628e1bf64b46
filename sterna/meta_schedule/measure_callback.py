"""What is called after each measurement.

The engine itself writes records and learns; the classic callbacks that stand for this are names.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.meta_schedule.builder import BuilderResult
from sterna.meta_schedule.runner import RunnerResult
from sterna.meta_schedule.search_strategy import MeasureCandidate
from sterna.meta_schedule.task_scheduler import TaskScheduler


class MeasureCallback:
    """Is told what was measured."""

    def apply(
        self, task_scheduler: TaskScheduler, task_id: int,
        measure_candidates: Sequence[MeasureCandidate], builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        """After some candidates of a task were built and run."""

    @staticmethod
    def create(kind: str) -> Any:
        """A callback by its name; default gives the list of those that there are anyway."""
        known = {"add-to-database": AddToDatabase, "remove-build-artifact": RemoveBuildArtifact,
                 "update-cost-model": UpdateCostModel}
        if kind == "default":
            return [make() for make in known.values()]
        if kind not in known:
            raise ValueError(f"measure_callbacks '{kind}' is unknown; there are default, "
                             f"{', '.join(known)}")
        return known[kind]()


class PyMeasureCallback(MeasureCallback):
    """What users derive their own from."""


class AddToDatabase(MeasureCallback):
    """Records are written whether it is named or not."""


class RemoveBuildArtifact(MeasureCallback):
    """Files of candidates are removed whether it is named or not."""


class UpdateCostModel(MeasureCallback):
    """The search learns whether it is named or not."""


def callbacks_of(given: Any) -> list[MeasureCallback]:
    """What a user gave: callbacks, one, or a name."""
    if isinstance(given, str):
        found = MeasureCallback.create(given)
        return found if isinstance(found, list) else [found]
    if isinstance(given, MeasureCallback):
        return [given]
    if not isinstance(given, Iterable):
        raise TypeError(f"measure_callbacks are a name or a list of callbacks, not {given!r}")
    return [each for one in given for each in callbacks_of(one)]


@dataclass(frozen=True)
class Told:
    """The callbacks of one task."""

    callbacks: Sequence[MeasureCallback]
    scheduler: TaskScheduler
    task_id: int

    def tell(
        self, schedules: Sequence[Any], results: Sequence[tuple[Sequence[float], str]]
    ) -> None:
        """Call them for schedules, with the seconds of each or what went wrong."""
        candidates = [MeasureCandidate(each) for each in schedules]
        built = [BuilderResult(None, None) for _ in schedules]
        ran = [RunnerResult(list(seconds) or None, None if seconds else error or "it failed")
               for seconds, error in results]
        for callback in self.callbacks:
            callback.apply(self.scheduler, self.task_id, candidates, built, ran)


create = MeasureCallback.create

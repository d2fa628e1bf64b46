"""Networks of Relay: their layers as tasks, and building with the best that a log knows."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from sterna.auto_scheduler.measure import MeasureInput, MeasureResult
from sterna.auto_scheduler.measure_record import best_records, load_records
from sterna.auto_scheduler.search_task import HardwareParams, LayerSearchTask
from sterna.autotvm.layers import extract_from_program
from sterna.ir.module import IRModule
from sterna.relay.expr import Function
from sterna.schedule.choose import answering
from sterna.target import Target
from sterna.tune.network_tasks import extract

Record = tuple[MeasureInput, MeasureResult]


def extract_tasks(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    target: Any,
    target_host: Any = None,
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | None = None,
    opt_level: int = 3,
    other_targets: Sequence[Any] | None = None,
) -> tuple[list[LayerSearchTask], list[int]]:
    """The layers of a network whose schedules can be chosen otherwise, and how often each is."""
    wanted = Target(target)
    if target_host is not None:
        wanted = wanted.with_host(target_host)
    known = {task.scope: task for task in extract(mod, wanted, params, opt_level)}
    tasks, weights = [], []
    for layer in extract_from_program(mod, params, wanted):
        task = known.get(layer.scope)
        shown = str(task.mod) if task is not None else layer.scope
        desc = task.task_name if task is not None else layer.scope
        tasks.append(LayerSearchTask(layer, shown, desc))
        weights.append(task.weight if task is not None else 1)
    return tasks, weights


class ApplyHistoryBest:
    """Networks that are built inside have the best of a log, of several, or of records."""

    def __init__(
        self, records: Any, n_lines: int | None = None, include_compatible: bool = False
    ) -> None:
        found = list(_records(records))
        best = best_records(found if n_lines is None else found[:n_lines])
        self.answers: dict[str, str] = {}
        for asked, _ in best.values():
            self.answers |= dict(getattr(asked.state, "answers", ()))
        self.best = best
        self._stack = ExitStack()

    def __enter__(self) -> "ApplyHistoryBest":
        self._stack.enter_context(answering(self.answers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


ApplyHistoryBestOrSample = ApplyHistoryBest


def _records(given: Any) -> Iterator[Record]:
    if given is None:
        return
    if isinstance(given, str | os.PathLike):
        yield from load_records(given)
    elif isinstance(given, Iterable):
        for each in given:
            if isinstance(each, str | os.PathLike):
                yield from load_records(each)
            else:
                yield each
    else:
        raise TypeError(f"records are a log file, several, or measurements, not {given!r}")


def is_auto_scheduler_enabled() -> bool:
    """Builds look for what was tuned by themselves."""
    return True

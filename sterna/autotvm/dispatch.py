"""Which configuration a template gets: the best that a log knows for its workload and target."""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from sterna.autotvm.layers import LAYER, answers_of_config
from sterna.autotvm.record import Record, best_records, load_from_file
from sterna.autotvm.space import Config, FallbackConfigEntity
from sterna.autotvm.template import Workload, looking_up
from sterna.schedule.choose import answering
from sterna.target import Target


class ApplyHistoryBest:
    """Templates and networks inside are built with the best of a log, of several, or of records."""

    def __init__(self, records: Any) -> None:
        self._best = best_records(_records(records))
        self._entered: list[ExitStack] = []

    def query(self, target: Target | None, workload: Workload) -> Config | None:
        """The best configuration known for a workload; None if no record is about it."""
        found = self._best.get((str(target), workload)) or next(
            (record for (_, own), record in self._best.items() if own == workload
             and target is not None and record[0].target.kind.name == target.kind.name), None)
        return None if found is None else found[0].config

    def __enter__(self) -> "ApplyHistoryBest":
        answers: dict[str, str] = {}
        for asked, _ in self._best.values():
            if asked.task.name == LAYER:
                answers |= answers_of_config(str(asked.task.args[0]), asked.config)
        with ExitStack() as stack:
            stack.enter_context(answering(answers))
            stack.enter_context(looking_up(self.query))
            self._entered.append(stack.pop_all())
        return self

    def __exit__(self, *reason: Any) -> None:
        self._entered.pop().__exit__(*reason)


apply_history_best = apply_graph_best = ApplyHistoryBest


class FallbackContext:
    """Templates inside of a with block get their first candidates, whatever is known outside."""

    def __enter__(self) -> "FallbackContext":
        self._lookup = looking_up(lambda _, workload: FallbackConfigEntity())
        self._lookup.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._lookup.__exit__(*reason)


def _records(given: Any) -> Iterable[Record]:
    if given is None:
        return []
    if isinstance(given, str | os.PathLike):
        return load_from_file(given)
    if isinstance(given, Sequence) and all(isinstance(g, str | os.PathLike) for g in given):
        return [record for path in given for record in load_from_file(path)]
    return list(given)

"""Which configuration a template gets: the best that a log knows for its workload and target."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sterna.autotvm.layers import LAYER, answers_of_config
from sterna.autotvm.record import Record, best_records, load_from_file
from sterna.autotvm.space import Config, FallbackConfigEntity
from sterna.autotvm.template import Workload, looking_up
from sterna.schedule.choose import answering
from sterna.target import Target


@contextmanager
def apply_history_best(records: Any) -> Iterator[None]:
    """Templates and networks inside are built with the best of a log, of several, or of records."""
    best = best_records(_records(records))
    answers: dict[str, str] = {}
    for asked, _ in best.values():
        if asked.task.name == LAYER:
            answers |= answers_of_config(str(asked.task.args[0]), asked.config)

    def lookup(target: Target | None, workload: Workload) -> Config | None:
        exact = best.get((str(target), workload))
        found = exact or next(
            (record for (_, own), record in best.items() if own == workload
             and target is not None and record[0].target.kind.name == target.kind.name), None)
        return None if found is None else found[0].config

    with answering(answers), looking_up(lookup):
        yield


apply_graph_best = apply_history_best


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

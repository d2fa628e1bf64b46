"""Log lines: what was measured, one JSON object a line, as programs of old wrote and read them.

Schedules of workloads are kept as steps. Layers of networks are kept as answers to the questions
that their schedules ask, beside no steps.
"""

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.auto_scheduler.measure import MeasureInput, MeasureResult, seconds_of
from sterna.auto_scheduler.steps import Step, step_of_json
from sterna.auto_scheduler.workload_registry import find_workload, parse_key
from sterna.autotvm.measure import FAILED_COST
from sterna.autotvm.record import BROKEN, add_lines, is_cut
from sterna.support.write_aside import write_text_aside

VERSION = "v0.6"
PathLike = str | os.PathLike[str]
MeasureCallback = Callable[[Sequence[MeasureInput], Sequence[MeasureResult]], None]


@dataclass(frozen=True)
class LoggedTask:
    """A task as a log knows it."""

    workload_key: str
    target: str
    hardware: tuple[int, ...] = ()
    host: str = ""


@dataclass(frozen=True)
class LoggedState:
    """A schedule as a log knows it: steps, or for a layer of a network answers."""

    transform_steps: tuple[Step, ...]
    answers: tuple[tuple[str, str], ...] = ()


def dump_record_to_string(inp: MeasureInput, res: MeasureResult) -> str:
    """A measurement as a line."""
    task, state = inp.task, inp.state
    hardware = list(getattr(task, "hardware", ()) or task.hardware_params.numbers())
    costs = list(res.costs) if res.error_no == 0 else [FAILED_COST]
    row: dict[str, Any] = {
        "i": [[task.workload_key, str(task.target), hardware, _host(task), 0, []],
              [[], [step.to_json() for step in state.transform_steps]]],
        "r": [costs, int(res.error_no), res.all_cost, int(res.timestamp)],
        "v": VERSION,
    }
    answers = dict(getattr(state, "answers", ()))
    if answers:
        row["answers"] = answers
    return json.dumps(row)


def _host(task: Any) -> str:
    host = getattr(task, "host", None) or getattr(task.target, "host", None)
    return "" if host is None else str(host)


def load_record_from_string(record: str) -> tuple[MeasureInput, MeasureResult]:
    """What dump_record_to_string gave. Raises ValueError for what is no line of a log."""
    try:
        row = json.loads(record)
        (key, target, hardware, *more), (_, steps, *_) = row["i"]
        parse_key(key)
        costs, error_no, all_cost, timestamp = row["r"]
        answers = tuple((str(k), str(v)) for k, v in row.get("answers", {}).items())
        state = LoggedState(tuple(step_of_json(step) for step in steps), answers)
        host = more[0] if more and isinstance(more[0], str) else ""
        task = LoggedTask(key, str(target), tuple(int(each) for each in hardware), host)
        seconds = tuple(float(cost) for cost in costs)
        result = MeasureResult(seconds, int(error_no), "", float(all_cost), float(timestamp))
    except BROKEN as error:
        raise ValueError(f"this is no line of a tuning log: {record[:80]!r}: {error}") from None
    return MeasureInput(task, state), result


class RecordToFile:
    """Adds each measurement to a log, at once: what is killed later has lost nothing."""

    def __init__(self, filename: PathLike) -> None:
        self.filename = Path(filename)
        self.filename.parent.mkdir(parents=True, exist_ok=True)

    def __call__(
        self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        save_records(self.filename, inputs, results)


class RecordReader:
    """Reads a log, line by line."""

    def __init__(self, filename: PathLike) -> None:
        self.filename = filename

    def __iter__(self) -> Iterator[tuple[MeasureInput, MeasureResult]]:
        with Path(self.filename).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip() or line.startswith("#"):
                    continue
                if is_cut(line):
                    warnings.warn(f"{self.filename}, line {number} was cut and is left out",
                                  stacklevel=2)
                    continue
                try:
                    yield load_record_from_string(line)
                except ValueError as error:
                    raise ValueError(f"{self.filename}, line {number}: {error}") from None

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Some measurements: what was measured, and what it took."""
        rows = list(self)[skip_lines:]
        rows = rows[: max_lines if max_lines is not None else len(rows)]
        return [asked for asked, _ in rows], [result for _, result in rows]

    def check_workload_key(self, inputs: Sequence[MeasureInput]) -> None:
        """Refuse measurements of workloads that this program has not registered."""
        for asked in inputs:
            find_workload(parse_key(asked.task.workload_key)[0])


def load_records(filename: PathLike) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """The measurements of a log."""
    return iter(RecordReader(filename))


def save_records(
    filename: PathLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
) -> None:
    """Add measurements to a log."""
    lines = [dump_record_to_string(i, r) for i, r in zip(inputs, results, strict=True)]
    add_lines(filename, lines)


def best_records(
    records: Iterable[tuple[MeasureInput, MeasureResult]],
) -> dict[tuple[str, str], tuple[MeasureInput, MeasureResult]]:
    """The fastest measurement of each workload for each kind of target."""
    best: dict[tuple[str, str], tuple[MeasureInput, MeasureResult]] = {}
    for asked, result in records:
        key = asked.task.workload_key, str(asked.task.target).partition(" ")[0]
        if result.error_no == 0 and (
            key not in best or seconds_of(result) < seconds_of(best[key][1])
        ):
            best[key] = asked, result
    return best


def load_best_record(
    filename: PathLike, workload_key: str | None = None, target: Any = None,
    include_compatible: bool = False,
) -> tuple[MeasureInput | None, MeasureResult | None]:
    """The fastest measurement of a workload for a target's kind, or two Nones."""
    kind = None if target is None else str(target).partition(" ")[0]
    found = [
        record for (key, own), record in best_records(load_records(filename)).items()
        if workload_key in (None, key) and kind in (None, own)
    ]
    if not found:
        return None, None
    return min(found, key=lambda record: seconds_of(record[1]))


def distill_record_file(in_file: PathLike, out_file: PathLike) -> None:
    """Write the fastest measurement of each workload to a log of its own."""
    best = best_records(load_records(in_file)).values()
    lines = "".join(f"{dump_record_to_string(*record)}\n" for record in best)
    write_text_aside(out_file, lines)

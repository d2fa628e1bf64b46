"""Log lines: what was measured, one JSON object a line."""

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from io import TextIOBase
from pathlib import Path
from typing import Any

from sterna.autotvm.measure import FAILED_COST, MeasureInput, MeasureResult, seconds_of
from sterna.autotvm.space import ConfigEntity
from sterna.autotvm.template import Workload, workload_of
from sterna.support.write_aside import write_text_aside
from sterna.target import Target
from sterna.te import Tensor, placeholder
from sterna.version import __version__

VERSION = 0.2
Record = tuple[MeasureInput, MeasureResult]
# What a line that is wrong somewhere leads to.
BROKEN = (
    AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError
)


class LoggedTask:
    """A task as a log knows it: it need not be a template of this program."""

    def __init__(self, name: str, args: Sequence[Any]) -> None:
        self.name, self.args = name, tuple(args)

    @property
    def workload(self) -> Workload:
        """What was tuned, as a key."""
        return workload_of(self.name, self.args)


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """A measurement as a line."""
    if protocol != "json":
        raise ValueError(f"protocol '{protocol}': lines are json")
    costs = result.costs if result.error_no == 0 else (FAILED_COST,)
    return json.dumps({
        "input": [str(inp.target), inp.task.name, [_plain(arg) for arg in inp.task.args], {}],
        "config": inp.config.to_json_dict(),
        "result": [list(costs), result.error_no, result.all_cost, result.timestamp],
        "version": VERSION,
        "tvm_version": __version__,
    })


def decode(row: str, protocol: str = "json") -> Record | None:
    """What encode gave; None for a comment. Raises ValueError for what is no line of a log."""
    if not row.strip() or row.startswith("#"):
        return None
    try:
        found = json.loads(row)
        if found.get("v", VERSION) < VERSION:
            warnings.warn("lines of tuning logs before version 0.2 are not read", stacklevel=2)
            return None
        target, name, args, *_ = found["input"]
        config = ConfigEntity.from_json_dict(found["config"])
        costs, error_no, all_cost, timestamp = found["result"]
        task: Any = LoggedTask(str(name), [_value(arg) for arg in args])
        result = MeasureResult(tuple(map(float, costs)), int(error_no), all_cost, timestamp)
        return MeasureInput(Target(target), task, config), result
    except BROKEN as error:
        raise ValueError(f"this is no line of a tuning log: {row[:80]!r}: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return ["TENSOR", [int(str(extent)) for extent in value.shape], str(value.dtype)]
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _value(value: Any) -> Any:
    if isinstance(value, list):
        if value[:1] == ["TENSOR"]:
            return placeholder(tuple(value[1]), dtype=value[2])
        return tuple(_value(each) for each in value)
    if isinstance(value, dict):
        raise TypeError("an argument cannot be a dict")
    return value


def load_from_file(path: str | os.PathLike[str]) -> Iterator[Record]:
    """The measurements of a log."""
    with Path(path).open(encoding="utf-8") as file:
        yield from load_from_buffer(file)


def load_from_buffer(file: Iterable[str] | TextIOBase) -> Iterator[Record]:
    """The measurements of an open log; lines that are none are refused by their number.

    One that whoever wrote it had no time to end is left out, with a warning.
    """
    for number, line in enumerate(file, 1):
        if is_cut(str(line)):
            warnings.warn(f"line {number} of a tuning log was cut and is left out", stacklevel=2)
            continue
        try:
            found = decode(str(line))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if found is not None:
            yield found


def is_cut(line: str) -> bool:
    """Whether a line is the beginning of a JSON object or list without its end."""
    if not line.startswith(("{", "[")):
        return False
    try:
        json.loads(line)
    except RecursionError:
        return False
    except ValueError:
        return True
    return False


def add_lines(path: str | os.PathLike[str], lines: Iterable[str]) -> None:
    """Add lines to a log at once, behind a line that a writer who was killed did not end."""
    with Path(path).open("a+b") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            is_open = file.read(1) != b"\n"
        else:
            is_open = False
        text = "".join(f"{line}\n" for line in lines)
        file.write(("\n" + text if is_open else text).encode())


def best_records(records: Iterable[Record]) -> dict[tuple[str, Workload], Record]:
    """The fastest measurement of each workload for each target."""
    best: dict[tuple[str, Workload], Record] = {}
    for asked, result in records:
        key = str(asked.target), asked.task.workload
        if result.error_no == 0 and (
            key not in best or seconds_of(result) < seconds_of(best[key][1])
        ):
            best[key] = asked, result
    return best


def pick_best(in_file: Any, out_file: str | os.PathLike[str]) -> None:
    """Write the fastest measurement of each workload to a log of its own."""
    records = load_from_file(in_file) if isinstance(in_file, str | os.PathLike) else in_file
    lines = [encode(asked, result) for asked, result in best_records(records).values()]
    write_text_aside(out_file, "".join(f"{line}\n" for line in lines))

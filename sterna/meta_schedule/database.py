"""Records of meta_schedule: in memory, and as the two JSON files that programs know.

A record's trace has one instruction of our own, which holds the answers to questions of schedules;
records whose traces hold other instructions are read, kept and written, but choose nothing.
"""

import base64
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.autotvm.record import add_lines, is_cut
from sterna.ir.module import IRModule
from sterna.ir.serialize import load_json, save_json
from sterna.ir.structural import structural_equal, structural_hash
from sterna.meta_schedule.tuned_schedule import MAIN, TunedSchedule, scheduled
from sterna.schedule.choose import answering
from sterna.target import Target
from sterna.tir.stmt import PrimFunc

INSTRUCTION = "SternaAnswers"
FAILED_SECONDS = 1e10
# What a line that is wrong somewhere leads to.
_BROKEN = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
_current: ContextVar[tuple["Database", ...]] = ContextVar("databases", default=())


@dataclass(frozen=True)
class Workload:
    """What was tuned."""

    mod: IRModule

    def as_json(self) -> list[str]:
        """Its hash, and the module itself."""
        text = base64.b64encode(save_json(self.mod).encode()).decode()
        return [str(structural_hash(self.mod)), text]

    @classmethod
    def from_json(cls, row: Any) -> "Workload":
        """What as_json gave."""
        found = load_json(base64.b64decode(row[1], validate=True).decode())
        if not isinstance(found, IRModule):
            raise ValueError("a workload is a module")
        return cls(found)


@dataclass(frozen=True)
class TuningRecord:
    """What was found for a workload: a trace, and the seconds of its runs."""

    trace: Any
    workload: Workload
    run_secs: Sequence[float] | None = None
    target: Target | None = None
    args_info: Sequence[Any] | None = None

    @classmethod
    def of_answers(
        cls, answers: Mapping[str, str], workload: Workload, run_secs: Sequence[float],
        target: Target,
    ) -> "TuningRecord":
        """A record of answers to questions of schedules."""
        return cls([[[INSTRUCTION, [], [dict(answers)], []]], []], workload, run_secs, target)

    @property
    def answers(self) -> dict[str, str]:
        """The answers that its trace holds; none if it holds something else."""
        try:
            name, _, (answers,), _ = self.trace[0][0]
            texts = {str(q): str(a) for q, a in answers.items()}
        except (AttributeError, LookupError, TypeError, ValueError):
            return {}
        return texts if name == INSTRUCTION else {}

    @property
    def mean_seconds(self) -> float:
        """What its runs took; as long as can be if they failed."""
        return sum(self.run_secs) / len(self.run_secs) if self.run_secs else FAILED_SECONDS

    def as_json(self) -> list[Any]:
        """All of it but the workload."""
        target = None if self.target is None else self.target.export()
        return [self.trace, None if self.run_secs is None else list(self.run_secs), target,
                None if self.args_info is None else list(self.args_info)]

    @classmethod
    def from_json(cls, row: Any, workload: Workload) -> "TuningRecord":
        """What as_json gave."""
        trace, run_secs, target, args_info = row
        seconds = None if run_secs is None else [float(each) for each in run_secs]
        args = None if args_info is None else list(args_info)
        return cls(trace, workload, seconds, None if target is None else Target(target), args)


class Database:
    """Workloads and the records of each; `with database:` builds inside use the best of them."""

    def __init__(self, module_equality: str = "structural") -> None:
        if module_equality not in ("structural", "ignore-ndarray", "anchor-block"):
            raise ValueError(
                f"module_equality '{module_equality}' is unknown; there are structural, "
                "ignore-ndarray and anchor-block"
            )
        self.workloads: list[Workload] = []
        self.records: list[TuningRecord] = []
        self._inside: list[AbstractContextManager[None]] = []

    # ---- what is written ----

    def commit_workload(self, mod: IRModule) -> Workload:
        """The workload of a module, which is new if the module is."""
        known = self._find(mod)
        if known is None:
            known = Workload(mod)
            self.workloads.append(known)
        return known

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record."""
        self.commit_workload(record.workload.mod)
        self.records.append(record)

    # ---- what is read ----

    def has_workload(self, mod: IRModule) -> bool:
        """Whether there may be records of a module."""
        return self._find(mod) is not None

    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest records of a workload."""
        own = [r for r in self.records
               if r.run_secs and structural_equal(r.workload.mod, workload.mod)]
        return sorted(own, key=lambda record: record.mean_seconds)[:top_k]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """All of them."""
        return list(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def query_tuning_record(
        self, mod: IRModule, target: Any, workload_name: str = "main"
    ) -> TuningRecord | None:
        """The fastest record of a module for a target."""
        known = self._find(mod)
        wanted = str(Target(target))
        found = [] if known is None else self.get_top_k(known, len(self.records))
        fitting = [r for r in found if r.target is None or str(r.target) == wanted]
        return fitting[0] if fitting else None

    def query(
        self, mod: IRModule, target: Any, *, workload_name: str = "main", kind: str = "schedule"
    ) -> Any:
        """The fastest of a module for a target: its record, its schedule or its loops."""
        known = {"record": self.query_tuning_record, "schedule": self.query_schedule,
                 "ir_module": self.query_ir_module}
        if kind not in known:
            raise ValueError(f"kind '{kind}' is unknown; there are {', '.join(known)}")
        return known[kind](mod, target, workload_name)

    def query_schedule(
        self, mod: IRModule, target: Any, workload_name: str = MAIN
    ) -> TunedSchedule | None:
        """A function of loops as the fastest record schedules it; None if there is none."""
        record = self.query_tuning_record(mod, target, workload_name)
        if record is None or MAIN not in mod:
            return None
        func = mod[MAIN]
        if not isinstance(func, PrimFunc):
            return None
        made, trace = scheduled(MAIN, func, record.trace)
        return TunedSchedule(IRModule({MAIN: made}), trace)

    def query_ir_module(
        self, mod: IRModule, target: Any, workload_name: str = MAIN
    ) -> IRModule | None:
        """The loops of that schedule."""
        found = self.query_schedule(mod, target, workload_name)
        return None if found is None else found.mod

    def answers(self, target: Any) -> dict[str, str]:
        """What the fastest record of each workload answers for a target."""
        found: dict[str, str] = {}
        for workload in self.workloads:
            record = self.query_tuning_record(workload.mod, target)
            found |= {} if record is None else record.answers
        return found

    def dump_pruned(self, destination: "Database") -> None:
        """Write the fastest record of each workload to another database."""
        for workload in self.workloads:
            for record in self.get_top_k(workload, 1):
                destination.commit_tuning_record(record)

    def _find(self, mod: IRModule) -> Workload | None:
        return next((w for w in self.workloads if structural_equal(w.mod, mod)), None)

    # ---- where it is used ----

    def __enter__(self) -> "Database":
        targets = {str(record.target) for record in self.get_all_tuning_records()
                   if record.target is not None}
        answers: dict[str, str] = {}
        for text in targets:
            answers |= self.answers(text)
        around = answering(answers)
        around.__enter__()
        self._inside.append(around)
        _current.set((*_current.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        _current.set(_current.get()[:-1])
        self._inside.pop().__exit__(None, None, None)

    @staticmethod
    def current() -> "Database | None":
        """The innermost one that is used here."""
        databases = _current.get()
        return databases[-1] if databases else None

    @staticmethod
    def create(kind: str = "json", *args: Any, **options: Any) -> "Database":
        """A database by its name."""
        known: dict[str, type[Database]] = {
            "json": JSONDatabase, "memory": MemoryDatabase, "union": UnionDatabase,
            "ordered_union": OrderedUnionDatabase,
        }
        if kind not in known:
            raise ValueError(f"database '{kind}' is unknown; there are {', '.join(known)}")
        return known[kind](*args, **options)


class MemoryDatabase(Database):
    """Records that live as long as this object."""


class JSONDatabase(Database):
    """Records in two files of JSON lines: workloads, and what was found for them.

    Several programs may write to them: lines are added at once, and never rewritten.
    """

    def __init__(
        self,
        path_workload: str | Path | None = None,
        path_tuning_record: str | Path | None = None,
        *,
        work_dir: str | Path | None = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ) -> None:
        super().__init__(module_equality)
        folder = Path(work_dir) if work_dir is not None else None
        if folder is None and (path_workload is None or path_tuning_record is None):
            raise ValueError("give work_dir, or path_workload and path_tuning_record")
        own = folder or Path()
        self.path_workload = Path(path_workload or own / "database_workload.json")
        self.path_tuning_record = Path(path_tuning_record or own / "database_tuning_record.json")
        self._places: dict[Workload, int] = {}
        """The lines of workloads."""
        for path in (self.path_workload, self.path_tuning_record):
            if not path.is_file() and not allow_missing:
                raise FileNotFoundError(f"there is no file '{path}'")
            path.parent.mkdir(parents=True, exist_ok=True)
        by_line = self._read(self.path_workload, self._take_workload)
        self._read(self.path_tuning_record, lambda row, _: self._take_record(row, by_line))

    def _take_workload(self, row: Any, place: int) -> Workload:
        found = super().commit_workload(Workload.from_json(row).mod)
        self._places.setdefault(found, place)
        return found

    def _take_record(self, row: Any, by_line: Mapping[int, Workload]) -> None:
        index, record = row
        if type(index) is not int or index not in by_line:
            raise ValueError(f"there is no workload {index!r}")
        self.records.append(TuningRecord.from_json(record, by_line[index]))

    def _read(self, path: Path, take: Callable[[Any, int], Any]) -> dict[int, Any]:
        """What was made of each line; those that a writer did not end are left out."""
        found = {}
        lines = path.read_text("utf-8").splitlines() if path.is_file() else []
        for place, line in enumerate(lines):
            if is_cut(line):
                warnings.warn(f"'{path}', line {place + 1} was cut and is left out", stacklevel=4)
                continue
            try:
                found[place] = take(json.loads(line), place)
            except _BROKEN as error:
                raise ValueError(f"'{path}', line {place + 1} is no record: {error}") from None
        return found

    def commit_workload(self, mod: IRModule) -> Workload:
        """The workload of a module, written to the file if it is new."""
        found = super().commit_workload(mod)
        if found not in self._places:
            line = json.dumps(found.as_json())
            add_lines(self.path_workload, [line])
            # Another program may have added lines as well: the first that says this counts.
            self._places[found] = self.path_workload.read_text("utf-8").splitlines().index(line)
        return found

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Add a record to the file."""
        super().commit_tuning_record(record)
        place = self._places[self.commit_workload(record.workload.mod)]
        add_lines(self.path_tuning_record, [json.dumps([place, record.as_json()])])


class UnionDatabase(Database):
    """Several databases, of which the fastest record counts."""

    def __init__(self, *databases: Database) -> None:
        super().__init__()
        self.databases = databases

    def query_tuning_record(
        self, mod: IRModule, target: Any, workload_name: str = "main"
    ) -> TuningRecord | None:
        """The fastest record that one of them has."""
        found = [d.query_tuning_record(mod, target, workload_name) for d in self.databases]
        return min((record for record in found if record is not None),
                   key=lambda record: record.mean_seconds, default=None)

    def answers(self, target: Any) -> dict[str, str]:
        """What the fastest record of each workload answers; the first of them where they differ."""
        found: dict[str, str] = {}
        for database in reversed(self.databases):
            for workload in database.workloads:
                record = self.query_tuning_record(workload.mod, target)
                found |= {} if record is None else record.answers
        return found

    def has_workload(self, mod: IRModule) -> bool:
        """Whether one of them may have records of a module."""
        return any(database.has_workload(mod) for database in self.databases)

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """Those of all."""
        return [each for database in self.databases for each in database.get_all_tuning_records()]

    def __len__(self) -> int:
        return sum(len(database) for database in self.databases)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Refused: records are written to one of them."""
        raise TypeError("records are written to a database, not to several at once")


class OrderedUnionDatabase(UnionDatabase):
    """Several databases, of which the first counts that has a record."""

    def query_tuning_record(
        self, mod: IRModule, target: Any, workload_name: str = "main"
    ) -> TuningRecord | None:
        """The fastest record of the first that has one."""
        found = (d.query_tuning_record(mod, target, workload_name) for d in self.databases)
        return next((record for record in found if record is not None), None)


create = Database.create

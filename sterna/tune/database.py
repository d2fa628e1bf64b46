"""Tuning records in one SQLite file, which many processes may read and write at once.

A record is the answer to one question of `choose`, found on one machine for one target. Answers
choose among what a schedule offers anyway, all of it legal: a stranger's file can make a kernel
slow, never wrong. What is no longer offered is set aside, and the user is told.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.target import Target, host_of, machine_of
from sterna.version import __version__

_SCHEMA = """
create table if not exists record(
  question text not null, target text not null, machine text not null, answer text not null,
  ratio real not null, version text not null, made real not null, state text not null,
  primary key (question, target, machine));
create table if not exists trial(
  question text not null, answer text not null, target text not null, machine text not null,
  predicted real not null, log_ratio real, error real, outcome text not null, reason text not null,
  version text not null, made real not null);
create index if not exists trial_of on trial(target, machine, question);
create table if not exists network(
  digest text not null, target text not null, machine text not null, ratio real not null,
  default_seconds real not null, seconds real not null, version text not null, made real not null);
"""
# Rows that are read at most: a network has some hundred questions.
_MOST_ROWS = 1_000_000
_MARK = 0x53544E41  # what tells a file of these records from other databases
_WAIT_SECONDS = 30.0
KEPT, SET_ASIDE = "kept", "set aside"
# Answers are short texts; a file with longer ones was not written here.
LONGEST = 1000
# So are logarithms of ratios: nothing takes e to the power of that many times as long.
FARTHEST = 100.0


def _plain(sql: str | None) -> str:
    """A declaration without what does not count."""
    return " ".join((sql or "").lower().replace(" if not exists", "").split())


def _declared() -> dict[str, str]:
    """What SQLite holds of our tables, by name."""
    made = [_plain(part) for part in _SCHEMA.split(";") if part.strip()]
    named = {text.split()[2].partition("(")[0]: text for text in made}
    return {**named, "sqlite_autoindex_record_1": ""}


_OURS = _declared()


# What SQLite says of files that are whole but cannot be written.
_NOT_WRITTEN = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR,
                sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN}


class DatabaseError(ValueError):
    """A file is no database of tuning records, or cannot be used."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate, and what came of it."""

    question: str
    answer: str
    predicted: float
    """The logarithm of the ratio of its analytic cost to that of what it would replace."""
    log_ratio: float | None
    """What was measured; below 0 if it was faster."""
    error: float | None
    outcome: str
    """faster, not faster, open; wrong, crashed, hung, refused."""
    reason: str = ""


class TuningDatabase:
    """The records of a file."""

    def __init__(self, path: Path | str, read_only: bool = False) -> None:
        self.path = Path(path)
        self.read_only = read_only
        if read_only and not self.path.is_file():
            raise FileNotFoundError(f"there are no tuning records '{path}'")
        with self._open() as connection:
            self._prepare(connection)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are all kept, or none."""
        mode = "rwc" if not self.read_only else f"ro{self._unchanging}"
        try:
            connection = sqlite3.connect(
                f"{self.path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_WAIT_SECONDS
            )
        except sqlite3.Error as error:
            raise DatabaseError(f"'{self.path}' cannot be opened: {error}") from None
        try:
            # Bytes that are no text make their row useless, not the others.
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            connection.execute("pragma trusted_schema = off")
            with connection:
                yield connection
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            what = "cannot be written" if code in _NOT_WRITTEN else "holds no tuning records"
            raise DatabaseError(f"'{self.path}' {what}: {error}") from None
        except UnicodeDecodeError:  # what SQLite says about a broken schema
            raise DatabaseError(f"'{self.path}' holds no tuning records: it is broken") from None
        finally:
            connection.close()

    @property
    def _unchanging(self) -> str:
        """That a file cannot change, where nobody can write beside it: readers write there too."""
        beside = self.path.with_name(f"{self.path.name}-wal")
        is_fixed = not os.access(self.path.parent, os.W_OK) and not beside.exists()
        return "&immutable=1" if is_fixed else ""

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (mark,) = connection.execute("pragma application_id").fetchone()
        schema = connection.execute("select name, sql from sqlite_schema").fetchmany(len(_OURS) + 1)
        if mark != _MARK and (schema or self.read_only):
            raise DatabaseError(f"'{self.path}' is another kind of database")
        if any(_OURS.get(name) != _plain(sql) for name, sql in schema):  # a view may never end
            raise DatabaseError(f"'{self.path}' has other tables than tuning records have")
        if not self.read_only:
            connection.execute(f"pragma application_id = {_MARK}")
            connection.execute("pragma journal_mode = wal")
            connection.executescript(_SCHEMA)

    # ---- what was found ----

    def answers(self, target: Target) -> dict[str, str]:
        """What was found for a target on the machine that it names, by question."""
        query = "select question, answer from record where target = ? and machine = ? and state = ?"
        return {
            question: answer
            for question, answer in self._rows(query, (*_key(target), KEPT))
            if _is_text(question) and _is_text(answer)
        }

    def keep(self, target: Target, found: Mapping[str, tuple[str, float]]) -> None:
        """Keep answers, each with its time over that of what it replaced."""
        now = time.time()
        rows = [(question, *_key(target), answer, ratio, __version__, now, KEPT)
                for question, (answer, ratio) in found.items()]
        with self._open() as connection:
            connection.executemany("insert or replace into record values (?,?,?,?,?,?,?,?)", rows)

    def take_over(self, other: "TuningDatabase", target: Target) -> None:
        """Keep what another file has found for questions that this one does not answer."""
        known = self.answers(target)
        query = ("select question, answer, ratio from record "
                 "where target = ? and machine = ? and state = ?")
        self.keep(target, {
            question: (answer, ratio)
            for question, answer, ratio in other._rows(query, (*_key(target), KEPT))
            if _is_text(question) and _is_text(answer) and question not in known
        })

    def set_aside(
        self, target: Target, questions: Mapping[str, str], answers: Mapping[str, str]
    ) -> None:
        """Records that are not to be used: by question, why, and which answer it was.

        Where another tuner has found another answer meanwhile, that one stays.
        """
        query = ("update record set state = ? "
                 "where question = ? and target = ? and machine = ? and answer = ?")
        rows = [(f"{SET_ASIDE}: {why}", question, *_key(target), answers[question])
                for question, why in questions.items() if question in answers]
        with self._open() as connection:
            connection.executemany(query, rows)

    # ---- what was tried ----

    def add_trials(self, target: Target, trials: list[Trial]) -> None:
        """Keep what came of candidates."""
        now = time.time()
        rows = [
            (t.question, t.answer, *_key(target), t.predicted, t.log_ratio, t.error, t.outcome,
             t.reason[:LONGEST], __version__, now)
            for t in trials
        ]
        with self._open() as connection:
            connection.executemany("insert into trial values (?,?,?,?,?,?,?,?,?,?,?)", rows)

    def trials(self, target: Target) -> list[Trial]:
        """What was tried with this version for a target on the machine that it names."""
        query = (
            "select question, answer, predicted, log_ratio, error, outcome, reason from trial "
            "where target = ? and machine = ? and version = ? order by made"
        )
        rows = self._rows(query, (*_key(target), __version__))
        return [Trial(*row) for row in rows if _is_trial(*row)]

    def add_network(self, digest: str, target: Target, default_seconds: float, seconds: float,
                    ratio: float) -> None:
        """What a whole network gained."""
        row = (digest, *_key(target), ratio, default_seconds, seconds, __version__, time.time())
        with self._open() as connection:
            connection.execute("insert into network values (?,?,?,?,?,?,?,?)", row)

    def networks(self, target: Target) -> list[tuple[str, float]]:
        """The networks that were tuned, and their times over the untuned ones', oldest first."""
        query = "select digest, ratio from network where target = ? and machine = ? order by made"
        return [(str(digest), float(ratio)) for digest, ratio in self._rows(query, _key(target))]

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with self._open() as connection:
            return connection.execute(query, values).fetchmany(_MOST_ROWS)


def _key(target: Target) -> tuple[str, str]:
    """A target, and a fingerprint of the machine that it stands for."""
    return str(target), fingerprint(target)


def fingerprint(target: Target) -> str:
    """What a record's times depend on: the processor, its features, its caches."""
    machine = machine_of(host_of(target))
    return json.dumps([machine.triple, machine.cpu, sorted(machine.feature_set),
                       repr(machine.core)])


def _is_trial(
    question: Any, answer: Any, predicted: Any, log_ratio: Any, error: Any, outcome: Any,
    reason: Any,
) -> bool:
    """Whether a row is what add_trials writes; SQLite holds anything in any column."""
    numbers = [predicted, *(value for value in (log_ratio, error) if value is not None)]
    return (all(map(_is_text, (question, answer, outcome, reason)))
            and all(isinstance(n, float) and abs(n) <= FARTHEST for n in numbers))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST

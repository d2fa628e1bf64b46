"""Records of tuning: many writers, strangers' files, what is set aside."""

import math
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from sterna.target import Target
from sterna.tune import DatabaseError, Trial, TuningDatabase

HERE, OTHER = Target("llvm -mcpu=native"), Target("llvm -mtriple=riscv64-linux-gnu")


def test_answers_belong_to_a_target(tmp_path: Path) -> None:
    database = TuningDatabase(tmp_path / "t.db")
    database.keep(HERE, {"a/tile": ("4 x 8", 0.9)})
    database.keep(OTHER, {"a/tile": ("2 x 4", 0.8)})
    assert database.answers(HERE) == {"a/tile": "4 x 8"}
    assert database.answers(OTHER) == {"a/tile": "2 x 4"}
    why = {"a/tile": "it is no longer offered"}
    database.set_aside(HERE, why, {"a/tile": "another answer"})
    assert database.answers(HERE) == {"a/tile": "4 x 8"}, "what another tuner found stays"
    database.set_aside(HERE, why, {"a/tile": "4 x 8"})
    assert database.answers(HERE) == {} and database.answers(OTHER)


def test_trials_are_remembered(tmp_path: Path) -> None:
    database = TuningDatabase(tmp_path / "t.db")
    trials = [Trial("a/tile", "4 x 8", 0.1, -0.2, 0.01, "faster"),
              Trial("a/tile", "9 x 9", 0.1, None, None, "crashed", "status -11")]
    database.add_trials(HERE, trials)
    assert TuningDatabase(tmp_path / "t.db", read_only=True).trials(HERE) == trials


def test_two_tuners_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    TuningDatabase(path)

    def write(who: int) -> None:
        mine = TuningDatabase(path)
        for number in range(20):
            mine.keep(HERE, {f"layer {who}/{number}": (str(number), 0.9)})

    threads = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(TuningDatabase(path).answers(HERE)) == 80


def test_files_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, target = tmp_path / "t.db", Target("llvm")
    database = TuningDatabase(path)
    database.keep(target, {"layer/tile": ("4 x 4", 0.9)})
    monkeypatch.setattr(os, "access", lambda *_: False)  # a folder that nobody may write to
    fixed = TuningDatabase(path, read_only=True)
    assert fixed.answers(target) == {"layer/tile": "4 x 4"}
    assert [each.name for each in tmp_path.iterdir()] == ["t.db"], "readers write nothing beside it"
    with pytest.raises(DatabaseError, match=r"t\.db' cannot be written: attempt to write a read"):
        fixed.keep(target, {"layer/tile": ("2 x 2", 0.8)})
    broken = bytearray(path.read_bytes())
    broken[broken.lower().index(b"create table")] = 0xFA
    path.write_bytes(broken)
    with pytest.raises(DatabaseError, match=r"t\.db' holds no tuning records"):
        TuningDatabase(path)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("not a database, but long enough to look like a file of some kind\n" * 40)
    with pytest.raises(DatabaseError, match=r"text\.db' holds no tuning records"):
        TuningDatabase(text)
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("create table people(name text)")
    connection.commit()
    connection.close()
    with pytest.raises(DatabaseError, match="is another kind of database"):
        TuningDatabase(other)
    assert sqlite3.connect(other).execute("select count(*) from people").fetchone() == (0,)
    with pytest.raises(FileNotFoundError, match="there are no tuning records"):
        TuningDatabase(tmp_path / "none.db", read_only=True)
    with pytest.raises(DatabaseError, match=r"cannot be opened|holds no tuning records"):
        TuningDatabase(tmp_path / "no" / "folder.db")


def test_tables_that_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    TuningDatabase(path)
    connection = sqlite3.connect(path)
    connection.execute("drop table record")
    connection.execute("create view record as with recursive n(i) as (select 1 union all "
                       "select i + 1 from n) select i as question from n")
    connection.commit()
    connection.close()
    with pytest.raises(DatabaseError, match="has other tables than tuning records have"):
        TuningDatabase(path, read_only=True)


def test_answers_that_are_no_short_texts_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    database = TuningDatabase(path)
    database.keep(HERE, {"a/tile": ("4 x 8", 0.9), "b/tile": ("x" * 5000, 0.9)})
    connection = sqlite3.connect(path)
    connection.execute("update record set answer = x'00ff' where question = 'none'")
    connection.commit()
    connection.close()
    assert database.answers(HERE) == {"a/tile": "4 x 8"}


@pytest.mark.parametrize(("column", "value"), [
    ("predicted", "abc"), ("log_ratio", math.inf), ("error", 1e308), ("question", b"\xff"),
    ("log_ratio", "x"), ("answer", "9" * 1001),
])
def test_trials_that_nobody_writes_are_left_out(
    tmp_path: Path, column: str, value: object
) -> None:
    database, path = TuningDatabase(tmp_path / "t.db"), tmp_path / "t.db"
    kept = Trial("layer/tile", "4 x 8", 0.1, -0.05, 0.01, "faster")
    database.add_trials(HERE, [kept, kept])
    with sqlite3.connect(path) as connection:
        connection.execute(f"update trial set {column} = ? where rowid = 1", (value,))
    connection.close()
    assert TuningDatabase(path).trials(HERE) == [kept]

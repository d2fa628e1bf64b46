"""Tuners that are killed at any moment, and several of them on one file of records."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sterna.target import Target
from sterna.tune import Budget, TuningDatabase
from sterna.tune.measure import Measured
from sterna.tune.network import Answers
from sterna.tune.tuner import search_network
from sterna.tune.workers import Crashed
from tests.support import ROOT
from tests.tune.simulated import SimulatedWorker, random_layer, whole_time

TARGET = Target("llvm")
T = TypeVar("T")


def network() -> SimulatedWorker:
    order = random.Random(3)
    return SimulatedWorker({f"layer {i}": random_layer(order) for i in range(6)})


def tune_for_good(path: str) -> None:
    """Tune, telling each round that is over."""
    def tell(progress: object) -> None:
        print("round", flush=True)
        time.sleep(0.02)

    search_network(network(), TARGET, TuningDatabase(path), Budget(trials=40), watch=tell)
    print("done", flush=True)


def started(path: Path) -> "subprocess.Popen[str]":
    code = f"from {__name__} import tune_for_good; tune_for_good({str(path)!r})"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def rounds_until_killed(process: "subprocess.Popen[str]", rounds: int, seconds: float) -> int:
    """How many rounds a tuner ended before it was killed, some time behind one of them."""
    assert process.stdout is not None
    for _ in range(rounds):
        assert process.stdout.readline() == "round\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    rest = process.communicate()[0]
    return rounds + rest.count("round")


def test_a_killed_tuner_loses_no_round_that_was_over(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    for moment in (0.0, 0.013):
        before = len(TuningDatabase(path).trials(TARGET))
        rounds = rounds_until_killed(started(path), 2, moment)
        after = TuningDatabase(path).trials(TARGET)
        assert len(after) - before >= rounds, "a round is a trial of each layer"
    known = {(t.question, t.answer) for t in after if t.outcome != "open"}
    worker = network()
    again = search_network(worker, TARGET, TuningDatabase(path), Budget(trials=40))
    assert not known & {(t.question, t.answer) for t in again.trials if t.outcome != "open"}
    assert whole_time(worker, again.answers) < whole_time(worker, {})


class EndedWorker(SimulatedWorker):
    """One whose process something else ends at its first comparison and at the proof."""

    ended = True

    def refresh(self) -> None:
        self.ended = True

    def compare(
        self, incumbent: Answers, challenger: Answers, seconds: float, timeout: float
    ) -> Measured:
        if self.ended:
            self.ended = False
            raise Crashed("the process ended with status -9")
        return super().compare(incumbent, challenger, seconds, timeout)


def test_a_process_that_ends_at_the_proof_loses_nothing(tmp_path: Path) -> None:
    worker, database = EndedWorker(network().layers), TuningDatabase(tmp_path / "t.db")
    found = search_network(worker, TARGET, database, Budget(trials=10))
    assert found.answers and database.answers(TARGET) == found.answers


def test_two_tuners_on_one_file_end_well(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    both = [started(path), started(path)]
    told = [process.communicate(timeout=120)[0] for process in both]
    assert all(text.endswith("done\n") for text in told)
    database, worker = TuningDatabase(path), network()
    assert len(database.networks(TARGET)) == 2
    assert whole_time(worker, database.answers(TARGET)) < whole_time(worker, {})


def serve() -> None:
    """A process that a candidate hangs: it tells who it is and answers nothing."""
    Path(sys.argv[3]).write_text(str(os.getpid()), "utf-8")
    while True:
        time.sleep(60)


def test_a_hanging_process_ends_with_a_killed_tuner(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    code = (f"from sterna.tune.lines import LineProcess; "
            f"LineProcess({__name__!r}, {str(told)!r}).ask({{}}, 600.0)")
    tuner = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT,
                             env={**os.environ, "PYTHONPATH": str(ROOT)})
    pid = int(_within(60.0, lambda: told.exists() and told.read_text("utf-8")))
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    assert _within(20.0, lambda: not _lives(pid))


def _within(seconds: float, found: Callable[[], T]) -> T:
    """What is found before some time is over; else the last that was."""
    end = time.monotonic() + seconds
    while not (seen := found()) and time.monotonic() < end:
        time.sleep(0.05)
    return seen


def _lives(pid: int) -> bool:
    """Whether a process runs; one that ended and that nobody has waited for does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False

"""The command that fuzzes: each fuzzer runs, and a planted mistake is found and made small."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sterna.testing.fuzz.__main__ import main
from sterna.testing.fuzz.fuzzer import all_fuzzers, find_fuzzer
from sterna.testing.fuzz.minimize import minimize
from sterna.testing.fuzz.runner import fuzz, seconds_queued
from sterna.testing.fuzz.tape import Tape

# A list of numbers is wrong if it has one above 50 behind one that is odd.
PLANTED = """
import os, time
from sterna.testing.fuzz.fuzzer import Fuzzer

class Planted(Fuzzer):
    name = "planted"
    about = "a mistake that was made on purpose"
    seconds = 2.0

    def check(self, tape):
        numbers = [tape.randrange(100) for _ in range(tape.randrange(12))]
        for place, number in enumerate(numbers):
            if number > 50 and any(each % 2 for each in numbers[:place]):
                ENDING
        return "fine"

FUZZER = Planted()
"""


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        ("raise KeyError(number)", "KeyError in"),
        ("os.abort()", "ended by signal 6"),
    ],
)
def test_a_planted_mistake_is_found_and_made_small(
    tmp_path: Path, ending: str, kind: str
) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text(PLANTED.replace("ENDING", ending))
    corpus = tmp_path / "corpus"
    words = ["--minutes", "0.03", "--seed", "7", "--only", "planted.inner", "--corpus", str(corpus)]
    done = subprocess.run(
        [sys.executable, "-m", "sterna.testing.fuzz", *words], capture_output=True, text=True,
        timeout=200, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert kind in done.stdout and "seed 7" in done.stdout
    (kept,) = (corpus / "planted").glob("*.json")
    # How many, an odd one, one above 50.
    assert json.loads(kept.read_text())["values"] == [2, 1, 51]
    program = kept.with_suffix(".py")
    assert "replay('planted.inner', [2, 1, 51])" in program.read_text()
    shown = subprocess.run(
        [sys.executable, program], capture_output=True, timeout=100, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert shown.returncode != 0


def test_faults_of_drivers_are_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborts = 'os.write(2, b"driver.cc: Assertion failed"); os.abort()'
    known = 'seconds = 2.0\n    faults_of_others = {"driver.cc": "an assertion of the driver\'s"}'
    text = PLANTED.replace("ENDING", aborts).replace("seconds = 2.0", known)
    (tmp_path / "planted_fault.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tally,) = fuzz([find_fuzzer("planted_fault")], 2.0, 7, None)
    assert tally.endings["an assertion of the driver's"] > 0 and not tally.findings


@pytest.mark.parametrize("name", [n for n in all_fuzzers() if not n.startswith("c-")])
def test_each_fuzzer_runs(name: str, tmp_path: Path) -> None:
    (tally,) = fuzz([all_fuzzers()[name]], 1.0, random.SystemRandom().randrange(1 << 30), tmp_path)
    assert tally.cases > 0 or tally.skipped
    assert not tally.findings, tally.findings[0].error + tally.findings[0].program


def test_hostile_graphs_under_sanitizers(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    (tally,) = fuzz([all_fuzzers()["c-runtime"]], 2.0, seed, tmp_path)
    assert (tally.endings["refused"] > 5 and tally.endings["params taken"] > 0) or tally.skipped
    assert not tally.findings, tally.findings[0].error + tally.findings[0].program


def test_an_interrupted_run_tells_what_came_of_it(tmp_path: Path) -> None:
    (tmp_path / "peace").mkdir()
    (tmp_path / "peace" / "planted.py").write_text(PLANTED.replace("ENDING", "return 'well'"))
    with subprocess.Popen(
        [sys.executable, "-m", "sterna.testing.fuzz", "--minutes", "9", "--only", "peace.planted"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, stdout=subprocess.PIPE, text=True,
    ) as process:
        assert process.stdout is not None and "seed" in process.stdout.readline()
        time.sleep(1)
        process.terminate()
        said = process.communicate(timeout=100)[0]
    assert process.returncode == 0 and "interrupted" in said and "planted" in said


def test_unknown_fuzzers_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "everything"])
    assert "there is no fuzzer everything, only answers, c-runtime" in capsys.readouterr().err


def test_tapes_replay_what_they_recorded() -> None:
    first = Tape(seed=5)

    def draw(rng: random.Random) -> list[object]:
        order = list(range(6))
        rng.shuffle(order)
        return [rng.random(), rng.randint(3, 9), rng.choice("abc"), rng.randbytes(4), order,
                rng.sample(range(10), 3)]

    drawn = draw(first)
    assert draw(Tape(values=first.values)) == drawn
    assert draw(Tape()) == draw(Tape(values=[0] * 50)) != drawn


def test_lists_become_as_small_as_they_can() -> None:
    asked = []

    def shows(values: list[int]) -> bool:
        asked.append(values)
        return sum(value >= 7 for value in values) >= 2

    found = minimize([3, 900, 4, 4, 80, 2, 77, 1], shows, lambda: True)
    assert found == [7, 7] and len(asked) < 200


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="no counts of the scheduler")
def test_waiting_for_a_processor_is_no_time_of_a_case() -> None:
    spin = "import os, time; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
    spin += "child = os.fork()\n"
    spin += "while time.process_time() < 0.3: pass\n"
    spin += "print(flush=True); os.read(0, 1)\n"
    spin += "if child: os.waitpid(child, 0)\n"
    with subprocess.Popen(
        [sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.readline()
        assert seconds_queued(process.pid) > 0.2
        process.communicate()
    assert seconds_queued(process.pid) == 0

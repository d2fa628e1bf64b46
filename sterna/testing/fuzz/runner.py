"""Fuzzers in turns, each in a process of its own; what they find is made small and kept."""

import hashlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.minimize import minimize
from sterna.testing.fuzz.worker import ending_of

MINIMIZING_S = 60.0
STARTING_S = 180.0
SLICE_S = 60.0
MOST_WAITING = 9.0  # times what a case may take


def seconds_queued(session: int) -> float:
    """For how long the processes of a session were ready to run and had no processor."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            if os.getsid(int(folder.name)) == session:
                total += int((folder / "schedstat").read_text().split()[1])
    return total / 1e9


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that ended as none may."""

    fuzzer: str
    kind: str
    error: str
    values: list[int]
    seed: int | None
    program: str = ""


@dataclass(slots=True)
class Tally:
    """What came of a fuzzer."""

    fuzzer: str
    seed: int
    seconds: float = 0.0
    endings: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    again: int = 0
    """Cases that showed what was found before."""
    skipped: str = ""

    @property
    def cases(self) -> int:
        return self.endings.total() + self.again + len(self.findings)


class Worker:
    """The process of one fuzzer, started anew whenever it has ended."""

    def __init__(self, fuzzer: Fuzzer, corpus: Path | None) -> None:
        self.fuzzer = fuzzer
        self._corpus = [] if corpus is None else [str(corpus)]
        self._folder = tempfile.TemporaryDirectory(prefix="sterna-fuzz-")
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """End the process, and remove its folder."""
        self._stop()
        self._said.close()
        self._folder.cleanup()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """How a case ended: {"ending": ...}, or {"kind": ..., "error": ..., "values": ...}."""
        self.start()
        self._said.seek(0)
        self._said.truncate()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            answer = self._receive(self.fuzzer.seconds)
        except OSError:
            answer = b""
        if answer:
            result: dict[str, Any] = json.loads(answer)
            return result
        kind = "too long" if process.poll() is None and answer is None else self._death()
        self._stop()
        tape = Path(self._folder.name) / "tape"
        values = [int(line) for line in tape.read_text().split()] if tape.exists() else []
        self._said.seek(0)
        words = self._said.read()[-6000:].decode("utf-8", "replace")
        for said, ending in self.fuzzer.faults_of_others.items():
            if said in words:
                return {"ending": ending}
        return {"kind": kind, "error": f"{words}\n{kind}", "values": values}

    def show(self, values: list[int], error: str) -> str:
        """A program that shows a finding."""
        return str(self.ask({"values": values, "error": error}).get("program", ""))

    def start(self) -> None:
        """Have a process that is ready."""
        if self._process is not None:
            return
        words = [sys.executable, "-m", "sterna.testing.fuzz.worker", self.fuzzer.place]
        self._process = subprocess.Popen(
            [*words, self._folder.name, *self._corpus], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._said, start_new_session=True,
        )
        if not self._receive(STARTING_S):
            self._said.seek(0)
            words_said = self._said.read()[-3000:].decode("utf-8", "replace")
            raise RuntimeError(f"the fuzzer {self.fuzzer.name} did not start:\n{words_said}")

    def _receive(self, seconds: float) -> bytes | None:
        """A line; empty when the process has ended, None when it takes too long.

        Time for which a busy machine kept it waiting for a processor does not count.
        """
        assert self._process is not None and self._process.stdout is not None
        begin, queued = time.monotonic(), seconds_queued(self._process.pid)
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            left = seconds
            while not selector.select(left):
                passed = time.monotonic() - begin
                waited = seconds_queued(self._process.pid) - queued
                left = seconds + min(waited, MOST_WAITING * seconds) - passed
                if left <= 0:
                    return None
        return self._process.stdout.readline()

    def _death(self) -> str:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            return ending_of(self._process.wait(10))
        return "too long"

    def _stop(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # with what it has started
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self._process = None


def fuzz(
    fuzzers: Sequence[Fuzzer], seconds: float, seed: int, corpus: Path | None,
    tell: Callable[[str], None] = print,
) -> list[Tally]:
    """Run fuzzers in turns until the time is over or somebody interrupts; what came of each."""
    runs = []
    for fuzzer in fuzzers:
        tally = Tally(fuzzer.name, seed, skipped=fuzzer.missing() or "")
        runs.append((tally, Worker(fuzzer, corpus), _Seeds(seed, fuzzer.name)))
    usable = [run for run in runs if not run[0].skipped]
    try:
        for tally, worker, _ in usable:
            _replay_corpus(tally, worker, corpus, tell)
            worker.start()  # which may take long, and is no part of the time
        end = time.monotonic() + seconds
        part = min(SLICE_S, seconds / max(1, len(usable)))
        turn = 0
        while usable and time.monotonic() < end:
            tally, worker, seeds = usable[turn % len(usable)]
            _run_for(tally, worker, seeds, min(end, time.monotonic() + part), corpus, tell)
            turn += 1
    except KeyboardInterrupt:
        tell("interrupted")
    finally:
        for _, worker, _ in runs:
            worker.close()
    return [tally for tally, _, _ in runs]


class _Seeds:
    """Seeds of cases, one after the other; each is a case by itself."""

    def __init__(self, seed: int, name: str) -> None:
        self._stem, self._count = f"{seed} {name} ", 0

    def next(self) -> int:
        self._count += 1
        digest = hashlib.sha256(f"{self._stem}{self._count}".encode()).digest()
        return int.from_bytes(digest[:6], "little")


def _run_for(
    tally: Tally, worker: Worker, seeds: _Seeds, end: float, corpus: Path | None,
    tell: Callable[[str], None],
) -> None:
    begin = time.monotonic()
    try:
        while time.monotonic() < end:
            seed = seeds.next()
            answer = worker.ask({"seed": seed})
            if "ending" in answer:
                tally.endings[answer["ending"]] += 1
            elif any(found.kind == answer["kind"] for found in tally.findings):
                tally.again += 1
            else:
                _keep(tally, worker, answer, seed, corpus, tell)
    finally:
        tally.seconds += time.monotonic() - begin


def _keep(
    tally: Tally, worker: Worker, answer: dict[str, Any], seed: int | None, corpus: Path | None,
    tell: Callable[[str], None],
) -> None:
    """Make a finding small, print the program that shows it, and put it into the corpus."""
    kind, values = answer["kind"], answer["values"]
    tell(f"{tally.fuzzer}: {kind} (seed {seed}); making it smaller ...")
    end = time.monotonic() + MINIMIZING_S
    last = answer

    def shows(candidate: list[int]) -> bool:
        nonlocal last
        found = worker.ask({"values": candidate, "fork": kind.startswith("ended")})
        is_same = bool(found.get("kind") == kind)
        if is_same and found["error"] != kind:
            last = found
        return is_same

    smaller = minimize(values, shows, lambda: time.monotonic() < end)
    program = worker.show(smaller, last["error"])
    tally.findings.append(Finding(tally.fuzzer, kind, last["error"], smaller, seed, program))
    tell(f"{last['error']}\n---- a program that shows it ----\n{program}----")
    if corpus is not None:
        name = hashlib.sha256(repr(smaller).encode()).hexdigest()[:12]
        folder = corpus / tally.fuzzer
        folder.mkdir(parents=True, exist_ok=True)
        content = {"values": smaller, "kind": kind, "seed": seed}
        (folder / f"{name}.json").write_text(json.dumps(content) + "\n")
        (folder / f"{name}.py").write_text(program)


def _replay_corpus(
    tally: Tally, worker: Worker, corpus: Path | None, tell: Callable[[str], None]
) -> None:
    """What was found before is tried first."""
    kept = sorted((corpus / tally.fuzzer).glob("*.json")) if corpus is not None else []
    for path in kept:
        answer = worker.ask({"values": json.loads(path.read_text())["values"]})
        if "ending" in answer:
            tally.endings[answer["ending"]] += 1
        else:
            tell(f"{tally.fuzzer}: {path} still shows {answer['kind']}")
            program = worker.show(answer["values"], answer["error"])
            tally.findings.append(Finding(
                tally.fuzzer, answer["kind"], answer["error"], answer["values"], None, program
            ))

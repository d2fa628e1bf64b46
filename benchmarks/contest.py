"""Engines in processes of their own, which take turns on one model after another.

An engine that breaks down, or that takes too long, costs its place with that model alone: its
process is started anew for the next one.
"""

import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import peers

from sterna.model.bench import differences, largest

OURS = "sterna"
THREADS = ("STERNA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Seconds in which an engine must have loaded a model, or have finished a turn.
PATIENCE = 120.0
# A peer that takes so many times what the fastest one takes has no further turns.
HOPELESS = 3.0
# Seconds that idle threads of an engine go on spinning for at most: the next turn waits for them.
SPINNING = 0.15


class EngineError(Exception):
    """An engine cannot take a model; the message is its own."""


@dataclass(frozen=True)
class Loaded:
    """What an engine tells of a model that it has taken."""

    results: list[Any]
    seconds: float
    """What loading it took, compiling included."""
    limits: peers.Limits | None = None
    """What the machine allows; our own compiler alone tells it."""


def serve(engine: str, threads: int, pipe: Connection) -> None:
    """An engine's process: take models, and run the last one for as long as it is told to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # engines print what nobody asked for
    run: peers.Runner | None = None
    # What other processes take of the core costs an engine on one thread nothing this way.
    clock = time.process_time if threads == 1 else time.perf_counter
    while (told := pipe.recv()) is not None:
        try:
            if isinstance(told, float):
                assert run is not None
                pipe.send(_turn(run, told, clock))
                continue
            path, inputs, explained = told
            run = None  # what it holds makes room first
            start = time.perf_counter()
            run = getattr(peers, engine)(path, inputs, threads)
            results = [np.asarray(result) for result in run()]
            taken = time.perf_counter() - start
            limits = run.limits() if explained and isinstance(run, peers.CompiledRunner) else None
            pipe.send(Loaded(results, taken, limits))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


def _turn(run: peers.Runner, seconds: float, clock: Callable[[], float]) -> float:
    """The median time of runs; the first one warms caches up, unless it fills the turn alone."""
    start = clock()
    run()
    first = clock() - start
    if first >= seconds:
        return first
    taken: list[float] = []
    end = clock() + seconds
    while clock() < end or len(taken) < 3:
        start = clock()
        run()
        taken.append(clock() - start)
    return statistics.median(taken)


class Engine:
    """An engine on a number of threads, in a process that is started when it is needed."""

    def __init__(self, name: str, threads: int) -> None:
        self.name, self.threads = name, threads
        self._process: Any = None
        self._pipe: Connection | None = None

    def load(self, path: Path, inputs: Mapping[str, Any], explained: bool = False) -> Loaded:
        """Take a model."""
        loaded: Loaded = self._ask((path, inputs, explained))
        return loaded

    def time(self, seconds: float) -> float:
        """The median time of runs, in seconds, of a turn that long."""
        taken: float = self._ask(float(seconds))
        return taken

    def close(self) -> None:
        """End the process."""
        if self._pipe is not None and self._process.is_alive():
            self._pipe.send(None)
            self._process.join(5)
        self._end()

    def _ask(self, what: Any) -> Any:
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send(what)
            if not self._pipe.poll(PATIENCE):
                self._end()
                raise EngineError(f"nothing came back within {PATIENCE:.0f} s")
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            status = self._process.exitcode
            self._end()
            raise EngineError(f"its process ended with status {status}") from None
        if isinstance(answer, str):
            raise EngineError(answer)
        return answer

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        before = {name: os.environ.get(name) for name in THREADS}
        os.environ.update(dict.fromkeys(THREADS, str(self.threads)))
        try:
            arguments = (self.name, self.threads, theirs)
            self._process = spawn.Process(target=serve, args=arguments, daemon=True)
            self._process.start()
            theirs.close()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})

    def _end(self) -> None:
        if self._process is not None and self._process.is_alive():
            self._process.kill()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None


@dataclass(frozen=True)
class Contest:
    """One model at one number of threads: what every engine took."""

    times: dict[str, float]
    """Seconds by engine: the best turn's median."""
    difference: float
    """Of our result from the reference, or the first peer's, as a share of its largest number."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why engines are missing."""
    loading: dict[str, float] = field(default_factory=dict)
    """Seconds by engine from the file to the first result."""
    limits: peers.Limits | None = None
    wrong: dict[str, float] = field(default_factory=dict)
    """How far peers are from the reference that are further than they may be."""

    @property
    def fastest_peer(self) -> str:
        """Its name, or nothing: a peer that computes something else does not count."""
        peers = [name for name in self.times if name != OURS and name not in self.wrong]
        return min(peers, key=self.times.__getitem__, default="")

    @property
    def ratio(self) -> float | None:
        """The fastest peer's time over ours: above 1 we lead."""
        peer = self.fastest_peer
        return self.times[peer] / self.times[OURS] if peer and OURS in self.times else None


def contest(
    engines: Sequence[Engine], path: Path, inputs: Mapping[str, Any], rounds: int, seconds: float,
    explained: bool = False, reference: Sequence[Any] | None = None, may_differ: float = math.inf,
) -> Contest:
    """Let the engines run a model by turns.

    reference: what the model gives; the first peer's results, if there is none.
    """
    loaded: dict[str, Loaded] = {}
    failures: dict[str, str] = {}
    for engine in engines:
        try:
            loaded[engine.name] = engine.load(path, inputs, explained)
        except EngineError as error:
            failures[engine.name] = str(error)
    best = dict.fromkeys(loaded, math.inf)
    for _ in range(rounds):
        least = min((taken for name, taken in best.items() if name != OURS), default=math.inf)
        for engine in engines:
            last = best.get(engine.name)
            if last is None or (engine.name != OURS and HOPELESS * least < last < math.inf):
                continue
            try:
                if engine.threads > 1:
                    time.sleep(SPINNING)
                best[engine.name] = min(last, engine.time(seconds))
            except EngineError as error:
                failures[engine.name] = str(error)
                del best[engine.name]
    ours = loaded.get(OURS)
    others = {name: found for name, found in loaded.items() if name != OURS}
    peer = next(iter(others.values()), None)
    wanted = reference or (peer.results if peer else None)
    apart = difference(ours.results, wanted) if ours and wanted else math.nan
    away = {name: difference(found.results, reference) for name, found in others.items()
            if reference}
    return Contest(
        best, apart, failures, {name: found.seconds for name, found in loaded.items()},
        ours.limits if ours else None,
        {name: each for name, each in away.items() if not each <= may_differ},
    )


def difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """How far results are apart, as a share of the largest number."""
    if [a.shape for a in ours] != [b.shape for b in theirs]:
        return math.inf
    return largest(differences(ours, theirs)) / max(largest(theirs), 1e-30)


def tell_failures(name: str, found: Contest) -> None:
    """Say which engines are left out, and why."""
    for engine, message in found.failures.items():
        print(f"{name}: {engine} is left out: {' '.join(message.split())[:200]}", file=sys.stderr)

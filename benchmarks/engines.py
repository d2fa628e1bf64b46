"""Models beside other engines, in one run: each engine in a process of its own, taking turns.

    python benchmarks/engines.py MODEL.onnx... [--threads 1 2] [--rounds 5] [--markdown]

A time is the best round's median. A ratio is the fastest peer's time over ours: above 1 we lead.
Exits with 1 when a peer leads or when results differ.
"""

import argparse
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import peers
from rows import show

import sterna
from sterna.model.random_inputs import random_inputs

OURS = "sterna"
THREADS = ("STERNA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Of the largest number of a result, where engines sum in another order or by Winograd's way.
MAY_DIFFER = 2e-3


@dataclass(frozen=True)
class Race:
    """One model at one number of threads: milliseconds by engine."""

    model: str
    threads: int
    times: dict[str, float]
    difference: float
    """Of our result from the first peer's, as a share of its largest number."""

    @property
    def ratio(self) -> float:
        """The fastest peer's time over ours."""
        return min(t for name, t in self.times.items() if name != OURS) / self.times[OURS]

    def cells(self, engines: Sequence[str]) -> tuple[str, ...]:
        """The row of a table."""
        times = [f"{self.times[e]:.2f}" if e in self.times else "" for e in engines]
        judged = (f"{self.ratio:.2f}", f"{self.difference:.0e}")
        return (self.model, str(self.threads), *times, *judged)


def serve(engine: str, path: Path, inputs: dict[str, Any], threads: int, pipe: Connection) -> None:
    """An engine's process: load, show a result, then run for as long as it is told to."""
    try:
        run = getattr(peers, engine)(path, inputs, threads)
        pipe.send([np.asarray(result) for result in run()])
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
        return
    while seconds := pipe.recv():
        run()
        taken: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(taken) < 3:
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
        pipe.send(statistics.median(taken))


def start(engine: str, path: Path, inputs: dict[str, Any], threads: int) -> Connection:
    """An engine in a process whose environment says on how many threads it runs."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    try:
        arguments = (engine, path, inputs, threads, theirs)
        spawn.Process(target=serve, args=arguments, daemon=True).start()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    return ours


def race(path: Path, engines: Sequence[str], threads: int, rounds: int, seconds: float) -> Race:
    """Let the engines run a model by turns."""
    inputs = random_inputs(sterna.compile(path).inputs)
    pipes, results = {}, {}
    for engine in engines:
        ours = start(engine, path, inputs, threads)
        first = ours.recv()
        if isinstance(first, str):
            print(f"{path.stem}: {engine} is left out: {first[:200]}", file=sys.stderr)
            continue
        pipes[engine], results[engine] = ours, first
    best = dict.fromkeys(pipes, math.inf)
    for _ in range(rounds):
        for engine, pipe in pipes.items():
            pipe.send(seconds)
            best[engine] = min(best[engine], pipe.recv() * 1e3)
    for pipe in pipes.values():
        pipe.send(0)
    peer = next(engine for engine in results if engine != OURS)
    return Race(path.stem, threads, best, difference(results[OURS], results[peer]))


def difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """How far results are apart, as a share of the largest number."""
    largest = max(float(np.abs(a).max()) for a in theirs)
    pairs = zip(ours, theirs, strict=True)
    return max(float(np.abs(a - b.astype("float64")).max()) for a, b in pairs) / max(largest, 1e-30)


def head(engines: Sequence[str]) -> tuple[str, ...]:
    """The titles of the table's columns."""
    return ("model", "threads", *(f"{e}, ms" for e in engines), "ratio", "difference")


def summary(races: Sequence[Race]) -> str:
    """The geometric mean of the ratios, per number of threads."""
    means = []
    for threads in sorted({r.threads for r in races}):
        ratios = [r.ratio for r in races if r.threads == threads]
        noun = "thread" if threads == 1 else "threads"
        means.append(f"{statistics.geometric_mean(ratios):.2f} on {threads} {noun}")
    return f"Geometric mean of the ratios: {', '.join(means)}."


def main() -> int:
    """Race the engines over the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    engines = [OURS, *peers.installed()]
    if len(engines) == 1:
        parser.error("no peer is installed: pip install onnxruntime openvino MNN")
    races = [race(path, engines, threads, options.rounds, options.seconds)
             for threads in options.threads for path in options.models]
    show("Engines", head(engines), [r.cells(engines) for r in races], options.markdown)
    print(summary(races))
    return 0 if all(r.ratio >= 1 and r.difference <= MAY_DIFFER for r in races) else 1


if __name__ == "__main__":
    sys.exit(main())

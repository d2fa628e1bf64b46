"""Models beside other engines, in one run: each engine in a process of its own, taking turns.

    python benchmarks/engines.py MODEL.onnx... [--threads 1 2] [--rounds 5] [--markdown]

A time is the best round's median. A ratio is the fastest peer's time over ours: above 1 we lead.
Exits with 1 when a peer leads or when results differ.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import peers
from contest import OURS, Contest, Engine, contest, tell_failures
from rows import show

import sterna
from sterna.relay.random_inputs import random_inputs

# Of the largest number of a result, where engines sum in another order or by Winograd's way.
MAY_DIFFER = 2e-3


@dataclass(frozen=True)
class Race:
    """One model at one number of threads."""

    model: str
    threads: int
    found: Contest

    @property
    def ratio(self) -> float:
        """The fastest peer's time over ours; 0 if one of the two is missing."""
        return self.found.ratio or 0.0

    @property
    def holds(self) -> bool:
        """Whether we lead, with the same result."""
        return self.ratio >= 1 and self.found.difference <= MAY_DIFFER

    def cells(self, engines: Sequence[str]) -> tuple[str, ...]:
        """The row of a table."""
        taken = self.found.times
        times = [f"{taken[e] * 1e3:.2f}" if e in taken else "" for e in engines]
        judged = (f"{self.ratio:.2f}", f"{self.found.difference:.0e}")
        return (self.model, str(self.threads), *times, *judged)


def race(path: Path, engines: Sequence[str], threads: int, rounds: int, seconds: float) -> Race:
    """Let the engines run a model by turns."""
    inputs = random_inputs(sterna.compile(path).inputs)
    started = [Engine(name, threads) for name in engines]
    try:
        found = contest(started, path, inputs, rounds, seconds)
    finally:
        for engine in started:
            engine.close()
    tell_failures(path.stem, found)
    return Race(path.stem, threads, found)


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
    return 0 if all(r.holds for r in races) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Timing models beside each other, in turns, so that what else the machine does hits them alike."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.relay.arrays import Array

Contestant = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one run, per turn."""

    turns: tuple[float, ...]

    @property
    def median(self) -> float:
        """That of the middle turn."""
        return statistics.median(self.turns)

    @property
    def min(self) -> float:
        """That of the fastest turn."""
        return min(self.turns)


def time_in_turns(
    contestants: Mapping[str, Contestant], turns: int, turn_seconds: float
) -> dict[str, Timing]:
    """Let each run for a while, one after the other, turn by turn."""
    numbers = {name: _runs_in(call, turn_seconds) for name, call in contestants.items()}
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, call in contestants.items():
            taken[name].append(_seconds(call, numbers[name]))
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}


def _runs_in(call: Contestant, seconds: float) -> int:
    """How many runs a turn has; the first runs only warm up."""
    call()
    once = min(_seconds(call, 1) for _ in range(2))
    return max(1, int(seconds / max(once, 1e-9)))


def _seconds(call: Contestant, number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number


def onnxruntime_runner(
    path: str | os.PathLike[str], inputs: Mapping[str, Any], threads: int
) -> Callable[[], list[Array]]:
    """ONNX Runtime on a model and its inputs; needs the package onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        os.fspath(path), options, providers=["CPUExecutionProvider"]
    )
    feeds = dict(inputs)

    def run() -> list[Array]:
        results: list[Array] = session.run(None, feeds)
        return results

    return run


def largest_difference(ours: list[Array], theirs: list[Array]) -> float:
    """The largest difference of two engines' results, as a share of the largest number."""
    found = 0.0
    for mine, other in zip(ours, theirs, strict=True):
        a, b = np.asarray(mine, "float64"), np.asarray(other, "float64")
        if a.size:
            scale = max(float(np.nanmax(np.abs(b))), 1e-30)
            found = max(found, float(np.nanmax(np.abs(a - b))) / scale)
    return found

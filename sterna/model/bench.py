"""Timing models beside each other, in turns, so that what else the machine does hits them alike."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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


def largest(arrays: Iterable[Array]) -> float:
    """The largest absolute value of all; infinite if one is no number."""
    sizes = [np.abs(np.asarray(array, "float64")) for array in arrays]
    return max((float(np.nan_to_num(s, nan=np.inf).max()) for s in sizes if s.size), default=0.0)


def differences(ours: Sequence[Array], theirs: Sequence[Array]) -> list[Array]:
    """How far two results are apart; the same infinities and NaNs are not."""
    pairs = [(np.asarray(a, "float64"), np.asarray(b, "float64"))
             for a, b in zip(ours, theirs, strict=True)]
    with np.errstate(invalid="ignore"):
        return [
            np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, a - b) for a, b in pairs
        ]

"""Timing on noisy machines: the things compared take turns.

Clock rates drift, so a ratio is taken within each turn and the median of the turns counts; where
only noise matters, the best turn of each does.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping


def best_of_turns(
    candidates: Mapping[str, Callable[[], object]], number: int, turns: int = 15
) -> dict[str, float]:
    """Seconds per call of each candidate: the least of several turns of `number` calls."""
    best = dict.fromkeys(candidates, float("inf"))
    for call in candidates.values():
        call()
    enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(turns):
            for name, call in candidates.items():
                start = time.perf_counter()
                for _ in range(number):
                    call()
                best[name] = min(best[name], (time.perf_counter() - start) / number)
    finally:
        if enabled:
            gc.enable()
    return best


def seconds_of(
    call: Callable[[], object], number: int = 3, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of the best of some calls, after one that does not count.

    clock: time.thread_time where all is done by the calling thread, on a machine that others use.
    """
    call()
    best = float("inf")
    for _ in range(number):
        start = clock()
        call()
        best = min(best, clock() - start)
    return best


def turns_of(
    measures: Mapping[str, Callable[[], float]], turns: int = 25
) -> dict[str, list[float]]:
    """What each measure gives in each turn; all of them are taken in every turn."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(turns):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def ratio(turns: Mapping[str, list[float]], slow: str, fast: str) -> float:
    """How many times faster one is than another: the median over the turns."""
    return statistics.median(a / b for a, b in zip(turns[slow], turns[fast], strict=True))

"""Timing on noisy machines: the things compared take turns, and the best turn of each counts."""

import gc
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

"""Timing compiled functions."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from sterna.runtime._core import PackedFunc
from sterna.runtime.device import Device
from sterna.runtime.registry import get_global_func

# Repeats that are too short are lengthened by this at least, so that few are needed.
GROWTH = 1.618


class BenchmarkResult:
    """Seconds per call, one number per repeat, and what they amount to."""

    def __init__(self, results: Sequence[float]) -> None:
        self.results = tuple(results)
        self.mean = statistics.fmean(self.results)
        self.median = statistics.median(self.results)
        self.min = min(self.results)
        self.max = max(self.results)
        self.std = statistics.pstdev(self.results)

    def __repr__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        head = "".join(f"{name + ' (ms)':^14}" for name in names)
        values = "".join(f"{getattr(self, name) * 1e3:^14.4f}" for name in names)
        return f"Execution time summary:\n{head}\n{values}"


def expect_no_preparation(cache_flush_bytes: int, f_preproc: str, where: str) -> None:
    """Refuses what only this machine's own evaluator does before a repeat."""
    for name, value in (("cache_flush_bytes", cache_flush_bytes), ("f_preproc", f_preproc)):
        if value:
            raise ValueError(f"{name} is for functions that run here, not {where}; leave it out")


def make_evaluator(
    function: PackedFunc,
    device: Device,
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: int = 0,
    limit_zero_time_iterations: int = 100,
    cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
    cache_flush_bytes: int = 0,
    f_preproc: str = "",
) -> Callable[..., BenchmarkResult]:
    """A function that times another on its arguments, after one call that is not counted.

    Before each repeat so many bytes are written, which leaves nothing else in smaller caches, and
    the registered function f_preproc is called with the arguments.
    """
    if number < 1 or repeat < 1:
        raise ValueError(f"number={number} and repeat={repeat} must be at least 1")
    if cache_flush_bytes < 0:
        raise ValueError(f"cache_flush_bytes={cache_flush_bytes} must not be negative")
    preprocess = get_global_func(f_preproc) if f_preproc else None

    def prepare(args: Sequence[Any]) -> None:
        if cache_flush_bytes:
            _ = b"\1" * cache_flush_bytes
        if preprocess is not None:
            preprocess(*args)

    def seconds_of(calls: int, args: Sequence[Any]) -> float:
        begin = device.finished_at()
        start = time.perf_counter()
        function._repeat(calls, *args)
        end = device.finished_at()
        if begin is not None and end is not None:  # by the device's own clock
            return end - begin
        device.sync()
        return time.perf_counter() - start

    def evaluate(*args: Any) -> BenchmarkResult:
        calls = number
        results = []
        seconds_of(1, args)
        for turn in range(repeat):
            prepare(args)
            seconds, tries = seconds_of(calls, args), 1
            while seconds * 1e3 < min_repeat_ms and tries < limit_zero_time_iterations:
                needed = min_repeat_ms * 1e-3 / max(seconds / calls, 1e-9)
                calls = max(int(needed) + 1, int(calls * GROWTH) + 1)
                prepare(args)
                seconds = seconds_of(calls, args)
                tries += 1
            results.append(seconds / calls)
            if cooldown_interval_ms and (turn + 1) % repeats_to_cooldown == 0:
                time.sleep(cooldown_interval_ms * 1e-3)
        return BenchmarkResult(results)

    return evaluate

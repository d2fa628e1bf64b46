"""A process that runs compiled functions for the tuner: a crash or a hang costs this process."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from sterna.relay.arrays import Array, numpy_dtype, to_numpy
from sterna.runtime import Device, load_module, ndarray
from sterna.target.host import cache_bytes
from sterna.tune.lines import LineProcess, ProcessEnded, ProcessSilent
from sterna.tune.measure import RemoteDevice, WrongResult, expect_close
from sterna.tune.statistics import Comparison, Verdict, compare

RUNTIME, WRONG, TIMEOUT = 4, 5, 7
# Turns with the fastest so far instead of one long run, by which each repeat is made of several.
TURNS = 4
# Those after which one that looks faster is believed or not, and the seconds that they may take.
MOST_TURNS, SURE_WITHIN = 24, 5.0
# What a system that does not tell the sizes of its caches may have.
LARGEST_CACHE = 64 << 20


@dataclass(frozen=True)
class Workbench:
    """A compiled function, what it is run on, and one whose results are right."""

    path: str
    first: str
    incumbent: str
    """The fastest so far, which runs in turns with it; itself if there is none."""
    args: list[tuple[list[int], str]]
    given: str | None
    """A file with those of the arrays, by their place among the arguments, that are not drawn."""
    number: int
    repeat: int
    min_repeat_ms: int
    device_type: int
    device: RemoteDevice | None
    finds_no_cache: bool = False
    """Whether each counted call begins with caches that hold nothing of its arrays."""


class RunProcess:
    """The process, which is started anew after it failed."""

    def __init__(self) -> None:
        self.process = LineProcess("sterna.autotvm.run_process")

    def ask(self, bench: Workbench, timeout: float) -> dict[str, Any]:
        """The seconds of each repeat and of the incumbent's in turns, or an error and its text."""
        try:
            return self.process.ask(asdict(bench), timeout + STARTS_WITHIN)
        except ProcessSilent as error:
            return {"error": str(error), "number": TIMEOUT}
        except ProcessEnded as error:
            return {"error": str(error), "number": RUNTIME}

    def close(self) -> None:
        """End the process."""
        self.process.close()


# What a process takes to start and to draw its arrays, at most.
STARTS_WITHIN = 60.0


def serve() -> None:
    """Answer requests until there are no more."""
    output = sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may get between the answers
    for line in sys.stdin.buffer:
        output.write(json.dumps(_answer(json.loads(line))).encode() + b"\n")
        output.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    device = request.pop("device")
    bench = Workbench(**request, device=None if device is None else RemoteDevice(**device))
    try:
        return asdict(_run(bench))
    except WrongResult as error:
        return {"error": str(error), "number": WRONG}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "number": RUNTIME}


@dataclass(frozen=True, slots=True)
class Turns:
    """Seconds of both in the turns that count."""

    incumbent: list[float]
    costs: list[float]
    is_faster: bool
    """Whether the challenger is known to be faster, rather than lucky."""


def _run(bench: Workbench) -> Turns:
    with nullcontext() if bench.device is None else bench.device.session() as session:
        def loaded(path: str) -> Any:
            if session is None:
                return load_module(path)
            session.upload(path)
            return session.load_module(Path(path).name)

        place = (Device(bench.device_type, 0) if session is None
                 else session.device(bench.device_type, 0))
        given = _drawn(bench)
        want = _results(loaded(bench.first), place, given)
        module = loaded(bench.path)
        found = _results(module, place, given)
        for index, (got, right) in enumerate(zip(found, want, strict=True)):
            expect_close(index, got, right)
        arrays = [ndarray.array(array, place) for array in given]
        calls = max(1, bench.number // TURNS)
        options = {"number": calls, "min_repeat_ms": bench.min_repeat_ms // TURNS}
        if bench.finds_no_cache and session is None:
            options = {"number": 1, "repeat": calls, "cache_flush_bytes": _more_than_caches()}

        def timed(one: Any) -> float:
            return fmean(one.time_evaluator("measured", place, **options)(*arrays).results)

        other = module if bench.incumbent == bench.path else loaded(bench.incumbent)
        return in_turns(lambda: timed(other), lambda: timed(module), bench.repeat)


def _more_than_caches() -> int:
    """Bytes that leave nothing else in any cache of this machine once they are written."""
    return 2 * max(cache_bytes().values(), default=LARGEST_CACHE)


def in_turns(
    incumbent: Callable[[], float], challenger: Callable[[], float], repeat: int
) -> Turns:
    """The times of both, run in turns; a challenger that looks faster runs until that is sure.

    Those turns count whose ratios are in the middle, as many as there are repeats.
    """
    pairs = [(incumbent(), challenger()) for _ in range(TURNS * repeat)]
    until = time.monotonic() + SURE_WITHIN
    while (seen := _compared(pairs)).ratio < 1 and seen.verdict is Verdict.OPEN:
        if len(pairs) >= MOST_TURNS or time.monotonic() >= until:
            break
        pairs.append((incumbent(), challenger()))
    pairs.sort(key=lambda pair: pair[1] / pair[0])
    left = (len(pairs) - repeat) // 2
    middle = pairs[left : left + repeat]
    return Turns([first for first, _ in middle], [second for _, second in middle],
                 seen.verdict is Verdict.FASTER)


def _compared(pairs: Sequence[tuple[float, float]]) -> Comparison:
    return compare([first for first, _ in pairs], [second for _, second in pairs])


def _drawn(bench: Workbench) -> list[Array]:
    order = np.random.default_rng(0)
    drawn = [order.uniform(0, 4, shape).astype(numpy_dtype(dtype)) for shape, dtype in bench.args]
    if bench.given is not None:
        with np.load(bench.given, allow_pickle=False) as file:
            for place in file.files:
                kept = file[place].view(drawn[int(place)].dtype)
                drawn[int(place)] = kept.reshape(drawn[int(place)].shape)
    return drawn


def _results(module: Any, place: Device, given: list[Array]) -> list[Array]:
    arrays = [ndarray.array(array, place) for array in given]
    module["measured"](*arrays)
    return [to_numpy(array) for array in arrays]

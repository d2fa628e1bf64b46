"""A process that runs compiled functions for the tuner: a crash or a hang costs this process."""

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sterna.relay.arrays import Array, numpy_dtype, to_numpy
from sterna.runtime import Device, load_module, ndarray
from sterna.tune.lines import LineProcess, ProcessEnded, ProcessSilent
from sterna.tune.measure import RemoteDevice, WrongResult, expect_close

RUNTIME, WRONG, TIMEOUT = 4, 5, 7


@dataclass(frozen=True)
class Workbench:
    """A compiled function, what it is run on, and one whose results are right."""

    path: str
    first: str
    incumbent: str
    """The fastest so far, which runs in turns with it; itself if there is none."""
    args: list[tuple[list[int], str]]
    number: int
    repeat: int
    min_repeat_ms: int
    device_type: int
    device: RemoteDevice | None


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
        incumbent, costs = _run(bench)
        return {"incumbent": incumbent, "costs": costs}
    except WrongResult as error:
        return {"error": str(error), "number": WRONG}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "number": RUNTIME}


def _run(bench: Workbench) -> tuple[list[float], list[float]]:
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
        def timed(one: Any) -> float:
            evaluator = one.time_evaluator(
                "measured", place, number=bench.number, repeat=1, min_repeat_ms=bench.min_repeat_ms
            )
            return float(evaluator(*arrays).results[0])

        other = module if bench.incumbent == bench.path else loaded(bench.incumbent)
        pairs = [(timed(other), timed(module)) for _ in range(bench.repeat)]
        return [first for first, _ in pairs], [second for _, second in pairs]


def _drawn(bench: Workbench) -> list[Array]:
    order = np.random.default_rng(0)
    return [order.uniform(0, 4, shape).astype(numpy_dtype(dtype)) for shape, dtype in bench.args]


def _results(module: Any, place: Device, given: list[Array]) -> list[Array]:
    arrays = [ndarray.array(array, place) for array in given]
    module["measured"](*arrays)
    return [to_numpy(array) for array in arrays]

"""Measuring configurations: built here, run in a process of its own or on a device.

The results of each are compared with those of the first that ran: a wrong one is no result.
"""

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from sterna.autotvm.layers import LayerTask
from sterna.autotvm.run_process import RunProcess, Workbench
from sterna.autotvm.space import ConfigEntity, InstantiationError
from sterna.autotvm.template import Task
from sterna.driver import build
from sterna.micro.module_loader import AutoTvmModuleLoader, autotvm_build_func
from sterna.relay.arrays import Array, numpy_dtype, to_numpy
from sterna.runtime import NDArray
from sterna.support.classic import classic_names
from sterna.tune.measure import RemoteDevice
from sterna.tune.workers import Crashed, Hung, Refused, TrialError, Wrong

FAILED_COST = 1e9


class MeasureErrorNo(IntEnum):
    """What became of a measurement."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


FAILURES: dict[type[TrialError], MeasureErrorNo] = {
    Crashed: MeasureErrorNo.RUNTIME_DEVICE, Hung: MeasureErrorNo.RUN_TIMEOUT,
    Refused: MeasureErrorNo.COMPILE_HOST, Wrong: MeasureErrorNo.WRONG_ANSWER,
}


class MeasureInput(NamedTuple):
    """What is measured."""

    target: Any
    task: Task | LayerTask
    config: ConfigEntity


class MeasureResult(NamedTuple):
    """What it took: seconds per run, or why there are none."""

    costs: tuple[Any, ...]
    error_no: int
    all_cost: float
    timestamp: float


@dataclass
class LocalBuilder:
    """Compiles on this machine."""

    timeout: float = 10
    n_parallel: int | None = None
    build_kwargs: Any = None
    build_func: Any = "default"
    do_fork: bool = False
    runtime: Any = None

    def __post_init__(self) -> None:
        known = self.build_func == "default" or self.build_func is autotvm_build_func
        if not known:
            raise ValueError("configurations are built by tvm.build, and for boards as firmware; "
                             "build_func is default or micro.autotvm_build_func")


@dataclass
class LocalRunner:
    """Runs in a process of this machine."""

    timeout: float = 10
    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    cooldown_interval: float = 0.1
    enable_cpu_cache_flush: bool = False
    """Whether templates find nothing of their arrays in caches; layers run in their networks."""
    module_loader: Any = None
    ref_input: Sequence[Any] | None = None
    """The arrays of all arguments, in order; else they are drawn at random."""

    def device(self) -> RemoteDevice | None:
        """None: this machine."""
        return None


@dataclass
class RPCRunner:
    """Runs on a device that a tracker lends."""

    key: str
    host: str = "127.0.0.1"
    port: int = 9190
    priority: int = 1
    timeout: float = 10
    n_parallel: int | None = None
    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    cooldown_interval: float = 0.1
    enable_cpu_cache_flush: bool = False
    module_loader: Any = None
    ref_input: Sequence[Any] | None = None
    """The arrays of all arguments, in order; else they are drawn at random."""

    def device(self) -> RemoteDevice:
        """The device that is asked for."""
        return RemoteDevice(self.host, self.port, self.key, max(1, round(self.timeout)),
                            self.priority)


def board_of(runner: LocalRunner | RPCRunner) -> str | None:
    """The board that a runner's loader names."""
    loader = runner.module_loader
    return loader.board if isinstance(loader, AutoTvmModuleLoader) else None


class MeasureOption(NamedTuple):
    """Who builds and who runs."""

    builder: LocalBuilder
    runner: LocalRunner | RPCRunner


def measure_option(builder: Any = "local", runner: Any = "local") -> MeasureOption:
    """How configurations are measured."""
    for what, given, kinds in (("builder", builder, (LocalBuilder,)),
                               ("runner", runner, (LocalRunner, RPCRunner))):
        if given != "local" and not isinstance(given, kinds):
            names = ", ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{what}={given!r} is none of local, {names}")
        if hasattr(given, "run") or hasattr(given, "build"):
            raise ValueError(
                f"{what}: the method run or build of {type(given).__name__} would not be called; "
                f"a {what} only says by its settings how configurations are measured"
            )
    return MeasureOption(LocalBuilder() if builder == "local" else builder,
                         LocalRunner() if runner == "local" else runner)


@dataclass
class Measurer:
    """Measures the configurations of one task, one after the other."""

    task: Task | LayerTask
    option: MeasureOption
    _folder: Any = field(default_factory=lambda: tempfile.TemporaryDirectory(prefix="autotvm-"))
    _process: RunProcess = field(default_factory=RunProcess)
    _first: str | None = None
    _best: str | None = None
    """The fastest so far; candidates run in turns with it, which takes out what else runs here."""
    _best_seconds: float = math.inf
    _count: int = 0

    def measure(self, config: ConfigEntity) -> tuple[MeasureInput, MeasureResult]:
        """Build and run a configuration."""
        begin = time.time()
        asked = MeasureInput(self.task.target, self.task, config)
        try:
            costs, error = self._measured(config)
        except InstantiationError as refused:
            costs, error = (refused,), MeasureErrorNo.INSTANTIATION_ERROR
        except Exception as failed:  # whatever a template or a schedule raises is its result
            costs, error = (failed,), MeasureErrorNo.COMPILE_HOST
        now = time.time()
        return asked, MeasureResult(costs, int(error), now - begin, now)

    def _measured(self, config: ConfigEntity) -> tuple[tuple[Any, ...], MeasureErrorNo]:
        if isinstance(self.task, LayerTask):
            try:
                seconds = self.task.seconds(config, board_of(self.option.runner))
                return tuple(seconds), MeasureErrorNo.NO_ERROR
            except TrialError as error:
                return (error,), FAILURES[type(error)]
        if board_of(self.option.runner) is not None:
            raise ValueError("boards time layers of networks, not templates: "
                             "extract_from_program gives such")
        schedule, args = self.task.instantiate(config)
        module = build(schedule, list(args), target=self.task.target, name="measured")
        self._count += 1
        path = str(Path(self._folder.name) / f"{self._count}.tar")
        module.export_library(path)
        runner = self.option.runner
        shapes = [([int(str(e)) for e in tensor.shape], str(tensor.dtype)) for tensor in args]
        bench = Workbench(
            path, self._first or path, self._best or path, shapes, self._given(args), runner.number,
            runner.repeat, runner.min_repeat_ms, self.task.target.kind.device_type, runner.device(),
            runner.enable_cpu_cache_flush,
        )
        if bench.finds_no_cache and bench.device is not None:
            warnings.warn("enable_cpu_cache_flush: a server does not empty its caches before a "
                          "run, which is measured with whatever they hold", stacklevel=2)
        answer = self._process.ask(bench, runner.timeout)
        if "error" in answer:
            return (RuntimeError(answer["error"]),), MeasureErrorNo(answer["number"])
        costs = self._beside_best(
            answer["incumbent"], answer["costs"], answer["is_faster"], path
        )
        return tuple(costs), MeasureErrorNo.NO_ERROR

    def _given(self, args: Sequence[Any]) -> str | None:
        """The file of the arrays that the user gave, which is written once."""
        assert isinstance(self.task, Task)
        given = {str(place): self.task.inputs[tensor.op.name]
                 for place, tensor in enumerate(args) if tensor.op.name in self.task.inputs}
        if (listed := self.option.runner.ref_input) is not None:
            if len(listed) != len(args):
                raise ValueError(f"ref_input has {len(listed)} arrays for {len(args)} arguments")
            given = {str(place): array for place, array in enumerate(listed)}
        if not given:
            return None
        path = Path(self._folder.name) / "given.npz"
        if not path.exists():
            np.savez(path, **{  # type: ignore[arg-type]
                place: _checked(args[int(place)], array) for place, array in given.items()
            })
        return str(path)

    def _beside_best(
        self, incumbent: Sequence[float], seconds: Sequence[float], is_faster: bool, path: str
    ) -> list[float]:
        """What a configuration takes, by the fastest one's time and how both ran in turns.

        One that is not known to be faster takes as long as the fastest, which stays that.
        """
        if self._best is None:
            self._first = self._best = path
            self._best_seconds = fmean(seconds)
            return list(seconds)
        costs = [self._best_seconds * s / i for s, i in zip(seconds, incumbent, strict=True)]
        loser = path
        if is_faster and fmean(costs) < self._best_seconds:
            self._best, loser, self._best_seconds = path, self._best, fmean(costs)
        elif fmean(costs) < self._best_seconds:
            costs = [self._best_seconds] * len(costs)
        if loser != self._first:
            Path(loser).unlink()
        return costs

    def close(self) -> None:
        """End the process and drop the files."""
        self._process.close()
        self._folder.cleanup()


def _checked(tensor: Any, given: Any) -> Array:
    """An array that is given for a tensor, as its bytes."""
    array = to_numpy(given) if isinstance(given, NDArray) else np.asarray(given)
    shape = tuple(int(str(extent)) for extent in tensor.shape)
    wanted = numpy_dtype(tensor.dtype)
    if array.shape != shape or array.dtype != wanted:
        raise ValueError(
            f"the array for {tensor.op.name} is {array.dtype}{list(array.shape)}, not "
            f"{wanted}{list(shape)}"
        )
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def create_measure_batch(
    task: Task | LayerTask, option: MeasureOption
) -> Callable[[Sequence[MeasureInput]], list[MeasureResult]]:
    """What measures configurations of a task, one batch after the other."""

    def measure_batch(inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        measurer = Measurer(task, option)
        try:
            return [measurer.measure(each.config)[1] for each in inputs]
        finally:
            measurer.close()

    return measure_batch


def seconds_of(result: MeasureResult) -> float:
    """What a run took; as long as can be if it failed."""
    if result.error_no != MeasureErrorNo.NO_ERROR:
        return FAILED_COST
    costs: Sequence[float] = result.costs
    return sum(costs) / len(costs)


__getattr__ = classic_names(__name__)

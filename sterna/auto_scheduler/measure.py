"""Who builds and who runs, and what a measurement is; schedules run in processes of their own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sterna.autotvm import measure as autotvm_measure
from sterna.autotvm.measure import FAILED_COST, MeasureErrorNo, MeasureOption

# What register_task_input_buffer was told: arrays by workload and name.
_buffers: dict[str, dict[str, Any]] = {}


def register_task_input_buffer(
    workload_key: str, input_name: str, input_data: Any, overwrite: bool = False,
    save_to_file: bool = False,
) -> Any:
    """Measure a workload with an array, not with one that is drawn at random."""
    if save_to_file:
        raise ValueError("arrays stay with the process: save them by numpy.save, not save_to_file")
    known = _buffers.setdefault(workload_key, {})
    if input_name not in known or overwrite:
        known[input_name] = input_data
    return known[input_name]


def get_task_input_buffer(workload_key: str, input_name: str) -> Any:
    """The array that was registered."""
    found = _buffers.get(workload_key, {})
    if input_name not in found:
        raise ValueError(
            f"no array is registered for {input_name} of {workload_key}; "
            "register_task_input_buffer does that"
        )
    return found[input_name]


__all__ = [
    "LocalBuilder", "LocalRPCMeasureContext", "LocalRunner", "MeasureErrorNo", "MeasureInput",
    "MeasureResult", "RPCRunner", "get_task_input_buffer", "option_of",
    "register_task_input_buffer", "seconds_of",
]


class MeasureInput(NamedTuple):
    """What was measured: a task, and the loops that it had."""

    task: Any
    state: Any


class MeasureResult(NamedTuple):
    """What it took: seconds per run, or why there are none."""

    costs: tuple[float, ...]
    error_no: int
    error_msg: str
    all_cost: float
    timestamp: float


def seconds_of(result: MeasureResult) -> float:
    """What a run took; as long as can be if it failed."""
    if result.error_no != MeasureErrorNo.NO_ERROR or not result.costs:
        return FAILED_COST
    return sum(result.costs) / len(result.costs)


class LocalBuilder:
    """Compiles on this machine."""

    def __init__(
        self, timeout: float = 15, n_parallel: int | None = None, build_func: Any = "default"
    ) -> None:
        self.plain = autotvm_measure.LocalBuilder(timeout, n_parallel, build_func=build_func)


class LocalRunner:
    """Runs in a process of this machine."""

    def __init__(
        self, timeout: float = 10, number: int = 3, repeat: int = 1, min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0, enable_cpu_cache_flush: bool = False, device: int = 0,
    ) -> None:
        self.plain: Any = autotvm_measure.LocalRunner(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush
        )


class RPCRunner:
    """Runs on a device that a tracker lends."""

    def __init__(
        self, key: str, host: str, port: int, priority: int = 1, n_parallel: int = 1,
        timeout: float = 10, number: int = 3, repeat: int = 1, min_repeat_ms: int = 100,
        cooldown_interval: float = 0.0, enable_cpu_cache_flush: bool = False, device: int = 0,
    ) -> None:
        self.plain: Any = autotvm_measure.RPCRunner(
            key, host, port, priority, timeout, n_parallel, number, repeat, min_repeat_ms,
            cooldown_interval, enable_cpu_cache_flush,
        )


class LocalRPCMeasureContext:
    """Runs apart from this process, as programs ask for that need a clean GPU context."""

    def __init__(
        self, priority: int = 1, n_parallel: int = 1, timeout: float = 10, number: int = 3,
        repeat: int = 1, min_repeat_ms: int = 0, cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False, device: int = 0,
    ) -> None:
        self.runner = LocalRunner(timeout, number, repeat, min_repeat_ms, cooldown_interval,
                                  enable_cpu_cache_flush, device)


def option_of(builder: Any, runner: Any) -> MeasureOption:
    """How schedules are measured."""
    for what, given, kinds in (("builder", builder, (LocalBuilder,)),
                               ("runner", runner, (LocalRunner, RPCRunner))):
        if given != "local" and not isinstance(given, kinds):
            names: Sequence[str] = [kind.__name__ for kind in kinds]
            raise ValueError(f"{what}={given!r} is none of local, {', '.join(names)}")
    own_builder = LocalBuilder() if builder == "local" else builder
    own_runner = LocalRunner() if runner == "local" else runner
    return MeasureOption(own_builder.plain, own_runner.plain)

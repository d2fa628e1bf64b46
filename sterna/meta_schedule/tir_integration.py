"""Functions of loops: those that te.create_prim_func made are scheduled anew, by search.

The search is the one of auto_scheduler: tiles, lanes, unrolling and shares of threads of what is
computed. A record's trace holds the steps of a schedule.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.auto_scheduler.compute_dag import ComputeDAG
from sterna.auto_scheduler.loop_state import State
from sterna.auto_scheduler.measure import LocalRunner, MeasureInput, MeasureResult, RPCRunner
from sterna.auto_scheduler.search_task import SearchTask
from sterna.auto_scheduler.steps import step_of_json
from sterna.auto_scheduler.tuning_options import TuningOptions
from sterna.driver import lower
from sterna.ir.module import IRModule
from sterna.meta_schedule.builder import Builder
from sterna.meta_schedule.config import SCHEDULERS, STRATEGIES, TuneConfig, expect_known
from sterna.meta_schedule.database import Database, TuningRecord, Workload
from sterna.meta_schedule.profiler import Profiler
from sterna.meta_schedule.runner import EvaluatorConfig, Runner
from sterna.meta_schedule.tune import COST_MODELS, database_of
from sterna.target import Target
from sterna.te import Tensor
from sterna.te.prim_func import tensors_of
from sterna.tir.stmt import PrimFunc

STEPS = "SternaSteps"
# The name of a function that stands alone.
MAIN = "main"


@dataclass(frozen=True)
class TunedSchedule:
    """A function whose loops were chosen by search."""

    mod: IRModule
    trace: Any

    def show(self) -> None:
        """Print the loops."""
        print(self.mod)


def tune_tir(
    mod: IRModule | PrimFunc,
    target: Any,
    work_dir: str | Path | TuneConfig,
    max_trials_global: int | str | Path | None = None,
    *,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: Any = "xgb",
    measure_callbacks: Any = "default",
    task_scheduler: Any = "gradient",
    space: Any = "post-order-apply",
    strategy: Any = "evolutionary",
    num_tuning_cores: Any = "physical",
    seed: int | None = None,
    module_equality: str = "structural",
    special_space: Any = None,
    task_name: str = MAIN,
) -> Any:
    """Search schedules for the functions of a module; the result is a database of records.

    Older programs give tune_tir(mod, target, config, work_dir), and get the best schedule, or None.
    """
    if isinstance(work_dir, TuneConfig):
        limits = work_dir.check()
        if not isinstance(max_trials_global, str | Path):
            raise TypeError("tune_tir(mod, target, config, work_dir): work_dir is a folder")
        found = tune_tir(
            mod, target, max_trials_global, limits.max_trials_global or limits.num_trials_per_iter,
            max_trials_per_task=limits.max_trials_per_task, builder=builder, runner=runner,
            database=database, module_equality=module_equality,
        )
        return compile_tir(found, mod, target)
    if not isinstance(max_trials_global, int) or max_trials_global < 1:
        raise ValueError(f"max_trials_global={max_trials_global!r} must be a number of at least 1")
    expect_known("cost_model", cost_model, COST_MODELS)
    expect_known("task_scheduler", task_scheduler, SCHEDULERS)
    expect_known("strategy", strategy, STRATEGIES)
    wanted, kept = Target(target), database_of(database, work_dir, module_equality)
    functions = _functions(mod)
    each = min(max_trials_per_task or max_trials_global,
               max(1, max_trials_global // len(functions)))
    Builder.of(builder)
    for name, func in functions.items():
        with Profiler.timeit("Tuning"):
            _tune_one(name, func, wanted, each, _runner(Runner.of(runner)), kept)
    return kept


def compile_tir(database: Database, mod: IRModule | PrimFunc, target: Any) -> TunedSchedule | None:
    """The functions with the fastest loops that a database knows; None if it knows none."""
    wanted, made, traces = Target(target), {}, []
    for name, func in _functions(mod).items():
        record = database.query_tuning_record(IRModule({MAIN: func}), wanted)
        if record is None:
            return None
        state = State(ComputeDAG(_tensors(name, func)), _steps(record.trace))
        schedule, args = state.apply()
        made[name] = lower(schedule, args, name=name)[name]
        traces.append(record.trace)
    return TunedSchedule(IRModule(made), traces[0] if len(traces) == 1 else traces)


def _tune_one(
    name: str, func: PrimFunc, target: Target, trials: int, runner: Any, kept: Database
) -> None:
    workload = kept.commit_workload(IRModule({MAIN: func}))

    def record(inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for asked, result in zip(inputs, results, strict=True):
            kept.commit_tuning_record(_record(asked, result, workload, target))

    task = SearchTask(compute_dag=ComputeDAG(_tensors(name, func)), target=target, desc=name)
    task.tune(TuningOptions(num_measure_trials=trials, verbose=0, runner=runner,
                            measure_callbacks=[record]))


def _record(
    asked: MeasureInput, result: MeasureResult, workload: Workload, target: Target
) -> TuningRecord:
    steps = [step.to_json() for step in asked.state.transform_steps]
    return TuningRecord([[[STEPS, [], [steps], []]], []], workload, result.costs or None, target)


def _steps(trace: Any) -> tuple[Any, ...]:
    try:
        name, _, (rows,), _ = trace[0][0]
        if name == STEPS:
            return tuple(step_of_json(row) for row in rows)
    except (IndexError, TypeError, ValueError):
        pass
    raise ValueError("the record's trace holds no steps of a schedule; tune_tir writes such ones")


def _functions(mod: IRModule | PrimFunc) -> dict[str, PrimFunc]:
    if isinstance(mod, PrimFunc):
        return {MAIN: mod}
    found = {str(name): func for name, func in mod.functions.items()}
    others = [name for name, func in found.items() if not isinstance(func, PrimFunc)]
    if others or not found:
        raise TypeError(f"tune_tir takes functions of loops, which {', '.join(others) or 'none'} "
                        "is; meta_schedule.relay_integration tunes networks of Relay")
    return {name: func for name, func in found.items() if isinstance(func, PrimFunc)}


def _tensors(name: str, func: PrimFunc) -> list[Tensor]:
    found = tensors_of(func)
    if found is None:
        raise TypeError(
            f"the loops of '{name}' were not made by te.create_prim_func in this program, so what "
            "they compute cannot be scheduled anew; make it of tensors (te.compute) there"
        )
    return found


def _runner(given: Runner) -> LocalRunner | RPCRunner:
    config, device = given.evaluator_config or EvaluatorConfig(), given.device()
    if device is None:
        return LocalRunner(
            number=config.number, repeat=config.repeat, min_repeat_ms=config.min_repeat_ms
        )
    return RPCRunner(
        device.key, device.host, device.port, device.priority, timeout=device.session_seconds,
        number=config.number, repeat=config.repeat, min_repeat_ms=config.min_repeat_ms,
    )

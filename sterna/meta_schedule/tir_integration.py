"""Functions of loops: those that te.create_prim_func made are scheduled anew, by search.

The search is the one of auto_scheduler: tiles, lanes, unrolling and shares of threads of what is
computed. A record's trace holds the steps of a schedule.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterna.auto_scheduler.compute_dag import ComputeDAG
from sterna.auto_scheduler.measure import LocalRunner, MeasureInput, MeasureResult, RPCRunner
from sterna.auto_scheduler.search_task import SearchTask
from sterna.auto_scheduler.tuning_options import TuningOptions
from sterna.ir.module import IRModule
from sterna.meta_schedule.builder import Builder
from sterna.meta_schedule.config import TuneConfig
from sterna.meta_schedule.database import Database, TuningRecord, Workload
from sterna.meta_schedule.measure_callback import Told, callbacks_of
from sterna.meta_schedule.profiler import Profiler
from sterna.meta_schedule.runner import EvaluatorConfig, Runner
from sterna.meta_schedule.task_scheduler import TaskScheduler
from sterna.meta_schedule.tune import check_named, database_of
from sterna.meta_schedule.tuned_schedule import MAIN, STEPS, TunedSchedule, computed_by, scheduled
from sterna.target import Target
from sterna.tir.stmt import PrimFunc


def tune_tir(
    mod: IRModule | PrimFunc,
    target: Any,
    work_dir: str | Path | TuneConfig,
    max_trials_global: int | str | Path | None = None,
    *,
    config: TuneConfig | None = None,
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
        if not isinstance(max_trials_global, str | Path):
            raise TypeError("tune_tir(mod, target, config, work_dir): work_dir is a folder")
        config, work_dir, max_trials_global = work_dir, max_trials_global, None
    if config is not None:
        limits = config.check()
        found = tune_tir(
            mod, target, work_dir, limits.max_trials_global or limits.num_trials_per_iter,
            max_trials_per_task=limits.max_trials_per_task, builder=builder, runner=runner,
            database=database, cost_model=cost_model, measure_callbacks=measure_callbacks,
            module_equality=module_equality,
        )
        return compile_tir(found, mod, target)
    if not isinstance(max_trials_global, int) or max_trials_global < 1:
        raise ValueError(f"max_trials_global={max_trials_global!r} must be a number of at least 1")
    check_named(cost_model, task_scheduler, space, strategy)
    callbacks = callbacks_of(measure_callbacks)
    wanted, kept = Target(target), database_of(database, work_dir, module_equality)
    functions = _functions(mod)
    each = min(max_trials_per_task or max_trials_global,
               max(1, max_trials_global // len(functions)))
    Builder.of(builder)
    names = TaskScheduler()
    names.tasks, names.database = list(functions), kept
    for number, (name, func) in enumerate(functions.items()):
        with Profiler.timeit("Tuning"):
            _tune_one(name, func, wanted, each, _runner(Runner.of(runner)), kept,
                      Told(callbacks, names, number))
    return kept


def compile_tir(database: Database, mod: IRModule | PrimFunc, target: Any) -> TunedSchedule | None:
    """The functions with the fastest loops that a database knows; None if it knows none."""
    wanted, made, traces = Target(target), {}, []
    for name, func in _functions(mod).items():
        record = database.query_tuning_record(IRModule({MAIN: func}), wanted)
        if record is None:
            return None
        made[name], trace = scheduled(name, func, record.trace)
        traces.append(trace)
    return TunedSchedule(IRModule(made), traces[0] if len(traces) == 1 else traces)


def _tune_one(
    name: str, func: PrimFunc, target: Target, trials: int, runner: Any, kept: Database,
    told: Told,
) -> None:
    workload = kept.commit_workload(IRModule({MAIN: func}))

    def record(inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for asked, result in zip(inputs, results, strict=True):
            kept.commit_tuning_record(_record(asked, result, workload, target))
        told.tell([asked.state for asked in inputs],
                  [(result.costs, result.error_msg) for result in results])

    task = SearchTask(compute_dag=ComputeDAG(computed_by(name, func)), target=target, desc=name)
    task.tune(TuningOptions(num_measure_trials=trials, verbose=0, runner=runner,
                            measure_callbacks=[record]))


def _record(
    asked: MeasureInput, result: MeasureResult, workload: Workload, target: Target
) -> TuningRecord:
    steps = [step.to_json() for step in asked.state.transform_steps]
    return TuningRecord([[[STEPS, [], [steps], []]], []], workload, result.costs or None, target)


def _functions(mod: IRModule | PrimFunc) -> dict[str, PrimFunc]:
    if isinstance(mod, PrimFunc):
        return {MAIN: mod}
    found = {str(name): func for name, func in mod.functions.items()}
    others = [name for name, func in found.items() if not isinstance(func, PrimFunc)]
    if others or not found:
        raise TypeError(f"tune_tir takes functions of loops, which {', '.join(others) or 'none'} "
                        "is; meta_schedule.relay_integration tunes networks of Relay")
    return {name: func for name, func in found.items() if isinstance(func, PrimFunc)}


def _runner(given: Runner) -> LocalRunner | RPCRunner:
    config, device = given.evaluator_config or EvaluatorConfig(), given.device()
    if device is None:
        return LocalRunner(
            number=config.number, repeat=config.repeat, min_repeat_ms=config.min_repeat_ms,
            enable_cpu_cache_flush=config.enable_cpu_cache_flush,
        )
    return RPCRunner(
        device.key, device.host, device.port, device.priority, timeout=device.session_seconds,
        number=config.number, repeat=config.repeat, min_repeat_ms=config.min_repeat_ms,
        enable_cpu_cache_flush=config.enable_cpu_cache_flush,
    )

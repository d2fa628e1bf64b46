"""Spellings of earlier versions, over what they are called now."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sterna.ir.module import IRModule
from sterna.meta_schedule.builder import Builder
from sterna.meta_schedule.config import TuneConfig
from sterna.meta_schedule.database import Database
from sterna.meta_schedule.relay_integration import (
    compile_relay,
    extract_tasks,
    extracted_tasks_to_tune_contexts,
)
from sterna.meta_schedule.runner import Runner
from sterna.meta_schedule.tir_integration import tune_tir
from sterna.meta_schedule.tune import default_trials, tune_tasks
from sterna.relay.expr import Function
from sterna.te import Tensor, create_prim_func
from sterna.tune.network_tasks import ExtractedTask

extract_task_from_relay = extract_tasks


def tune_tvm(
    mod: IRModule | Function,
    target: Any,
    config: TuneConfig | None = None,
    work_dir: str | Path = "tuning",
    *,
    params: Mapping[str, Any] | None = None,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
) -> Database:
    """Tune whatever a module holds; builds inside of `with database:` use what was found."""
    if isinstance(mod, IRModule) and "main" in mod and not isinstance(mod["main"], Function):
        limits = (config or TuneConfig()).check()
        found: Database = tune_tir(
            mod, target, work_dir, limits.max_trials_global or limits.num_trials_per_iter,
            builder=builder, runner=runner, database=database,
        )
        return found
    tasks = extract_tasks(mod, target, params)
    return tune_extracted_tasks(
        tasks, config or TuneConfig(), work_dir, builder=builder, runner=runner, database=database
    )


def tune_te(
    tensors: Sequence[Tensor],
    target: Any,
    config: TuneConfig,
    work_dir: str | Path,
    *,
    task_name: str = "main",
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
) -> Any:
    """Tune what tensors compute; the best schedule, or None."""
    return tune_tir(create_prim_func(list(tensors)), target, work_dir, config=config,
                    builder=builder, runner=runner, database=database)


def tune_extracted_tasks(
    extracted_tasks: Sequence[ExtractedTask],
    config: TuneConfig,
    work_dir: str | Path,
    *,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: Any = "xgb",
    measure_callbacks: Any = "default",
) -> Database:
    """Tune tasks as an older configuration says."""
    limits = config.check()
    contexts, weights = extracted_tasks_to_tune_contexts(extracted_tasks, work_dir)
    return tune_tasks(
        tasks=contexts, task_weights=weights, work_dir=work_dir,
        max_trials_global=limits.max_trials_global or default_trials(extracted_tasks),
        max_trials_per_task=limits.max_trials_per_task, builder=builder, runner=runner,
        num_trials_per_iter=limits.num_trials_per_iter, database=database, cost_model=cost_model,
        measure_callbacks=measure_callbacks, task_scheduler=limits.task_scheduler,
    )


def tune_relay(
    mod: IRModule | Function,
    target: Any,
    config: TuneConfig,
    work_dir: str | Path,
    *,
    backend: str = "graph",
    params: Mapping[str, Any] | None = None,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
) -> Any:
    """Tune a network and build it with what was found."""
    found = tune_tvm(mod, target, config, work_dir, params=params, builder=builder, runner=runner,
                     database=database)
    return compile_relay(found, mod, target, params, backend=backend)


class ApplyHistoryBest:
    """Builds inside use what a database knows."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def __enter__(self) -> "ApplyHistoryBest":
        self.database.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.database.__exit__(*exception)

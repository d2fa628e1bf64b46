"""Tuning tasks: their networks are tuned in those layers, and what was found becomes records."""

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterna.meta_schedule.builder import Builder
from sterna.meta_schedule.config import SCHEDULERS, TRIALS, expect_known
from sterna.meta_schedule.database import Database, JSONDatabase, TuningRecord
from sterna.meta_schedule.profiler import Profiler
from sterna.meta_schedule.runner import Runner
from sterna.tune import Budget, TuningDatabase, tune
from sterna.tune.network_tasks import ExtractedTask, Network, TuneContext

COST_MODELS = ("xgb", "mlp", "random", "none")


def tune_tasks(
    *,
    tasks: Sequence[TuneContext],
    task_weights: Sequence[float] | None = None,
    work_dir: str | Path,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    builder: Builder | str = "local",
    runner: Runner | str = "local",
    database: Database | str = "json",
    cost_model: Any = "xgb",
    measure_callbacks: Any = "default",
    task_scheduler: Any = "gradient",
    module_equality: str = "structural",
) -> Database:
    """Tune the layers of these tasks where they run, each in the network that it was taken from."""
    expect_known("cost_model", cost_model, COST_MODELS)
    expect_known("task_scheduler", task_scheduler, SCHEDULERS)
    extracted = [context.task for context in tasks if context.task is not None]
    if len(extracted) < len(tasks) or not tasks:
        raise ValueError("tasks are what extract_tasks gave, made contexts by "
                         "extracted_tasks_to_tune_contexts; there is none here that can be tuned")
    kept = database_of(database, work_dir, module_equality)
    layers = {task.scope for task in extracted}
    each = max_trials_per_task or max(1, math.ceil(max_trials_global / len(layers)))
    budget = Budget(trials=each, all_trials=max_trials_global,
                    timeout=Builder.of(builder).timeout_sec)
    for network in {id(task.network): task.network for task in extracted}.values():
        own = [task for task in extracted if task.network is network]
        tune_network(network, own, budget, Runner.of(runner), kept, work_dir)
    return kept


def database_of(given: Database | str, work_dir: str | Path, module_equality: str) -> Database:
    """What a user gave: a database, or its name."""
    if isinstance(given, Database):
        return given
    if given == "json":
        return JSONDatabase(work_dir=work_dir, module_equality=module_equality)
    return Database.create(given, module_equality=module_equality)


def tune_network(
    network: Network, tasks: Sequence[ExtractedTask], budget: Budget, runner: Runner,
    kept: Database, work_dir: str | Path,
) -> None:
    """Tune some layers of a network, and add to a database what was found."""
    folder = Path(work_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, Profiler.timeit("Tuning"):
        outcome = tune(
            network.mod, network.params, network.target, TuningDatabase(Path(scratch) / "t.db"),
            budget=budget, opt_level=network.opt_level, device=runner.device(),
            only={task.scope for task in tasks},
        )
    workload = kept.commit_workload(network.mod)
    for answers, seconds in (({}, outcome.default_seconds), (outcome.answers, outcome.seconds)):
        record = TuningRecord.of_answers(answers, workload, [seconds], network.target)
        kept.commit_tuning_record(record)


def default_trials(tasks: Sequence[ExtractedTask]) -> int:
    """How many trials there are where nobody says it."""
    return TRIALS * max(1, len({task.scope for task in tasks}))

"""Tuning tasks: their networks are tuned in those layers, and what was found becomes records."""

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sterna.meta_schedule.builder import Builder
from sterna.meta_schedule.config import TRIALS
from sterna.meta_schedule.cost_model import CostModel
from sterna.meta_schedule.database import Database, JSONDatabase, TuningRecord
from sterna.meta_schedule.measure_callback import MeasureCallback, Told, callbacks_of
from sterna.meta_schedule.profiler import Profiler
from sterna.meta_schedule.runner import Runner
from sterna.meta_schedule.search_strategy import SearchStrategy
from sterna.meta_schedule.space_generator import SpaceGenerator
from sterna.meta_schedule.task_scheduler import TaskScheduler
from sterna.tune import Budget, Progress, TuningDatabase, tune
from sterna.tune.candidates import parts_of, scope_of
from sterna.tune.network_tasks import ExtractedTask, Network, TuneContext


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
    check_named(cost_model, task_scheduler, "post-order-apply", "evolutionary")
    if max_trials_global < 1:
        raise ValueError(f"max_trials_global={max_trials_global!r} must be at least 1")
    callbacks = callbacks_of(measure_callbacks)
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
        told = _teller(callbacks, tasks, kept)
        tune_network(network, own, budget, Runner.of(runner), kept, work_dir, told)
    return kept


def _teller(
    callbacks: Sequence[MeasureCallback], tasks: Sequence[TuneContext], kept: Database
) -> Callable[[Progress], None]:
    """What tells callbacks the trials of a round, each task's by itself."""
    names = TaskScheduler()
    names.tasks, names.database = list(tasks), kept
    of_scope: dict[str, int] = {}
    for number, context in enumerate(tasks):
        if context.task is not None:
            of_scope.setdefault(context.task.scope, number)

    def tell(progress: Progress) -> None:
        for trial in progress.tried:
            scope = scope_of(trial.question)
            layer = progress.layers.get(scope)
            seconds = ([progress.untuned_seconds * layer.fraction * math.exp(trial.log_ratio)]
                       if layer is not None and trial.log_ratio is not None else [])
            Told(callbacks, names, of_scope.get(scope, 0)).tell(
                [parts_of(trial.question, trial.answer)],
                [(seconds, trial.reason or trial.outcome)],
            )

    return tell


def check_named(cost_model: Any, task_scheduler: Any, space: Any, strategy: Any) -> None:
    """Raise ValueError for names that mean nothing."""
    CostModel.check(cost_model)
    TaskScheduler.check(task_scheduler)
    SpaceGenerator.check(space)
    SearchStrategy.check(strategy)


def database_of(given: Database | str, work_dir: str | Path, module_equality: str) -> Database:
    """What a user gave: a database, or its name."""
    if isinstance(given, Database):
        return given
    if given == "json":
        return JSONDatabase(work_dir=work_dir, module_equality=module_equality)
    return Database.create(given, module_equality=module_equality)


def tune_network(
    network: Network, tasks: Sequence[ExtractedTask], budget: Budget, runner: Runner,
    kept: Database, work_dir: str | Path, watch: Callable[[Progress], None],
) -> None:
    """Tune some layers of a network, and add to a database what was found."""
    folder = Path(work_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, Profiler.timeit("Tuning"):
        outcome = tune(
            network.mod, network.params, network.target, TuningDatabase(Path(scratch) / "t.db"),
            budget=budget, opt_level=network.opt_level, device=runner.device(),
            only={task.scope for task in tasks}, watch=watch,
        )
    workload = kept.commit_workload(network.mod)
    for answers, seconds in (({}, outcome.default_seconds), (outcome.answers, outcome.seconds)):
        record = TuningRecord.of_answers(answers, workload, [seconds], network.target)
        kept.commit_tuning_record(record)


def default_trials(tasks: Sequence[ExtractedTask]) -> int:
    """How many trials there are where nobody says it."""
    return TRIALS * max(1, len({task.scope for task in tasks}))

"""Networks of Relay: their tasks, tuning them, and building them with what was found."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sterna.driver import relay_build, vm_build
from sterna.ir.module import IRModule
from sterna.ir.transform import PassContext
from sterna.meta_schedule.builder import Builder
from sterna.meta_schedule.database import Database
from sterna.meta_schedule.profiler import Profiler
from sterna.meta_schedule.runner import Runner
from sterna.meta_schedule.tune import check_named, tune_tasks
from sterna.relay.expr import Function
from sterna.schedule.choose import answering
from sterna.target import Target
from sterna.tune.network_tasks import ExtractedTask, TuneContext, extract


def extract_tasks(
    mod: IRModule | Function,
    target: Any,
    params: Mapping[str, Any] | None = None,
    *,
    opt_level: int = 3,
    pass_config: Mapping[str, Any] | None = None,
    executor: Any = None,
    runtime: Any = None,
    module_equality: str = "structural",
    disabled_pass: Sequence[str] | None = None,
    instruments: Sequence[Any] | None = None,
) -> list[ExtractedTask]:
    """The kernels of a network that can be tuned, outputs first."""
    with Profiler.timeit("TaskExtraction"):
        return extract(mod, target, params, opt_level)


def extracted_tasks_to_tune_contexts(
    extracted_tasks: Sequence[ExtractedTask],
    work_dir: str | Path,
    space: Any = "post-order-apply",
    strategy: Any = "evolutionary",
    num_tuning_cores: Any = "physical",
    seed: int | None = None,
) -> tuple[list[TuneContext], list[float]]:
    """Tasks as tune_tasks takes them, and their weights."""
    contexts = [TuneContext(t.dispatched[0], t.target, t.task_name, t) for t in extracted_tasks]
    return contexts, [float(task.weight) for task in extracted_tasks]


def tune_relay(
    mod: IRModule | Function,
    params: Mapping[str, Any],
    target: Any,
    work_dir: str | Path,
    max_trials_global: int,
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
    seed: int | None = None,
    module_equality: str = "structural",
    num_tuning_cores: Any = "physical",
    opt_level: int = 3,
    disabled_pass: Sequence[str] | None = None,
    instruments: Sequence[Any] | None = None,
) -> Database:
    """Tune a network; the database holds what was found."""
    check_named(cost_model, task_scheduler, space, strategy)
    tasks = extract_tasks(mod, target, params, opt_level=opt_level)
    contexts, weights = extracted_tasks_to_tune_contexts(tasks, work_dir)
    return tune_tasks(
        tasks=contexts, task_weights=weights, work_dir=work_dir,
        max_trials_global=max_trials_global, max_trials_per_task=max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter, builder=builder, runner=runner, database=database,
        cost_model=cost_model, measure_callbacks=measure_callbacks, task_scheduler=task_scheduler,
        module_equality=module_equality,
    )


def compile_relay(
    database: Database,
    mod: IRModule | Function,
    target: Any,
    params: Mapping[str, Any] | None,
    *,
    backend: str = "graph",
    opt_level: int = 3,
    pass_config: Mapping[str, Any] | None = None,
    executor: Any = None,
    disabled_pass: Sequence[str] | None = None,
    runtime: Any = None,
    instruments: Sequence[Any] | None = None,
) -> Any:
    """Build a network with the best that a database knows for the target."""
    if backend not in ("graph", "vm"):
        raise ValueError(f"backend '{backend}' is neither graph nor vm")
    wanted = Target(target)
    config = {k: v for k, v in (pass_config or {}).items() if not k.startswith("relay.backend.")}
    context = PassContext(opt_level, disabled_pass=disabled_pass, instruments=instruments,
                          config=config)
    with Profiler.timeit("PostTuningCompilation"), answering(database.answers(wanted)), context:
        if backend == "vm":
            whole = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
            return vm_build.compile(whole, wanted, params=params)
        return relay_build.build(
            mod, target=wanted, params=params, executor=executor, runtime=runtime
        )


def is_meta_schedule_enabled() -> bool:
    """Whether builds here use a database."""
    return Database.current() is not None

"""Several tasks: each round goes to the one that promises the network the most."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sterna.auto_scheduler.measure import seconds_of
from sterna.auto_scheduler.measure_record import load_best_record
from sterna.auto_scheduler.search_policy import PreloadMeasuredStates, SketchPolicy
from sterna.auto_scheduler.search_task import SearchTask
from sterna.auto_scheduler.tuning_options import TuningOptions

# What a task is believed to gain by another round while nothing is known about it.
FIRST_GAIN = 0.1
# What a task takes while nothing is known about it.
UNKNOWN_SECONDS = 1e10


class TaskSchedulerCallback:
    """What is called before and after each round."""

    def pre_tune(self, task_scheduler: "TaskScheduler", task_id: int) -> None:
        """Before a round of a task."""

    def post_tune(self, task_scheduler: "TaskScheduler", task_id: int) -> None:
        """After a round of a task."""


class PrintTableInfo(TaskSchedulerCallback):
    """Prints what each task takes so far."""

    def pre_tune(self, task_scheduler: "TaskScheduler", task_id: int) -> None:
        print("|  ID  | Latency (ms) | Speed (GFLOPS) | Trials |")
        print("-" * 50)
        for number, task in enumerate(task_scheduler.tasks):
            seconds = task_scheduler.best_costs[number]
            known = seconds < 1e8
            latency = f"{seconds * 1e3:12.3f}" if known else f"{'-':>12}"
            speed = f"{task.flop / seconds / 1e9:14.2f}" if known else f"{'-':>14}"
            trials = task_scheduler.task_cts[number]
            print(f"| {number:4} | {latency} | {speed} | {trials:6} |")
        total = task_scheduler.cur_score
        told = f"{total * 1e3:.3f} ms" if total < 1e8 else "-"
        print(f"Estimated total latency: {told}\tTrials: {task_scheduler.ct}\t"
              f"Used time: {time.time() - task_scheduler.begin:.0f} s\tNext ID: {task_id}")


class LogEstimatedLatency(TaskSchedulerCallback):
    """Adds the time of the network so far to a table."""

    def __init__(self, log_file: str) -> None:
        self.log_file = Path(log_file)
        self.log_file.unlink(missing_ok=True)

    def post_tune(self, task_scheduler: "TaskScheduler", task_id: int) -> None:
        if task_scheduler.cur_score < 1e8:
            with self.log_file.open("a", encoding="utf-8") as file:
                file.write(f"ElapsedTime(s)\t{time.time() - task_scheduler.begin:.0f}\t"
                           f"EstimatedLatency(ms)\t{task_scheduler.cur_score * 1e3:.3f}\t"
                           f"Trials\t{task_scheduler.ct}\n")


def _known_seconds(task: SearchTask, log: str | None) -> float:
    """What the best schedule takes that a log knows."""
    if log is None:
        return UNKNOWN_SECONDS
    _, best = load_best_record(log, task.workload_key, task.target)
    return UNKNOWN_SECONDS if best is None else seconds_of(best)


class TaskScheduler:
    """Shares measurements among tasks."""

    def __init__(
        self, tasks: Sequence[SearchTask], task_weights: Sequence[float] | None = None,
        objective_func: Callable[[Sequence[float]], float] | None = None,
        strategy: str = "gradient", load_model_file: str | None = None,
        load_log_file: str | None = None, alpha: float = 0.2, beta: float = 2,
        gamma: float = 0.5, backward_window_size: int = 3,
        callbacks: Sequence[TaskSchedulerCallback] | None = None,
    ) -> None:
        if strategy not in ("gradient", "round-robin"):
            raise ValueError(f"strategy '{strategy}' is neither gradient nor round-robin")
        if not tasks:
            raise ValueError("there are no tasks to tune")
        weights = [1.0] * len(tasks) if task_weights is None else list(task_weights)
        if len(weights) != len(tasks):
            raise ValueError(f"{len(tasks)} tasks have {len(weights)} weights")
        self.tasks, self.weights, self.strategy = list(tasks), weights, strategy
        self.objective_func = objective_func or (
            lambda costs: sum(c * w for c, w in zip(costs, weights, strict=True))
        )
        self.load_log_file = load_log_file
        self.callbacks: list[TaskSchedulerCallback] = (
            [PrintTableInfo(), LogEstimatedLatency("total_latency.tsv")]
            if callbacks is None else list(callbacks)
        )
        self.best_costs = [_known_seconds(task, load_log_file) for task in tasks]
        self.task_cts = [0] * len(tasks)
        self.gains = [FIRST_GAIN] * len(tasks)
        self.dead: set[int] = set()
        self.ct, self.begin = 0, time.time()

    @property
    def cur_score(self) -> float:
        """What the network takes with the best of each task."""
        return self.objective_func(self.best_costs)

    def tune(
        self, tune_option: TuningOptions, search_policy: Any = "default",
        search_policy_params: Any = None, adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> None:
        """Measure as many schedules as the options say, all tasks together."""
        policies = self._policies(search_policy, tune_option)
        left, self.begin = tune_option.num_measure_trials, time.time()
        portion = max(1, min(tune_option.num_measures_per_round, left // len(self.tasks)))
        try:
            while left > 0 and len(self.dead) < len(self.tasks):
                left -= self._round(policies, tune_option, min(portion, left),
                                    per_task_early_stopping)
        finally:
            for policy in policies:
                policy.close()

    def _policies(self, search_policy: Any, option: TuningOptions) -> list[Any]:
        if isinstance(search_policy, str):
            log = self.load_log_file
            known = [] if log is None else [PreloadMeasuredStates(log)]
            return [SketchPolicy(task, verbose=option.verbose, init_search_callbacks=known)
                    for task in self.tasks]
        if len(search_policy) != len(self.tasks):
            raise ValueError(f"{len(self.tasks)} tasks have {len(search_policy)} policies")
        return list(search_policy)

    def _round(
        self, policies: Sequence[Any], option: TuningOptions, portion: int,
        early_stopping: int | None,
    ) -> int:
        number = self._next()
        for callback in self.callbacks:
            callback.pre_tune(self, number)
        policy, before = policies[number], self.best_costs[number]
        done: int = policy.continue_search_one_round(portion, option)
        self.task_cts[number] += done
        self.ct += done
        self.best_costs[number] = min(before, policy.best_seconds)
        gain = 1 - self.best_costs[number] / before if before < 1e8 else FIRST_GAIN
        self.gains[number] = max(gain, self.gains[number] / 2)
        if not done or policy.is_done(early_stopping):
            self.dead.add(number)
        for callback in self.callbacks:
            callback.post_tune(self, number)
        return done

    def _next(self) -> int:
        alive = [number for number in range(len(self.tasks)) if number not in self.dead]
        fewest = min(alive, key=lambda number: self.task_cts[number])
        if self.strategy == "round-robin" or self.task_cts[fewest] == 0:
            return fewest
        return max(alive, key=self._promise)

    def _promise(self, number: int) -> float:
        """What a round is believed to save of the network's time."""
        seconds = self.best_costs[number]
        if seconds >= 1e8:
            return math.inf
        costs = list(self.best_costs)
        costs[number] = seconds * (1 - self.gains[number])
        return self.objective_func(self.best_costs) - self.objective_func(costs)

"""Which schedules of a task are measured next.

The first is the one that the sketch proposes; the others come from the search that the tuners of
AutoTVM share: a model of the times, beside neighbours of the best.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

from sterna.auto_scheduler.loop_state import State
from sterna.auto_scheduler.measure import MeasureInput, MeasureResult, seconds_of
from sterna.auto_scheduler.measure_record import LoggedState, PathLike, load_records
from sterna.auto_scheduler.sketch import Sketch
from sterna.auto_scheduler.tuning_options import TuningOptions
from sterna.autotvm.layers import LayerTask, answers_of_config
from sterna.autotvm.measure import FAILED_COST, Measurer
from sterna.autotvm.measure import MeasureInput as PlainInput
from sterna.autotvm.measure import MeasureResult as PlainResult
from sterna.autotvm.space import Config, ConfigEntity
from sterna.autotvm.template import Task, Workload
from sterna.autotvm.tuner import ModelTuner
from sterna.target import Target
from sterna.te import Schedule, Tensor


class Searched(Protocol):
    """What is searched: a workload, or a layer of a network."""

    workload_key: str
    desc: str
    target: Target
    compute_dag: Any
    layer: LayerTask | None

    @property
    def flop(self) -> float:
        """How many operations one run does."""


class RandomModel:
    """A cost model by name; the search brings its own."""


class XGBModel(RandomModel):
    """A cost model by name; the search brings its own, which needs no file."""

    def __init__(self, verbose_eval: int = 25, num_warmup_sample: int = 100,
                 seed: int | None = None, model_file: str | None = None,
                 adaptive_training: bool = False) -> None:
        self.history: list[PathLike] = []

    def update_from_file(self, file_name: PathLike, n_lines: int | None = None) -> None:
        """Learn from a log."""
        self.history.append(file_name)


class PreloadMeasuredStates:
    """What a log holds is not measured again."""

    def __init__(self, filename: PathLike) -> None:
        self.filename = filename


class PreloadCustomSketchRule:
    """Sketches of the user's own, which are not taken: schedule such stages by hand."""

    PASS, APPLY, APPLY_AND_SKIP_REST = 0, 1, 2

    def __init__(self, meet_condition_func: Any, apply_func: Any, rule_name: str = "") -> None:
        raise NotImplementedError(
            f"custom sketch rules ({rule_name or 'unnamed'}) are not searched: write an AutoTVM "
            "template for this workload, with the schedule that the rule would make"
        )


class _SketchTask(Task):
    """A workload as the tuners of AutoTVM see it."""

    def __init__(self, task: Searched) -> None:
        self.sketch = Sketch(task.compute_dag, task.target)
        self.name, self.args, self.target = task.workload_key, (), task.target
        self.config_space = self.sketch.space
        self.flop = task.flop

    @property
    def workload(self) -> Workload:
        return (self.name,)

    def instantiate(self, config: Config) -> tuple[Schedule, Sequence[Tensor]]:
        return self.sketch.state(config).apply()


class _Search(ModelTuner):
    """The shared search, which begins with the first point."""

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        if not self.visited and self.space.is_index_valid(0):
            return [self.space.get(0)]
        return super().next_batch(batch_size)


class SketchPolicy:
    """Searches the schedules of one task."""

    def __init__(
        self, task: Searched, program_cost_model: Any = None, params: Any = None,
        seed: int | None = None, verbose: int = 1,
        init_search_callbacks: Sequence[Any] | None = None,
    ) -> None:
        self.task, self.verbose = task, verbose
        self._own: Any = task.layer or _SketchTask(task)
        self._search = _Search(self._own)
        self._measurer: Measurer | None = None
        self.best_seconds = math.inf
        self.trials = self.best_trial = 0
        self._measured: dict[Any, MeasureResult] = {}
        logs = [each.filename for each in init_search_callbacks or ()
                if isinstance(each, PreloadMeasuredStates)]
        for log in [*logs, *getattr(program_cost_model, "history", ())]:
            self._preload(log)

    def _preload(self, log: PathLike) -> None:
        """Learn the best of what was measured before; the same steps are not measured again."""
        if self.task.layer is not None:
            return
        self._measured |= {
            asked.state.transform_steps: result for asked, result in load_records(log)
            if asked.task.workload_key == self.task.workload_key
        }
        times = [seconds_of(result) for result in self._measured.values()]
        self.best_seconds = min([self.best_seconds, *times])

    def search(self, options: TuningOptions) -> None:
        """Measure as many schedules as the options say."""
        left = options.num_measure_trials or 1
        try:
            while left > 0 and not self.is_done(options.early_stopping):
                done = self.continue_search_one_round(
                    min(left, options.num_measures_per_round), options
                )
                left -= done
                if not done:
                    break
        finally:
            self.close()
        if math.isinf(self.best_seconds):
            raise RuntimeError(f"no schedule of {self.task.workload_key} ran; see the log's lines")

    def is_done(self, early_stopping: int | None) -> bool:
        """Whether so many measurements brought nothing."""
        return early_stopping is not None and self.trials - self.best_trial >= early_stopping

    def continue_search_one_round(self, count: int, options: TuningOptions) -> int:
        """Measure so many more schedules; how many were left to measure."""
        if self._measurer is None:
            self._measurer = Measurer(self._own, options.measure_option)
        done = 0
        while done < count and self._search.has_next() and not self.is_done(options.early_stopping):
            batch = self._search.next_batch(1)
            if not batch:
                break
            self._search.visited.add(batch[0].index)
            known = self._measured.get(tuple(self._state(batch[0]).transform_steps))
            if known is not None:
                asked = PlainInput(self._own.target, self._own, batch[0])
                costs = known.costs or (FAILED_COST,)
                self._search.update([asked], [PlainResult(costs, known.error_no, 0.0, 0.0)])
                continue
            self._one(batch[0], options)
            done += 1
        return done

    def _one(self, config: ConfigEntity, options: TuningOptions) -> None:
        assert self._measurer is not None
        asked, raw = self._measurer.measure(config)
        self._search.update([asked], [raw])
        failed = raw.error_no != 0
        result = MeasureResult(
            () if failed else tuple(raw.costs), raw.error_no,
            str(raw.costs[0]) if failed else "", raw.all_cost, raw.timestamp,
        )
        self.trials += 1
        if seconds_of(result) < self.best_seconds:
            self.best_seconds, self.best_trial = seconds_of(result), self.trials
        options.tell([MeasureInput(self.task, self._state(config))], [result])
        if options.verbose:
            told = f"{self.best_seconds * 1e3:.4f} ms" if self.best_seconds < 1e8 else "none"
            print(f"{self.task.desc or self.task.workload_key[:40]}: trial {self.trials}, "
                  f"{'failed' if failed else f'{seconds_of(result) * 1e3:.4f} ms'}, best {told}")

    def _state(self, config: ConfigEntity) -> State | LoggedState:
        if self.task.layer is not None:
            answers = answers_of_config(self.task.layer.scope, config)
            return LoggedState((), tuple(answers.items()))
        try:
            state: State = self._own.sketch.state(config)
        except ValueError:
            return LoggedState(())
        return state

    def sample_initial_population(self) -> list[State]:
        """Some schedules of the space."""
        space = self._own.config_space
        return [self._own.sketch.state(space.get(point)) for point in space.sample_ints(50)]

    def generate_sketches(self, print_for_debug: bool = False) -> list[State]:
        """The schedule that the search begins with."""
        found = [self._own.sketch.state(self._own.config_space.get(0))]
        if print_for_debug:
            print(found[0])
        return found

    def close(self) -> None:
        """End the process that measures."""
        if self._measurer is not None:
            self._measurer.close()
            self._measurer = None


class EmptyPolicy(SketchPolicy):
    """Measures the schedule that a search begins with, and nothing else."""

    def __init__(
        self, task: Searched, init_search_callbacks: Sequence[Any] | None = None
    ) -> None:
        super().__init__(task, init_search_callbacks=init_search_callbacks)

    def search(self, options: TuningOptions) -> None:
        try:
            self.continue_search_one_round(1, options)
        finally:
            self.close()

"""Which schedules of a task are measured next.

Where the compiler has a schedule of its own for a workload, what that one asks is searched first.
Then, or from the beginning, tiles of plain loops: the first is the one that the sketch proposes;
the others come from the search that the tuners of AutoTVM share, a model of the times, beside
neighbours of the best.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sterna.auto_scheduler.loop_state import State
from sterna.auto_scheduler.measure import MeasureInput, MeasureResult, seconds_of
from sterna.auto_scheduler.measure_record import LoggedState, PathLike, load_records
from sterna.auto_scheduler.own_space import Descent, OwnSpace
from sterna.auto_scheduler.sketch import Sketch
from sterna.auto_scheduler.sketch_rules import PreloadCustomSketchRule, RuleSpace
from sterna.auto_scheduler.tuning_options import TuningOptions
from sterna.autotvm.layers import LayerTask, answers_of_config
from sterna.autotvm.measure import FAILED_COST, Measurer
from sterna.autotvm.measure import MeasureInput as PlainInput
from sterna.autotvm.measure import MeasureResult as PlainResult
from sterna.autotvm.space import Config, ConfigEntity, ConfigSpace
from sterna.autotvm.template import Task, Workload
from sterna.autotvm.tuner import ModelTuner, Tuner
from sterna.target import Target
from sterna.te import Schedule, Tensor


class Searched(Protocol):
    """What is searched: a workload, or a layer of a network."""

    workload_key: str
    desc: str
    target: Target
    compute_dag: Any
    layer: LayerTask | None
    inputs: Mapping[str, Any]

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


class Space(Protocol):
    """Schedules of a workload: points, and the loops of each."""

    space: ConfigSpace

    def state(self, config: Config) -> State:
        """The loops of a point."""


class _SpaceTask(Task):
    """A workload with one of its spaces as the tuners of AutoTVM see it."""

    def __init__(self, task: Searched, own: Space) -> None:
        self.own = own
        self.name, self.args, self.target = task.workload_key, (), task.target
        self.config_space = own.space
        self.flop = task.flop
        self.inputs = task.inputs

    @property
    def workload(self) -> Workload:
        return (self.name,)

    def instantiate(self, config: Config) -> tuple[Schedule, Sequence[Tensor]]:
        return self.own.state(config).apply()


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
        rules = [each for each in init_search_callbacks or ()
                 if isinstance(each, PreloadCustomSketchRule)]
        self._searches: list[Tuner] = self._spaces(rules)
        self._measurer: Measurer | None = None
        self.best_seconds = math.inf
        self._why = ""
        """What the last of those said that failed."""
        self.trials = self.best_trial = 0
        self._measured: dict[Any, MeasureResult] = {}
        logs = [each.filename for each in init_search_callbacks or ()
                if isinstance(each, PreloadMeasuredStates)]
        for log in [*logs, *getattr(program_cost_model, "history", ())]:
            self._preload(log)

    @property
    def search_task(self) -> Searched:
        """What is searched, by the name that rules of sketches know."""
        return self.task

    def _spaces(self, rules: Sequence[PreloadCustomSketchRule]) -> list[Tuner]:
        """What is searched, one after the other; sketches by rules first."""
        task = self.task
        if task.layer is not None:
            return [_Search(task.layer)]
        if rules:
            made = RuleSpace(self, task.compute_dag, task.target, rules)
            ruled: list[Tuner] = [_Search(_SpaceTask(task, made))] if made.sketches else []
            return ruled if made.is_all else [*ruled, *self._spaces([])]
        loops = _Search(_SpaceTask(task, Sketch(task.compute_dag, task.target)))
        own = OwnSpace.of(task.compute_dag, task.target)
        return [loops] if own is None else [Descent(_SpaceTask(task, own)), loops]

    def _next(self) -> tuple[Tuner, ConfigEntity] | None:
        """A schedule that was not measured yet; None if there are no more."""
        for search in self._searches:
            batch = search.next_batch(1) if search.has_next() else []
            if batch:
                search.visited.add(batch[0].index)
                return search, batch[0]
        return None

    def _preload(self, log: PathLike) -> None:
        """Learn the best of what was measured before; the same schedule is not measured again."""
        self._measured |= {
            _key(asked.state): result for asked, result in load_records(log)
            if asked.task.workload_key == self.task.workload_key
        }
        times = [seconds_of(result) for result in self._measured.values() if not result.error_no]
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
            why = self._why or "what is known of them is that all failed"
            raise RuntimeError(f"no schedule of {self.task.workload_key} ran: {why}")

    def is_done(self, early_stopping: int | None) -> bool:
        """Whether so many measurements brought nothing."""
        return early_stopping is not None and self.trials - self.best_trial >= early_stopping

    def continue_search_one_round(self, count: int, options: TuningOptions) -> int:
        """Measure so many more schedules; how many were left to measure."""
        if self._measurer is None:
            self._measurer = Measurer(self._searches[0].task, options.measure_option)
        done = 0
        while done < count and not self.is_done(options.early_stopping):
            found = self._next()
            if found is None:
                break
            search, config = found
            known = self._measured.get(_key(self._state(search, config)))
            if known is not None:
                asked = PlainInput(search.task.target, search.task, config)
                costs = known.costs or (FAILED_COST,)
                search.update([asked], [PlainResult(costs, known.error_no, 0.0, 0.0)])
                continue
            self._one(search, config, options)
            done += 1
        return done

    def _one(self, search: Tuner, config: ConfigEntity, options: TuningOptions) -> None:
        assert self._measurer is not None
        self._measurer.task = search.task
        asked, raw = self._measurer.measure(config)
        search.update([asked], [raw])
        failed = raw.error_no != 0
        result = MeasureResult(
            () if failed else tuple(raw.costs), raw.error_no,
            str(raw.costs[0]) if failed else "", raw.all_cost, raw.timestamp,
        )
        self._why = result.error_msg or self._why
        self.trials += 1
        if not failed and seconds_of(result) < self.best_seconds:
            self.best_seconds, self.best_trial = seconds_of(result), self.trials
        options.tell([MeasureInput(self.task, self._state(search, config))], [result])
        if options.verbose:
            best = self.best_seconds
            told = "none" if math.isinf(best) else f"{best * 1e3:.4f} ms"
            print(f"{self.task.desc or self.task.workload_key[:40]}: trial {self.trials}, "
                  f"{'failed' if failed else f'{seconds_of(result) * 1e3:.4f} ms'}, best {told}")

    def _state(self, search: Tuner, config: ConfigEntity) -> State | LoggedState:
        task = search.task
        if not isinstance(task, _SpaceTask):
            answers = answers_of_config(task.args[0], config)
            return LoggedState((), tuple(answers.items()))
        try:
            return task.own.state(config)
        except ValueError:
            return LoggedState(())

    def sample_initial_population(self) -> list[State]:
        """Some schedules of the spaces."""
        return [space.state(space.space.get(point)) for space in self._own_spaces()
                for point in space.space.sample_ints(50)]

    def generate_sketches(self, print_for_debug: bool = False) -> list[State]:
        """The schedules that the search begins with."""
        found = [space.state(space.space.get(0)) for space in self._own_spaces()]
        if print_for_debug:
            print(*found, sep="\n\n")
        return found

    def _own_spaces(self) -> list[Space]:
        tasks = [search.task for search in self._searches]
        return [task.own for task in tasks if isinstance(task, _SpaceTask)]

    def close(self) -> None:
        """End the process that measures."""
        if self._measurer is not None:
            self._measurer.close()
            self._measurer = None


def _key(state: State | LoggedState) -> tuple[Any, ...]:
    """What tells one schedule from others."""
    return tuple(state.transform_steps), tuple(sorted(getattr(state, "answers", ())))


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

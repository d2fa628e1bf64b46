"""Tuners: which configurations are measured next.

Grid and random search are what they say. The others share one search: a linear model of the
logarithm of the time over what the knobs say, beside the neighbours of the best configurations, in
which one knob changes. Their arguments of old are taken and checked, not used.
"""

import itertools
import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna.autotvm.layers import LayerTask
from sterna.autotvm.measure import (
    MeasureErrorNo,
    MeasureInput,
    MeasureOption,
    Measurer,
    MeasureResult,
    seconds_of,
)
from sterna.autotvm.space import ConfigEntity
from sterna.autotvm.template import Task
from sterna.support.classic import classic_names

logger = logging.getLogger("autotvm")

Callback = Callable[["Tuner", Sequence[MeasureInput], Sequence[MeasureResult]], None]
# Points that the model is asked about in each round.
POOL = 1000
# Points at random before the model is asked.
FIRST = 12
# Of each round, how many are neighbours of the best instead of the model's choice.
NEIGHBOURS = 0.5


class Tuner:
    """Measures configurations of a task, and knows the best."""

    def __init__(self, task: Task | LayerTask, **options: Any) -> None:
        self.task, self.space = task, task.config_space
        self.options = options
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.best_config: ConfigEntity | None = None
        self.best_seconds = math.inf
        self.best_flops = 0.0
        self.best_iter = 0
        self.ttl: int | None = None
        self.visited: set[int] = set()

    def has_next(self) -> bool:
        """Whether there are points that were not measured."""
        return len(self.visited) < len(self.space)

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """The points that are measured next."""
        raise NotImplementedError

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from results."""

    def load_history(
        self, records: Sequence[tuple[MeasureInput, MeasureResult]], min_seed_records: int = 500
    ) -> None:
        """Learn from what was measured before."""
        own = [(i, r) for i, r in records if i.task.workload == self.task.workload]
        if own:
            self.update([i for i, _ in own], [r for _, r in own])

    def tune(
        self,
        n_trial: int,
        measure_option: MeasureOption,
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
    ) -> None:
        """Measure so many configurations, or until early_stopping of them brought nothing."""
        if n_trial < 1:
            raise ValueError(f"n_trial={n_trial} must be at least 1")
        measurer = Measurer(self.task, measure_option)
        failed = 0
        try:
            for number in range(min(n_trial, len(self.space))):
                batch = self.next_batch(1) if self.has_next() else []
                if not batch:
                    break
                self.visited.add(batch[0].index)
                asked, result = measurer.measure(batch[0])
                failed += result.error_no != MeasureErrorNo.NO_ERROR
                self._note(asked.config, result, number)
                self.ttl = (early_stopping or n_trial) - (number - self.best_iter)
                self.update([asked], [result])
                for callback in callbacks:
                    callback(self, [asked], [result])
                if early_stopping and number - self.best_iter >= early_stopping:
                    break
        finally:
            measurer.close()
        if self.best_config is None:
            logger.warning("none of %d configurations of %s ran; the last said: %s",
                           failed, self.task.name, result.costs[0])

    def _note(self, config: ConfigEntity, result: MeasureResult, number: int) -> None:
        seconds = seconds_of(result)
        if result.error_no == MeasureErrorNo.NO_ERROR and seconds < self.best_seconds:
            self.best_seconds, self.best_config, self.best_iter = seconds, config, number
            self.best_flops = self.task.flop / seconds


class GridSearchTuner(Tuner):
    """Every point, in order."""

    def __init__(self, task: Task | LayerTask, range_idx: tuple[int, int] | None = None) -> None:
        low, high = range_idx or (0, len(task.config_space) - 1)
        self._points = iter(range(low, high + 1))
        super().__init__(task)

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        return [self.space.get(point) for point in itertools.islice(self._points, batch_size)]


class RandomTuner(Tuner):
    """Points at random, none twice."""

    def __init__(self, task: Task | LayerTask, range_idx: tuple[int, int] | None = None) -> None:
        self.low, self.high = range_idx or (0, len(task.config_space) - 1)
        super().__init__(task)

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        found: list[int] = []
        left = self.high - self.low + 1 - len(self.visited)
        while len(found) < min(batch_size, left):
            point = random.randint(self.low, self.high)
            if point not in self.visited and point not in found:
                found.append(point)
        return [self.space.get(point) for point in found]


class ModelTuner(Tuner):
    """The search that the other names share."""

    def reset(self) -> None:
        super().reset()
        self._seen: list[tuple[ConfigEntity, float]] = []
        self._order = random.Random(0)

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for asked, result in zip(inputs, results, strict=True):
            self._seen.append((asked.config, seconds_of(result)))

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        found: list[int] = []
        for _ in range(batch_size):
            point = self._next(set(found))
            if point is not None:
                found.append(point)
        return [self.space.get(point) for point in found]

    def _next(self, taken: set[int]) -> int | None:
        known = self.visited | taken
        good = [(c, s) for c, s in self._seen if s < math.inf and s < 1e8]
        pool = [p for p in self._pool() if p not in known and self.space.is_index_valid(p)]
        if not pool:
            left = (p for p in range(len(self.space)) if p not in known)
            return next(left, None)
        if len(good) < FIRST:
            return self._order.choice(pool)
        near = [p for p in self._neighbours(good) if p not in known]
        if near and self._order.random() < NEIGHBOURS:
            pool = near
        return min(pool, key=dict(zip(pool, self._predicted(pool, good), strict=True)).__getitem__)

    def _pool(self) -> list[int]:
        if len(self.space) <= POOL:
            return list(range(len(self.space)))
        return [self._order.randrange(len(self.space)) for _ in range(POOL)]

    def _neighbours(self, good: Sequence[tuple[ConfigEntity, float]]) -> list[int]:
        """The points beside the two best: one knob one candidate further or nearer."""
        found = []
        for config, _ in sorted(good, key=lambda pair: pair[1])[:2]:
            knobs = self.space.point2knob(config.index)
            for place, dim in enumerate(self.space.dims):
                for step in (-1, 1):
                    if 0 <= knobs[place] + step < dim:
                        moved = [*knobs[:place], knobs[place] + step, *knobs[place + 1 :]]
                        found.append(self.space.knob2point(moved))
        return found

    def _predicted(
        self, pool: Sequence[int], good: Sequence[tuple[ConfigEntity, float]]
    ) -> list[float]:
        """Ridge regression of the logarithm of the time; squares of features make hollows."""
        known = np.array([_features(config) for config, _ in good])
        times = np.log([seconds for _, seconds in good])
        middle, scale = known.mean(0), known.std(0) + 1e-9
        left = np.column_stack([(known - middle) / scale, np.ones(len(known))])
        weights = np.linalg.solve(left.T @ left + np.eye(left.shape[1]), left.T @ times)
        asked = (np.array([_features(self.space.get(point)) for point in pool]) - middle) / scale
        predicted: list[float] = (
            np.column_stack([asked, np.ones(len(asked))]) @ weights
        ).tolist()
        return predicted


def _features(config: ConfigEntity) -> list[float]:
    plain = config.get_flatten_feature()
    return [*plain, *(value * value for value in plain)]


class XGBTuner(ModelTuner):
    """By this name in most programs."""

    def __init__(self, task: Task | LayerTask, plan_size: int = 64, feature_type: str = "itervar",
                 loss_type: str = "reg", num_threads: int | None = None, optimizer: Any = "sa",
                 diversity_filter_ratio: float | None = None, log_interval: int = 50) -> None:
        for what, given, known in (("feature_type", feature_type, ("itervar", "knob", "curve")),
                                   ("loss_type", loss_type, ("reg", "rank", "rank-binary"))):
            if given not in known:
                raise ValueError(f"{what} '{given}' is unknown; there are {', '.join(known)}")
        super().__init__(task)


class GATuner(ModelTuner):
    """By this name in programs that asked for a genetic search."""

    def __init__(self, task: Task | LayerTask, pop_size: int = 100, elite_num: int = 3,
                 mutation_prob: float = 0.1) -> None:
        super().__init__(task)


class DropletTuner(ModelTuner):
    """By this name in programs that asked for coordinate descent."""

    def __init__(self, task: Task | LayerTask, start_position: Sequence[int] | None = None,
                 pvalue: float = 0.05) -> None:
        super().__init__(task)


__getattr__ = classic_names(__name__)

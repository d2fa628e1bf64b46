"""The space of the compiler's own schedules for a workload, and how it is searched.

A knob is a question of the schedule (choose), with the answer that the cost model takes first and
the others by their costs. The search begins with the first point and changes one answer of the
fastest so far, that of the least cost first.
"""

from collections.abc import Sequence

from sterna.auto_scheduler.compute_dag import ComputeDAG
from sterna.auto_scheduler.loop_state import State
from sterna.auto_scheduler.own_schedule import own_schedule
from sterna.auto_scheduler.steps import OwnKernel
from sterna.autotvm.measure import MeasureInput, MeasureResult, seconds_of
from sterna.autotvm.space import Config, ConfigEntity, ConfigSpace
from sterna.autotvm.tuner import Tuner
from sterna.target import Target


class OwnSpace:
    """The answers to what a schedule of the compiler's own asks."""

    def __init__(self, dag: ComputeDAG, target: Target, offers: dict[str, dict[str, float]],
                 taken: dict[str, str]) -> None:
        self.dag, self.target, self.taken = dag, target, taken
        self.space = ConfigSpace()
        for question, costs in offers.items():
            first = taken[question]
            others = sorted((each for each in costs if each != first), key=costs.__getitem__)
            if others:
                self.space.define_knob(question, [first, *others])

    @staticmethod
    def of(dag: ComputeDAG, target: Target) -> "OwnSpace | None":
        """The space of a workload; None if the compiler has no schedule of its own for it."""
        made = own_schedule(dag.tensors, target, {})
        return None if made is None else OwnSpace(dag, target, made.offers, made.taken)

    def state(self, config: Config) -> State:
        """The workload under the answers of a point; those that are taken anyway are not told."""
        answers = {name: str(config[name].val) for name in self.space.space_map}
        told = [f"{q}={answer}" for q, answer in answers.items() if answer != self.taken[q]]
        return State(self.dag, [OwnKernel(0, str(self.target), tuple(told))])


class Descent(Tuner):
    """From the first point on, one answer of the fastest at a time, cheap ones first."""

    def reset(self) -> None:
        super().reset()
        self._best, self._best_seconds = 0, float("inf")

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for asked, result in zip(inputs, results, strict=True):
            if seconds_of(result) < self._best_seconds:
                self._best, self._best_seconds = asked.config.index, seconds_of(result)

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        if not self.visited:
            return [self.space.get(0)]
        knobs = self.space.point2knob(self._best)
        beside = (
            (rank, self.space.knob2point([*knobs[:place], rank, *knobs[place + 1 :]]))
            for place, dim in enumerate(self.space.dims) for rank in range(dim)
        )
        points = [point for _, point in sorted(beside) if point not in self.visited]
        return [self.space.get(point) for point in dict.fromkeys(points[:batch_size])]

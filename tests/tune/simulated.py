"""A worker without a machine: layers with a hidden truth, times with noise."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

from sterna.tune.measure import Measured, Times
from sterna.tune.network import Offers, Questions
from sterna.tune.workers import TrialError, Workers

TILES = [f"{rows} x {columns}" for rows in range(2, 13) for columns in (4, 8, 12, 16)]
PAIRS = 24


@dataclass
class Layer:
    """One layer: what it asks at which cost, and what an answer really does."""

    seconds: float
    costs: dict[str, dict[str, float]]
    effects: dict[tuple[str, str], float]
    """The factor by which an answer to a question changes the time."""
    together: dict[frozenset[tuple[str, str]], float] = field(default_factory=dict)
    """The same of answers that are all given."""

    def taken(self, answers: Mapping[str, str], scope: str) -> dict[str, str]:
        return {
            question: answers.get(f"{scope}/{question}", min(costs, key=costs.__getitem__))
            for question, costs in self.costs.items()
        }

    def time(self, answers: Mapping[str, str], scope: str) -> float:
        made = self.seconds
        taken = set(self.taken(answers, scope).items())
        for pair in taken:
            made *= self.effects.get(pair, 1.0)
        for pairs, factor in self.together.items():
            made *= factor if pairs <= taken else 1.0
        return made


def random_layer(order: random.Random) -> Layer:
    """One whose costs are near the truth, but not quite."""
    costs: dict[str, dict[str, float]] = {}
    effects: dict[tuple[str, str], float] = {}
    truth = {tile: order.uniform(1.0, 1.6) for tile in TILES}
    costs["tile"] = {t: 1000 * value * order.uniform(0.93, 1.07) for t, value in truth.items()}
    effects |= {("tile", tile): value for tile, value in truth.items()}
    costs["unrolled steps"] = {"1": 3.0, "2": 2.0, "4": 0.0, "8": 4.0}
    effects |= {("unrolled steps", "8"): 0.97, ("unrolled steps", "1"): 1.1}
    return Layer(order.uniform(0.5, 2.0) * 1e-3, costs, effects)


def wrong_layer(order: random.Random) -> Layer:
    """One whose costs are far from the truth, with answers that hinder and help each other."""
    offered = {"implementation": [f"way(m={m}, split={s})" for m in range(2, 8) for s in "abc"],
               "tile": TILES, "panel": [str(n) for n in range(1, 9)]}
    costs: dict[str, dict[str, float]] = {}
    effects: dict[tuple[str, str], float] = {}
    for question, answers in offered.items():
        for answer in answers:
            truth = math.exp(abs(order.gauss(0.0, 0.3)))
            effects[question, answer] = truth
            guessed = 1000 * truth * math.exp(order.gauss(0.0, 0.15))
            costs.setdefault(question, {})[answer] = guessed
    pairs = combinations(effects, 2)
    together = {frozenset(pair): math.exp(order.gauss(0.0, 0.02)) for pair in pairs
                if pair[0][0] != pair[1][0]}
    return Layer(1e-3, costs, effects, together)


def best_draw(layer: Layer, scope: str, count: int, order: random.Random) -> float:
    """The least time of many draws, each near one of the best so far."""
    best: list[tuple[float, dict[str, str]]] = [(layer.time({}, scope), {})]
    for _ in range(count):
        answers = dict(order.choice(best)[1])
        for question in order.sample(list(layer.costs), order.randint(1, len(layer.costs))):
            costs = layer.costs[question]
            cheapest = sorted(costs, key=costs.__getitem__)[: 8 if order.random() < 0.7 else None]
            answers[f"{scope}/{question}"] = order.choice(cheapest)
        best = sorted([*best, (layer.time(answers, scope), answers)], key=lambda each: each[0])[:8]
    return best[0][0]


@dataclass
class SimulatedWorker(Workers):
    """Answers as a process would."""

    layers: dict[str, Layer] = field(default_factory=dict)
    noise: float = 0.02
    bad: dict[tuple[str, str], type[TrialError]] = field(default_factory=dict)
    """Answers at which it fails."""
    lies: set[tuple[str, str]] = field(default_factory=set)
    """Answers whose kernels it tells to take a tenth."""
    honest: bool = False
    order: random.Random = field(default_factory=lambda: random.Random(0))
    comparisons: int = 0

    def __init__(self, layers: dict[str, Layer], noise: float = 0.02) -> None:
        self.layers, self.noise, self.bad, self.lies = layers, noise, {}, set()
        self.order, self.comparisons, self.honest = random.Random(0), 0, False

    def refresh(self) -> None:
        self.honest = True  # another process, which does not lie

    def close(self) -> None:
        pass

    def compare(
        self, incumbent: Mapping[str, str], challenger: Mapping[str, str], seconds: float,
        timeout: float,
    ) -> Measured:
        self.comparisons += 1
        for pair in challenger.items():
            if pair in self.bad:
                raise self.bad[pair](f"it fails at {pair}")
        layers = {}
        for scope in self.layers:
            if self._own(scope, incumbent) != self._own(scope, challenger):
                layers[scope] = self._times(scope, incumbent, challenger)
        every = [self._times(scope, incumbent, challenger) for scope in self.layers]
        total = Times(*([sum(run) for run in zip(*side, strict=True)] for side in (
            [each.incumbent for each in every], [each.challenger for each in every])))
        whole = sum(layer.time(incumbent, scope) for scope, layer in self.layers.items())
        fractions = {s: layer.time(incumbent, s) / whole for s, layer in self.layers.items()}
        return Measured(layers, total, total, self._questions(challenger), fractions)

    def _own(self, scope: str, answers: Mapping[str, str]) -> dict[str, str]:
        return self.layers[scope].taken(answers, scope)

    def _times(
        self, scope: str, incumbent: Mapping[str, str], challenger: Mapping[str, str]
    ) -> Times:
        first, second = (self._time(scope, answers) for answers in (incumbent, challenger))
        return Times([self._noisy(first) for _ in range(PAIRS)],
                     [self._noisy(second) for _ in range(PAIRS)])

    def _time(self, scope: str, answers: Mapping[str, str]) -> float:
        lie = any(pair in self.lies for pair in answers.items() if pair[0].startswith(f"{scope}/"))
        return self.layers[scope].time(answers, scope) * (0.1 if lie and not self.honest else 1.0)

    def _noisy(self, seconds: float) -> float:
        return seconds * self.order.lognormvariate(0.0, self.noise)

    def _questions(self, answers: Mapping[str, str]) -> Questions:
        offers: Offers = {}
        taken = {}
        for scope, layer in self.layers.items():
            for question, answer in layer.taken(answers, scope).items():
                taken[f"{scope}/{question}"] = answer
                offers[f"{scope}/{question}"] = layer.costs[question]
        return Questions(taken, offers, {})


def scaled(found: Measured, factor: float, challenger: float = 1.0) -> Measured:
    """What another machine says: all times by a factor, and the challengers' by one more."""
    def times(of: Times) -> Times:
        return Times([s * factor for s in of.incumbent],
                     [s * factor * challenger for s in of.challenger])

    return Measured({scope: times(of) for scope, of in found.layers.items()},
                    times(found.changed), times(found.total), found.questions, found.fractions)


def whole_time(worker: SimulatedWorker, answers: Mapping[str, str]) -> float:
    """What the network really takes."""
    return sum(layer.time(answers, scope) for scope, layer in worker.layers.items())


def best_time(worker: SimulatedWorker) -> float:
    """What it takes with the best answer to each question."""
    return sum(
        layer.seconds * prod([min(layer.effects.get((q, a), 1.0) for a in costs)
                              for q, costs in layer.costs.items()])
        for layer in worker.layers.values()
    )


def prod(values: list[float]) -> float:
    """Their product."""
    made = 1.0
    for value in values:
        made *= value
    return made

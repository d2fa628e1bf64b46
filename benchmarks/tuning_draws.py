"""Single layers: what a search of few trials reaches of the best that very many draws find.

Draws change any number of a layer's answers at once, near the best so far; each is timed in turns
with what the search found. The eight best are timed again for longer, and the least time counts.
"""

import math
import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rows import Row

import sterna
from sterna import relay
from sterna.ir.module import IRModule
from sterna.relay.random_inputs import random_inputs
from sterna.target import Target
from sterna.tune import Budget, Outcome, TuningDatabase, tune
from sterna.tune.measure import Bench
from sterna.tune.statistics import compare
from sterna.tune.tuner import network_inputs

# What a search reaches of the best draw's speed at the least, and what the untuned layer does.
TUNED, UNTUNED = 0.95, 0.90
# The draws that are kept to draw near them and timed again, and for how many seconds.
KEPT, AGAIN = 8, 1.0
# Cheap answers that most draws keep to, and how many draws do not.
CHEAPEST, FARTHER = 8, 0.3


@dataclass(frozen=True)
class Layer:
    """A convolution of squares, or a dense layer where it has no window."""

    rows: int
    inputs: int
    outputs: int
    window: int = 1
    stride: int = 1
    groups: int = 1

    def __str__(self) -> str:
        if not self.window:
            return f"dense {self.rows} x {self.inputs} to {self.outputs}"
        return (f"{self.rows} x {self.rows} x {self.inputs} to {self.outputs}, "
                f"{self.window} x {self.window} / {self.stride}, groups {self.groups}")

    def network(self) -> IRModule:
        """The layer with a relu behind it."""
        depth = self.inputs // self.groups
        taps = self.window**2 or 1
        random_numbers = np.random.default_rng(0).standard_normal((self.outputs, depth * taps))
        weight = (random_numbers / math.sqrt(depth * taps)).astype("float32")
        if not self.window:
            x = relay.var("x", shape=(self.rows, self.inputs))
            made = relay.nn.dense(x, relay.const(weight))
        else:
            x = relay.var("x", shape=(1, self.inputs, self.rows, self.rows))
            shape = (self.outputs, depth, self.window, self.window)
            made = relay.nn.conv2d(
                x, relay.const(weight.reshape(shape)), strides=(self.stride, self.stride),
                padding=self.window // 2, groups=self.groups,
            )
        return sterna.IRModule.from_expr(relay.nn.relu(made))


# Of ResNets and MobileNets, and a dense layer of a transformer.
LAYERS = (
    Layer(56, 64, 64, 3), Layer(28, 128, 128, 3), Layer(14, 256, 256, 3), Layer(56, 64, 256),
    Layer(14, 1024, 256), Layer(28, 256, 256, 3, 2), Layer(56, 144, 144, 3, 1, 144),
    Layer(128, 768, 3072, 0),
)


@dataclass
class Draws:
    """Random answers for a layer, each timed in turns with what was found."""

    network: IRModule
    target: Target
    found: Mapping[str, str]
    order: random.Random = field(default_factory=lambda: random.Random(0))
    best: list[tuple[float, dict[str, str]]] = field(default_factory=list)
    offers: dict[str, dict[str, float]] = field(default_factory=dict)
    refused: int = 0

    def __post_init__(self) -> None:
        inputs = random_inputs(network_inputs(self.network, {}))
        self.bench = Bench(self.network, {}, self.target, inputs)
        self.best = [(0.0, dict(self.found)), (self.log_ratio({}, AGAIN), {})]
        self.untuned = self.best[1][0]

    def log_ratio(self, answers: Mapping[str, str], seconds: float) -> float:
        """Of the time under answers over that under those which were found."""
        seen = self.bench.compare(self.found, answers, seconds)
        for question, offered in (seen.questions.kernels | seen.questions.graph).items():
            self.offers.setdefault(question, {}).update(offered)
        return compare(seen.total.incumbent, seen.total.challenger).log_ratio

    def drawn(self) -> Iterator[dict[str, str]]:
        """Answers that were not drawn before; no end."""
        known = {tuple(sorted(answers.items())) for _, answers in self.best}
        for _ in range(1_000_000):
            answers = dict(self.order.choice(self.best)[1])
            questions = list(self.offers)
            for question in self.order.sample(questions, self.order.randint(1, len(questions))):
                costs = self.offers[question]
                far = self.order.random() < FARTHER
                cheap = sorted(costs, key=costs.__getitem__)[: None if far else CHEAPEST]
                answers[question] = self.order.choice(cheap)
            key = tuple(sorted(answers.items()))
            if key not in known:
                known.add(key)
                yield answers

    def least(self, draws: int, ends: float) -> tuple[float, int]:
        """The logarithm of the best draw's time over that of what was found, and of how many."""
        count = 0
        for count, answers in enumerate(self.drawn(), 1):
            if count > draws or time.monotonic() > ends:
                break
            try:
                seen = self.log_ratio(answers, 0.0)
            except Exception:  # whatever a schedule says of answers that do not fit together
                self.refused += 1
                continue
            self.best = sorted([*self.best, (seen, answers)], key=lambda each: each[0])[:KEPT]
        again = {self.log_ratio(answers, AGAIN): answers for _, answers in self.best}
        least = min(0.0, *again)
        if least in again:
            print(f"  best: {again[least]}", flush=True)
        return least, count - 1


def searched(network: IRModule, target: Target, trials: int, seconds: float) -> Outcome:
    """A layer, tuned with records of its own."""
    with tempfile.TemporaryDirectory() as folder:
        database = TuningDatabase(Path(folder) / "t.db")
        budget = Budget(trials, seconds=seconds, round_seconds=0.3)
        return tune(network, {}, target, database, budget=budget, threads=1)


def layer_rows(
    layers: list[int], target: Target, trials: int, draws: int, seconds: float
) -> list[Row]:
    """What a search reaches of the best of many draws, and what the untuned layer does."""
    rows = []
    for place in layers or range(len(LAYERS)):
        layer, begin = LAYERS[place], time.monotonic()
        network = layer.network()
        found = searched(network, target, trials, 0.45 * seconds)
        print(f"{layer}: {found.default_seconds * 1e3:.3f} / {found.seconds * 1e3:.3f} ms, "
              f"{found.count} trials, {found.answers}", flush=True)
        drawn = Draws(network, target, found.answers)
        least, count = drawn.least(draws, begin + seconds - AGAIN * (KEPT + 2) - 3)
        told = f"{found.count} trials, {count} draws, {drawn.refused} refused"
        rows += [
            Row(f"{layer}, tuned", math.exp(least), "of the best draw", TUNED, False, told),
            Row(f"{layer}, untuned", math.exp(least - drawn.untuned), "of the best draw", UNTUNED,
                False, told),
        ]
    return rows

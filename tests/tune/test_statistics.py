"""The test for faster, and what is learned from measurements."""

import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sterna.relay.arrays import Array
from sterna.tune.correction import Correction
from sterna.tune.measure import by_layer, in_turns
from sterna.tune.network import Described, Questions
from sterna.tune.statistics import BATCH, LEAST_PAIRS, Comparison, Verdict, combined, compare


def runs(ratio: float, noise: float, pairs: int, seed: int = 0) -> Comparison:
    order = random.Random(seed)
    pace = [order.lognormvariate(0, 0.3) for _ in range(pairs)]  # the machine, for both alike
    first = [p * order.lognormvariate(0, noise) for p in pace]
    second = [p * ratio * order.lognormvariate(0, noise) for p in pace]
    return compare(first, second)


def test_verdicts() -> None:
    assert runs(0.9, 0.02, 40).verdict is Verdict.FASTER
    assert runs(1.1, 0.02, 40).verdict is Verdict.NOT_FASTER
    assert runs(1.0, 0.005, 40).verdict is Verdict.NOT_FASTER
    assert runs(0.9, 0.02, 4).verdict is Verdict.OPEN


def test_equal_kernels_are_hardly_ever_called_faster() -> None:
    called = sum(runs(1.0, 0.05, 16, seed).verdict is Verdict.FASTER for seed in range(400))
    assert called <= 8


def test_looks_add_up() -> None:
    one = Comparison(-0.03, 0.02, 8)
    four = combined([one] * 4)
    assert four.log_ratio == pytest.approx(-0.03) and four.error == pytest.approx(0.01)
    assert four.pairs == 32


def test_what_layers_share_is_learned() -> None:
    correction = Correction()
    before = correction.expected("b/tile", "4 x 16", 0.1)
    for layer in "cdefg":
        correction.note(f"{layer}/tile", "4 x 16", 0.1, -0.1, 0.01)
        correction.note(f"{layer}/tile", "2 x 8", 0.05, 0.3, 0.01)
    after = correction.expected("b/tile", "4 x 16", 0.1)
    assert after.mean < before.mean and after.spread < before.spread
    assert after.gain > correction.expected("b/tile", "2 x 8", 0.05).gain
    assert correction.expected("b/share", "2 rows", 0.1).mean == pytest.approx(0.1)


def test_expected_improvement() -> None:
    correction = Correction()
    near = correction.expected("a/tile", "4 x 8", 0.0)
    far = correction.expected("a/tile", "4 x 8", 10.0)
    assert near.gain > far.gain >= 0.0
    assert math.isfinite(far.mean)


@pytest.mark.parametrize(("shared", "ratio"), [(0.5, 0.9), (0.001, 1.8)])
def test_what_is_shared_is_the_control_where_it_is_enough(shared: float, ratio: float) -> None:
    """The machine is twice as slow in the second runs, as the shared kernel says.

    The one beside what changed finds its data in the cache, which says nothing of the machine.
    """
    questions = Questions({}, {}, {})
    scopes = ("layer", "rest", "rest")
    ours = Described(questions, scopes, ("old", "beside", "far"))
    theirs = Described(questions, scopes, ("new", "beside", "far"))
    pairs = [(np.array([1.0, 0.5, shared]), np.array([1.8, 0.1, 2 * shared]))] * 8
    found = by_layer(ours, theirs, pairs).layers["layer"]
    assert compare(found.incumbent, found.challenger).ratio == pytest.approx(ratio)


def test_batches_that_differ_leave_it_open() -> None:
    order = random.Random(0)
    copies = [1.0, 0.75, 1.02, 0.8]  # where a copy of a network lies in memory, not what it runs
    times = [factor * order.lognormvariate(0, 0.003) for factor in copies for _ in range(BATCH)]
    seen = compare([1.0] * len(times), times)
    assert seen.verdict is Verdict.OPEN and seen.error > 0.05
    alike = compare([1.0] * len(times), [order.lognormvariate(-0.1, 0.003) for _ in times])
    assert alike.verdict is Verdict.FASTER


class Copy:
    """A network whose times depend on where it lies."""

    is_on_gpu = False

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.described = Described(Questions({}, {}, {}), ("layer",), (f"{seconds:.0f}",))

    def run(self) -> Array:
        return np.array([self.seconds])


def test_networks_are_set_up_anew_while_they_are_timed() -> None:
    order = random.Random(1)
    made = [0]

    def pairs() -> Iterator[Any]:
        while True:
            made[0] += 1
            yield Copy(1.0 * order.lognormvariate(0, 0.1)), Copy(2.0 * order.lognormvariate(0, 0.1))

    found = in_turns(pairs(), 0.0)
    assert made[0] == LEAST_PAIRS // BATCH and len(found.total.incumbent) == LEAST_PAIRS
    assert len(set(found.total.incumbent)) == made[0], "each copy has its own time"

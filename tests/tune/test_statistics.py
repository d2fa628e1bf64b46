"""The test for faster, and what is learned from measurements."""

import math
import random

import numpy as np
import pytest

from sterna.tune.correction import Correction
from sterna.tune.measure import by_layer
from sterna.tune.network import Described, Questions
from sterna.tune.statistics import Comparison, Verdict, combined, compare


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
    """The machine is twice as slow in the second runs, as the shared kernel says."""
    questions = Questions({}, {}, {})
    ours = Described(questions, ("layer", "rest"), ("old", "same"))
    theirs = Described(questions, ("layer", "rest"), ("new", "same"))
    pairs = [(np.array([1.0, shared]), np.array([1.8, 2 * shared]))] * 8
    found = by_layer(ours, theirs, pairs).layers["layer"]
    assert compare(found.incumbent, found.challenger).ratio == pytest.approx(ratio)

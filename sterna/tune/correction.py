"""What measurements say about the analytic costs: a linear correction, learned across layers.

The logarithm of a measured ratio is taken for a sum of what is known of a candidate: the logarithm
of its predicted ratio, for each question by a factor of its own; the question itself; and the
candidate's text, which many layers share (a tile of 7 x 12), with the parts of a plan's
(split=positions), of which layers share more, or with how large a number is about. Bayesian least
squares gives the mean and the spread for candidates that were not measured, so that a round can be
spent where the gain is likely or the doubt is large. It belongs to a machine, not to a network.
Where LightGBM is installed, its trees learn what the sum leaves.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sterna.relay.arrays import Array
from sterna.tune.correction_trees import LEAST, BoostedTrees, features_of, is_installed

# Before anything is measured: how far a factor and the effects of questions and of texts are from
# what the analytic model says, and how far a measurement is from their sum.
SLOPE, QUESTION, TEXT, PART, NOISE = 0.3, 0.05, 0.08, 0.04, 0.05
# The same of a number, beside that of all numbers that are about as large.
NUMBER, ABOUT = 0.03, 0.075
# A candidate that is predicted to be this many times slower is not told from slower ones.
FARTHEST = 4.0


@dataclass(frozen=True, slots=True)
class Expected:
    """What a candidate's ratio is expected to be, as a logarithm."""

    mean: float
    spread: float

    @property
    def gain(self) -> float:
        """The expected improvement: what is below 0, by how likely it is."""
        at = -self.mean / self.spread
        density = math.exp(-at * at / 2) / math.sqrt(2 * math.pi)
        return self.spread * (at * (1 + math.erf(at / math.sqrt(2))) / 2 + density)


@dataclass(slots=True)
class Correction:
    """What was learned on a machine."""

    places: dict[str, int] = field(default_factory=dict)
    """Of what is known of candidates, in the sums below."""
    seen: list[tuple[dict[int, float], float, float]] = field(default_factory=list)
    """Features, the measured logarithm less the predicted one, and its error."""
    numbers: list[list[float]] = field(default_factory=list)
    """Of what was measured, as trees look at it."""
    _solved: tuple[Array, Array] | None = None
    _trees: BoostedTrees | None = None

    def note(self, question: str, text: str, predicted: float, log_ratio: float,
             error: float) -> None:
        """Learn from a measurement; predicted: the logarithm of the ratio of costs."""
        bounded = _bounded(predicted)
        features = self._features(question, text, bounded, add=True)
        self.seen.append((features, log_ratio - bounded, error))
        self.numbers.append(features_of(question, text, bounded))
        self._solved = self._trees = None

    def expected(self, question: str, text: str, predicted: float) -> Expected:
        """What is to be expected of a candidate."""
        return self.expected_of([(question, text, predicted)])[0]

    def expected_of(self, candidates: Sequence[tuple[str, str, float]]) -> list[Expected]:
        """What is to be expected of each: its question, its text and its predicted ratio."""
        bounded = [(question, text, _bounded(ratio)) for question, text, ratio in candidates]
        found = [self._by_sum(*each) for each in bounded]
        if len(self.seen) < LEAST or not is_installed() or not found:
            return found
        trees = self._trees_on_residuals(self._solve()[0])
        left = trees.residuals([features_of(*each) for each in bounded])
        return [Expected(each.mean + float(more), each.spread)
                for each, more in zip(found, left, strict=True)]

    def _by_sum(self, question: str, text: str, bounded: float) -> Expected:
        features = self._features(question, text, bounded, add=False)
        unknown = self._unknown(question, text, bounded)
        mean, spread = self._solve()
        at = np.fromiter(features.keys(), "int64", len(features))
        values = np.fromiter(features.values(), "float64", len(features))
        variance = float(values @ spread[np.ix_(at, at)] @ values) if len(at) else 0.0
        corrected = bounded + (float(mean[at] @ values) if len(at) else 0.0)
        return Expected(corrected, math.sqrt(variance + unknown + 1e-12))

    def _trees_on_residuals(self, mean: Array) -> BoostedTrees:
        """Trees on what the sum leaves of each measurement."""
        if self._trees is None:
            left = [off - sum(mean[at] * value for at, value in features.items())
                    for features, off, _ in self.seen]
            self._trees = BoostedTrees(self.numbers, left)
        return self._trees

    def _names(
        self, question: str, text: str, predicted: float
    ) -> Mapping[str, tuple[float, float]]:
        """What is known of a candidate: how much of it, and how far it may be off at first."""
        kind = question.rpartition("/")[2]
        parts = {f"part {kind} {part}": (1.0, PART) for part in re.findall(r"\w+=\w+", text)}
        found = {f"slope {kind}": (predicted, SLOPE), f"question {kind}": (1.0, QUESTION), **parts}
        if text.isdecimal():
            about = round(2 * math.log2(int(text) + 1))
            return {**found, f"number {kind} = {text}": (1.0, NUMBER),
                    f"about {kind} {about}": (1.0, ABOUT)}
        return {**found, f"text {kind} = {text}": (1.0, TEXT)}

    def _features(self, question: str, text: str, predicted: float, add: bool) -> dict[int, float]:
        found = {}
        for name, (value, _) in self._names(question, text, predicted).items():
            if add:
                self.places.setdefault(name, len(self.places))
            if name in self.places:
                found[self.places[name]] = value
        return found

    def _unknown(self, question: str, text: str, predicted: float) -> float:
        named = self._names(question, text, predicted).items()
        return sum((value * far) ** 2 for name, (value, far) in named if name not in self.places)

    def _solve(self) -> tuple[Array, Array]:
        if self._solved is None:
            size = len(self.places)
            precision = np.diag([1 / _far(name) ** 2 for name in self.places]).reshape(size, size)
            right = np.zeros(size)
            for features, off, error in self.seen:
                at = np.fromiter(features.keys(), "int64", len(features))
                values = np.fromiter(features.values(), "float64", len(features))
                weight = 1 / (NOISE**2 + error**2)
                precision[np.ix_(at, at)] += weight * np.outer(values, values)
                right[at] += weight * off * values
            spread = np.linalg.inv(precision) if size else precision
            self._solved = (spread @ right, spread)
        return self._solved


def _far(name: str) -> float:
    far = {"slope": SLOPE, "question": QUESTION, "part": PART, "number": NUMBER, "about": ABOUT}
    return far.get(name.partition(" ")[0], TEXT)


def _bounded(predicted: float) -> float:
    return min(max(predicted, 0.0), math.log(FARTHEST))

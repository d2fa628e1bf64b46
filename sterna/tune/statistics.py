"""Whether one of two kernels that ran in turns is faster: a sequential test on paired times.

Times of one pair were taken right after each other, so what else the machine does hits both. The
median of the logarithms of their ratios does not mind the few pairs that were hit unevenly. Pairs
come in batches; where batches differ by more than their pairs do, that is the error.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from sterna.relay.arrays import Array

# Pairs of the same two copies of networks, and all pairs before anything is said.
BATCH, LEAST_PAIRS = 4, 8
# How many standard errors a ratio is away from where it would mean nothing.
CERTAIN = 3.0
# What is gained at the least: less than that is not worth another kernel.
GAIN = 0.01
# The standard deviation of normal numbers by the median of their distances from their median, and
# the standard error of a median by that of a mean.
BY_MEDIAN_DISTANCE, MEDIAN_BY_MEAN = 1.4826, 1.2533


class Verdict(Enum):
    """What a test says."""

    FASTER = "faster"
    NOT_FASTER = "not faster"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a challenger's times are to those of what it would replace."""

    log_ratio: float
    """Below 0 if the challenger is faster."""
    error: float
    """The standard error of that."""
    pairs: int

    @property
    def ratio(self) -> float:
        """Its time over that of the other."""
        return math.exp(self.log_ratio)

    @property
    def verdict(self) -> Verdict:
        """Faster by a gain that counts, surely not so, or not yet known."""
        if self.pairs < LEAST_PAIRS:
            return Verdict.OPEN
        least = math.log1p(-GAIN)
        if self.log_ratio + CERTAIN * self.error < least:
            return Verdict.FASTER
        if self.log_ratio - CERTAIN * self.error > least:
            return Verdict.NOT_FASTER
        return Verdict.OPEN


def compare(incumbent: Sequence[float], challenger: Sequence[float]) -> Comparison:
    """Of times that were taken in pairs."""
    logs = np.log(np.asarray(challenger) / np.asarray(incumbent))
    middle = float(np.median(logs))
    distance = float(np.median(np.abs(logs - middle)))
    error = BY_MEDIAN_DISTANCE * MEDIAN_BY_MEAN * distance / math.sqrt(len(logs))
    return Comparison(middle, max(error, _error_of_batches(logs)), len(logs))


def _error_of_batches(logs: Array) -> float:
    """The standard error of the median by how far the medians of batches are apart."""
    batches = [np.median(logs[at : at + BATCH]) for at in range(0, len(logs) - BATCH + 1, BATCH)]
    if len(batches) < 2:
        return 0.0
    return float(MEDIAN_BY_MEAN * np.std(batches, ddof=1) / math.sqrt(len(batches)))


def combined(looks: Sequence[Comparison]) -> Comparison:
    """What several comparisons of the same two say together, each by how sure it is."""
    weights = [1 / max(look.error, 1e-6) ** 2 for look in looks]
    mean = sum(w * look.log_ratio for w, look in zip(weights, looks, strict=True)) / sum(weights)
    return Comparison(mean, 1 / math.sqrt(sum(weights)), sum(look.pairs for look in looks))

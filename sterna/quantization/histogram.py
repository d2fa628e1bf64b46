"""Streaming histograms of tensors: a bounded store, whatever is run through the network."""

from dataclasses import dataclass, field

import numpy as np

from sterna.quantization.affine import Affine
from sterna.relay.arrays import Array

BINS = 8192


@dataclass(slots=True)
class Histogram:
    """Counts of numbers in bins of one width around 0; the width doubles as the numbers need it."""

    counts: Array = field(default_factory=lambda: np.zeros(BINS, np.int64))
    width: float = 0.0
    low: float = np.inf
    high: float = -np.inf

    def add(self, numbers: Array) -> None:
        """Count the numbers of a tensor, which are finite."""
        if numbers.size == 0:
            return
        low, high = float(numbers.min()), float(numbers.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        reach = max(-low, high)
        if reach == 0 and self.width == 0:
            self.counts[BINS // 2] += numbers.size
            return
        self._widen(reach)
        places = np.floor(numbers.ravel() * np.float32(1 / self.width)).astype(np.int64)
        places = np.clip(places + BINS // 2, 0, BINS - 1)
        self.counts += np.bincount(places, minlength=BINS)

    def _widen(self, reach: float) -> None:
        """Make room for numbers of a size: bins are joined in pairs, those at 0 stay at 0."""
        if self.width == 0:
            self.width = 2.0 ** np.ceil(np.log2(max(reach, 2.0**-100) * 2 / BINS))
        while self.width * (BINS // 2) < reach:
            pairs = self.counts.reshape(-1, 2).sum(1)
            self.counts = np.zeros(BINS, np.int64)
            self.counts[BINS // 4 : 3 * BINS // 4] = pairs
            self.width *= 2

    @property
    def total(self) -> int:
        """How many numbers were counted."""
        return int(self.counts.sum())

    def centres(self) -> tuple[Array, Array]:
        """The middle of each bin that holds something, inside what was seen, and its count."""
        places = np.flatnonzero(self.counts)
        middles = (places - BINS // 2 + 0.5) * (self.width or 0.0)
        return np.clip(middles, self.low, self.high).astype(np.float32), self.counts[places]

    def squared_error(self, scheme: Affine) -> float:
        """The mean squared error that quantising by a scheme makes."""
        middles, counts = self.centres()
        error = (scheme.nearest(middles) - middles).astype(np.float64)
        return float((error * error * counts).sum() / max(self.total, 1))

    def mean_square(self) -> float:
        """The mean of the numbers' squares."""
        middles, counts = self.centres()
        return float((middles.astype(np.float64) ** 2 * counts).sum() / max(self.total, 1))

    def percentile(self, share: float) -> tuple[float, float]:
        """The range that holds a share of the numbers, as much being cut off at either end."""
        middles, counts = self.centres()
        if not middles.size:
            return 0.0, 0.0
        below = np.cumsum(counts) / counts.sum()
        first = int(np.searchsorted(below, (1 - share) / 2, side="right"))
        last = int(np.searchsorted(below, (1 + share) / 2))
        edge = len(middles) - 1
        return float(middles[min(first, edge)]), float(middles[min(last, edge)])

    def joined(self, other: "Histogram") -> "Histogram":
        """The counts of both."""
        wide, narrow = (self, other) if self.width >= other.width else (other, self)
        made = Histogram(wide.counts.copy(), wide.width, min(self.low, other.low),
                         max(self.high, other.high))
        copy = Histogram(narrow.counts.copy(), narrow.width, narrow.low, narrow.high)
        if copy.width and wide.width:
            copy._widen(wide.width * (BINS // 2))
        made.counts = made.counts + copy.counts
        return made

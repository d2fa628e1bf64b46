"""Thresholds by entropy: the clipping whose integers tell least wrong by Kullback and Leibler."""

import numpy as np

from sterna.quantization.histogram import BINS, Histogram
from sterna.relay.arrays import Array

# Sizes of numbers are counted in so many bins, and the smallest threshold has as many as levels.
SIZES, LEVELS, STEP = 2048, 128, 16
# A bin of fewer numbers says nothing of how they lie; of few numbers the whole range is kept.
NUMBERS_A_BIN = 32


def entropy_threshold(seen: Histogram) -> float:
    """The size of numbers to cut at for integers of 8 bits with a sign."""
    sizes = seen.counts[BINS // 2 :] + seen.counts[: BINS // 2][::-1]
    reach = max(-seen.low, seen.high, 0.0)
    used = int(np.ceil(reach / seen.width)) if seen.width else 0
    most = min(seen.total // NUMBERS_A_BIN, SIZES)
    if used <= LEVELS or most <= LEVELS:
        return reach
    merged = -(-used // most)
    counts = np.pad(sizes[:used], (0, -used % merged)).reshape(-1, merged).sum(1).astype(np.float64)
    width = seen.width * merged
    tried = [*range(LEVELS, len(counts), STEP), len(counts)]
    best = min(tried, key=lambda bins: _divergence(counts, bins))
    return min(best * width, reach)


def _divergence(counts: Array, bins: int) -> float:
    """How much is lost of a histogram by cutting it at a bin and telling 128 levels apart."""
    expected = counts[:bins].copy()
    expected[-1] += counts[bins:].sum()
    level = np.arange(bins) * LEVELS // bins
    filled = counts[:bins] > 0
    sums = np.bincount(level, counts[:bins], LEVELS)
    shares = np.bincount(level, filled, LEVELS)
    spread = np.where(filled, sums[level] / np.maximum(shares[level], 1), 0.0)
    if not spread.sum():
        return np.inf
    p, q = expected / expected.sum(), spread / spread.sum()
    both = p > 0
    return float((p[both] * np.log(p[both] / np.maximum(q[both], 1e-9))).sum())

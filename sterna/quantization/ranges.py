"""Ranges of activations: the clipping that costs the layers behind a tensor least.

A tensor, or several that share one scheme, is quantised by the range of those tried under which the
outputs of the layers that read it have the least squared error on the samples; where nothing but
element-wise operators read it, under which the tensor itself has it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from sterna.quantization.affine import Affine
from sterna.quantization.histogram import Histogram
from sterna.quantization.products import Products

# Shares of the whole range that are tried, of each end by itself.
SHRINK = tuple(float(share) for share in np.linspace(1.0, 0.25, 26))

Cost = Callable[[Affine], float]


def choose_scheme(
    seen: Sequence[Histogram], readers: Sequence[Products], dtype: str
) -> Affine:
    """The scheme for tensors whose numbers and whose readers' patches were collected."""
    low = min((h.low for h in seen if h.total), default=0.0)
    high = max((h.high for h in seen if h.total), default=0.0)
    low, high = min(low, 0.0), max(high, 0.0)

    def cost(scheme: Affine) -> float:
        own = sum(_relative(h.squared_error(scheme), h.mean_square()) for h in seen)
        outputs = sum(reader.input_error(scheme) for reader in readers)
        return outputs + (own if not readers else own * 1e-3)

    return _search(cost, low, high, dtype)


def _search(cost: Cost, low: float, high: float, dtype: str) -> Affine:
    """Coordinate descent over both ends of the range, from the whole of it."""
    best = Affine.of_range(low, high, dtype)
    least = cost(best)
    ends = [1.0, 1.0]
    for _ in range(2):
        before = least
        for end, reach in ((1, high), (0, low)):
            if reach == 0:
                continue
            for share in SHRINK:
                tried = [share if place == end else ends[place] for place in (0, 1)]
                scheme = Affine.of_range(low * tried[0], high * tried[1], dtype)
                error = cost(scheme)
                if error < least:
                    best, least, chosen = scheme, error, tried
                    ends = chosen
        if least == before or low == 0 or high == 0:
            break
    return best


def _relative(error: float, power: float) -> float:
    return error / power if power > 0 else 0.0

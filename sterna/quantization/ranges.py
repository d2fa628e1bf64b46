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

# Shares of the whole range that are tried, and of each end around the best of them.
HALVED = tuple(2.0**-step for step in range(1, 11))
NEAR = tuple(float(factor) for factor in np.linspace(0.55, 1.9, 19))
# What a tensor's own error may count for beside that of its readers' outputs. Patches are few, and
# what is rare among all numbers that were seen may decide a maximum behind the layer; but what no
# weight looks at should not widen a range.
OWN_SHARES = (1e-3, 0.1)

Cost = Callable[[Affine], float]


def choose_scheme(
    seen: Sequence[Histogram], readers: Sequence[Products], dtype: str,
    own_share: float = OWN_SHARES[0],
) -> Affine:
    """The scheme for tensors whose numbers and whose readers' patches were collected."""
    low = min((h.low for h in seen if h.total), default=0.0)
    high = max((h.high for h in seen if h.total), default=0.0)
    low, high = min(low, 0.0), max(high, 0.0)

    def cost(scheme: Affine) -> float:
        own = sum(_relative(h.squared_error(scheme), h.mean_square()) for h in seen)
        outputs = sum(reader.input_error(scheme) for reader in readers)
        return outputs + (own if not readers else own * own_share)

    return _search(cost, low, high, dtype)


def _search(cost: Cost, low: float, high: float, dtype: str) -> Affine:
    """Both ends of the whole range halved together, then each moved by itself."""
    ends = (low, high)
    least = cost(Affine.of_range(*ends, dtype))
    for factor in HALVED:
        tried = (low * factor, high * factor)
        error = cost(Affine.of_range(*tried, dtype))
        if error < least:
            ends, least = tried, error
    for end in (1, 0, 1) if low < 0 < high else (1,) if high else (0,):
        middle = ends
        for factor in NEAR:
            moved = min(max(middle[end] * factor, low), high)
            tried = (ends[0], moved) if end else (moved, ends[1])
            error = cost(Affine.of_range(*tried, dtype))
            if error < least:
                ends, least = tried, error
    return Affine.of_range(*ends, dtype)


def _relative(error: float, power: float) -> float:
    return error / power if power > 0 else 0.0

"""What weights may become: the settings of passes behind a size, by its name.

Weights grow by Winograd's transform.
"""

from collections.abc import Mapping
from typing import Any

SIZES: Mapping[str, Mapping[str, Any]] = {
    "small": {"relay.Winograd.max_growth": 0},
    "balanced": {"relay.weights.max_growth": 1.5},
    "fast": {},
}

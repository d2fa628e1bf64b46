"""What least squares leave of the measurements, learned by LightGBM's trees where it is installed.

A linear correction cannot say that a tile does well in wide layers and badly in narrow ones. Trees
over the numbers of a candidate and of its layer can, once there are enough measurements.
"""

import importlib
import importlib.util
import math
import re
from functools import cache
from typing import Any

import numpy as np

from sterna.relay.arrays import Array

# Measurements before trees say anything, and the numbers of a text that they look at.
LEAST, MOST_NUMBERS = 48, 10
# Small trees: there are hundreds of measurements, not millions.
_SETTINGS = {
    "objective": "huber", "num_leaves": 7, "learning_rate": 0.1, "min_data_in_leaf": 5,
    "deterministic": True, "num_threads": 1, "verbosity": -1, "seed": 0,
}
_ROUNDS = 60


@cache
def is_installed() -> bool:
    """Whether there is LightGBM."""
    return importlib.util.find_spec("lightgbm") is not None


def features_of(question: str, text: str, predicted: float) -> list[float]:
    """A candidate in numbers: its cost, its own numbers and its layer's, by their logarithms."""
    scope, _, kind = question.rpartition("/")
    code = float(sum(map(ord, kind)) % 997)
    return [predicted, code, *_numbers(text), *_numbers(scope)]


def _numbers(text: str) -> list[float]:
    found = [math.log1p(min(float(number), 1e12)) for number in re.findall(r"\d+", text)]
    return [*found[:MOST_NUMBERS], *[math.nan] * (MOST_NUMBERS - len(found))]


class BoostedTrees:
    """Trees that were grown on residuals."""

    def __init__(self, features: list[list[float]], residuals: list[float]) -> None:
        lightgbm = importlib.import_module("lightgbm")
        data = lightgbm.Dataset(np.array(features), np.array(residuals))
        self._trees: Any = lightgbm.train(_SETTINGS, data, _ROUNDS)

    def residuals(self, features: list[list[float]]) -> Array:
        """What they expect of candidates."""
        found: Array = self._trees.predict(np.array(features), num_threads=1)
        return found

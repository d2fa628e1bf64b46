"""Reading a tensor between its elements, along one axis at a time.

Every place of the result reads one element (nearest_neighbor), two (linear) or four (cubic), each
with a weight; what lies outside is the element at the edge.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir.build import as_expr, const, maximum, minimum
from sterna.ir.expr import Expr
from sterna.relay.arrays import Array
from sterna.support.dtype import DataType
from sterna.te import floor

METHODS = ("nearest_neighbor", "linear", "cubic")
COORDINATES = ("half_pixel", "align_corners", "asymmetric")

# Keys' kernel with this parameter reproduces quadratics.
CUBIC_ALPHA = -0.5


@dataclass(frozen=True, slots=True)
class Scaling:
    """One axis of `size` elements stretched to `result` of them."""

    size: Any
    result: Any
    method: str
    coordinates: str

    def source(self, place: Any, number: Callable[[Any], Any]) -> Any:
        """Where a place of the result lies among the elements; number makes fractions."""
        if self.coordinates == "align_corners":
            steps = self.result - 1
            if isinstance(steps, int) and steps == 0:
                return number(0)
            return number(place * (self.size - 1)) / number(steps)
        if self.coordinates == "asymmetric":
            return number(place * self.size) / number(self.result)
        return (number(place) + number(0.5)) * (number(self.size) / number(self.result)) - number(
            0.5
        )

    def nearest(self, place: Any) -> Any:
        """The element that is nearest, by whole numbers alone; between two, the first."""
        if self.coordinates == "asymmetric":
            return place * self.size // self.result
        if self.coordinates == "align_corners":
            steps = self.result - 1
            if isinstance(steps, int) and steps == 0:
                return place * 0
            return (place * (self.size - 1) * 2 + steps) // (steps * 2)
        doubled = (place * 2 + 1) * self.size
        return (doubled + self.result * 2 - 1) // (self.result * 2) - 1

    def reads(self, place: Expr, dtype: DataType) -> list[tuple[Expr, Any]]:
        """The elements that a place of the result reads, with their weights."""
        if self.method == "nearest_neighbor":
            return [(as_expr(self.nearest(place)), None)]

        def number(value: Any) -> Any:
            return const(value, dtype) if isinstance(value, float) else as_expr(value).astype(dtype)

        at = self.source(place, number)
        below = floor(at)
        weights = _weights(self.method, at - below)
        first = below.astype("int32") - (len(weights) // 2 - 1)
        last = as_expr(self.size) - 1
        return [
            (minimum(maximum(first + i, 0), last), weight) for i, weight in enumerate(weights)
        ]

    def matrix(self) -> Array:
        """The weights of all elements (columns) for all places of the result (rows)."""
        made = np.zeros((self.result, self.size))
        for place in range(self.result):
            if self.method == "nearest_neighbor":
                made[place, self.nearest(place)] = 1
                continue
            at = self.source(place, float)
            weights = _weights(self.method, at - math.floor(at))
            first = math.floor(at) - (len(weights) // 2 - 1)
            for i, weight in enumerate(weights):
                made[place, min(max(first + i, 0), self.size - 1)] += weight
        return made


def _weights(method: str, t: Any) -> list[Any]:
    """The weights of the elements around a place that lies t behind the one before it."""
    if method == "linear":
        return [1.0 - t, t]
    a = CUBIC_ALPHA
    return [_outer(a, 1.0 + t), _inner(a, t), _inner(a, 1.0 - t), _outer(a, 2.0 - t)]


def _inner(a: float, x: Any) -> Any:
    return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0


def _outer(a: float, x: Any) -> Any:
    return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a

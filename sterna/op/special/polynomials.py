"""Orthogonal polynomials by their recurrences; the degree may differ from element to element."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sterna.op.series import Formula, Kit, Number, register_formula
from sterna.relay.op import Case


class Family(NamedTuple):
    """P(0) = 1, P(1) = slope x + shift, and P(k + 1) from P(k), P(k - 1), x and k."""

    doc: str
    slope: float
    shift: float
    following: Callable[[Number, Number, Number, Number], Number]


def _chebyshev(p: Number, before: Number, x: Number, k: Number) -> Number:
    return x * 2.0 * p - before


def _legendre(p: Number, before: Number, x: Number, k: Number) -> Number:
    return ((k * 2.0 + 1.0) * x * p - k * before) / (k + 1.0)


def _laguerre(p: Number, before: Number, x: Number, k: Number) -> Number:
    return ((k * 2.0 + 1.0 - x) * p - k * before) / (k + 1.0)


FAMILIES = {
    "chebyshev_polynomial_t": Family("Chebyshev's of the first kind", 1, 0, _chebyshev),
    "chebyshev_polynomial_u": Family("Chebyshev's of the second kind", 2, 0, _chebyshev),
    "chebyshev_polynomial_v": Family("Chebyshev's of the third kind", 2, -1, _chebyshev),
    "chebyshev_polynomial_w": Family("Chebyshev's of the fourth kind", 2, 1, _chebyshev),
    "hermite_polynomial_h": Family(
        "Hermite's of physics", 2, 0, lambda p, before, x, k: (x * p - k * before) * 2.0
    ),
    "hermite_polynomial_he": Family(
        "Hermite's of statistics", 1, 0, lambda p, before, x, k: x * p - k * before
    ),
    "laguerre_polynomial_l": Family("Laguerre's", -1, 1, _laguerre),
    "legendre_polynomial_p": Family("Legendre's", 1, 0, _legendre),
}


def polynomial(family: Family) -> Formula:
    """The formula of a family; of a degree below zero it is 0."""

    def formula(kit: Kit, x: Number, n: Number) -> Number:
        degree = kit.of("floor", kit.of("abs", n))
        above = kit.where(degree > 1.0, degree - 1.0, 0.0)

        def step(k: Number, p: Number, before: Number) -> list[Number]:
            return [family.following(p, before, x, k + 1.0), p]

        first = x * family.slope + family.shift
        made = kit.loop(above, [first, x * 0.0 + 1.0], step)[0]
        made = kit.where(degree < 1.0, 1.0, made)
        return kit.where(n <= -1.0, 0.0, made)

    return formula


for _name, _family in FAMILIES.items():
    register_formula(
        f"special.{_name}", ("data", "degree"), polynomial(_family),
        f"The polynomials of a degree: {_family.doc}.",
        [Case((np.array([-1.5, -1.0, 0.0, 0.5, 2.0], "float32"),
               np.array([[-1.0], [0.0], [1.0], [2.0], [7.0]], "float32")))],
    )

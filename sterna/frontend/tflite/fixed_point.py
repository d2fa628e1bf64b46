"""Fixed-point arithmetic as kernels for microcontrollers do it, on arrays of int64.

A number has some bits of whole part and the rest of 15 or 31 as fraction; a product of two
fractions is the high half of the doubled product, rounded.
"""

import math
from dataclasses import dataclass

import numpy as np

from sterna.relay.arrays import Array

FRACTION = 31
LARGEST = (1 << 31) - 1

# exp(-2**n) as fractions of 31 bits, by n.
_EXP_OF_POWERS = {
    -2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242,
}


def quantized_multiplier(real: float) -> tuple[int, int]:
    """A factor as a fraction of 31 bits and a power of 2; factors that are too small are 0."""
    if real == 0:
        return 0, 0
    fraction, power = math.frexp(real)
    whole = math.floor(fraction * (1 << FRACTION) + 0.5)
    if whole == 1 << FRACTION:
        whole, power = whole // 2, power + 1
    return (0, 0) if power < -FRACTION else (whole, power)


def divided_by_power(x: Array, power: int) -> Array:
    """x / 2**power, rounded, halves away from zero."""
    mask = (1 << power) - 1
    return np.asarray((x >> power) + ((x & mask) > (mask >> 1) + (x < 0)))


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Arithmetic of numbers with a sign and so many bits of fraction where they are fractions."""

    fraction: int

    @property
    def largest(self) -> int:
        """The largest number, which stands for 1 among fractions."""
        return (1 << self.fraction) - 1

    def constant(self, raw: int) -> int:
        """A constant that is given with 31 bits."""
        cut = FRACTION - self.fraction
        return (raw + (1 << (cut - 1))) >> cut if cut else raw

    def product(self, a: Array, b: Array | int) -> Array:
        """The product of fractions, rounded, halves upward."""
        wide: Array = a * b + (1 << (self.fraction - 1))
        return np.asarray(np.minimum(wide >> self.fraction, self.largest))

    def times_power(self, x: Array, power: int) -> Array:
        """x * 2**power, held within the bits that there are."""
        return np.asarray(np.clip(x << power, -self.largest - 1, self.largest))

    def exp_of_negatives(self, a: Array, whole_bits: int) -> Array:
        """exp of numbers up to 0 with so many bits of whole part, as fractions."""
        fraction_bits = self.fraction - whole_bits
        quarter = 1 << (fraction_bits - 2)
        last = (a & (quarter - 1)) - quarter
        made = self._exp_of_last_quarter(self.times_power(last, whole_bits))
        left = last - a
        for power, factor in _EXP_OF_POWERS.items():
            if whole_bits > power:
                bit = (left >> (fraction_bits + power)) & 1
                made = np.where(bit == 1, self.product(made, self.constant(factor)), made)
        return np.where(a == 0, self.largest, made)

    def _exp_of_last_quarter(self, a: Array) -> Array:
        """exp of fractions from -1/4 to 0 by its series around -1/8."""
        around, third = self.constant(1895147668), self.constant(715827883)
        x = a + (1 << (self.fraction - 3))
        x2 = self.product(x, x)
        x3, x4 = self.product(x2, x), self.product(x2, x2)
        rest = self.product(divided_by_power(x4, 2) + x3, third) + x2
        series = x + divided_by_power(rest, 1)
        return np.asarray(np.minimum(around + self.product(series, around), self.largest))

    def _half_reciprocal(self, a: Array) -> Array:
        """2 / (1 + a) of fractions from 0 to 1 by three steps of Newton's, with 2 whole bits."""
        half = (a + self.largest + 1) >> 1
        made = self.constant(1515870810) + self.product(half, self.constant(-1010580540))
        for _ in range(3):
            left = (1 << (self.fraction - 2)) - self.product(half, made)
            made = made + self.times_power(self.product(made, left), 2)
        return made

    def reciprocal(self, a: Array) -> Array:
        """1 / (1 + a) of fractions from 0 to 1, as fractions."""
        return self.times_power(self._half_reciprocal(a), 1)

    def logistic(self, a: Array, whole_bits: int) -> Array:
        """1 / (1 + exp(-a)) as fractions."""
        powers = self.exp_of_negatives(-np.abs(a), whole_bits)
        above = self.reciprocal(powers)
        made = np.where(a > 0, above, self.largest - above)
        return np.where(a == 0, 1 << (self.fraction - 1), made)

    def tanh(self, a: Array, whole_bits: int) -> Array:
        """The hyperbolic tangent as fractions."""
        powers = self.exp_of_negatives(-np.abs(a), whole_bits + 1)
        made = self._half_reciprocal(powers) - (1 << (self.fraction - 2))
        above = self.times_power(made, 2)
        return np.where(a == 0, 0, np.where(a < 0, -above, above))


WIDE, SHORT = FixedPoint(31), FixedPoint(15)


def multiplied(x: Array, multiplier: int, power: int) -> Array:
    """x by a quantised factor, rounded twice."""
    return divided_by_power(WIDE.product(x << max(power, 0), multiplier), max(-power, 0))

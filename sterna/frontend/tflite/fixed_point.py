"""Fixed-point arithmetic of 32 bits as kernels for microcontrollers do it, on arrays of int64.

A number has some bits of whole part and the rest of 31 as fraction; a product of two fractions is
the high half of the doubled product, rounded.
"""

import math

import numpy as np

from sterna.relay.arrays import Array

FRACTION = 31
LARGEST = (1 << 31) - 1


def quantized_multiplier(real: float) -> tuple[int, int]:
    """A factor as a fraction of 31 bits and a power of 2; factors that are too small are 0."""
    if real == 0:
        return 0, 0
    fraction, power = math.frexp(real)
    whole = math.floor(fraction * (1 << FRACTION) + 0.5)
    if whole == 1 << FRACTION:
        whole, power = whole // 2, power + 1
    return (0, 0) if power < -FRACTION else (whole, power)


def high_product(a: Array, b: Array | int) -> Array:
    """The product of fractions, rounded, halves upward."""
    return np.minimum((a * b + (1 << 30)) >> FRACTION, LARGEST)


def divided_by_power(x: Array, power: int) -> Array:
    """x / 2**power, rounded, halves away from zero."""
    mask = (1 << power) - 1
    return np.asarray((x >> power) + ((x & mask) > (mask >> 1) + (x < 0)))


def times_power(x: Array, power: int) -> Array:
    """x * 2**power, held within 32 bits."""
    return np.clip(x << power, -(1 << 31), LARGEST)


def multiplied(x: Array, multiplier: int, power: int) -> Array:
    """x by a quantised factor, rounded twice."""
    return divided_by_power(high_product(x << max(power, 0), multiplier), max(-power, 0))


def _exp_of_last_quarter(a: Array) -> Array:
    """exp of fractions from -1/4 to 0 by its series around -1/8."""
    around, third = 1895147668, 715827883
    x = a + (1 << 28)
    x2 = high_product(x, x)
    x3, x4 = high_product(x2, x), high_product(x2, x2)
    rest = high_product(divided_by_power(x4, 2) + x3, third) + x2
    series = x + divided_by_power(rest, 1)
    return np.minimum(around + high_product(series, around), LARGEST)


# exp(-2**n) as fractions, by n.
_EXP_OF_POWERS = {
    -2: 1672461947, -1: 1302514674, 0: 790015084, 1: 290630308, 2: 39332535, 3: 720401, 4: 242,
}


def exp_of_negatives(a: Array, whole_bits: int) -> Array:
    """exp of numbers up to 0 with so many bits of whole part, as fractions."""
    fraction_bits = FRACTION - whole_bits
    quarter = 1 << (fraction_bits - 2)
    last = (a & (quarter - 1)) - quarter
    made = _exp_of_last_quarter(times_power(last, whole_bits))
    left = last - a
    for power, factor in _EXP_OF_POWERS.items():
        if whole_bits > power:
            bit = (left >> (fraction_bits + power)) & 1
            made = np.where(bit == 1, high_product(made, factor), made)
    return np.where(a == 0, LARGEST, made)

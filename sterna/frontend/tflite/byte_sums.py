"""Sums of bytes that are rounded three times, as one sum of products that is shifted once.

Kernels for microcontrollers bring both operands under one scale, add them, and bring the sum under
the scale of the result. All of that is a function of two bytes, so whether

    (lhs * lhs_factor + rhs * rhs_factor + start) >> shift

is the same function, held within the range of a byte, is seen by trying all 65,536 pairs.
"""

from dataclasses import dataclass

import numpy as np

from sterna.relay.arrays import Array

# Factors that are tried: so far from the nearest one, under so many shifts from the largest on.
STEPS, SHIFTS = 2, 5
LEAST_SHIFT, MOST_SHIFT = 8, 30
MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ByteSum:
    """What both operands are multiplied by, what is added, and by how many places it is shifted."""

    lhs_factor: int
    rhs_factor: int
    start: int
    shift: int


def find_byte_sum(wanted: Array, lhs_ratio: float, rhs_ratio: float, low: int) -> ByteSum | None:
    """The sum that gives what is wanted of every pair of bytes from low on; None if none does.

    wanted: by both bytes, held within the 256 numbers from low on.
    """
    bytes_ = np.arange(low, low + 256, dtype=np.int64)
    most = (abs(lhs_ratio) + abs(rhs_ratio)) * float(np.abs(bytes_).max())
    shifts = range(MOST_SHIFT, LEAST_SHIFT - 1, -1)
    for shift in [each for each in shifts if most * 2.0**each < MOST][:SHIFTS]:
        exact = np.array([lhs_ratio, rhs_ratio]) * 2.0**shift
        near = [np.rint(exact) + np.array([a, b]) for a in _AROUND for b in _AROUND]
        near.sort(key=lambda factors: float(np.abs(factors - exact).sum()))
        for lhs_factor, rhs_factor in near:
            products = np.add.outer(bytes_ * int(lhs_factor), bytes_ * int(rhs_factor))
            start = _start(wanted, products, shift, low)
            if start is not None:
                return ByteSum(int(lhs_factor), int(rhs_factor), start, shift)
    return None


_AROUND = range(-STEPS, STEPS + 1)


def _start(wanted: Array, products: Array, shift: int, low: int) -> int | None:
    """What can be added to products, a multiple of a large power of 2; None if nothing can.

    Beyond the ends of the range there is no bound: what is held within it may be any number. Few
    digits are short instructions.
    """
    beyond = 1 << 62
    least = int(np.where(wanted > low, (wanted << shift) - products, -beyond).max())
    above = int(np.where(wanted < low + 255, ((wanted + 1) << shift) - products, beyond).min())
    if least >= above or least == -beyond or above == beyond:  # nothing, or nearly one number
        return None
    rounded = (-(-least >> bits) << bits for bits in range(31, -1, -1))
    start = next(each for each in rounded if each < above)
    ends = (int(products.min()) + start, int(products.max()) + start)
    return start if ends[0] >= -MOST and ends[1] <= MOST else None

"""Rounding TWICE to bytes of any zero point, by what one record of a channel holds.

A product with 2 * m - 2**32, rounded behind the high word and added to x, is x * m / 2**31, rounded
upward. Less 1 where that is negative, a product with a power of 2 shifts it to the right, and twice
the zero point and 1 are added to the high word: its half is rounded, away from zero where negative.
"""

from typing import Any

import numpy as np

from sterna.ir.expr import Call, Expr
from sterna.op.qnn._packed_halves import halves_of
from sterna.relay.arrays import Array
from sterna.support.dtype import DataType

INT8, INT32, INT64 = DataType("int8"), DataType("int32"), DataType("int64")
# Shifts to the right, as factors that are numbers of 32 bits.
LEAST_RIGHT, MOST_RIGHT = 3, 31


def rounding_records(
    weights: Array, start: Array, multiplier: Array, power: Array, zero: int
) -> Array | None:
    """What sums begin with, weights, multiplier, shift as a factor, and zero point, by channel.

    None where a shift is no factor.
    """
    words = rounding_words(multiplier, power, zero)
    if words is None:
        return None
    return np.concatenate([start[:, None], halves_of(weights), words], 1).astype(np.int32)


def rounding_words(multiplier: Array, power: Array, zero: int) -> Array | None:
    """The last three words of each record; None where a shift is no factor."""
    right = -power
    if right.min() < LEAST_RIGHT or right.max() > MOST_RIGHT:
        return None
    parts = 2 * multiplier - (1 << 32), np.int64(1) << (33 - right), np.full(
        len(right), 2 * zero + 1)
    return np.stack(parts, 1)


def rounded(total: Expr, factor: Expr, right: Expr, zero: Expr) -> Any:
    """A sum of 64 bits as a byte, by the last three words of a record."""
    high = total + ((total * factor.astype(INT64) + (1 << 31)) >> 32)
    shifted = ((high + (high >> 63)) * right.astype(INT64)) >> 32
    return Call(INT8, "saturate", ((shifted.astype(INT32) + zero) >> 1,))


def rounded_array(sums: Array, words: Array) -> Array:
    """The same of arrays; words: the last three of each record."""
    factor, right, zero = words.astype(np.int64).T
    high = sums + ((sums * factor + (1 << 31)) >> 32)
    shifted = ((high + (high >> 63)) * right) >> 32
    return np.asarray(np.clip((shifted + zero) >> 1, -128, 127))

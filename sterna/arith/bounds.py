"""Interval arithmetic: ranges of integers, and arithmetic with them."""

from functools import cache
from math import inf
from typing import NamedTuple

from sterna.ir.expr import Expr
from sterna.support.dtype import DataType

Number = int | float

# How the classic interface writes that a bound is not known.
POS_INF = (1 << 63) - 1
NEG_INF = -POS_INF


class IntBound(NamedTuple):
    """From low to high, both included; -inf and inf where nothing is known."""

    low: int | float
    high: int | float

    @property
    def min_value(self) -> int:
        """The least number, as the classic interface writes it."""
        return NEG_INF if self.low == -inf else int(self.low)

    @property
    def max_value(self) -> int:
        """The largest number, as the classic interface writes it."""
        return POS_INF if self.high == inf else int(self.high)


class Modulus(NamedTuple):
    """The numbers base, base + coeff, base + 2 * coeff and so on, and those before."""

    coeff: int
    base: int


class Interval(NamedTuple):
    """From min to max, both included, as expressions; None where nothing is known."""

    min: Expr | None
    max: Expr | None


EVERYTHING = IntBound(-inf, inf)
NATURAL = IntBound(0, inf)
BIT = IntBound(0, 1)


def is_index(dtype: DataType) -> bool:
    """Whether values of the type are taken as mathematical integers, which do not wrap."""
    return dtype.kind == "int" and dtype.bits in (32, 64)


@cache
def type_bound(dtype: DataType) -> IntBound:
    """The values of a type."""
    if dtype.is_bool:
        return BIT
    if dtype.is_uint:
        return IntBound(0, (1 << dtype.bits) - 1)
    if dtype.is_int:
        return IntBound(-1 << (dtype.bits - 1), (1 << (dtype.bits - 1)) - 1)
    return EVERYTHING


def fits(bound: IntBound, dtype: DataType) -> bool:
    """Whether all values in the range are values of the type."""
    low, high = type_bound(dtype.element)
    return low <= bound.low and bound.high <= high


def join(a: IntBound, b: IntBound) -> IntBound:
    """What contains both."""
    return IntBound(min(a.low, b.low), max(a.high, b.high))


def meet(a: IntBound, b: IntBound) -> IntBound:
    """What is in both; the first one where they are disjoint (code that cannot run)."""
    low, high = max(a.low, b.low), min(a.high, b.high)
    return IntBound(low, high) if low <= high else a


def product(a: Number, b: Number) -> Number:
    """a * b, where 0 times infinity is 0."""
    return a * b if a and b else 0


def mul_bound(a: IntBound, b: IntBound) -> IntBound:
    """The range of products."""
    corners = [product(x, y) for x in a for y in b]
    return IntBound(min(corners), max(corners))


def square_bound(a: IntBound) -> IntBound:
    """The range of squares."""
    ends = [product(a.low, a.low), product(a.high, a.high)]
    return IntBound(0 if a.low <= 0 <= a.high else min(ends), max(ends))


def _floor(a: Number, b: Number) -> Number:
    """a // b for b > 0, either of which may be infinite."""
    if a in (inf, -inf):
        return a
    if b == inf:
        return 0 if a >= 0 else -1
    return a // b


def div_bound(a: IntBound, b: IntBound) -> IntBound:
    """The range of floor quotients."""
    if b.low > 0:
        corners = [_floor(x, y) for x in a for y in b]
        return IntBound(min(corners), max(corners))
    if b.high < 0:
        return div_bound(IntBound(-a.high, -a.low), IntBound(-b.high, -b.low))
    largest = max(abs(a.low), abs(a.high))
    return IntBound(-largest, largest)


def mod_bound(a: IntBound, b: IntBound) -> IntBound:
    """The range of floor remainders."""
    if b.low > 0:
        if a.low >= 0 and a.high < b.low:
            return a
        finite = a.low > -inf and a.high < inf
        if finite and b.low == b.high and a.low // b.low == a.high // b.low:
            return IntBound(a.low % b.low, a.high % b.low)
        return IntBound(0, min(b.high - 1, a.high) if a.low >= 0 else b.high - 1)
    return IntBound(min(b.low + 1, 0), max(b.high - 1, 0))


def truncdiv_bound(a: IntBound, b: IntBound) -> IntBound:
    """The range of quotients rounded to zero."""
    if b.low > 0:
        corners = [_floor(x, y) if x >= 0 else -_floor(-x, y) for x in a for y in b]
        return IntBound(min(corners), max(corners))
    if b.high < 0:
        return truncdiv_bound(IntBound(-a.high, -a.low), IntBound(-b.high, -b.low))
    largest = max(abs(a.low), abs(a.high))
    return IntBound(-largest, largest)


def truncmod_bound(a: IntBound, b: IntBound) -> IntBound:
    """The range of remainders with the dividend's sign."""
    largest = max(abs(b.low), abs(b.high)) - 1
    low = 0 if a.low >= 0 else max(a.low, -largest)
    high = 0 if a.high <= 0 else min(a.high, largest)
    return IntBound(low, high)


def shift_right_bound(a: IntBound, distance: IntBound) -> IntBound:
    """The range of a >> distance."""
    low, high = max(distance.low, 0), min(distance.high, 64)
    if low > high:
        return EVERYTHING
    powers = IntBound(1 << int(low), 1 << int(high))
    return div_bound(a, powers)


def shift_left_bound(a: IntBound, distance: IntBound) -> IntBound:
    """The range of a << distance as mathematical values."""
    low, high = max(distance.low, 0), min(distance.high, 64)
    if low > high:
        return EVERYTHING
    return mul_bound(a, IntBound(1 << int(low), 1 << int(high)))


def _ones(high: Number) -> Number:
    """The largest number with as many bits."""
    return inf if high == inf else (1 << int(high).bit_length()) - 1


def and_bound(a: IntBound, b: IntBound) -> IntBound:
    """The range of a & b."""
    if a.low >= 0 and b.low >= 0:
        return IntBound(0, min(a.high, b.high))
    if a.low >= 0:
        return IntBound(0, a.high)
    if b.low >= 0:
        return IntBound(0, b.high)
    return EVERYTHING


def or_bound(a: IntBound, b: IntBound) -> IntBound:
    """The range of a | b."""
    if a.low >= 0 and b.low >= 0:
        return IntBound(max(a.low, b.low), max(_ones(a.high), _ones(b.high)))
    return EVERYTHING


def xor_bound(a: IntBound, b: IntBound) -> IntBound:
    """The range of a ^ b."""
    if a.low >= 0 and b.low >= 0:
        return IntBound(0, max(_ones(a.high), _ones(b.high)))
    return EVERYTHING

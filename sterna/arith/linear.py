"""Polynomial normal form: sums of products of atoms, {(atom, ...): coefficient}, constant under ().

An atom is the number of something that is not a sum: a variable, a quotient, a minimum (atoms.py).
The atoms of a product are in ascending order. A coefficient is never 0. The order of the terms is
that in which they were first met and carries no meaning; it keeps what is written recognisable.
"""

from collections.abc import Iterable
from math import gcd

Mono = tuple[int, ...]
Sum = dict[Mono, int]
SumKey = frozenset[tuple[Mono, int]]

# A product of sums that would have more terms than this stays a product.
MAX_PRODUCT = 64


def constant(value: int) -> Sum:
    """A number."""
    return {(): value} if value else {}


def const_of(total: Sum) -> int | None:
    """The number that a sum is, else None."""
    if not total:
        return 0
    return total.get(()) if len(total) == 1 else None


def key_of(total: Sum) -> SumKey:
    """Equal for equal sums."""
    return frozenset(total.items())


def add_into(total: Sum, other: Sum, factor: int = 1) -> None:
    """total += factor * other"""
    for mono, coefficient in other.items():
        value = total.get(mono, 0) + coefficient * factor
        if value:
            total[mono] = value
        else:
            total.pop(mono, None)


def plus(a: Sum, b: Sum) -> Sum:
    """a + b"""
    total = dict(a)
    add_into(total, b)
    return total


def minus(a: Sum, b: Sum) -> Sum:
    """a - b"""
    total = dict(a)
    add_into(total, b, -1)
    return total


def plus_const(a: Sum, value: int) -> Sum:
    """a + value"""
    total = dict(a)
    add_into(total, {(): value})
    return total


def scale(a: Sum, factor: int) -> Sum:
    """a * factor"""
    if factor == 1:
        return a
    return {mono: coefficient * factor for mono, coefficient in a.items()} if factor else {}


def merge(a: Mono, b: Mono) -> Mono:
    """The product of two products."""
    if not a:
        return b
    return tuple(sorted(a + b)) if b else a


def times(a: Sum, b: Sum) -> Sum:
    """a * b"""
    if len(b) == 1 and () in b:
        return scale(a, b[()])
    if len(a) == 1 and () in a:
        return scale(b, a[()])
    total: Sum = {}
    for mono_a, value_a in a.items():
        for mono_b, value_b in b.items():
            mono = merge(mono_a, mono_b)
            value = total.get(mono, 0) + value_a * value_b
            if value:
                total[mono] = value
            else:
                total.pop(mono, None)
    return total


def without(mono: Mono, part: Mono) -> Mono | None:
    """mono / part, or None when part does not divide it."""
    if len(part) == 1 and len(mono) == 1:
        return () if mono == part else None
    rest = list(mono)
    for atom in part:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def content(values: Iterable[int]) -> int:
    """The greatest common divisor, 0 for nothing."""
    return gcd(*values)


def divide(total: Sum, divisor: Sum) -> tuple[Sum, Sum]:
    """(quotient, rest) with total == quotient*divisor + rest, for a divisor that is not constant.

    A multiple is taken out only when that leaves fewer terms: x*n + y → (x, y) for the divisor n.
    """
    lead = max(divisor, key=lambda mono: (len(mono), mono))
    lead_value = divisor[lead]
    quotient: Sum = {}
    rest = total
    for mono, value in total.items():
        factor = without(mono, lead)
        if factor is None or value % lead_value or rest.get(mono) != value:
            continue
        piece = {factor: value // lead_value}
        left = minus(rest, times(divisor, piece))
        if len(left) < len(rest):
            add_into(quotient, piece)
            rest = left
    return quotient, rest

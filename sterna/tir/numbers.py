"""What the interpreter computes with: Python's numbers, as the operations are defined."""

import math
from collections.abc import Callable
from typing import Any

from sterna.ir import expr as E
from sterna.support.dtype import DataType
from sterna.support.float_format import format_of

_WORD = (-(1 << 15), (1 << 15) - 1)


def clamp(x: float, dtype: DataType) -> float:
    """The nearest value of a type, toward zero."""
    if dtype.is_float:
        if dtype.bits > 8:
            return x
        format = format_of(dtype)
        return format.decode(format.encode(x, saturate=True))
    if x != x:
        return 0
    half = 1 << dtype.bits - 1
    low, high = (-half, half - 1) if dtype.is_int else (0, 2 * half - 1)
    return max(low, min(high, x if abs(x) == math.inf else math.trunc(x)))


def ldexp(x: float, exponent: float) -> float:
    """x times a power of two, infinite where that is too large."""
    try:
        return math.ldexp(x, int(exponent))
    except OverflowError:
        return math.copysign(math.inf, x)


def divide(a: float, b: float) -> float:
    """A quotient as IEEE 754 has it, also by zero."""
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def trunc_div(a: int, b: int) -> int:
    """A quotient rounded toward zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def dots(lanes: int, a: list[int], b: list[int]) -> list[int]:
    """Sums of four products each; four numbers alone meet those of every lane."""
    every = a if len(a) == len(b) else a * lanes
    products = [x * y for x, y in zip(every, b, strict=True)]
    return [sum(products[i : i + 4]) for i in range(0, len(products), 4)]


def pairs_in_words(a: list[int], b: list[int]) -> list[int]:
    """Sums of two products each, in 16 bits that do not run over."""
    every = a if len(a) == len(b) else a * (len(b) // len(a))
    products = [x * y for x, y in zip(every, b, strict=True)]
    low, high = _WORD
    return [max(low, min(high, x + y)) for x, y in zip(products[::2], products[1::2], strict=True)]


def folded(words: list[int]) -> list[int]:
    """Sums of neighbours."""
    return [x + y for x, y in zip(words[::2], words[1::2], strict=True)]


BINARY: dict[type[E.BinaryExpr], Callable[[Any, Any], Any]] = {
    E.Add: lambda a, b: a + b,
    E.Sub: lambda a, b: a - b,
    E.Mul: lambda a, b: a * b,
    E.Div: divide,
    E.TruncDiv: trunc_div,
    E.TruncMod: lambda a, b: a - b * trunc_div(a, b),
    E.FloorDiv: lambda a, b: a // b,
    E.FloorMod: lambda a, b: a % b,
    E.Min: lambda a, b: a if a < b else b,
    E.Max: lambda a, b: a if a > b else b,
    E.LT: lambda a, b: a < b,
    E.LE: lambda a, b: a <= b,
    E.GT: lambda a, b: a > b,
    E.GE: lambda a, b: a >= b,
    E.EQ: lambda a, b: a == b,
    E.NE: lambda a, b: a != b,
    E.And: lambda a, b: a and b,
    E.Or: lambda a, b: a or b,
}

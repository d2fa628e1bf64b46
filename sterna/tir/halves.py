"""Arithmetic on words of 32 bits as halves of 16: SXTB16, PKHBT, SMMLAR.

What each computes, on numbers and in terms of other expressions, for whoever has no instruction.
"""

from typing import Any

from sterna.ir import build
from sterna.ir.expr import INT32, Call, Expr
from sterna.support.dtype import DataType

INT64 = DataType("int64")


# ---- on numbers ----


def signed(value: int, bits: int) -> int:
    """The lowest bits of a number, the highest of them being its sign."""
    half = 1 << bits - 1
    return (value & (1 << bits) - 1 ^ half) - half


def even_of_bytes(a: int) -> int:
    """The first and the third byte of a word as its halves."""
    return joined(signed(a, 8), signed(a >> 16, 8))


def odd_of_bytes(a: int) -> int:
    """The second and the fourth byte of a word as its halves."""
    return joined(signed(a >> 8, 8), signed(a >> 24, 8))


def joined(low: int, high: int) -> int:
    """A word of two halves."""
    return signed(low & 0xFFFF | high << 16, 32)


def high_of_product(a: int, b: int) -> int:
    """a * b / 2**31, rounded, halves upward."""
    return signed(a * b + (1 << 30) >> 31, 32)


# ---- by other expressions ----


def even_by_shifts(call: Call) -> Expr:
    """widen_even by shifts."""
    (a,) = call.args
    return _joined(_byte(a, 0), _byte(a, 2))


def odd_by_shifts(call: Call) -> Expr:
    """widen_odd by shifts."""
    (a,) = call.args
    return _joined(_byte(a, 1), _byte(a, 3))


def join_by_shifts(call: Call) -> Expr:
    """join_halves by shifts."""
    return _joined(*call.args)


def _byte(word: Expr, place: int) -> Expr:
    """A byte of a word, with its sign."""
    high, low = (build.cast(word.dtype, build.const(n)) for n in (24 - 8 * place, 24))
    return (word << high) >> low


def _joined(low: Expr, high: Expr) -> Expr:
    mask, half = (build.cast(low.dtype, build.const(n)) for n in (0xFFFF, 16))
    return (low & mask) | (high << half)


def high_by_int64(call: Call) -> Expr:
    """high_product in 64 bits."""
    wide = INT64.with_lanes(call.dtype.lanes)
    a, b = (build.cast(wide, arg) for arg in call.args)
    half, places = (build.cast(wide, build.const(n, INT64)) for n in (1 << 30, 31))
    return build.cast(call.dtype, (a * b + half) >> places)


# ---- calls ----


def _call(name: str, *args: Any) -> Expr:
    given = tuple(build.as_expr(arg) for arg in args)
    for arg in given:
        if arg.dtype != INT32:
            raise TypeError(f"{name} takes words of type int32, not {arg.dtype}")
    return Call(INT32, name, given)


def widen_even(a: Any) -> Expr:
    """The first and the third byte of a word, with their signs, as its halves."""
    return _call("widen_even", a)


def widen_odd(a: Any) -> Expr:
    """The second and the fourth byte of a word, with their signs, as its halves."""
    return _call("widen_odd", a)


def join_halves(low: Any, high: Any) -> Expr:
    """The word whose halves are the lowest 16 bits of two numbers."""
    return _call("join_halves", low, high)


def high_product(a: Any, b: Any) -> Expr:
    """a * b / 2**31, rounded, halves upward; b is at least 2**30."""
    return _call("high_product", a, b)

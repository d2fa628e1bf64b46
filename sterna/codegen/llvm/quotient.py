"""Quotients that become bytes, as quantisation has them, without a division.

    saturate(nearbyint(x / c) + zero)  ->  saturate(nearbyint(fma(x, high, x * low)) + zero)

high and low are the reciprocal of c in two floats, the first one cut off. Both forms grow with x,
and what comes of them jumps where x / c passes the middle of two whole numbers, at most 257 times.
So they agree for every x if they agree for the floats around these places, which is tried while the
code is generated; where they do not, the division stays.
"""

from functools import lru_cache

import numpy as np

from sterna.ir.expr import Add, Broadcast, Call, Div, Expr, FloatImm, Let, Mul, StringImm, Var
from sterna.support.dtype import DataType
from sterna.support.element_arrays import Array

FLOAT32 = DataType("float32")
# Divisors outside of these would make subnormal numbers.
SMALLEST, LARGEST = 2.0**-60, 2.0**60
# Zero points are bytes.
LARGEST_ZERO = 255
# Neither form is off by as many units in the last place.
NEIGHBOURS = 4


def without_division(saturated: Call) -> Expr | None:
    """What saturate takes in place of a rounded quotient and a zero point, or None."""
    whole = saturated.args[0]
    found = rounded_sum(whole)
    if saturated.dtype.bits != 8 or found is None:
        return None
    quotient, zero = found
    divisor = _number(quotient.b) if isinstance(quotient, Div) else None
    if not isinstance(quotient, Div) or divisor is None or quotient.dtype.element != FLOAT32:
        return None
    least = -128 if saturated.dtype.is_int else 0
    factors = reciprocal(divisor, least - int(zero), least + 255 - int(zero))
    if factors is None:
        return None
    high, low = (_spread(part, quotient.dtype) for part in factors)
    x = Var("dividend", quotient.dtype)
    kind = f"v{x.dtype.lanes}f32" if x.dtype.lanes > 1 else "f32"
    product = Call(x.dtype, "call_llvm_pure_intrin",
                   (StringImm(f"llvm.fma.{kind}"), x, high, Mul(x, low)))
    made: Expr = Call(whole.dtype, "nearbyint", (Let(x, quotient.a, product),))
    return Add(made, whole.b) if isinstance(whole, Add) else made


def rounded_sum(value: Expr) -> tuple[Expr, float] | None:
    """x and zero of nearbyint(x) + zero, where zero is a byte."""
    zero = 0.0
    if isinstance(value, Add):
        known = _number(value.b)
        if known is None or not known.is_integer() or abs(known) > LARGEST_ZERO:
            return None
        value, zero = value.a, known
    if not isinstance(value, Call) or value.op != "nearbyint":
        return None
    return value.args[0], zero


def _number(expr: Expr) -> float | None:
    if isinstance(expr, Broadcast):
        expr = expr.value
    return expr.value if isinstance(expr, FloatImm) else None


def _spread(value: float, dtype: DataType) -> Expr:
    number = FloatImm(FLOAT32, value)
    return number if dtype.lanes == 1 else Broadcast(number, dtype.lanes)


@lru_cache(maxsize=4096)
def reciprocal(divisor: float, first: int, last: int) -> tuple[float, float] | None:
    """1 / divisor in two floats by which whole quotients from first to last come out exactly.

    None where that is not so. A power of two needs no second float, and LLVM no help.
    """
    if not SMALLEST < divisor < LARGEST:
        return None
    exact = np.float64(1.0) / np.float64(divisor)
    high = np.float32(exact)
    if np.float64(high) > exact:
        high = np.nextafter(high, np.float32(0))
    low = np.float32(exact - np.float64(high))
    if low <= 0:
        return None
    middles = np.arange(first - 1, last + 1) + 0.5
    near = [(middles * divisor).astype(np.float32)]
    for end in (-np.inf, np.inf):
        tried = near[0]
        for _ in range(NEIGHBOURS):
            tried = np.nextafter(tried, np.float32(end))
            near.append(tried)
    x = np.concatenate(near)
    same = np.rint(x / np.float32(divisor)) == np.rint(fused(x, high, x * low))
    return (float(high), float(low)) if bool(same.all()) else None


def fused(x: Array, factor: np.float32, addend: Array) -> Array:
    """x * factor + addend of float32, rounded once: the sum to odd in float64, then to float32."""
    product = x.astype(np.float64) * np.float64(factor)  # exact
    added = addend.astype(np.float64)
    total = product + added
    back = total - product
    error = (product - (total - back)) + (added - back)
    bits = total.view(np.int64)
    towards_zero = bits - ((error != 0) & ((error < 0) != (total < 0)))
    odd: Array = np.where(error != 0, towards_zero | 1, bits).view(np.float64)
    return odd.astype(np.float32)

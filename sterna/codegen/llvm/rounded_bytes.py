"""Bytes made of rounded floats that surely fit 16 bits: no conversion, and one narrowing less.

    saturate(int32(nearbyint(x)))  ->  saturate(int16 of the last bits of x + 1.5 * 2**23)

Bounds of x are read off the expression: bytes times constants, sums, clips.
"""

import math

from sterna.codegen.llvm.convert import int_range
from sterna.ir import build
from sterna.ir.expr import (
    Add,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    Max,
    Min,
    Mul,
    Sub,
)
from sterna.support.dtype import DataType

INT32, FLOAT32 = DataType("int32"), DataType("float32")
# What 16 bits hold, either way.
LARGEST = 32767.0
LARGEST_FLOAT = 3.4e38
# What 32 bits hold either way, with room for the error of a sum of floats.
LARGEST_WHOLE = 2.0**31 - 512

Bounds = tuple[float, float]


def rounded(expr: Call | Cast) -> Expr | None:
    """x, where bytes are nearbyint(x) held within their range, and x within that of 16 bits."""
    if not expr.dtype.is_integer or expr.dtype.bits != 8 or expr.dtype.lanes == 1:
        return None
    whole = expr.args[0] if isinstance(expr, Call) else _clipped(expr.value, expr.dtype)
    if isinstance(whole, Cast) or (isinstance(whole, Call) and whole.op == "saturate"):
        inner = whole.value if isinstance(whole, Cast) else whole.args[0]
        is_rounded = isinstance(inner, Call) and inner.op == "nearbyint"
        if is_rounded and whole.dtype.element == INT32 and inner.dtype.element == FLOAT32:
            assert isinstance(inner, Call)
            found = bounds(inner.args[0])
            if found is not None and min(found) >= -LARGEST and max(found) <= LARGEST:
                return inner.args[0]
    return None


def _clipped(value: Expr, dtype: DataType) -> Expr | None:
    """What is held between the ends of a type's range."""
    low, high = int_range(dtype)
    if not isinstance(value, Min) or not isinstance(value.b, Max):
        return None
    is_whole = _integer(value.a) == high and _integer(value.b.a) == low
    return value.b.b if is_whole else None


def _integer(expr: Expr) -> int | None:
    return build.int_value(expr.value if isinstance(expr, Broadcast) else expr)


def bounds(expr: Expr) -> Bounds | None:
    """Between which floats an expression of float32 lies, which is never NaN; None: unknown."""
    match expr:
        case Broadcast():
            return bounds(expr.value)
        case FloatImm():
            return None if math.isnan(expr.value) else (expr.value, expr.value)
        case Cast():
            return _of_integers(expr.value)
        case Min() | Max() | Add() | Sub() | Mul():
            a, b = bounds(expr.a), bounds(expr.b)
            return None if a is None or b is None else _joined(expr, a, b)
    return None


def _of_integers(expr: Expr) -> Bounds | None:
    """Those of an integer type; of a narrower one, where its numbers were converted before."""
    if not expr.dtype.is_integer or expr.dtype.bits > 32:
        return None
    low, high = int_range(expr.dtype)
    if isinstance(expr, Cast):
        inner = _of_integers(expr.value)
        if inner is not None and low <= inner[0] and inner[1] <= high:
            return inner
    return float(low), float(high)


def _ends(a: Bounds, b: Bounds) -> Bounds:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _joined(expr: Expr, a: Bounds, b: Bounds) -> Bounds | None:
    match expr:
        case Min():
            return min(a[0], b[0]), min(a[1], b[1])
        case Max():
            return max(a[0], b[0]), max(a[1], b[1])
    if not all(map(math.isfinite, (*a, *b))):
        return None
    if isinstance(expr, Sub):
        b = -b[1], -b[0]
    low, high = _ends(a, b) if isinstance(expr, Mul) else (a[0] + b[0], a[1] + b[1])
    return _rounded_outwards(low), -_rounded_outwards(-high)


def _rounded_outwards(low: float) -> float:
    """A lower bound of what is rounded to a float32, which may be infinite."""
    beyond = low * (1 + 2.0**-20) if low < 0 else low * (1 - 2.0**-20)
    return beyond if abs(beyond) < LARGEST_FLOAT else math.copysign(math.inf, beyond)

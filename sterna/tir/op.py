"""Functions of scalars."""

import math
from collections.abc import Callable
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Call, Expr, ExprLike
from sterna.support.classic import classic_names
from sterna.support.dtype import DataType

__all__ = [
    "abs", "acos", "acosh", "add", "all", "any", "asin", "asinh", "atan", "atan2", "atanh",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "ceildiv", "clz",
    "copysign", "cos", "cosh", "div", "erf", "exp", "exp10", "exp2", "floor", "floordiv",
    "floormod", "fmod", "hypot", "if_then_else", "indexdiv", "indexmod", "infinity", "isfinite",
    "isinf", "isnan", "ldexp", "likely", "log", "log10", "log1p", "log2", "logical_and",
    "logical_not", "logical_or", "multiply", "nearbyint", "nextafter", "popcount", "pow", "power",
    "q_multiply_shift", "round", "rsqrt", "select", "shift_left", "shift_right", "sigmoid", "sin",
    "sinh", "sqrt", "subtract", "tan", "tanh", "trunc", "truncdiv", "truncmod",
]

div = build.div
floordiv = indexdiv = build.floordiv
floormod = indexmod = build.floormod
if_then_else = build.if_then_else
logical_and = build.logical_and
logical_not = build.logical_not
logical_or = build.logical_or
select = build.select
truncdiv = build.truncdiv
truncmod = build.truncmod


def add(lhs: Any, rhs: Any) -> Expr:
    """lhs + rhs."""
    return build.add(lhs, rhs)


def subtract(lhs: Any, rhs: Any) -> Expr:
    """lhs - rhs."""
    return build.sub(lhs, rhs)


def multiply(lhs: Any, rhs: Any) -> Expr:
    """lhs * rhs."""
    return build.mul(lhs, rhs)


def ceildiv(lhs: Any, rhs: Any) -> Expr:
    """lhs / rhs, rounded upward."""
    a, b = build.match_types(lhs, rhs)
    if a.dtype.is_uint or (build.int_value(b) or 0) > 0:
        return build.floordiv(a + b - 1, b)
    return -build.floordiv(-a, b)


def bitwise_and(x: Any, y: Any) -> Expr:
    """The bits that both have."""
    return build.bitwise("bitwise_and", x, y)


def bitwise_or(x: Any, y: Any) -> Expr:
    """The bits that one of them has."""
    return build.bitwise("bitwise_or", x, y)


def bitwise_xor(x: Any, y: Any) -> Expr:
    """The bits that only one of them has."""
    return build.bitwise("bitwise_xor", x, y)


def bitwise_not(x: Any) -> Expr:
    """The bits that x has not."""
    return ~build.as_expr(x)


def shift_left(x: Any, y: Any) -> Expr:
    """x with its bits y places higher."""
    return build.bitwise("shift_left", x, y)


def shift_right(x: Any, y: Any) -> Expr:
    """x with its bits y places lower; its sign comes in."""
    return build.bitwise("shift_right", x, y)


def likely(cond: Any) -> Expr:
    """A condition that nearly always holds."""
    return build.call_intrinsic("likely", build.as_expr(cond))


def infinity(dtype: str) -> Expr:
    """What is above all numbers of a type of floats."""
    if not DataType(dtype).is_float:
        raise ValueError(f"infinity is of floats, not of {dtype}; max_value is its largest number")
    return build.const(math.inf, dtype)


def q_multiply_shift(x: Any, y: Any, q: Any, s: Any) -> Expr:
    """round(x * y * 2**(s - q)) of int32: a product of fixed point whose halves go upward."""
    places, shift, wide = build.as_expr(q), build.as_expr(s), DataType("int64")
    is_left = shift > 0
    up = build.cast(wide, build.select(is_left, shift, 0))
    down = build.cast(wide, places + build.select(is_left, 0, -shift))
    product = shift_left(build.cast(wide, x), up) * build.cast(wide, y)
    half = shift_left(build.const(1, wide), down - 1)
    return build.cast(DataType("int32"), shift_right(product + half, down))


def _float_argument(name: str, value: Any) -> Expr:
    expr = build.as_expr(value)
    if not expr.dtype.is_float:
        raise TypeError(f"{name} needs a floating-point argument, not {expr.dtype}; cast it first")
    return expr


def _of_float(op: str, doc: str) -> Callable[[Any], Expr]:
    def function(x: Any) -> Expr:
        return build.call_intrinsic(op, _float_argument(op, x))

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return function


exp = _of_float("exp", "e to the power of x.")
exp2 = _of_float("exp2", "2 to the power of x.")
exp10 = _of_float("exp10", "10 to the power of x.")
log = _of_float("log", "The natural logarithm.")
log2 = _of_float("log2", "The logarithm to base 2.")
log10 = _of_float("log10", "The logarithm to base 10.")
log1p = _of_float("log1p", "The natural logarithm of 1 + x.")
sqrt = _of_float("sqrt", "The square root.")
rsqrt = _of_float("rsqrt", "One over the square root.")
sin = _of_float("sin", "The sine.")
cos = _of_float("cos", "The cosine.")
tan = _of_float("tan", "The tangent.")
asin = _of_float("asin", "The arc sine.")
acos = _of_float("acos", "The arc cosine.")
atan = _of_float("atan", "The arc tangent.")
sinh = _of_float("sinh", "The hyperbolic sine.")
cosh = _of_float("cosh", "The hyperbolic cosine.")
tanh = _of_float("tanh", "The hyperbolic tangent.")
asinh = _of_float("asinh", "The inverse hyperbolic sine.")
acosh = _of_float("acosh", "The inverse hyperbolic cosine.")
atanh = _of_float("atanh", "The inverse hyperbolic tangent.")
erf = _of_float("erf", "The error function.")
sigmoid = _of_float("sigmoid", "1 / (1 + exp(-x)).")


def _rounding(op: str, doc: str) -> Callable[[Any], Expr]:
    def function(x: Any) -> Expr:
        expr = build.as_expr(x)
        return build.call_intrinsic(op, expr) if expr.dtype.is_float else expr

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return function


floor = _rounding("floor", "The largest whole number that is not above x.")
ceil = _rounding("ceil", "The smallest whole number that is not below x.")
trunc = _rounding("trunc", "x without its fraction.")
round = _rounding("round", "The nearest whole number; halves go away from zero.")
nearbyint = _rounding("nearbyint", "The nearest whole number; halves go to the even one.")


def abs(x: Any) -> Expr:
    """x without its sign."""
    expr = build.as_expr(x)
    if expr.dtype.is_uint or expr.dtype.is_bool:
        return expr
    if expr.dtype.is_float:
        return build.call_intrinsic("abs", expr)
    return build.select(expr < 0, build.mul(expr, -1), expr)


def _of_two(op: str, doc: str) -> Callable[[Any, Any], Expr]:
    def function(x: Any, y: Any) -> Expr:
        a, b = build.match_types(x, y)
        return build.call_intrinsic(op, _float_argument(op, a), _float_argument(op, b))

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return function


power = pow = _of_two("pow", "x to the power of y.")
nextafter = _of_two("nextafter", "The number next to x in the direction of y.")
atan2 = _of_two("atan2", "The angle of the point (y, x): its arguments are y and x.")
fmod = _of_two("fmod", "The remainder of x / y with the sign of x.")
hypot = _of_two("hypot", "sqrt(x*x + y*y).")
copysign = _of_two("copysign", "x with the sign of y.")


def ldexp(x: Any, y: Any) -> Expr:
    """x * 2**y."""
    base = _float_argument("ldexp", x)
    return build.call_intrinsic("ldexp", base, build.cast(base.dtype, build.as_expr(y)))


def _test(op: str, doc: str) -> Callable[[Any], Expr]:
    def function(x: Any) -> Expr:
        expr = build.as_expr(x)
        if not expr.dtype.is_float:
            return build.const(op == "isfinite")
        return build.call_intrinsic(op, expr, dtype="bool")

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return function


isnan = _test("isnan", "Whether x is no number.")
isinf = _test("isinf", "Whether x is infinite.")
isfinite = _test("isfinite", "Whether x is a finite number.")


def popcount(x: Any) -> Expr:
    """How many bits are set."""
    return build.call_intrinsic("popcount", x)


def clz(x: Any) -> Expr:
    """How many zeros stand before the first bit that is set."""
    expr = build.as_expr(x)
    return Call(expr.dtype, "clz", (expr,))


def all(*conditions: ExprLike) -> Expr:
    """Whether all conditions hold."""
    result: Expr = build.const(True)
    for condition in conditions:
        result = build.logical_and(result, condition)
    return result


def any(*conditions: ExprLike) -> Expr:
    """Whether one of the conditions holds."""
    result: Expr = build.const(False)
    for condition in conditions:
        result = build.logical_or(result, condition)
    return result


__getattr__ = classic_names(__name__)

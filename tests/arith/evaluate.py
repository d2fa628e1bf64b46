"""What an expression is worth, straight from the meaning in sterna/ir/expr.py."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from sterna.ir.build import round_float, wrap_int
from sterna.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.support.dtype import DataType

Value = Any


class NoMeaning(Exception):
    """The expression has no value here: it divides by zero, shifts too far."""


def _nonzero(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def checked(a: int, b: int) -> int:
        if b == 0:
            raise NoMeaning
        return function(a, b)

    return checked


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _float_div(a: float, b: float) -> float:
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


_BINARY: dict[type[Expr], Callable[[Any, Any], Any]] = {
    Add: operator.add,
    Sub: operator.sub,
    Mul: operator.mul,
    Div: _float_div,
    FloorDiv: _nonzero(operator.floordiv),
    FloorMod: _nonzero(operator.mod),
    TruncDiv: _nonzero(_truncdiv),
    TruncMod: _nonzero(lambda a, b: a - b * _truncdiv(a, b)),
    Min: lambda a, b: a if a < b else b,
    Max: lambda a, b: a if a > b else b,
    LT: operator.lt,
    LE: operator.le,
    GT: operator.gt,
    GE: operator.ge,
    EQ: operator.eq,
    NE: operator.ne,
    And: lambda a, b: a and b,
    Or: lambda a, b: a or b,
}

_BITS: dict[str, Callable[[int, int], int]] = {
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "shift_left": operator.lshift,
    "shift_right": operator.rshift,
}


def typed(value: Any, dtype: DataType) -> Any:
    """A number as its type holds it."""
    element = dtype.element
    if element.is_float:
        return round_float(float(value), element)
    return wrap_int(int(value), element)


def evaluate(expr: Expr, values: Mapping[Var, Value]) -> Value:
    """The value: a number, or a list of one per lane."""
    if expr.dtype.lanes > 1:
        return [_lane(expr, values, lane) for lane in range(expr.dtype.lanes)]
    return _lane(expr, values, 0)


def _lane(expr: Expr, values: Mapping[Var, Value], lane: int) -> Value:
    if isinstance(expr, Var):
        return values[expr]
    if isinstance(expr, (IntImm, FloatImm)):
        return expr.value
    if isinstance(expr, BinaryExpr):
        a, b = _lane(expr.a, values, lane), _lane(expr.b, values, lane)
        dtype = DataType("bool") if isinstance(expr, CompareExpr) else expr.dtype
        return typed(_BINARY[type(expr)](a, b), dtype)
    if isinstance(expr, Not):
        return int(not _lane(expr.a, values, lane))
    if isinstance(expr, Select):
        condition = _lane(expr.condition, values, lane)
        both = _lane(expr.then, values, lane), _lane(expr.otherwise, values, lane)
        return both[0] if condition else both[1]
    if isinstance(expr, Cast):
        return _cast(_lane(expr.value, values, lane), expr.dtype)
    if isinstance(expr, Ramp):
        start, step = _lane(expr.base, values, 0), _lane(expr.stride, values, 0)
        return typed(start + lane * step, expr.dtype)
    if isinstance(expr, Broadcast):
        return _lane(expr.value, values, 0)
    if isinstance(expr, Let):
        value = _lane(expr.value, values, lane)
        return _lane(expr.body, {**values, expr.var: value}, lane)
    assert isinstance(expr, Call), type(expr)
    return _call(expr, values, lane)


def _cast(value: Value, dtype: DataType) -> Value:
    outside = dtype.is_integer and isinstance(value, float) and (
        not math.isfinite(value) or wrap_int(int(value), dtype) != int(value)
    )
    if outside:
        raise NoMeaning
    return typed(value, dtype)


def _call(expr: Call, values: Mapping[Var, Value], lane: int) -> Value:
    if expr.op == "likely":
        return _lane(expr.args[0], values, lane)
    if expr.op == "if_then_else":
        taken = 1 if _lane(expr.args[0], values, lane) else 2
        return _lane(expr.args[taken], values, lane)
    args = [_lane(arg, values, lane) for arg in expr.args]
    if expr.op == "bitwise_not":
        return typed(~args[0], expr.dtype)
    if expr.op.startswith("shift") and not 0 <= args[1] < expr.dtype.bits:
        raise NoMeaning
    return typed(_BITS[expr.op](*args), expr.dtype)


def alike(a: Value, b: Value) -> bool:
    """Whether two values are the same: NaN is NaN, 0.0 is not -0.0."""
    if isinstance(a, list) or isinstance(b, list):
        return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return a.hex() == b.hex() or (math.isnan(a) and math.isnan(b))
    return bool(a == b)

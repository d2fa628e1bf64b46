"""Building expressions: conversion of operands, folding of constants, Python's operators."""

import math
import struct
from collections.abc import Callable
from typing import Any

from sterna.ir.expr import (
    BOOL,
    EQ,
    FLOAT32,
    GE,
    GT,
    INT32,
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
    ExprLike,
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
    Select,
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.support.dtype import DataType
from sterna.support.float_format import exact_enough, format_of

# ---- constants ----


def wrap_int(value: int, dtype: DataType) -> int:
    """An integer as the type holds it: its low bits, read with the type's sign."""
    if dtype.is_bool:
        return int(value != 0)
    value &= (1 << dtype.bits) - 1
    if dtype.is_int and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def round_float(value: int | float, dtype: DataType) -> float:
    """A number as a floating-point type holds it, rounded once."""
    if dtype.bits == 64:
        return float(value)
    number = exact_enough(value) if isinstance(value, int) else float(value)
    if dtype.kind != "float":
        format = format_of(dtype.element)
        return format.decode(format.encode(number))
    code = "<f" if dtype.bits == 32 else "<e"
    try:
        return float(struct.unpack(code, struct.pack(code, number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def const(value: int | float | bool, dtype: str | None = None) -> Expr:
    """A constant. Without a type: bool, int32 and float32 for bool, int and float, or 64 bits."""
    if dtype is None:
        value, dtype = _typed_number(value)
    full = dtype if type(dtype) is DataType else DataType(dtype)
    element = full.element
    if type(value) is int and element.kind == "int" and full.lanes == 1:
        if -1 << element.bits - 1 <= value < 1 << element.bits - 1:
            return IntImm(full, value)
        raise ValueError(f"{value} does not fit in {dtype}")
    if element.is_float:
        made: Expr = FloatImm(element, round_float(value, element))
    elif element.is_integer or element.is_bool:
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(f"{value} is no constant of type {dtype}")
        number = int(value)
        if wrap_int(number, element) != number and not element.is_bool:
            raise ValueError(f"{value} does not fit in {dtype}")
        made = IntImm(element, wrap_int(number, element))
    else:
        raise ValueError(f"there are no constants of type {dtype}")
    return made if full.lanes == 1 else Broadcast(made, full.lanes)


_LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127


def _typed_number(value: Any) -> tuple[int | float | bool, str]:
    """A number of Python or NumPy, and its type as a constant."""
    if hasattr(value, "dtype"):
        return value.item(), str(value.dtype)
    if not isinstance(value, bool | int | float):
        raise TypeError(f"{value!r} of type {type(value).__name__} is no constant")
    if isinstance(value, bool):
        return value, BOOL
    if isinstance(value, int):
        return value, INT32 if -(2**31) <= value < 2**31 else "int64"
    lost = math.isfinite(value) and abs(value) > _LARGEST_FLOAT32
    return value, "float64" if lost else FLOAT32


def as_expr(value: Any, like: Expr | None = None) -> Expr:
    """What a user wrote, as an expression; a number takes the type of `like`."""
    if isinstance(value, Expr):
        return value
    if type(value) is int and like is not None and like.dtype.kind == "int":
        return const(value, like.dtype.element)  # by far the most frequent
    if not isinstance(value, (int, float)):
        if hasattr(value, "__sterna_expr__"):
            converted: Expr = value.__sterna_expr__()
            return converted
        if isinstance(value, str):
            return StringImm(value)
        if not hasattr(value, "item"):
            raise TypeError(f"{value!r} of type {type(value).__name__} is no expression")
        value = value.item()  # a NumPy scalar
    if like is None:
        return const(value)
    element = like.dtype.element
    if isinstance(value, float) and not element.is_float:
        return const(value)
    if isinstance(value, bool) and not element.is_bool:
        value = int(value)
    if isinstance(value, int) and element.is_bool and not isinstance(value, bool):
        return const(value)
    return const(value, element)


def int_value(value: ExprLike) -> int | None:
    """The number that a constant integer stands for, else None."""
    if isinstance(value, int):
        return int(value)
    return value.value if isinstance(value, IntImm) else None


def is_const(value: ExprLike, number: int | float) -> bool:
    """Whether an expression is this constant, in every lane."""
    if isinstance(value, Broadcast):
        value = value.value
    if isinstance(value, (IntImm, FloatImm)):
        return bool(value.value == number)
    return isinstance(value, (int, float)) and value == number


# ---- conversion ----


def cast(dtype: str, value: ExprLike) -> Expr:
    """A value as another type; lanes are added to a scalar."""
    target = DataType(dtype)
    expr = as_expr(value)
    if expr.dtype == target:
        return expr
    if expr.dtype.lanes == 1 and target.lanes > 1:
        return Broadcast(cast(target.element, expr), target.lanes)
    if expr.dtype.lanes != target.lanes:
        raise ValueError(f"{expr.dtype} cannot become {target}: the lanes differ")
    folded = _fold_cast(target, expr)
    return Cast(target, expr) if folded is None else folded


def _fold_cast(target: DataType, expr: Expr) -> Expr | None:
    if isinstance(expr, Broadcast):
        inner = _fold_cast(target.element, expr.value)
        return None if inner is None else Broadcast(inner, expr.lanes)
    if isinstance(expr, IntImm):
        if target.is_float:
            return FloatImm(target, round_float(expr.value, target))
        if target.is_integer or target.is_bool:
            return IntImm(target, wrap_int(expr.value, target))
    if isinstance(expr, FloatImm):
        if target.is_float:
            return FloatImm(target, round_float(expr.value, target))
        if target.is_integer and math.isfinite(expr.value):
            number = int(expr.value)
            if wrap_int(number, target) == number:
                return IntImm(target, number)
    return None


def common_type(a: DataType, b: DataType) -> DataType:
    """The element type that both operands are converted to."""
    a, b = a.element, b.element
    if a == b:
        return a
    if a.is_bool:
        return b
    if b.is_bool:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.kind != b.kind and a.is_integer and b.is_integer:
        return a if a.is_uint else b
    raise TypeError(f"{a} and {b} have no common type; cast one of them")


def match_types(left: ExprLike, right: ExprLike) -> tuple[Expr, Expr]:
    """Both operands, converted to one type and one number of lanes."""
    if not isinstance(left, Expr):
        left = as_expr(left, right if isinstance(right, Expr) else None)
    x, y = left, right if isinstance(right, Expr) else as_expr(right, left)
    if x.dtype is y.dtype:
        return x, y
    if not _is_number(x.dtype) or not _is_number(y.dtype):
        raise TypeError(f"an operator cannot take {x.dtype} and {y.dtype}")
    lanes = max(x.dtype.lanes, y.dtype.lanes)
    if {x.dtype.lanes, y.dtype.lanes} - {1, lanes}:
        raise ValueError(f"{x.dtype} and {y.dtype} have different lanes")
    shared = common_type(x.dtype, y.dtype).with_lanes(lanes)
    return cast(shared, x), cast(shared, y)


def _is_number(dtype: DataType) -> bool:
    return dtype.is_float or dtype.is_integer or dtype.is_bool


# ---- folding ----


def _trunc_div(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_INT_FOLDS: dict[type[Expr], Callable[[int, int], int | bool | None]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    FloorDiv: lambda a, b: a // b if b else None,
    FloorMod: lambda a, b: a % b if b else None,
    TruncDiv: lambda a, b: _trunc_div(a, b) if b else None,
    TruncMod: lambda a, b: a - b * _trunc_div(a, b) if b else None,
    Min: min,
    Max: max,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
    And: lambda a, b: bool(a and b),
    Or: lambda a, b: bool(a or b),
}

_FLOAT_FOLDS: dict[type[Expr], Callable[[float, float], float | bool | None]] = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    Div: lambda a, b: a / b if b else None,
    Min: lambda a, b: a if a < b else b,
    Max: lambda a, b: a if a > b else b,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
}


def fold_binary(kind: type[BinaryExpr], a: Expr, b: Expr) -> Expr | None:
    """The constant that an operator of constants gives, or None."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        whole = _INT_FOLDS[kind](a.value, b.value) if kind in _INT_FOLDS else None
        if whole is None:
            return None
        dtype = BOOL if issubclass(kind, CompareExpr) else a.dtype
        return IntImm(dtype, wrap_int(int(whole), dtype))
    if isinstance(a, FloatImm) and isinstance(b, FloatImm) and kind in _FLOAT_FOLDS:
        result = _FLOAT_FOLDS[kind](a.value, b.value)
        if result is None:
            return None
        if issubclass(kind, CompareExpr):
            return IntImm(BOOL, int(result))
        return FloatImm(a.dtype, round_float(result, a.dtype))
    return None


def _binary(kind: type[BinaryExpr], left: ExprLike, right: ExprLike) -> Expr:
    return _make(kind, *match_types(left, right))


def _make(kind: type[BinaryExpr], a: Expr, b: Expr) -> Expr:
    folded = fold_binary(kind, a, b)
    return kind(a, b) if folded is None else folded


def add(left: ExprLike, right: ExprLike) -> Expr:
    """left + right"""
    a, b = match_types(left, right)
    if a.dtype.is_integer:
        if is_const(a, 0):
            return b
        if is_const(b, 0):
            return a
    return _make(Add, a, b)


def sub(left: ExprLike, right: ExprLike) -> Expr:
    """left - right"""
    a, b = match_types(left, right)
    if a.dtype.is_integer and is_const(b, 0):
        return a
    return _make(Sub, a, b)


def mul(left: ExprLike, right: ExprLike) -> Expr:
    """left * right"""
    a, b = match_types(left, right)
    if a.dtype.is_integer:
        if is_const(a, 1) or is_const(b, 0):
            return b
        if is_const(b, 1) or is_const(a, 0):
            return a
    return _make(Mul, a, b)


def _check_divisor(b: Expr) -> None:
    if b.dtype.is_integer and is_const(b, 0):
        raise ZeroDivisionError("an expression divides by the constant 0")


def div(left: ExprLike, right: ExprLike) -> Expr:
    """left / right; for integers this rounds to zero, as it does in C."""
    a, b = match_types(left, right)
    if a.dtype.is_float:
        return _make(Div, a, b)
    return truncdiv(a, b)


def truncdiv(left: ExprLike, right: ExprLike) -> Expr:
    """The quotient of integers, rounded to zero."""
    a, b = match_types(left, right)
    _check_divisor(b)
    return a if is_const(b, 1) else _make(TruncDiv, a, b)


def truncmod(left: ExprLike, right: ExprLike) -> Expr:
    """The remainder with the dividend's sign."""
    a, b = match_types(left, right)
    _check_divisor(b)
    return _make(TruncMod, a, b)


def floordiv(left: ExprLike, right: ExprLike) -> Expr:
    """The quotient, rounded down."""
    a, b = match_types(left, right)
    if a.dtype.is_float:
        return call_intrinsic("floor", _make(Div, a, b))
    _check_divisor(b)
    return a if is_const(b, 1) else _make(FloorDiv, a, b)


def floormod(left: ExprLike, right: ExprLike) -> Expr:
    """The remainder with the divisor's sign."""
    a, b = match_types(left, right)
    if a.dtype.is_float:
        return sub(a, mul(floordiv(a, b), b))
    _check_divisor(b)
    if is_const(b, 1):
        return const(0, a.dtype)
    return _make(FloorMod, a, b)


def minimum(left: ExprLike, right: ExprLike) -> Expr:
    """The smaller one."""
    a, b = match_types(left, right)
    return a if a is b else _make(Min, a, b)


def maximum(left: ExprLike, right: ExprLike) -> Expr:
    """The larger one."""
    a, b = match_types(left, right)
    return a if a is b else _make(Max, a, b)


def less(left: ExprLike, right: ExprLike) -> Expr:
    """left < right"""
    return _binary(LT, left, right)


def less_equal(left: ExprLike, right: ExprLike) -> Expr:
    """left <= right"""
    return _binary(LE, left, right)


def greater(left: ExprLike, right: ExprLike) -> Expr:
    """left > right"""
    return _binary(GT, left, right)


def greater_equal(left: ExprLike, right: ExprLike) -> Expr:
    """left >= right"""
    return _binary(GE, left, right)


def equal(left: ExprLike, right: ExprLike) -> Expr:
    """left == right"""
    return _binary(EQ, left, right)


def not_equal(left: ExprLike, right: ExprLike) -> Expr:
    """left != right"""
    return _binary(NE, left, right)


def _as_bool(value: ExprLike) -> Expr:
    expr = as_expr(value)
    return expr if expr.dtype.is_bool else cast(BOOL.with_lanes(expr.dtype.lanes), expr)


def logical_and(left: ExprLike, right: ExprLike) -> Expr:
    """Whether both hold."""
    a, b = match_types(_as_bool(left), _as_bool(right))
    for one, other in ((a, b), (b, a)):
        if is_const(one, 1):
            return other
        if is_const(one, 0):
            return one
    return And(a, b)


def logical_or(left: ExprLike, right: ExprLike) -> Expr:
    """Whether one or both hold."""
    a, b = match_types(_as_bool(left), _as_bool(right))
    for one, other in ((a, b), (b, a)):
        if is_const(one, 0):
            return other
        if is_const(one, 1):
            return one
    return Or(a, b)


def logical_not(value: ExprLike) -> Expr:
    """Whether it does not hold."""
    a = _as_bool(value)
    if isinstance(a, IntImm):
        return const(not a.value)
    return a.a if isinstance(a, Not) else Not(a)


def select(condition: ExprLike, then: ExprLike, otherwise: ExprLike) -> Expr:
    """One of two values; both may be evaluated."""
    a, b = match_types(then, otherwise)
    test = _as_bool(condition)
    if isinstance(test, IntImm):
        return a if test.value else b
    lanes = max(test.dtype.lanes, a.dtype.lanes)
    if test.dtype.lanes != 1:
        a, b = cast(a.dtype.with_lanes(lanes), a), cast(b.dtype.with_lanes(lanes), b)
    return Select(test, a, b)


def if_then_else(condition: ExprLike, then: ExprLike, otherwise: ExprLike) -> Expr:
    """One of two values; only the one that is taken is evaluated."""
    a, b = match_types(then, otherwise)
    test = _as_bool(condition)
    if isinstance(test, IntImm):
        return a if test.value else b
    return Call(a.dtype, "if_then_else", (test, a, b))


def call_intrinsic(op: str, *args: ExprLike, dtype: str | None = None) -> Expr:
    """A call whose type is that of its first argument, unless said otherwise."""
    exprs = tuple(as_expr(arg) for arg in args)
    return Call(exprs[0].dtype if dtype is None else DataType(dtype), op, exprs)


_INT_BITWISE: dict[str, Callable[[int, int], int]] = {
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "shift_left": lambda a, b: a << b,
    "shift_right": lambda a, b: a >> b,
}


def bitwise(op: str, left: ExprLike, right: ExprLike) -> Expr:
    """An operation on the bits of integers; for bools and, or and xor are logical."""
    a, b = match_types(left, right)
    if a.dtype.is_float:
        raise TypeError(f"{op} needs integers, not {a.dtype}")
    if a.dtype.is_bool and op in ("bitwise_and", "bitwise_or"):
        return logical_and(a, b) if op == "bitwise_and" else logical_or(a, b)
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        if op.startswith("shift") and not 0 <= b.value < a.dtype.bits:
            raise ValueError(f"a shift of {a.dtype} by {b.value}")
        return IntImm(a.dtype, wrap_int(_INT_BITWISE[op](a.value, b.value), a.dtype))
    return Call(a.dtype, op, (a, b))


# ---- Python's operators ----


def _swapped(function: Callable[..., Expr]) -> Callable[..., Expr]:
    return lambda self, other: function(other, self)


def _compared(function: Callable[..., Expr]) -> Callable[..., Any]:
    def compare(self: Any, other: Any) -> Any:
        if isinstance(other, (Expr, int, float)) or hasattr(other, "__sterna_expr__"):
            return function(self, other)
        return NotImplemented  # None, text and the like are never equal to an expression

    return compare


def _invert(self: Expr) -> Expr:
    return logical_not(self) if self.dtype.is_bool else call_intrinsic("bitwise_not", self)


def _bit(op: str) -> Callable[..., Expr]:
    return lambda self, other: bitwise(op, self, other)


def install_operators(cls: type) -> None:
    """Give a class the operators of expressions."""
    both: dict[str, Callable[..., Expr]] = {
        "add": add, "sub": sub, "mul": mul, "truediv": div, "floordiv": floordiv, "mod": floormod,
        "lshift": _bit("shift_left"), "rshift": _bit("shift_right"),
        "and": _bit("bitwise_and"), "or": _bit("bitwise_or"), "xor": _bit("bitwise_xor"),
    }
    single: dict[str, Callable[..., Expr]] = {
        "neg": lambda self: mul(self, const(-1, self.dtype)), "invert": _invert,
        "lt": less, "le": less_equal, "gt": greater, "ge": greater_equal,
        "eq": _compared(equal), "ne": _compared(not_equal),
    }
    for name, function in both.items():
        setattr(cls, f"__{name}__", function)
        setattr(cls, f"__r{name}__", _swapped(function))
    for name, function in single.items():
        setattr(cls, f"__{name}__", function)
    cls.astype = lambda self, dtype: cast(dtype, self)  # type: ignore[attr-defined]
    cls.equal = equal  # type: ignore[attr-defined]


install_operators(Expr)


def bind(value: Expr, body: Callable[[Expr], Expr], name: str = "x") -> Expr:
    """body(value), with the value computed once however often the body uses it."""
    var = Var(name, value.dtype)
    return Let(var, value, body(var))

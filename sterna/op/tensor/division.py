"""Quotients and remainders. Of integers by zero both are 0, as in NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.build import bind
from sterna.ir.expr import Expr
from sterna.op.nn._norm_pattern import of_quotient
from sterna.op.tensor._arithmetic import with_neutral
from sterna.op.tensor.binary import REALS, UNSIGNED, WHOLE, binary
from sterna.relay.arrays import Array
from sterna.relay.op import Case
from sterna.support.dtype import DataType
from sterna.tir import op as t

_CASES = [REALS, WHOLE, UNSIGNED, Case(((3, 5), (3, 1)))]


def _divided(
    of_floats: Callable[[Expr, Expr], Expr], of_integers: Callable[[Expr, Expr], Expr]
) -> Callable[[Expr, Expr], Expr]:
    def scalar(a: Expr, b: Expr) -> Expr:
        if a.dtype.is_float:
            return build.as_expr(of_floats(a, b))
        zero, one = build.const(0, a.dtype), build.const(1, a.dtype)
        return bind(b, lambda y: build.select(
            y == zero, zero, of_integers(a, build.select(y == zero, one, y))), "divisor")

    return scalar


def _reference(
    of_floats: Callable[[Array, Array], Array], of_integers: Callable[[Array, Array], Array]
) -> Callable[[Array, Array], Array]:
    def computed(a: Array, b: Array) -> Any:
        if DataType(str(a.dtype)).is_float:
            return of_floats(a, b)
        kind = np.uint64 if a.dtype == np.uint64 else np.int64
        return of_integers(a.astype(kind), b.astype(kind))

    return computed


def _toward_zero(a: Array, b: Array) -> Any:
    """The quotient of integers rounded to zero: one above the floor where that is too low."""
    down = np.floor_divide(a, b)
    inexact = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0)) & (b != 0)
    return down + inexact.astype(a.dtype)


def _floor_mod(a: Expr, b: Expr) -> Expr:
    """fmod is exact but has the sign of a; where that is not b's, the remainder is one b off."""

    def corrected(rest: Expr) -> Expr:
        other_sign = t.all(rest != 0.0, (rest < 0.0) != (b < 0.0))
        return build.select(other_sign, rest + b, rest)

    return bind(t.fmod(a, b), corrected, "rest")


def _remainder(a: Array, b: Array) -> Any:
    """The same in NumPy, whose remainder of 0 has the sign of b."""
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


binary("divide", _divided(build.div, build.truncdiv), _reference(np.divide, _toward_zero),
       "lhs / rhs; the quotient of integers is rounded to zero.", cases=_CASES,
       rewrites=[with_neutral(1, on_the_right=True)], legalize=of_quotient)
binary("trunc_divide", _divided(lambda a, b: t.trunc(a / b), build.truncdiv),
       _reference(lambda a, b: np.trunc(np.divide(a, b)), _toward_zero),
       "lhs / rhs without its fraction.", cases=_CASES)
binary("floor_divide", _divided(lambda a, b: t.floor(a / b), build.floordiv),
       _reference(lambda a, b: np.floor(np.divide(a, b)), np.floor_divide),
       "lhs / rhs rounded down.", cases=_CASES)
for _name in ("mod", "trunc_mod"):
    binary(_name, _divided(t.fmod, build.truncmod), _reference(np.fmod, np.fmod),
           "The remainder of lhs / rhs with the sign of lhs, as in C.", cases=_CASES)
binary("floor_mod", _divided(_floor_mod, build.floormod), _reference(_remainder, np.remainder),
       "The remainder of lhs / rhs with the sign of rhs, as in Python.", cases=_CASES)

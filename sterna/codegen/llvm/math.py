"""A libm written as IR: mathematical functions as expressions of basic operations.

Every function takes variables of one floating-point type, scalar or vector, and gives an expression
of + - * /, comparisons, selects, shifts, reinterpret, sqrt and rounding. Nothing relies on a*b + c
being fused, and nothing breaks when it is. Errors, measured in tests/codegen/test_llvm_math.py: at
most 2 units in the last place for float32 and 4 for float64.
"""

import importlib
from collections.abc import Callable
from functools import cache

from sterna.codegen.llvm import math_inverse, math_power, math_trig
from sterna.codegen.llvm.machine import LLVMOptions
from sterna.codegen.llvm.math_exp import (
    sigmoid_by_estimate,
    tanh_by_division,
    tanh_by_estimate,
)
from sterna.codegen.llvm.polynomials import TWO_OVER_PI
from sterna.ir.expr import Add, BinaryExpr, Broadcast, Call, Expr, FloatImm, Var
from sterna.support.dtype import DataType
from sterna.tir.intrinsics import INTRINSICS, Known

TABLES: dict[str, list[int]] = {"two_over_pi": TWO_OVER_PI}

OUT_OF_LINE: dict[str, Callable[..., Expr]] = {
    "sin_large": math_trig.sin_large, "cos_large": math_trig.cos_large,
}
"""Rare paths of others, which are kept apart from the code that calls them."""

OF_SUMS: dict[str, Callable[..., Expr]] = {"one_plus_erf": math_inverse.one_plus_erf}
"""Sums that take fewer steps than their terms; only `sum_as_call` makes them."""

_APART = OUT_OF_LINE | OF_SUMS

BY_ESTIMATE: dict[str, Callable[[Expr, int], Expr]] = {
    "sigmoid": sigmoid_by_estimate, "tanh": tanh_by_estimate,
}
"""Those of float32 that divide, for processors that estimate 1/x in an instruction."""

BY_DIVISION: dict[str, Callable[[Expr], Expr]] = {"tanh": tanh_by_division}
"""The same for cores that estimate few bits and divide quickly."""

IMPLEMENTED = Known(lambda row: row.polynomial or row.llvm)


def knows(op: str) -> bool:
    """Whether a function is computed from basic operations."""
    return op in _APART or (op in INTRINSICS and bool(INTRINSICS[op].polynomial))


def computed_in(op: str, element: DataType) -> DataType:
    """The type in which a function of some type is computed."""
    if op in OF_SUMS:
        return element
    if element.bits <= 16 and op not in _EXACT_ON_BITS:
        return DataType("float32")
    widened = op in OUT_OF_LINE or (op not in _WIDENS_ITSELF and INTRINSICS[op].in_double)
    if element.bits == 32 and widened:
        return DataType("float64")
    return element


_EXACT_ON_BITS = {"nextafter"}
_WIDENS_ITSELF = {"pow"}


def special_text(op: str, dtype: DataType) -> str | None:
    """The LLVM text of a function of one lane that needs a loop."""
    return math_power.fmod_text(dtype.bits) if op == "fmod" else None


def expand(op: str, params: tuple[Var, ...], options: LLVMOptions) -> Expr:
    """The function of some variables as an expression."""
    x, inverse = params[0], options.instructions.reciprocal_estimate
    if x.dtype.bits == 32 and op in BY_ESTIMATE and inverse:
        if op in BY_DIVISION and options.divides_quickly:
            return BY_DIVISION[op](x)
        return BY_ESTIMATE[op](x, inverse.bits)
    if op in _APART:
        return _APART[op](*params)
    polynomial = INTRINSICS[op].polynomial
    return (_here(polynomial) if isinstance(polynomial, str) else polynomial)(*params)


def sum_as_call(expr: BinaryExpr) -> Call | None:
    """A sum that one function computes, as in GELU: 1 + erf(x) of float32; None for others."""
    if not isinstance(expr, Add) or expr.dtype.element != "float32":
        return None
    for number, other in ((expr.a, expr.b), (expr.b, expr.a)):
        scalar = number.value if isinstance(number, Broadcast) else number
        is_one = isinstance(scalar, FloatImm) and scalar.value == 1
        if is_one and isinstance(other, Call) and other.op == "erf":
            return Call(expr.dtype, "one_plus_erf", other.args)
    return None


@cache
def _here(place: str) -> Callable[..., Expr]:
    """The function that a row names, of a module beside this one."""
    module, _, name = place.partition(".")
    found: Callable[..., Expr] = getattr(
        importlib.import_module(f"sterna.codegen.llvm.{module}"), name
    )
    return found

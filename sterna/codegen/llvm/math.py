"""Mathematical functions as expressions of basic operations, for generators without a libm.

Every function takes variables of one floating-point type, scalar or vector, and gives an expression
of + - * /, comparisons, selects, shifts, reinterpret, sqrt and rounding. Nothing relies on a*b + c
being fused, and nothing breaks when it is. Errors, measured in tests/codegen/test_llvm_math.py: at
most 2 units in the last place for float32 and 4 for float64.
"""

from collections.abc import Callable

from sterna.codegen.llvm import math_inverse, math_power, math_rounding, math_trig
from sterna.codegen.llvm.math_exp import (
    exp,
    exp2,
    exp10,
    log,
    log1p,
    log2,
    log10,
    sigmoid,
    sigmoid_by_estimate,
    tanh,
)
from sterna.codegen.llvm.polynomials import TWO_OVER_PI
from sterna.ir.expr import Expr, Var
from sterna.support.dtype import DataType

TABLES: dict[str, list[int]] = {"two_over_pi": TWO_OVER_PI}

FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "exp": exp, "exp2": exp2, "exp10": exp10, "log": log, "log2": log2, "log10": log10,
    "log1p": log1p, "tanh": tanh, "sigmoid": sigmoid,
    **math_inverse.FUNCTIONS, **math_power.FUNCTIONS, **math_rounding.FUNCTIONS,
    **math_trig.FUNCTIONS,
}

# In float32 these are computed in float64 and rounded once: seldom used, and exact that way.
_IN_DOUBLE = {
    "exp10", "log1p", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
    "atan2", "pow", "hypot", "sin_large", "cos_large",
}

OUT_OF_LINE = {"sin_large", "cos_large"}
"""Rare paths, kept apart from the code that calls them."""


def knows(op: str) -> bool:
    """Whether a function is defined here."""
    return op in FUNCTIONS or op == "fmod"


def computed_in(op: str, element: DataType) -> DataType:
    """The type in which a function of some type is computed."""
    if element.bits <= 16 and op not in _EXACT_ON_BITS:
        return DataType("float32")
    if element.bits == 32 and op in _IN_DOUBLE:
        return DataType("float64")
    return element


_EXACT_ON_BITS = {"nextafter"}


def special_text(op: str, dtype: DataType) -> str | None:
    """The LLVM text of a function of one lane that needs a loop."""
    return math_power.fmod_text(dtype.bits) if op == "fmod" else None


def expand(op: str, params: tuple[Var, ...], estimated_bits: int = 0) -> Expr:
    """The function of some variables as an expression.

    estimated_bits: those of 1/x that the processor gives in an instruction, or 0.
    """
    if op == "sigmoid" and estimated_bits and params[0].dtype.bits == 32:
        return sigmoid_by_estimate(params[0], estimated_bits)
    return FUNCTIONS[op](*params)

"""e**x in float32 for what softmax and its kin ask: half as many instructions as exact bounds take.

The relative error is below 2e-7 where the result is a normal number; below that, it is 0.
"""

import math
from typing import Any

from sterna.ir import build
from sterna.ir.build import bind, call_intrinsic
from sterna.ir.expr import FLOAT32, INT32, Call, Expr
from sterna.ir.visitor import Rewriter

BIAS, FRACTION_BITS = 127, 23
MOST = 88.37
"""Above this the result is none."""
# The relative error is least for |r| <= log(2) / 2, and none at 0.
_EXP = (1.0, 0.999999702, 0.499991387, 0.166676477, 0.041899316, 0.00829005986)
# log(2); the first part has few digits, so that its product with a whole number is exact.
_LN2 = (0.693115234375, 3.19461833e-05)


def quick_exp(x: Expr) -> Expr:
    """e**x of a float32 that is not above MOST; a NaN stays one.

    2**n * e**r, where the lowest bits of n + shifter are the exponent of 2**n as a float has it:
    0 for the least of them, with which all is 0.
    """
    shifter = build.const(1.5 * 2**FRACTION_BITS + BIAS, FLOAT32)
    held = build.maximum(build.const(-BIAS * math.log(2), FLOAT32), x)
    return bind(held, lambda h: bind(h * (1 / math.log(2)) + shifter, lambda moved: _scaled(
        bind(moved - shifter, lambda n: h - n * _LN2[0] - n * _LN2[1], "n"), moved), "moved"))


def _scaled(rest: Expr, moved: Expr) -> Expr:
    bits = Call(INT32, "reinterpret", (moved,)) << FRACTION_BITS
    scale = Call(FLOAT32, "reinterpret", (bits,))
    return bind(rest, lambda r: polynomial(r, _EXP) * scale, "r")


def with_quick_exp(expr: Expr) -> Expr:
    """An expression whose powers of e, of numbers that are not above MOST, are quick ones."""
    made: Expr = _QuickExp().rewrite(expr)
    return made


class _QuickExp(Rewriter):
    def visit_Call(self, call: Call) -> Expr:
        if call.op == "exp" and call.dtype == FLOAT32:
            return quick_exp(self.rewrite(call.args[0]))
        kept: Expr = self.rewrite_children(call)
        return kept


# (e**r - 1 - r) / r**2 for |r| <= log(2) / 2
_EXP_TAIL = (0.5, 0.166665763, 0.0416665561, 0.00836317893, 0.0013926184)


def exp_minus_one(x: Expr) -> Expr:
    """e**x - 1 of a float32: 2 * (2**(n-1) * (e**r - 1) + 2**(n-1) - 1/2), with the sign of x.

    The relative error is below 2e-7; a NaN stays one.
    """
    shifter = build.const(1.5 * 2**FRACTION_BITS + BIAS - 1, FLOAT32)
    low, high = build.const(-25.0, FLOAT32), build.const(89.0, FLOAT32)

    def of_rest(rest: Expr, moved: Expr) -> Expr:
        bits = Call(INT32, "reinterpret", (moved,)) << FRACTION_BITS
        return bind(Call(FLOAT32, "reinterpret", (bits,)), lambda scale: bind(
            rest, lambda r: scale * (r + r * r * polynomial(r, _EXP_TAIL)) + (scale - 0.5), "r"))

    def of_held(held: Expr) -> Expr:
        return bind(held * (1 / math.log(2)) + shifter, lambda moved: of_rest(
            bind(moved - shifter, lambda n: held - n * _LN2[0] - n * _LN2[1], "n"), moved), "moved")

    half = bind(build.minimum(high, build.maximum(low, x)), of_held, "held")
    return bind(half, lambda h: call_intrinsic("copysign", h + h, x), "half")


def polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """By Horner's rule, lowest power first."""
    result: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return build.as_expr(result)

"""e**x in float32 for what softmax and its kin ask: half as many instructions as exact bounds take.

The relative error is below 2e-7 where the result is a normal number; below that, it is 0.
"""

import math
from typing import Any

from sterna.ir import build
from sterna.ir.build import bind
from sterna.ir.expr import FLOAT32, INT32, Call, Expr

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


def polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """By Horner's rule, lowest power first."""
    result: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return build.as_expr(result)

"""Sine, cosine and tangent: range reduction (Cody-Waite, Payne-Hanek), then polynomials."""

import math

from sterna.codegen.llvm.math_exp import nearest
from sterna.codegen.llvm.polynomials import POLYNOMIALS
from sterna.codegen.llvm.steps import (
    Steps,
    absolute,
    any_lane,
    bits_of,
    call,
    constant,
    float_of,
    like,
    polynomial,
    table,
    with_sign,
)
from sterna.ir import build
from sterna.ir.build import cast, select
from sterna.ir.expr import Expr

# pi/2 in parts, each short enough to be multiplied by a quadrant's number exactly.
_HALF_PI = {
    32: (1.5703125, 0.00048351287841796875, 3.1385570764541626e-07, 6.077100506506192e-11),
    64: (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21),
}
_LARGE = {32: 1e4, 64: 1e6}
"""From here on the parts are not enough."""


def _reduced(steps: Steps, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Cody-Waite reduction: r, what r lacks, n where x == r + n * pi/2, for x that is not large."""
    whole, n = nearest(steps, x * constant(2 / math.pi, x))
    parts = [whole * constant(part, x) for part in _HALF_PI[x.dtype.bits]]
    close = steps(x - parts[0])
    lost = constant(0.0, x) - parts[-1]
    for part in parts[1:-1]:
        named = steps(part)
        less = steps(close - named)
        lost = lost + ((close - less) - named)
        close = less
    lost = steps(lost)
    r = steps(close + lost)
    return r, steps((close - r) + lost), n


def _sine(r: Expr, rest: Expr) -> Expr:
    z = r * r
    return r + (r * z * polynomial(z, POLYNOMIALS["sin", r.dtype.bits]) + rest)


def _cosine(steps: Steps, r: Expr, rest: Expr) -> Expr:
    z = steps(r * r)
    half = steps(z * 0.5)
    near = steps(1.0 - half)
    # One product in each sum: of two, either could be the one that is not rounded.
    lost = (1.0 - near - half) - r * rest
    return near + (lost + z * z * polynomial(z, POLYNOMIALS["cos", r.dtype.bits]))


def _by_quadrant(steps: Steps, r: Expr, rest: Expr, n: Expr) -> Expr:
    """sin(r + n * pi/2)"""
    sine, cosine = steps(_sine(r, rest)), steps(_cosine(steps, r, rest))
    odd = build.not_equal(n & constant(1, n), 0)
    value = select(odd, cosine, sine)
    flip = (n & constant(2, n)) << (n.dtype.bits - 2)
    return float_of(bits_of(value) ^ flip)


def _wave(x: Expr, quarter: int, large: str) -> Expr:
    steps = Steps()
    r, rest, n = _reduced(steps, x)
    fast = steps(_by_quadrant(steps, r, rest, n + quarter))
    if not quarter:
        fast = steps(select(build.equal(x, 0.0), x, fast))  # keeps the sign of zero
    is_large = steps(absolute(x) >= _LARGE[x.dtype.bits])
    slow = select(is_large, call(large, x), fast)
    return steps.done(build.if_then_else(any_lane(is_large), slow, fast))


def sin(x: Expr) -> Expr:
    """The sine."""
    return _wave(x, 0, "sin_large")


def cos(x: Expr) -> Expr:
    """The cosine."""
    return _wave(x, 1, "cos_large")


# ---- large numbers ----


def _high_product(steps: Steps, a: Expr, b: Expr) -> Expr:
    """The upper 64 bits of a product of 64-bit numbers."""
    mask = constant(0xFFFFFFFF, a)
    a0, a1, b0, b1 = steps(a & mask), steps(a >> 32), steps(b & mask), steps(b >> 32)
    low = steps(a0 * b0)
    middle = steps(a1 * b0 + (low >> 32))
    other = steps(a0 * b1 + (middle & mask))
    return steps(a1 * b1 + (middle >> 32) + (other >> 32))


def _reduced_large(steps: Steps, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Payne-Hanek reduction: the same for |x| from 1/2 on, by the bits of 2/pi that matter."""
    unsigned = like("uint64", x)
    bits = steps(cast(unsigned, bits_of(absolute(x))))
    fraction = constant((1 << 52) - 1, bits)
    mantissa = steps((bits & fraction) | constant(1 << 52, bits))
    # x == mantissa * 2**e. Bits of 2/pi before e - 2 give multiples of 4: whole turns. The table
    # begins 64 bits before the point.
    exponent = cast(like("int64", x), bits >> 52) - 1075
    start = steps(clamp_int(exponent + 62, 0, 64 * 17 - 1))
    word, shift = start >> 6, steps(cast(unsigned, start & constant(63, start)))
    words = [steps(table("two_over_pi", word + i)) for i in range(4)]

    def window(i: int) -> Expr:
        # Twice shifted: a shift by 64 would have no meaning.
        return steps((words[i] << shift) | ((words[i + 1] >> 1) >> (63 - shift)))

    w0, w1, w2 = (window(i) for i in range(3))
    carried = _high_product(steps, mantissa, w2)
    below = steps(mantissa * w1 + carried)
    carry = cast(unsigned, build.less(below, carried))
    top = steps(mantissa * w0 + _high_product(steps, mantissa, w1) + carry)
    quadrant = top >> 62
    turned = steps((top << 2) | (below >> 62))
    rest = steps(below << 2)
    # To the nearest quadrant: the fraction as a signed number.
    up = steps(cast(unsigned, turned >> 63))
    n = steps(cast(like("int64", x), quadrant + up))
    mask = steps(constant(0, up) - up)
    turned, rest = steps(turned ^ mask), steps(rest ^ mask)
    double = like("float64", x)
    top_part = steps(turned & constant(0xFFFFFFFFFFFFF800, turned))
    lower = steps(((turned & constant(0x7FF, turned)) << 42) | (rest >> 22))
    near = steps(cast(double, top_part) * 2.0**-64)
    far = steps(cast(double, lower) * 2.0**-106)
    # Times pi/2 in two parts.
    high_part = steps(float_of(bits_of(near) & constant(-(1 << 27), bits_of(near))))
    low_part = steps(near - high_part)
    pi_high, pi_low = 1.5707963109016418, 1.5893254773528196e-08
    r0 = steps(near * constant(math.pi / 2, x))
    error = steps(((high_part * constant(pi_high, x) - r0) + high_part * constant(pi_low, x)
                   + low_part * constant(pi_high, x)) + low_part * constant(pi_low, x))
    error = steps(error + near * constant(6.123233995736766e-17, x)
                  + far * constant(math.pi / 2, x))
    r = steps(r0 + error)
    lack = steps((r0 - r) + error)
    sign = steps(cast(double, constant(1, n)) - 2.0 * cast(double, cast(like("int64", x), up)))
    return steps(r * sign), steps(lack * sign), n


def clamp_int(x: Expr, low: int, high: int) -> Expr:
    """An integer within bounds."""
    return build.minimum(build.maximum(x, low), high)


def _large(x: Expr, quarter: int) -> Expr:
    steps = Steps()
    r, rest, n = _reduced_large(steps, x)
    value = steps(_by_quadrant(steps, r, rest, n + quarter))
    if not quarter:
        value = with_sign(constant(1.0, x), x) * value
    finite = absolute(x) < math.inf
    return steps.done(select(finite, value, constant(math.nan, x)))


def sin_large(x: Expr) -> Expr:
    """The sine of numbers from 1/2 on."""
    return _large(x, 0)


def cos_large(x: Expr) -> Expr:
    """The cosine of numbers from 1/2 on."""
    return _large(x, 1)


def tan(x: Expr) -> Expr:
    """The tangent."""
    return call("sin", x) / call("cos", x)

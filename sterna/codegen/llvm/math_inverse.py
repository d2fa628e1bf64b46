"""Inverse trigonometric and hyperbolic functions, sinh, cosh, the error function."""

import math

from sterna.codegen.llvm.math_exp import (
    clamp,
    exp_minus_one,
    expm1,
    format_of,
    reduced,
    scaled,
)
from sterna.codegen.llvm.polynomials import POLYNOMIALS
from sterna.codegen.llvm.steps import (
    Steps,
    absolute,
    bits_of,
    call,
    constant,
    float_of,
    polynomial,
    polynomial_by_fours,
    polynomial_by_pairs,
    with_sign,
)
from sterna.ir import build
from sterna.ir.build import select
from sterna.ir.expr import Expr

_PI_LOW = 1.2246467991473532e-16
"""What math.pi lacks."""
_PI_32, _PI_LOW_32 = 3.1415927410125732, -8.742278000372475e-08
"""pi in float32, and what it lacks."""


def _small_atan(steps: Steps, x: Expr) -> Expr:
    """atan(x) - x for |x| <= tan(pi / 8)"""
    z = steps(x * x)
    return steps(x * z * polynomial(z, POLYNOMIALS["atan", x.dtype.bits]))


def _atan_positive(steps: Steps, x: Expr) -> Expr:
    """atan(x) for x >= 0: moved by pi/4 or pi/2 to where the polynomial is good."""
    large, middle = x > math.tan(3 * math.pi / 8), x > math.tan(math.pi / 8)
    top = select(large, constant(-1.0, x), select(middle, x - 1.0, x))
    bottom = select(large, x, select(middle, x + 1.0, constant(1.0, x)))
    t = steps(top / bottom)
    zero, lack = constant(0.0, x), _PI_LOW if x.dtype.bits == 64 else _PI_LOW_32
    base = select(large, constant(math.pi / 2, x), select(middle, constant(math.pi / 4, x), zero))
    rest = select(large, constant(lack / 2, x), select(middle, constant(lack / 4, x), zero))
    return steps(base + (t + (_small_atan(steps, t) + rest)))


def atan(x: Expr) -> Expr:
    """The angle whose tangent is x."""
    steps = Steps()
    return steps.done(with_sign(_atan_positive(steps, steps(absolute(x))), x))


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y)."""
    steps = Steps()
    ax, ay = steps(absolute(x)), steps(absolute(y))
    steep = steps(ay > ax)
    top, bottom = steps(select(steep, ax, ay)), steps(select(steep, ay, ax))
    ratio = steps(top / bottom)
    ratio = select(build.equal(bottom, 0.0), constant(0.0, x), ratio)
    both = build.logical_and(build.equal(ax, math.inf), build.equal(ay, math.inf))
    t = steps(select(both, constant(1.0, x), ratio))
    angle = _atan_positive(steps, t)
    half, rest = constant(math.pi / 2, x), constant(_PI_LOW / 2, x)
    angle = steps(select(steep, half - (angle - rest), angle))
    behind = bits_of(x) < 0
    angle = steps(select(behind, constant(math.pi, x) - (angle - _PI_LOW), angle))
    is_nan = build.logical_or(build.not_equal(x, x), build.not_equal(y, y))
    return steps.done(select(is_nan, x + y, with_sign(angle, y)))


def _asin_tail(steps: Steps, x: Expr, z: Expr) -> Expr:
    """asin(x) - x where z == x * x <= 1/4"""
    return steps(x * z * polynomial(z, POLYNOMIALS["asin", x.dtype.bits]))


def _asin_parts(steps: Steps, x: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """Whether |x| is small; the argument of the polynomial, what it lacks, and its tail."""
    size = steps(absolute(x))
    small = steps(size <= 0.5)
    z = steps(select(small, x * x, (1.0 - size) * 0.5))
    root = steps(call("sqrt", z))
    # The root's own rounding error counts near |x| == 1/2: root + lack is closer.
    high = steps(_upper(root))
    lack = steps((z - high * high) / (root + high) - (root - high))
    zero = constant(0.0, x)
    t = steps(select(small, size, root))
    lack = select(build.logical_or(small, build.equal(root, 0.0)), zero, lack)
    return small, t, steps(lack), _asin_tail(steps, t, z)


def _upper(x: Expr) -> Expr:
    """The upper half of a number's digits."""
    bits = bits_of(x)
    return float_of(bits & constant(-(1 << 27), bits))


def _short_asin_parts(steps: Steps, x: Expr) -> tuple[Expr, Expr, Expr]:
    """The same of a float32, whose root's rounding error is left where it does not double."""
    size = steps(absolute(x))
    small = steps(size <= 0.5)
    z = steps(select(small, x * x, (1.0 - size) * 0.5))
    t = steps(select(small, size, call("sqrt", z)))
    return small, t, steps(t * z * polynomial_by_pairs(z, POLYNOMIALS["asin", 32]))


def _short_asin(x: Expr) -> Expr:
    steps = Steps()
    small, t, tail = _short_asin_parts(steps, x)
    half = constant(_PI_32 / 4, x)
    # pi/2 - 2a == (pi/4 - 2t) + (pi/4 - 2*tail), in the order that loses least.
    large = (half - (tail * 2.0 - _PI_LOW_32 / 2)) + (half - t * 2.0)
    return steps.done(with_sign(select(small, t + tail, large), x))


def _short_acos(x: Expr) -> Expr:
    """pi/2 - a, 2a or pi - 2a as one product and sum: what pi lacks is less than half a digit."""
    steps = Steps()
    small, t, tail = _short_asin_parts(steps, x)
    far = select(x < 0.0, constant(_PI_32, x), constant(0.0, x))
    start = select(small, constant(_PI_32 / 2, x), far)
    factor = select(small, constant(-1.0, x), constant(2.0, x))
    sign = with_sign(constant(1.0, x), x)
    return steps.done(start + steps(t + tail) * (factor * sign))


def asin(x: Expr) -> Expr:
    """The angle whose sine is x."""
    if x.dtype.bits == 32:
        return _short_asin(x)
    steps = Steps()
    small, t, lack, tail = _asin_parts(steps, x)
    inner = steps(tail + lack)
    half = constant(math.pi / 4, x)
    # pi/2 - 2a == (pi/4 - 2t) + (pi/4 - 2*tail), in the order that loses least.
    large = (half - (inner * 2.0 - _PI_LOW / 2)) + (half - t * 2.0)
    return steps.done(with_sign(select(small, t + inner, large), x))


def acos(x: Expr) -> Expr:
    """The angle whose cosine is x."""
    if x.dtype.bits == 32:
        return _short_acos(x)
    steps = Steps()
    small, t, lack, tail = _asin_parts(steps, x)
    inner = steps(tail + lack)
    signed = steps(with_sign(t, x))
    signed_inner = steps(with_sign(constant(1.0, x), x) * inner)
    half, rest = constant(math.pi / 2, x), constant(_PI_LOW / 2, x)
    near = half - (signed - (rest - signed_inner))
    twice = steps(t + inner)
    far = select(x < 0.0, constant(math.pi, x) - (twice * 2.0 - _PI_LOW), twice * 2.0)
    return steps.done(select(small, near, far))


# ---- hyperbolic functions ----


def _exp(steps: Steps, x: Expr) -> Expr:
    r, n = reduced(steps, x)
    return steps(scaled(steps, steps(exp_minus_one(steps, r) + 1.0), n))


def sinh(x: Expr) -> Expr:
    """The hyperbolic sine."""
    steps = Steps()
    size = steps(absolute(x))
    e = expm1(steps, steps(build.minimum(constant(30.0, x), size)))
    near = steps((e + e / (e + 1.0)) * 0.5)
    half = _exp(steps, steps(clamp(size, 0.0, 1500.0) * 0.5))
    far = (half * 0.5) * half
    return steps.done(with_sign(select(size > 25.0, far, near), x))


def cosh(x: Expr) -> Expr:
    """The hyperbolic cosine."""
    steps = Steps()
    size = steps(clamp(absolute(x), 0.0, 1500.0))
    half = _exp(steps, steps(size * 0.5))
    whole = _exp(steps, steps(build.minimum(constant(30.0, x), size)))
    near = whole * 0.5 + 0.5 / whole
    return steps.done(select(size > 25.0, (half * 0.5) * half, near))


def asinh(x: Expr) -> Expr:
    """The inverse of sinh."""
    steps = Steps()
    size = steps(absolute(x))
    square = steps(size * size)
    small = steps(size + square / (call("sqrt", square + 1.0) + 1.0))
    huge = steps(size > 1e150)
    near = call("log1p", select(huge, constant(0.0, x), small))
    far = call("log", size) + math.log(2)
    return steps.done(with_sign(select(huge, far, near), x))


def acosh(x: Expr) -> Expr:
    """The inverse of cosh."""
    steps = Steps()
    t = steps(x - 1.0)
    huge = steps(x > 1e150)
    inner = t + call("sqrt", t * 2.0 + t * t)
    near = call("log1p", select(huge, constant(0.0, x), inner))
    far = call("log", x) + math.log(2)
    value = steps(select(huge, far, near))
    return steps.done(select(x >= 1.0, value, constant(math.nan, x)))


def atanh(x: Expr) -> Expr:
    """The inverse of tanh."""
    steps = Steps()
    size = steps(absolute(x))
    value = call("log1p", size * 2.0 / (1.0 - size)) * 0.5
    value = select(size < 1.0, value, constant(math.nan, x))
    value = select(build.equal(size, 1.0), constant(math.inf, x), value)
    return steps.done(with_sign(value, x))


# ---- the error function ----


def erf(x: Expr) -> Expr:
    """The error function: a series near 0, and 1 - erfc(|x|) from 1 on."""
    steps, form = Steps(), format_of(x)
    size = steps(absolute(x))
    z = steps(x * x)
    series = POLYNOMIALS["erf", form.bits]
    if form.bits == 32:
        near = x + x * polynomial_by_pairs(z, series)
        middle = steps(build.minimum(constant(3.95, x), size) - 2.375)
        complement = polynomial_by_fours(middle, POLYNOMIALS["erfc", 32])
    else:
        near = x + x * polynomial(z, series)
        held = steps(build.minimum(constant(6.1, x), size))
        t = steps((held - 3.0) / (held + 3.0))
        shape = polynomial(t, POLYNOMIALS["erfcx", 64])
        complement = shape * _exp(steps, steps(0.0 - held * held))
    far = with_sign(1.0 - complement, x)
    return steps.done(select(size < 1.0, near, steps(far)))


def one_plus_erf(x: Expr) -> Expr:
    """1 + erf(x) of a float32, off by less than 3e-7: 1 + x * (1/4 + (x*x - 16) * polynomial).

    Beside 1, erf's own error near 0 does not count, and one polynomial serves all numbers. From 4
    on, where erf is 1, the sum is exactly 2 or 0.
    """
    steps = Steps()
    held = steps(clamp(x, -4.0, 4.0))
    z = steps(held * held)
    shape = polynomial_by_fours(steps(z - 8.0), POLYNOMIALS["erf_to_four", 32])
    return steps.done(held * ((z - 16.0) * shape + 0.25) + 1.0)

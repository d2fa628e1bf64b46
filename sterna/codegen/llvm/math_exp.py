"""Exponentials and logarithms: range reduction by powers of 2 (Cody-Waite), then polynomials."""

import math
from dataclasses import dataclass

from sterna.codegen.llvm.polynomials import POLYNOMIALS
from sterna.codegen.llvm.steps import (
    Steps,
    absolute,
    bits_of,
    constant,
    float_of,
    inverse_estimate,
    like,
    polynomial,
    polynomial_by_pairs,
    with_sign,
)
from sterna.ir import build
from sterna.ir.expr import Expr


@dataclass(frozen=True, slots=True)
class Format:
    """What the functions need to know of a floating-point type."""

    bits: int
    fraction: int
    """Bits of the fraction."""
    bias: int
    ln2: tuple[float, float]
    """log(2) in two parts, the first short enough to be multiplied by an exponent exactly."""
    log10_2: tuple[float, float]
    half_root: int
    """The bits of sqrt(1/2)."""
    shifter: float
    """Added to a number it leaves the nearest integer in the low bits."""
    high: float
    """Above this, exp is infinite."""
    low: float
    """Below this, exp is 0."""


FORMATS = {
    32: Format(32, 23, 127, (0.693115234375, 3.19461833e-05), (0.301025390625, 4.60503907e-06),
               0x3F3504F3, 1.5 * 2**23, 89.0, -104.0),
    64: Format(64, 52, 1023, (0.6931471805592082, 7.371002565167799e-13),
               (0.30102999566361177, 3.694239077158931e-13), 0x3FE6A09E667F3BCD, 1.5 * 2**52,
               710.0, -746.0),
}


def format_of(x: Expr) -> Format:
    """The facts about a value's type."""
    return FORMATS[x.dtype.bits]


def clamp(x: Expr, low: float, high: float) -> Expr:
    """x within bounds; a NaN stays one."""
    return build.minimum(constant(high, x), build.maximum(constant(low, x), x))


def nearest(steps: Steps, x: Expr) -> tuple[Expr, Expr]:
    """The integer nearest to a small number, as a float and as an integer.

    No conversion from float to int: that has no meaning for NaN.
    """
    shifter = constant(format_of(x).shifter, x)
    moved = steps(x + shifter)
    return steps(moved - shifter), steps(bits_of(moved) - bits_of(shifter))


def power_of_two(n: Expr) -> Expr:
    """2**n for a normal result."""
    form = FORMATS[n.dtype.bits]
    return float_of((n + form.bias) << form.fraction)


def scaled(steps: Steps, x: Expr, n: Expr) -> Expr:
    """x * 2**n, rounded once even where the result is subnormal."""
    half = steps(n >> 1)
    return x * power_of_two(half) * power_of_two(n - half)


def exp_minus_one(steps: Steps, r: Expr) -> Expr:
    """exp(r) - 1 for |r| <= log(2) / 2"""
    tail = polynomial_by_pairs(r, POLYNOMIALS["exp", r.dtype.bits])
    return steps(r + r * r * tail)


def reduced(steps: Steps, x: Expr) -> tuple[Expr, Expr]:
    """r and n where exp(x) == exp(r) * 2**n."""
    ln2 = format_of(x).ln2
    whole, n = nearest(steps, x * constant(1 / math.log(2), x))
    r = x - whole * constant(ln2[0], x) - whole * constant(ln2[1], x)
    return steps(r), n


def exp(x: Expr) -> Expr:
    """e**x"""
    steps, form = Steps(), format_of(x)
    r, n = reduced(steps, steps(clamp(x, form.low, form.high)))
    return steps.done(scaled(steps, steps(exp_minus_one(steps, r) + 1.0), n))


def exp2(x: Expr) -> Expr:
    """2**x"""
    steps, form = Steps(), format_of(x)
    held = steps(clamp(x, -form.bias - form.fraction - 2.0, form.bias + 1.0))
    whole, n = nearest(steps, held)
    r = steps((held - whole) * constant(math.log(2), x))
    return steps.done(scaled(steps, steps(exp_minus_one(steps, r) + 1.0), n))


def exp10(x: Expr) -> Expr:
    """10**x"""
    steps, form = Steps(), format_of(x)
    held = steps(clamp(x, form.low / math.log(10), form.high / math.log(10)))
    whole, n = nearest(steps, held * constant(math.log2(10), x))
    high, low = form.log10_2
    r = held - whole * constant(high, x) - whole * constant(low, x)
    r = steps(r * constant(math.log(10), x))
    return steps.done(scaled(steps, steps(exp_minus_one(steps, r) + 1.0), n))


def expm1(steps: Steps, x: Expr) -> Expr:
    """e**x - 1 for a number that is not far above 0."""
    r, n = reduced(steps, x)
    scale = steps(power_of_two(n))
    return steps(scale * exp_minus_one(steps, r) + (scale - 1.0))


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e**-x); in float32 without a division, and 0 where the result is not normal."""
    steps = Steps()
    form = format_of(x)
    small = form.bits == 32
    low = -form.bias * math.log(2) if small else form.low
    negative = with_sign(x, constant(-1.0, x))
    r, n = reduced(steps, steps(build.maximum(constant(low, x), negative)))
    if small:  # 2**-127 is 0 as power_of_two makes it
        scale = steps(power_of_two(n))
        z = steps(scale * exp_minus_one(steps, r) + scale)
    else:
        z = steps(scaled(steps, steps(exp_minus_one(steps, r) + 1.0), n))
    top = steps(build.select(x >= 0.0, constant(1.0, x), z))
    if small:
        return steps.done(_quotient(steps, top, z))
    bottom = steps(z + 1.0)
    lost = z - (bottom - 1.0)
    quotient = steps(top / bottom)
    # 1 - z/2 is close enough to 1/bottom for what was lost.
    return steps.done(quotient - quotient * (lost * (1.0 - z * 0.5)))


def sigmoid_by_estimate(x: Expr, bits: int) -> Expr:
    """1 / (1 + e**-x) in float32, from the first bits of the inverse.

    0 up to the smallest normal number and 1/500 above it, where some processors estimate 0.
    """
    steps, form = Steps(), format_of(x)
    held = steps(build.minimum(constant(form.bias * math.log(2), x), x))
    # The lowest bits of what is moved are the exponent of 2**n as a float has it.
    shifter = constant(form.shifter + form.bias, x)
    moved = steps(held * constant(-1 / math.log(2), x) + shifter)
    whole = steps(moved - shifter)
    ln2 = form.ln2
    minus_r = steps(held + whole * constant(ln2[0], x) + whole * constant(ln2[1], x))
    series = (1.0, 1.0, *POLYNOMIALS["exp", form.bits])
    power = polynomial(minus_r, tuple(c * (-1) ** n for n, c in enumerate(series)))
    z = steps(power * float_of(bits_of(moved) << form.fraction))
    guess = steps(inverse_estimate(z + 1.0))
    # 1 + z was rounded, and the remainder is not: both parts of it are subtracted one by one.
    rest = steps(1.0 - z * guess - guess)
    if 2 * bits <= form.fraction:
        rest = rest + rest * rest
    # What is so far below 0 has wrapped around in moved.
    return steps.done(build.select(x < -87.335, constant(0.0, x), guess + guess * rest))


def _quotient(steps: Steps, top: Expr, z: Expr) -> Expr:
    """top / (1 + z) for 0 <= z <= 1 in float32, by multiplications, which are many times faster.

    A polynomial is within 1/99 of 1/(1 + z), Newton's step within its square, and the remainder of
    the division corrects what is left: 1 + z is rounded, top - quotient is exact.
    """
    bottom = steps(z + 1.0)
    guess = steps(polynomial(bottom, POLYNOMIALS["inverse", 32]))
    inverse = steps(guess + guess * (1.0 - bottom * guess))
    quotient = steps(top * inverse)
    return quotient + inverse * ((top - quotient) - z * quotient)


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent: -t / (2 + t), or 1 - 2*(t + 1) / (2 + t), for t == exp(-2|x|) - 1."""
    if x.dtype.bits == 32:
        return _short_tanh(x)
    steps = Steps()
    size = steps(absolute(x))
    r, n = reduced(steps, steps(build.maximum(constant(-40.0, x), size * -2.0)))
    scale = steps(power_of_two(n))
    minus_one = steps(scale * exp_minus_one(steps, r))
    t = steps(minus_one + (scale - 1.0))
    large = steps(size > 0.55)
    top = build.select(large, (minus_one + scale) * 2.0, 0.0 - t)
    quotient = steps(top / (t + 2.0))
    return steps.done(with_sign(build.select(large, 1.0 - quotient, quotient), x))


def _doubled_power(steps: Steps, held: Expr, halved: int = 0) -> tuple[Expr, Expr]:
    """scale and e**r - 1 in float32, for exp(2*held) / 2**halved == scale * e**r, 0 <= held <= 10.

    log(2) needs no second part where what grows with its multiple matters the less.
    """
    form = format_of(held)
    shifter = constant(form.shifter + form.bias - halved, held)
    moved = steps(held * constant(2 / math.log(2), held) + shifter)
    r = steps((held + held) - (moved - shifter) * constant(math.log(2), held))
    return steps(float_of(bits_of(moved) << form.fraction)), exp_minus_one(steps, r)


def _short_tanh(x: Expr) -> Expr:
    """The hyperbolic tangent in float32: a polynomial, or 1 - 2 / (exp(2|x|) + 1)."""
    steps = Steps()
    size = steps(absolute(x))
    scale, minus_one = _doubled_power(steps, steps(build.minimum(constant(10.0, x), size)))
    far = 1.0 - 2.0 / (scale * minus_one + (scale + 1.0))
    z = steps(x * x)
    near = size + size * z * polynomial_by_pairs(z, POLYNOMIALS["tanh", 32])
    return steps.done(with_sign(build.select(size > 0.55, far, near), x))


def tanh_by_estimate(x: Expr, bits: int) -> Expr:
    """The hyperbolic tangent in float32, a quotient from the first bits of the inverse."""
    steps = Steps()
    t, bottom = _tanh_parts(steps, x)
    inverse = steps(inverse_estimate(bottom))
    if 2 * bits <= format_of(x).fraction:
        inverse = steps(inverse + inverse * (1.0 - bottom * inverse))
    quotient = steps(t * inverse)
    # t + 1 was rounded, and the remainder is not: both parts of it are subtracted one by one.
    rest = (t - quotient) - quotient * t
    return steps.done(with_sign(quotient + inverse * rest, x))


def tanh_by_division(x: Expr) -> Expr:
    """The same quotient and its correction, where dividing takes less time than an inverse."""
    steps = Steps()
    t, bottom = _tanh_parts(steps, x)
    top = steps(with_sign(t, x))
    quotient = steps(top / bottom)
    rest = (top - quotient) - quotient * t
    return steps.done(quotient + inverse_estimate(bottom) * rest)


def _tanh_parts(steps: Steps, x: Expr) -> tuple[Expr, Expr]:
    """t and t + 1, rounded, where tanh|x| == t / (t + 1): t is (exp(2|x|) - 1) / 2."""
    held = steps(build.minimum(constant(10.0, x), absolute(x)))
    scale, minus_one = _doubled_power(steps, held, halved=1)
    t = steps(scale * minus_one + (scale - 0.5))
    return t, steps(t + 1.0)


# ---- logarithms ----


def parts(steps: Steps, x: Expr) -> tuple[Expr, Expr]:
    """f and e where x == (1 + f) * 2**e and sqrt(1/2) <= 1 + f < sqrt(2); x is positive."""
    form = format_of(x)
    smallest = 2.0 ** (1 - form.bias)
    lift = form.fraction + 1
    tiny = steps(x < smallest)
    normal = build.select(tiny, x * (2.0**lift), x)
    one = form.bias << form.fraction
    moved = steps(bits_of(normal) + constant(one - form.half_root, bits_of(x)))
    exponent = (moved >> form.fraction) - form.bias
    exponent = build.select(tiny, exponent - lift, exponent)
    mask = constant((1 << form.fraction) - 1, moved)
    m = float_of((moved & mask) + constant(form.half_root, moved))
    return steps(m - 1.0), steps(build.cast(like(f"float{form.bits}", x), exponent))


def with_log_limits(x: Expr, result: Expr) -> Expr:
    """The result where x is positive and finite, and what a logarithm is elsewhere."""
    result = build.select(x < math.inf, result, x)  # infinity and NaN
    below = build.select(x < 0.0, constant(math.nan, x), result)
    return build.select(build.equal(x, 0.0), constant(-math.inf, x), below)


def log_core(steps: Steps, f: Expr, high: Expr | None, low: Expr | None) -> Expr:
    """high + low + log(1 + f)"""
    half = steps(f * f * 0.5)
    if f.dtype.bits == 32:
        tail = f * f * f * polynomial(f, POLYNOMIALS["log", 32])
    else:
        s = steps(f / (f + 2.0))
        z = steps(s * s)
        tail = s * (half + z * polynomial(z, POLYNOMIALS["atanh", 64]))
    if low is not None:
        tail = tail + low
    inner = f - (half - tail)
    return inner if high is None else high + inner


def log(x: Expr) -> Expr:
    """The natural logarithm."""
    steps, form = Steps(), format_of(x)
    f, e = parts(steps, x)
    result = log_core(steps, f, e * constant(form.ln2[0], x), e * constant(form.ln2[1], x))
    return steps.done(with_log_limits(x, steps(result)))


def log2(x: Expr) -> Expr:
    """The logarithm to base 2."""
    steps = Steps()
    f, e = parts(steps, x)
    if x.dtype.bits == 32:
        inner = f + f * polynomial(f, POLYNOMIALS["log2", 32])
    else:
        inner = _product(steps, steps(log_core(steps, f, None, None)), 1 / math.log(2),
                         2.0355273740931033e-17)
    return steps.done(with_log_limits(x, steps(e + inner)))


def log10(x: Expr) -> Expr:
    """The logarithm to base 10."""
    steps, form = Steps(), format_of(x)
    f, e = parts(steps, x)
    if x.dtype.bits == 32:
        inner = f * polynomial(f, POLYNOMIALS["log10", 32])
    else:
        inner = _product(steps, steps(log_core(steps, f, None, None)), 1 / math.log(10),
                         1.098319650216765e-17)
    high, low = form.log10_2
    result = e * constant(high, x) + (e * constant(low, x) + inner)
    return steps.done(with_log_limits(x, steps(result)))


def _product(steps: Steps, x: Expr, factor: float, rest: float) -> Expr:
    """x * (factor + rest)"""
    return steps(x * constant(factor, x) + x * constant(rest, x))


def log1p(x: Expr) -> Expr:
    """log(1 + x): 1 + f, where 1 + x == (1 + f) * 2**e, comes from x, which no sum has rounded."""
    steps, form = Steps(), format_of(x)
    u = steps(x + 1.0)
    one, mask = form.bias << form.fraction, (1 << form.fraction) - 1
    moved = steps(bits_of(u) + constant(one - form.half_root, bits_of(x)))
    below = steps(moved - constant(1 << form.fraction, moved))  # of half as much, which has a place
    power = constant(2 * one + mask + 1, moved) - (below - (below & constant(mask, moved)))
    scale = steps(float_of(power))  # 4 * 2**-e
    f = steps(x * 0.25 * scale + (scale * 0.25 - 1.0))
    e = steps(build.cast(like(f"float{form.bits}", x), (moved >> form.fraction) - form.bias))
    result = log_core(steps, f, e * constant(form.ln2[0], x), e * constant(form.ln2[1], x))
    result = steps(with_log_limits(u, steps(result)))
    tiny = absolute(x) < 2.0 ** -(form.fraction + 2)
    return steps.done(build.select(tiny, x, result))

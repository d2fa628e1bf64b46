"""Powers, lengths and remainders."""

import math

from sterna.codegen.llvm.math_exp import (
    FORMATS,
    exp_minus_one,
    nearest,
    parts,
    power_of_two,
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
    like,
    polynomial,
    polynomial_by_pairs,
    with_sign,
)
from sterna.ir import build
from sterna.ir.build import select
from sterna.ir.expr import Expr

_LN2 = (0.6931471805592082, 7.371002565167799e-13, 1.1218e-28)


def _halves(steps: Steps, x: Expr) -> tuple[Expr, Expr]:
    """Two numbers of half the digits with this sum: products of such are exact."""
    bits = bits_of(x)
    high = steps(float_of(bits & constant(-(1 << 27), bits)))
    return high, steps(x - high)


def _product(steps: Steps, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a * b as a sum of two numbers."""
    p = steps(a * b)
    (ah, al), (bh, bl) = _halves(steps, a), _halves(steps, b)
    return p, steps(((ah * bh - p) + ah * bl + al * bh) + al * bl)


def _sum(steps: Steps, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b as a sum of two numbers, the first of them rounded."""
    s = steps(a + b)
    from_b = steps(s - a)
    return s, steps((a - (s - from_b)) + (b - from_b))


def _long_log(steps: Steps, x: Expr) -> tuple[Expr, Expr]:
    """log(x) as a sum of two numbers, good to about 2**-66; x is positive and finite."""
    f, e = parts(steps, x)
    bottom, bottom_low = _sum(steps, f, constant(2.0, x))
    s = steps(f / bottom)
    product, product_low = _product(steps, s, bottom)
    s_low = steps((((f - product) - product_low) - s * bottom_low) / bottom)
    z, z_low = _product(steps, s, s)
    z_low = steps(z_low + 2.0 * s * s_low)
    # log(1 + f) == 2*s + (2/3)*s*z + s*z*z*(...); the second term needs more digits too.
    series = POLYNOMIALS["atanh", 64]
    third, third_low = 2 / 3, 3.700743415417188e-17
    rest = polynomial(z, (series[0] - third, *series[1:]))
    t, t_low = _product(steps, z, constant(third, x))
    t_low = steps(t_low + z_low * third + z * third_low + z * rest)
    t, t_low = _sum(steps, t, t_low)
    u, u_low = _product(steps, s, t)
    u_low = steps(u_low + s * t_low + s_low * t)
    high, low = _sum(steps, steps(s * 2.0), u)
    low = steps(low + (u_low + s_low * 2.0))
    whole = steps(e * constant(_LN2[0], x))
    total, total_low = _sum(steps, whole, high)
    total_low = steps(total_low + (low + e * constant(_LN2[1], x)))
    return _sum(steps, total, total_low)


def pow_(x: Expr, y: Expr) -> Expr:
    """x**y"""
    steps = Steps()
    size = steps(absolute(x))
    power = _short_power if x.dtype.bits == 32 else _long_power
    return steps.done(_with_power_limits(steps, x, y, size, power(steps, size, y)))


def _short_power(steps: Steps, size: Expr, y: Expr) -> Expr:
    """size**y in float32 for a positive finite size: by float64, which has the digits to spare."""
    form = FORMATS[64]
    x = steps(build.cast(like("float64", size), size))
    moved = steps(bits_of(x) + constant((form.bias << form.fraction) - form.half_root, bits_of(x)))
    mask = constant((1 << form.fraction) - 1, moved)
    f = steps(float_of((moved & mask) + constant(form.half_root, moved)) - 1.0)
    e = build.cast(like("float64", x), (moved >> form.fraction) - form.bias)
    log = steps(e * constant(math.log(2), x) + f * polynomial(f, POLYNOMIALS["pow_log", 64]))
    held = steps(build.minimum(constant(200.0, x), build.maximum(
        constant(-200.0, x), log * build.cast(x.dtype, y))))
    whole, n = nearest(steps, held * constant(1 / math.log(2), x))
    r = steps(held - whole * constant(math.log(2), x))
    tail = polynomial_by_pairs(r, POLYNOMIALS["pow_exp", 64])
    value = (r + r * r * tail + 1.0) * power_of_two(n)
    return steps(build.cast(size.dtype, value))


def _long_power(steps: Steps, size: Expr, y: Expr) -> Expr:
    """size**y in float64 for a positive finite size."""
    usable = build.logical_and(size > 0.0, size < math.inf)
    safe = steps(select(usable, size, constant(1.0, size)))
    high, low = _long_log(steps, safe)
    held = steps(build.minimum(constant(1e300, size), build.maximum(constant(-1e300, size), y)))
    p, p_low = _product(steps, held, high)
    p_low = steps(p_low + held * low)
    inside = absolute(p) < 800.0
    p_low = steps(select(inside, p_low, constant(0.0, size)))
    p = steps(build.minimum(constant(750.0, size), build.maximum(constant(-800.0, size), p)))
    r, n = reduced(steps, p)
    value = steps(exp_minus_one(steps, steps(r + p_low)) + 1.0)
    return steps(scaled(steps, value, n))


def _with_power_limits(steps: Steps, x: Expr, y: Expr, size: Expr, power: Expr) -> Expr:
    """A power of |x| as that of x, and what x**y is where one of them has no usual value."""
    zero, infinity = constant(0.0, x), constant(math.inf, x)
    power = select(build.equal(size, 0.0), select(y < 0.0, infinity, zero), power)
    power = select(build.equal(size, math.inf), select(y < 0.0, zero, infinity), power)
    grows = build.equal(size > 1.0, y > 0.0)
    unbounded = build.equal(absolute(y), math.inf)
    power = steps(select(unbounded, select(grows, infinity, zero), power))
    one = constant(1.0, x)
    power = select(build.logical_and(unbounded, build.equal(size, 1.0)), one, power)
    whole = build.equal(call("trunc", y), y)
    half = y * 0.5
    odd = build.logical_and(whole, build.not_equal(call("trunc", half), half))
    power = steps(select(odd, with_sign(power, x), power))
    bad = build.logical_and(build.logical_and(x < 0.0, x > -math.inf), build.logical_not(whole))
    power = select(bad, constant(math.nan, x), power)
    is_nan = build.logical_or(build.not_equal(x, x), build.not_equal(y, y))
    power = select(is_nan, x + y, power)
    trivial = build.logical_or(build.equal(x, 1.0), build.equal(y, 0.0))
    return select(trivial, one, power)


def hypot(x: Expr, y: Expr) -> Expr:
    """sqrt(x*x + y*y), scaled where the squares would leave the range."""
    steps = Steps()
    a, b = steps(absolute(x)), steps(absolute(y))
    top = steps(build.maximum(a, b))
    one = constant(1.0, x)
    huge, tiny = 2.0**500, 2.0**-400
    scale = steps(select(top > huge, constant(2.0**-600, x),
                         select(top < tiny, constant(2.0**600, x), one)))
    back = select(top > huge, constant(2.0**600, x),
                  select(top < tiny, constant(2.0**-600, x), one))
    p, q = steps(a * scale), steps(b * scale)
    length = call("sqrt", p * p + q * q) * back
    infinite = build.logical_or(build.equal(a, math.inf), build.equal(b, math.inf))
    return steps.done(select(infinite, constant(math.inf, x), length))


_NEAR_REMAINDER = """\
near:
  %a.wide = fpext float %a to double
  %b.wide = fpext float %b to double
  %ratio = fdiv double %a.wide, %b.wide
  %short = fcmp olt double %ratio, 0x41C0000000000000
  %some = fcmp oge double %ratio, 1.0
  %at.once = and i1 %short, %some
  br i1 %at.once, label %once, label %test
once:
  %count = fptosi double %ratio to i32
  %whole = sitofp i32 %count to double
  %product = fmul double %whole, %b.wide
  %left = fsub double %a.wide, %product
  %above = fadd double %left, %b.wide
  %below = fcmp olt double %left, 0.0
  %kept = select i1 %below, double %above, double %left
  %near.rest = fptrunc double %kept to float
  %near.result = call float @llvm.copysign.f32(float %near.rest, float %x)
  ret float %near.result
"""


def fmod_text(bits: int) -> str:
    """The remainder with x's sign, exactly: y times powers of two is taken off until it is gone.

    Of float32 whose quotient has few digits in one step: float64 holds it times y.
    """
    kind, integer, fraction = ("float", "i32", 23) if bits == 32 else ("double", "i64", 52)
    exponents = ((1 << bits - 1 - fraction) - 1) << fraction
    first, near = ("near", _NEAR_REMAINDER) if bits == 32 else ("test", "")
    return f"""\
define internal {kind} @"sterna.fmod.f{bits}.one"({kind} %x, {kind} %y) noinline #0 {{
entry:
  %a = call {kind} @llvm.fabs.f{bits}({kind} %x)
  %b = call {kind} @llvm.fabs.f{bits}({kind} %y)
  %a.finite = fcmp one {kind} %a, 0x7FF0000000000000
  %b.some = fcmp one {kind} %b, {"0x0000000000000000"}
  %fine = and i1 %a.finite, %b.some
  br i1 %fine, label %{first}, label %none
{near}none:
  %zero = fsub {kind} %x, %x
  %nan = fdiv {kind} %zero, 0x0000000000000000
  ret {kind} %nan
test:
  %rest = phi {kind} [ %a, %{"near" if near else "entry"} ], [ %less, %take ]
  %more = fcmp oge {kind} %rest, %b
  br i1 %more, label %scale, label %done
scale:
  %rest.bits = bitcast {kind} %rest to {integer}
  %b.bits = bitcast {kind} %b to {integer}
  %rest.exponent = and {integer} %rest.bits, {exponents}
  %b.exponent = and {integer} %b.bits, {exponents}
  %normal = icmp ne {integer} %b.exponent, 0
  %difference = sub {integer} %rest.exponent, %b.exponent
  %moved.bits = add {integer} %b.bits, %difference
  %moved = bitcast {integer} %moved.bits to {kind}
  br i1 %normal, label %choose, label %double
double:
  %step = phi {kind} [ %b, %scale ], [ %twice, %double ]
  %twice = fadd {kind} %step, %step
  %fits = fcmp ole {kind} %twice, %rest
  br i1 %fits, label %double, label %choose
choose:
  %part = phi {kind} [ %moved, %scale ], [ %step, %double ]
  %over = fcmp ogt {kind} %part, %rest
  %half = fmul {kind} %part, 0x3FE0000000000000
  %taken = select i1 %over, {kind} %half, {kind} %part
  br label %take
take:
  %less = fsub {kind} %rest, %taken
  br label %test
done:
  %result = call {kind} @llvm.copysign.f{bits}({kind} %rest, {kind} %x)
  ret {kind} %result
}}
"""

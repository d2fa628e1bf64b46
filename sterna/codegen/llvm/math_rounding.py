"""Rounding (floor, ceil, half to even) without instructions for it; functions of a float's bits."""


from sterna.codegen.llvm.math_exp import format_of
from sterna.codegen.llvm.steps import (
    Steps,
    absolute,
    bits_of,
    constant,
    float_of,
    like,
    with_sign,
)
from sterna.ir import build
from sterna.ir.build import select
from sterna.ir.expr import Expr


def _to_even(steps: Steps, x: Expr) -> Expr:
    """The nearest integer of |x|: adding 2**fraction leaves no bits for anything else."""
    big = constant(2.0 ** format_of(x).fraction, x)
    size = steps(absolute(x))
    rounded = steps((size + big) - big)
    return steps(select(size < big, rounded, size))


def nearbyint(x: Expr) -> Expr:
    """The nearest integer, to even in the middle."""
    steps = Steps()
    return steps.done(with_sign(_to_even(steps, x), x))


def trunc(x: Expr) -> Expr:
    """Without the fraction."""
    steps = Steps()
    near, size = _to_even(steps, x), absolute(x)
    down = select(near > size, near - 1.0, near)
    return steps.done(with_sign(down, x))


def floor(x: Expr) -> Expr:
    """The integer below."""
    steps = Steps()
    near = steps(with_sign(_to_even(steps, x), x))
    return steps.done(with_sign(select(near > x, near - 1.0, near), x))


def ceil(x: Expr) -> Expr:
    """The integer above."""
    steps = Steps()
    near = steps(with_sign(_to_even(steps, x), x))
    return steps.done(with_sign(select(near < x, near + 1.0, near), x))


def round_away(x: Expr) -> Expr:
    """The nearest integer, away from zero in the middle."""
    steps = Steps()
    near, size = _to_even(steps, x), steps(absolute(x))
    up = select(build.equal(size - near, 0.5), near + 1.0, near)
    return steps.done(with_sign(up, x))


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x)"""
    return 1.0 / build.call_intrinsic("sqrt", x)


def nextafter(x: Expr, y: Expr) -> Expr:
    """The number beside x in the direction of y."""
    steps = Steps()
    bits = steps(bits_of(x))
    away = build.equal(x > 0.0, y > x)
    moved = float_of(select(away, bits + 1, bits - 1))
    smallest = with_sign(float_of(constant(1, bits)), y)
    moved = select(build.equal(x, 0.0), smallest, moved)
    moved = select(build.equal(x, y), y, moved)
    is_nan = build.logical_or(build.not_equal(x, x), build.not_equal(y, y))
    return steps.done(select(is_nan, x + y, moved))


def ldexp(x: Expr, n: Expr) -> Expr:
    """x * 2**n, in steps that neither overflow nor round before the last."""
    steps, form = Steps(), format_of(x)
    if n.dtype.is_float:
        bound = 4.0 * form.bias
        held = build.minimum(build.maximum(n, constant(-bound, n)), constant(bound, n))
        left = steps(build.cast(like(f"int{form.bits}", x), held))
    else:
        wide = build.cast(like("int64", x), n)
        held = build.minimum(build.maximum(wide, -4 * form.bias), 4 * form.bias)
        left = steps(build.cast(like(f"int{form.bits}", x), held))
    result = x
    # A large step down first would round twice, so that the last one is the largest.
    for _ in range(4):
        step = steps(build.minimum(build.maximum(left, 3 - form.bias + form.fraction), form.bias))
        result = steps(result * float_of((step + form.bias) << form.fraction))
        left = steps(left - step)
    return steps.done(result)

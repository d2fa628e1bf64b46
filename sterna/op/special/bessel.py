"""Bessel's functions of the orders 0 and 1, and Airy's function.

Near zero they are power series. Far from it the ordinary ones are Hankel's asymptotic series, and
those of the second modified kind are integrals, which the trapezoidal rule gives to all digits.
"""

import math
from collections.abc import Callable

import numpy as np

from sterna.op.series import Formula, Kit, Number, register_formula
from sterna.relay.op import Case

EULER = 0.57721566490153286
# Where the asymptotic series take over; at this argument both are exact to 1e-10.
FAR = 16.0
SERIES_TERMS, ASYMPTOTIC_TERMS, INTEGRAL_TERMS = 46, 20, 22
# Where the integral takes over from the logarithmic series.
INTEGRAL_FROM = 2.0


def _power_series(kit: Kit, x: Number, order: int, sign: float) -> tuple[Number, Number]:
    """Sums of (sign x² / 4)^k / (k! (k + order)!), and of the same with factors ψ of both."""
    quarter = x * x * (0.25 * sign)

    def step(
        k: Number, term: Number, harmonic: Number, total: Number, second: Number
    ) -> list[Number]:
        next_term = term * quarter / ((k + 1.0) * (k + 1.0 + order))
        risen = harmonic + 1.0 / (k + 1.0)
        # ψ(k + 2) + ψ(k + 2 + order)
        factor = risen * 2.0 - 2.0 * EULER
        if order:
            factor = factor + 1.0 / (k + 2.0)
        return [next_term, risen, total + next_term, second + next_term * factor]

    first = -2.0 * EULER + (1.0 if order else 0.0)
    one = x * 0.0 + 1.0
    *_, total, second = kit.loop(SERIES_TERMS, [one, one * 0.0, one, one * first], step)
    return total, second


def _hankel(kit: Kit, x: Number, order: int) -> tuple[Number, Number]:
    """The sums over even and over odd terms of Hankel's series, with alternating signs."""

    def step(k: Number, term: Number, p: Number, q: Number) -> list[Number]:
        # Two terms at once: a_(2k+1) / x^(2k+1) belongs to q, the next one to p.
        odd = term * _factor(k * 2.0 + 1.0, order) / x
        even = odd * _factor(k * 2.0 + 2.0, order) / x
        return [0.0 - even, p - even, q + odd]

    one = x * 0.0 + 1.0
    _, p, q = kit.loop(ASYMPTOTIC_TERMS // 2, [one, one, one * 0.0], step)
    return p, q


def _factor(k: Number, order: int) -> Number:
    odd = k * 2.0 - 1.0
    return (4.0 * order * order - odd * odd) / (k * 8.0)


def _modified_series(kit: Kit, x: Number, order: int) -> Number:
    def step(k: Number, term: Number, total: Number) -> list[Number]:
        new = 0.0 - term * _factor(k + 1.0, order) / x
        return [new, total + new]

    one = x * 0.0 + 1.0
    return kit.loop(ASYMPTOTIC_TERMS, [one, one], step)[1]


def ordinary(order: int) -> Formula:
    """J of an order."""

    def formula(kit: Kit, given: Number) -> Number:
        x = kit.of("abs", given)
        near = kit.where(x < FAR, x, 1.0)
        far = kit.where(x < FAR, FAR, x)
        total, _ = _power_series(kit, near, order, -1.0)
        total = total * near * 0.5 if order else total
        p, q = _hankel(kit, far, order)
        angle = far - math.pi / 4 - order * math.pi / 2
        wave = kit.of("cos", angle) * p - kit.of("sin", angle) * q
        wave = wave * kit.of("sqrt", 2.0 / (math.pi * far))
        made = kit.where(x < FAR, total, wave)
        made = kit.where(x < np.inf, made, kit.where(kit.equal(x, x), 0.0, x))
        return kit.where(given < 0.0, 0.0 - made, made) if order else made

    return formula


def second_kind(order: int) -> Formula:
    """Y of an order: none below zero, minus infinity at zero."""

    def formula(kit: Kit, x: Number) -> Number:
        near = kit.where(x < FAR, kit.where(x > 0.0, x, 1.0), 1.0)
        far = kit.where(x < FAR, FAR, x)
        total, second = _power_series(kit, near, order, -1.0)
        power = near * 0.5 if order else 1.0
        made = kit.of("log", near * 0.5) * total * power * 2.0 - second * power
        if order:
            made = made - 2.0 / near
        p, q = _hankel(kit, far, order)
        angle = far - math.pi / 4 - order * math.pi / 2
        wave = kit.of("sin", angle) * p + kit.of("cos", angle) * q
        wave = wave * kit.of("sqrt", 2.0 / (math.pi * far))
        made = kit.where(x < FAR, made / math.pi, kit.where(x < np.inf, wave, 0.0))
        made = kit.where(kit.equal(x, 0.0), -np.inf, made)
        return kit.where(x >= 0.0, made, np.nan)

    return formula


def modified(order: int, scaled: bool) -> Formula:
    """I of an order; scaled: times exp(-|x|)."""

    def formula(kit: Kit, given: Number) -> Number:
        x = kit.of("abs", given)
        near = kit.where(x < FAR, x, 1.0)
        far = kit.where(x < FAR, FAR, x)
        total, _ = _power_series(kit, near, order, 1.0)
        total = total * near * 0.5 if order else total
        tail = _modified_series(kit, far, order) / kit.of("sqrt", 2.0 * math.pi * far)
        if scaled:
            total = total * kit.of("exp", 0.0 - near)
        else:
            tail = tail * kit.of("exp", far)
        made = kit.where(x < FAR, total, tail)
        made = kit.where(kit.equal(x, x), made, x)
        return kit.where(given < 0.0, 0.0 - made, made) if order else made

    return formula


def _integral(kit: Kit, x: Number, order: float) -> Number:
    """exp(x) K(x) = ∫ exp(x (1 - cosh t)) cosh(order t) dt by the trapezoidal rule."""
    width = 0.5 / kit.of("sqrt", x)

    def step(k: Number, total: Number) -> list[Number]:
        place = (k + 1.0) * width
        high = kit.of("exp", x * (1.0 - kit.of("cosh", place)))
        return [total + high * kit.of("cosh", place * order)]

    return kit.loop(INTEGRAL_TERMS, [x * 0.0 + 0.5], step)[0] * width


def modified_second(order: int, scaled: bool) -> Formula:
    """K of an order: none below zero, infinity at zero; scaled: times exp(x)."""

    def formula(kit: Kit, x: Number) -> Number:
        near = kit.where(x < INTEGRAL_FROM, kit.where(x > 0.0, x, 1.0), 1.0)
        far = kit.where(x < INTEGRAL_FROM, INTEGRAL_FROM, x)
        total, second = _power_series(kit, near, order, 1.0)
        power = near * 0.5 if order else 1.0
        logarithm = kit.of("log", near * 0.5) * total * power
        made = logarithm - second * power * 0.5 if order else second * 0.5 - logarithm
        if order:
            made = made + 1.0 / near
        tail = _integral(kit, far, order)
        if scaled:
            made = made * kit.of("exp", near)
        else:
            tail = tail * kit.of("exp", 0.0 - far)
        made = kit.where(x < INTEGRAL_FROM, made, tail)
        made = kit.where(kit.equal(x, 0.0), np.inf, made)
        return kit.where(x >= 0.0, made, np.nan)

    return formula


# ---- Airy ----

AI_ZERO, AI_SLOPE = 0.35502805388781724, -0.25881940379280680
AIRY_LOW, AIRY_HIGH = -8.0, 2.2


def airy_ai(kit: Kit, x: Number) -> Number:
    """Its power series between -8 and 2.2, waves below, an integral of Bessel's K above."""
    near = kit.where(x > AIRY_LOW, kit.where(x < AIRY_HIGH, x, 0.0), 0.0)
    cube = near * near * near

    def series(k: Number, f: Number, g: Number, first: Number, second: Number) -> list[Number]:
        place = (k + 1.0) * 3.0
        new = f * cube / (place * (place - 1.0))
        other = g * cube / (place * (place + 1.0))
        return [new, other, first + new, second + other]

    one = near * 0.0 + 1.0
    *_, first, second = kit.loop(SERIES_TERMS, [one, near, one, near], series)
    middle = first * AI_ZERO + second * AI_SLOPE

    low = kit.where(x < AIRY_LOW, 0.0 - x, -AIRY_LOW)
    zeta = low * kit.of("sqrt", low) * (2.0 / 3.0)

    def waves(k: Number, term: Number, p: Number, q: Number) -> list[Number]:
        odd = term * _airy_factor(k * 2.0 + 1.0) / zeta
        even = odd * _airy_factor(k * 2.0 + 2.0) / zeta
        return [0.0 - even, p - even, q + odd]

    unit = zeta * 0.0 + 1.0
    _, p, q = kit.loop(ASYMPTOTIC_TERMS // 2, [unit, unit, unit * 0.0], waves)
    angle = zeta - math.pi / 4
    wave = kit.of("cos", angle) * p + kit.of("sin", angle) * q
    wave = wave / kit.of("sqrt", math.pi * kit.of("sqrt", low))

    high = kit.where(x > AIRY_HIGH, kit.where(x < 1e3, x, 1e3), AIRY_HIGH)
    root = high * kit.of("sqrt", high) * (2.0 / 3.0)
    tail = _integral(kit, root, 1.0 / 3.0) * kit.of("exp", 0.0 - root)
    tail = tail * kit.of("sqrt", high / 3.0) / math.pi
    made = kit.where(x > AIRY_LOW, kit.where(x < AIRY_HIGH, middle, tail), wave)
    return kit.where(kit.equal(x, x), made, x)


def _airy_factor(k: Number) -> Number:
    return (6.0 * k - 5.0) * (6.0 * k - 3.0) * (6.0 * k - 1.0) / (216.0 * k * (2.0 * k - 1.0))


def spherical_j0(kit: Kit, x: Number) -> Number:
    """sin x / x, and 1 at zero."""
    near = kit.of("abs", x) < 1e-4
    safe = kit.where(near, 1.0, x)
    made = kit.where(near, 1.0 - x * x / 6.0, kit.of("sin", safe) / safe)
    return kit.where(kit.of("abs", x) < np.inf, made, kit.where(kit.equal(x, x), 0.0, x))


_PLACES = np.array([-20.0, -3.0, -0.5, 0.0, 1e-3, 1.0, 1.9, 5.0, 15.9, 16.1, 40.0], "float32")
_EVERYWHERE = [Case((_PLACES,))]

for _name, _make, _doc in (
    ("bessel_j", ordinary, "Bessel's function of the first kind"),
    ("bessel_y", second_kind, "Bessel's function of the second kind"),
):
    for _order in (0, 1):
        register_formula(
            f"special.{_name}{_order}", ("data",), _make(_order), f"{_doc}, of the order {_order}.",
            _EVERYWHERE,
        )

_SCALED: tuple[tuple[str, Callable[[int, bool], Formula], bool, str], ...] = (
    ("bessel_i{}", modified, False, "The modified Bessel function of the first kind{}"),
    ("bessel_i{}e", modified, True, "exp(-|x|) times that of the first kind{}"),
    ("bessel_k{}", modified_second, False, "The modified Bessel function of the second kind{}"),
    ("bessel_k{}e", modified_second, True, "exp(x) times that of the second kind{}"),
)
for _name, _kind, _scaled, _doc in _SCALED:
    for _order in (0, 1):
        register_formula(
            f"special.{_name.format(_order)}", ("data",), _kind(_order, _scaled),
            _doc.format(f", of the order {_order}."), _EVERYWHERE,
        )

register_formula("special.airy_ai", ("data",), airy_ai, "Airy's function Ai.", _EVERYWHERE)
register_formula(
    "special.spherical_bessel_j0", ("data",), spherical_j0,
    "The spherical Bessel function of the order 0: sin(x) / x.", _EVERYWHERE,
)

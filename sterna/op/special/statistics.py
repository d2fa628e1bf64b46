"""Functions of statistics: of the normal distribution, incomplete gamma functions, zeta."""

import math

import numpy as np

from sterna.op.series import Kit, Number, register_formula
from sterna.relay.op import Case

# ---- the normal distribution ----

# The trapezoidal rule of this width gives the integral of erfcx to all digits.
WIDTH = 0.5
NODES = 12
NEWTON_STEPS = 12


def erfcx(kit: Kit, x: Number) -> Number:
    """exp(x²) erfc(x): below 1 by erf, above by the trapezoidal rule (Chiarella and Reichl)."""
    size = kit.of("abs", x)
    low = kit.where(size < 1.0, size, 0.0)
    near = kit.of("exp", low * low) * (1.0 - kit.of("erf", low))
    high = kit.where(size < 1.0, 1.0, size)
    square = high * high

    def node(k: Number, total: Number) -> list[Number]:
        place = (k + 1.0) * WIDTH
        return [total + kit.of("exp", 0.0 - place * place) / (place * place + square)]

    total = kit.loop(NODES, [0.5 / square], node)[0] * high * (2.0 * WIDTH / math.pi)
    pole = kit.where(high < math.pi / WIDTH, high, 0.0)
    rest = kit.of("exp", pole * pole) * 2.0 / (1.0 - kit.of("exp", pole * (2.0 * math.pi / WIDTH)))
    total = total + kit.where(high < math.pi / WIDTH, rest, 0.0)
    made = kit.where(size < 1.0, near, total)
    return kit.where(x < 0.0, kit.of("exp", size * size) * 2.0 - made, made)


def log_ndtr(kit: Kit, x: Number) -> Number:
    """The logarithm of the normal distribution function, also far below zero."""
    scaled = x * math.sqrt(0.5)
    half = erfcx(kit, kit.of("abs", scaled)) * 0.5
    bell = kit.of("exp", 0.0 - scaled * scaled)
    low = kit.of("log", half) - scaled * scaled
    return kit.where(x < 0.0, low, kit.of("log1p", 0.0 - half * bell))


def ndtri(kit: Kit, p: Number) -> Number:
    """The inverse of the normal distribution function: Newton's method on its logarithm."""
    tail = kit.where(p > 0.5, 1.0 - p, p)
    safe = kit.where(tail > 0.0, tail, 0.25)
    wanted = kit.of("log", safe)
    start = 0.0 - kit.of("sqrt", 0.0 - wanted * 2.0)

    def step(k: Number, x: Number) -> list[Number]:
        scaled = x * -math.sqrt(0.5)
        half = erfcx(kit, scaled) * 0.5
        missing = wanted - (kit.of("log", half) - scaled * scaled)
        return [x + missing * half * math.sqrt(2.0 * math.pi)]

    found = kit.loop(NEWTON_STEPS, [start], step)[0]
    made = kit.where(p > 0.5, 0.0 - found, found)
    made = kit.where(kit.equal(p, 0.0), -np.inf, kit.where(kit.equal(p, 1.0), np.inf, made))
    return kit.where(p >= 0.0, kit.where(p <= 1.0, made, np.nan), np.nan)


def erfinv(kit: Kit, x: Number) -> Number:
    """The inverse of the error function."""
    made = ndtri(kit, x * 0.5 + 0.5) * math.sqrt(0.5)
    return kit.where(kit.of("abs", x) < 1e-6, x * (math.sqrt(math.pi) / 2.0), made)


_REALS = np.array([-30.0, -5.0, -1.2, -0.4, 0.0, 0.3, 0.9, 1.1, 4.0, 8.0, 50.0], "float32")
_SHARES = np.array([0.0, 1e-30, 1e-3, 0.2, 0.5, 0.7, 0.999, 1.0, 1.5, -0.1], "float32")
register_formula(
    "special.erfcx", ("data",), erfcx, "exp(x²) times what the error function lacks of 1.",
    [Case((_REALS[1:],))],
)
register_formula(
    "special.log_ndtr", ("data",), log_ndtr,
    "The logarithm of the normal distribution function.", [Case((_REALS,))],
)
register_formula(
    "special.ndtri", ("data",), ndtri, "The inverse of the normal distribution function.",
    [Case((_SHARES,), tolerance=1e-4)],
)
register_formula(
    "special.erfinv", ("data",), erfinv, "The inverse of the error function.",
    [Case((_SHARES * 2 - 1,), tolerance=1e-4)],
)


# ---- incomplete gamma functions ----


def _terms(kit: Kit, a: Number) -> Number:
    """How many terms the series and the fraction need: more, the larger a is."""
    return kit.of("sqrt", kit.where(a < 1e8, a, 1e8)) * 9.0 + 60.0


def _lower_series(kit: Kit, a: Number, x: Number) -> Number:
    def step(k: Number, term: Number, total: Number) -> list[Number]:
        new = term * x / (a + k + 1.0)
        return [new, total + new]

    one = a * 0.0 + 1.0
    return kit.loop(_terms(kit, a), [one, one], step)[1]


def _upper_fraction(kit: Kit, a: Number, x: Number) -> Number:
    """Legendre's continued fraction by Lentz's method."""

    def step(k: Number, b: Number, c: Number, d: Number, made: Number) -> list[Number]:
        share = (k + 1.0) * (a - k - 1.0)
        wider = b + 2.0
        below = 1.0 / _off_zero(kit, share * d + wider)
        above = _off_zero(kit, wider + share / c)
        return [wider, above, below, made * above * below]

    first = x + 1.0 - a
    start = 1.0 / _off_zero(kit, first)
    huge = a * 0.0 + 1e300
    return kit.loop(_terms(kit, a), [first, huge, start, start], step)[3]


def _off_zero(kit: Kit, value: Number) -> Number:
    return kit.where(kit.of("abs", value) < 1e-300, 1e-300, value)


def _parts(kit: Kit, a: Number, x: Number, log_gamma: Number) -> tuple[Number, Number, Number]:
    """Whether the series is taken, the lower share by it, the upper one by the fraction."""
    is_low = x < kit.where(a > 1.0, a, 1.0)
    safe_a = kit.where(a > 0.0, kit.where(a < 1e8, a, 1.0), 1.0)
    safe_x = kit.where(x > 0.0, kit.where(x < np.inf, x, 1.0), 1.0)
    power = kit.of("exp", safe_a * kit.of("log", safe_x) - safe_x - log_gamma)
    low = kit.where(is_low, safe_x, 0.0)
    high = kit.where(is_low, safe_a + 1.0, safe_x)
    lower = _lower_series(kit, safe_a, low) * power / safe_a
    upper = _upper_fraction(kit, safe_a, high) * power
    return is_low, lower, upper


def _edges(kit: Kit, a: Number, x: Number, made: Number, at_zero: float) -> Number:
    """Values at 0 and infinity, where the series say nothing; at_zero is that of x = 0."""
    other = 1.0 - at_zero
    made = kit.where(kit.equal(a, 0.0), kit.where(x > 0.0, other, np.nan), made)
    x_zero = kit.where(a > 0.0, at_zero, np.nan)
    made = kit.where(kit.equal(x, 0.0), x_zero, made)
    made = kit.where(kit.equal(x, np.inf), kit.where(a < np.inf, other, np.nan), made)
    made = kit.where(kit.equal(a, np.inf), kit.where(x < np.inf, at_zero, np.nan), made)
    return kit.where(a >= 0.0, kit.where(x >= 0.0, made, np.nan), np.nan)


def igamma(kit: Kit, a: Number, x: Number, log_gamma: Number) -> Number:
    """The lower incomplete gamma function over the whole one."""
    is_low, lower, upper = _parts(kit, a, x, log_gamma)
    return _edges(kit, a, x, kit.where(is_low, lower, 1.0 - upper), 0.0)


def igammac(kit: Kit, a: Number, x: Number, log_gamma: Number) -> Number:
    """The upper incomplete gamma function over the whole one."""
    is_low, lower, upper = _parts(kit, a, x, log_gamma)
    return _edges(kit, a, x, kit.where(is_low, 1.0 - lower, upper), 1.0)


_A = np.array([0.5, 1.0, 2.5, 8.0, 0.0, 3.0], "float32")
_X = np.array([0.25, 3.0, 2.5, 20.0, 1.0, 0.0], "float32")
_LOG_GAMMA = np.array([math.lgamma(a) if a else 0.0 for a in _A.tolist()], "float32")
for _name, _formula, _which in (("igamma", igamma, "lower"), ("igammac", igammac, "upper")):
    register_formula(
        f"special.{_name}", ("a", "x", "log_gamma"), _formula,
        f"The {_which} incomplete gamma function of a and x over the gamma function of a, whose "
        "logarithm is given.",
        [Case((_A, _X, _LOG_GAMMA)), Case((_A.reshape(6, 1), _X, _LOG_GAMMA.reshape(6, 1)))],
    )


# ---- zeta ----

# B(2j) / (2j)!, the coefficients of Euler and Maclaurin's formula.
MACLAURIN = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000,
)
FIRST_TERMS = 10.0
MOST_TERMS = 1e6


def zeta(kit: Kit, s: Number, q: Number) -> Number:
    """Hurwitz's zeta function: the first terms of its sum, and the rest by Euler and Maclaurin."""
    needed = kit.where(q < FIRST_TERMS, FIRST_TERMS - kit.of("floor", q), 1.0)
    count = kit.where(needed < MOST_TERMS, needed, 1.0)
    safe = kit.where(s > 1.0, kit.where(s < 1e3, s, 2.0), 2.0)

    def step(k: Number, total: Number) -> list[Number]:
        return [total + kit.of("power", q + k, 0.0 - safe)]

    total = kit.loop(count, [q * 0.0], step)[0]
    last = q + count
    power = kit.of("power", last, 0.0 - safe)
    total = total + power * last / (safe - 1.0) + power * 0.5
    factor = safe * power / last
    for place, coefficient in enumerate(MACLAURIN):
        total = total + factor * coefficient
        rising = 2.0 * place + 1.0
        factor = factor * (safe + rising) * (safe + rising + 1.0) / (last * last)
    huge = kit.where(q > 1.0, 0.0, kit.where(kit.equal(q, 1.0), 1.0, np.inf))
    total = kit.where(s < 1e3, total, huge)
    is_whole = kit.equal(s, kit.of("floor", s))
    below = kit.where(is_whole, total, np.nan)
    below = kit.where(kit.equal(q, kit.of("floor", q)), np.inf, below)
    total = kit.where(q > 0.0, total, below)
    return kit.where(s > 1.0, total, kit.where(kit.equal(s, 1.0), np.inf, np.nan))


register_formula(
    "special.zeta", ("s", "q"), zeta, "Hurwitz's zeta function: the sum of (q + k)^-s over all k.",
    [Case((np.array([[1.0], [1.5], [2.0], [7.0]], "float32"),
           np.array([-2.5, -1.0, 0.3, 1.0, 4.0, 100.0], "float32")))],
)

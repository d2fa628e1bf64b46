"""Functions of mathematics that are sums of others, and scans."""

import math

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.checks import expected
from sterna.frontend.torch.convert_reduce import reduced
from sterna.frontend.torch.convert_shape import (
    axis_of,
    broadcast_shape,
    cat,
    expand,
    places_of,
    ravel,
    shape_of,
    slice_,
)
from sterna.frontend.torch.extents import as_tensor, dims_of, total
from sterna.frontend.torch.promotion import as_float, is_float
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr

# Lanczos's series of the gamma function, for g = 7.
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)
# The digamma function far from zero, by powers of 1 / x².
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_SHIFTS = 8


@aten("lgamma", "prims::lgamma", "special_gammaln")
def lgamma(x: RelayExpr) -> RelayExpr:
    """log |Γ(x)| in float64, by Lanczos's series, and by reflection below one half."""
    data = as_float(x)
    wide = cast(data, "float64")
    low = call("less", wide, like(0.5, wide))
    mirrored = call("where", low, call("subtract", like(1, wide), wide), wide)
    series = _lanczos(mirrored)
    sine = call("abs", call("sin", call("multiply", _fraction(wide), like(math.pi, wide))))
    other = call("subtract", call("log", call("divide", like(math.pi, wide), sine)), series)
    made = call("where", low, other, series)
    made = call("where", call("isinf", wide), like(math.inf, wide), made)
    return cast(made, dtype_of(data))


def _fraction(x: RelayExpr) -> RelayExpr:
    """x less its whole part, so that sines of large numbers stay exact."""
    return call("subtract", x, call("floor", x))


def _lanczos(x: RelayExpr) -> RelayExpr:
    below = call("subtract", x, like(1, x))
    total: RelayExpr = like(_LANCZOS[0], x)
    for place, factor in enumerate(_LANCZOS[1:], start=1):
        term = call("divide", like(factor, x), call("add", below, like(place, x)))
        total = call("add", total, term)
    base = call("add", below, like(7.5, x))
    power = call("multiply", call("add", below, like(0.5, x)), call("log", base))
    rest = call("subtract", call("add", like(0.5 * math.log(2 * math.pi), x), power), base)
    return call("add", rest, call("log", total))


@aten("digamma", "prims::digamma", "special_digamma", "special_psi")
def digamma(x: RelayExpr) -> RelayExpr:
    """Γ'(x) / Γ(x) in float64: far from zero by its series, and nearer by recurrence."""
    data = as_float(x)
    wide = cast(data, "float64")
    low = call("less", wide, like(0.5, wide))
    start = call("where", low, call("subtract", like(1, wide), wide), wide)
    made = call("negative", _digamma_shift(start))
    far = call("add", start, like(_SHIFTS, start))
    made = call("add", made, _digamma_series(far))
    angle = call("multiply", _fraction(wide), like(math.pi, wide))
    turned = call("divide", like(math.pi, wide), call("tan", angle))
    made = call("where", low, call("subtract", made, turned), made)
    whole = call("logical_and", call("equal", _fraction(wide), like(0, wide)),
                 call("less", wide, like(0, wide)))
    made = call("where", whole, like(math.nan, wide), made)
    at_zero = call("divide", like(-1, wide), wide)
    made = call("where", call("equal", wide, like(0, wide)), at_zero, made)
    return cast(made, dtype_of(data))


def _digamma_shift(x: RelayExpr) -> RelayExpr:
    total: RelayExpr = like(0, x)
    for place in range(_SHIFTS):
        total = call("add", total, call("divide", like(1, x), call("add", x, like(place, x))))
    return total


def _digamma_series(x: RelayExpr) -> RelayExpr:
    inverse = call("divide", like(1, x), call("multiply", x, x))
    total: RelayExpr = like(0, x)
    for factor in reversed(_BERNOULLI):
        total = call("multiply", call("add", total, like(factor, x)), inverse)
    half = call("divide", like(0.5, x), x)
    return call("subtract", call("subtract", call("log", x), half), total)


@aten("angle")
def angle(x: RelayExpr) -> RelayExpr:
    """Of real numbers: π for negative ones, else 0."""
    data = as_float(x)
    made = call("where", call("less", data, like(0, data)), like(math.pi, data), like(0, data))
    return call("where", call("isnan", data), data, made)


@aten("_safe_softmax")
def safe_softmax(x: RelayExpr, dim: int, dtype: str | None = None) -> RelayExpr:
    """Zeros where all is -inf."""
    data = cast(x, dtype) if dtype else as_float(x)
    if not rank_of(data):
        return like(1, data)
    at = axis_of(dim, rank_of(data))
    some = reduced("any", call("greater", data, like(-math.inf, data)), at, True)
    return call("where", some, call("nn.softmax", data, axis=at), like(0, data))


@aten("masked_scatter")
def masked_scatter(x: RelayExpr, mask: RelayExpr, source: RelayExpr) -> RelayExpr:
    """Elements of the source one after the other, where the mask holds."""
    whole = broadcast_shape(shape_of(x), shape_of(mask))
    wide, data = expand(mask, whole), expand(x, whole)
    count = call("cumsum", cast(ravel(wide), "int64"), axis=0)
    wanted, given = call("sum", cast(wide, "int64")), total(dims_of(source))
    if not isinstance(given, int) or math.prod(whole) > given:
        count = expected(
            count, call("less_equal", wanted, as_tensor(given)),
            "masked_scatter: the mask holds in # places, and the source has # elements",
            wanted, given,
        )
    place = call("maximum", call("subtract", count, like(1, count)), like(0, count))
    taken = reshaped(call("take", ravel(source), place), whole)
    return call("where", wide, taken, data)


# ---- scans ----


@aten("cummax")
def cummax(x: RelayExpr, dim: int) -> list[RelayExpr]:
    return _running_extreme(x, dim, "greater_equal")


@aten("cummin")
def cummin(x: RelayExpr, dim: int) -> list[RelayExpr]:
    return _running_extreme(x, dim, "less_equal")


def _running_extreme(x: RelayExpr, dim: int, operator: str) -> list[RelayExpr]:
    """A scan by doubling (Hillis and Steele): the last of equal ones, and NaN before all."""
    if not rank_of(x):
        return [x, constant(0, "int64")]
    data = cast(x, "int8") if dtype_of(x) == "bool" else x
    at = axis_of(dim, rank_of(data))
    whole = shape_of(data)[at]
    line = [-1 if axis == at else 1 for axis in range(rank_of(data))]
    places = call("broadcast_to", reshaped(places_of((0, whole, 1)), line), shape_of(data))
    step = 1
    while step < whole:
        earlier = [slice_(each, at, 0, whole - step) for each in (data, places)]
        later = [slice_(each, at, step, whole) for each in (data, places)]
        wins = call(operator, later[0], earlier[0])
        if is_float(data):
            wins = call("logical_or", wins, call("isnan", later[0]))
            lost = call("logical_and", call("isnan", earlier[0]),
                        call("logical_not", call("isnan", later[0])))
            wins = call("logical_and", wins, call("logical_not", lost))
        best = [call("where", wins, a, b) for a, b in zip(later, earlier, strict=True)]
        data, places = (
            cat([slice_(each, at, 0, step), new], at)
            for each, new in zip((data, places), best, strict=True)
        )
        step *= 2
    return [cast(data, dtype_of(x)), places]

"""Special functions: Bessel's and Airy's, of statistics, orthogonal polynomials."""

import math
from collections.abc import Callable

from sterna.frontend.calls import call, cast, dtype_of, like
from sterna.frontend.torch.convert_special import digamma, lgamma
from sterna.frontend.torch.promotion import Operand, as_float, floats
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr

# Functions of one tensor: PyTorch's names, and the operator's.
OF_ONE = {
    ("i0", "special_i0", "special_modified_bessel_i0", "prims::bessel_i0"): "bessel_i0",
    ("special_i1", "special_modified_bessel_i1", "prims::bessel_i1"): "bessel_i1",
    ("special_i0e", "prims::bessel_i0e"): "bessel_i0e",
    ("special_i1e", "prims::bessel_i1e"): "bessel_i1e",
    ("special_bessel_j0", "prims::bessel_j0"): "bessel_j0",
    ("special_bessel_j1", "prims::bessel_j1"): "bessel_j1",
    ("special_bessel_y0",): "bessel_y0",
    ("special_bessel_y1",): "bessel_y1",
    ("special_modified_bessel_k0",): "bessel_k0",
    ("special_modified_bessel_k1",): "bessel_k1",
    ("special_scaled_modified_bessel_k0",): "bessel_k0e",
    ("special_scaled_modified_bessel_k1",): "bessel_k1e",
    ("special_airy_ai",): "airy_ai",
    ("special_spherical_bessel_j0", "prims::spherical_bessel_j0"): "spherical_bessel_j0",
    ("special_erfcx", "prims::erfcx"): "erfcx",
    ("special_log_ndtr",): "log_ndtr",
    ("special_ndtri", "prims::ndtri"): "ndtri",
    ("erfinv", "special_erfinv", "prims::erf_inv"): "erfinv",
}

FAMILIES = (
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
    "chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he",
    "laguerre_polynomial_l", "legendre_polynomial_p",
)


def _of_one(operator: str) -> Callable[..., RelayExpr]:
    def convert(x: RelayExpr) -> RelayExpr:
        return call(f"special.{operator}", as_float(x))

    return convert


def _polynomial(family: str, is_shifted: bool) -> Callable[..., RelayExpr]:
    def convert(x: Operand, n: Operand) -> RelayExpr:
        data, degree = floats(x, n)
        if is_shifted:
            data = call("subtract", call("multiply", data, like(2, data)), like(1, data))
        return call(f"special.{family}", data, degree)

    return convert


for _names, _operator in OF_ONE.items():
    aten(*_names)(_of_one(_operator))
for _family in FAMILIES:
    aten(f"special_{_family}")(_polynomial(_family, is_shifted=False))
    aten(f"special_shifted_{_family}")(_polynomial(_family, is_shifted=True))


@aten("special_zeta", "prims::zeta")
def zeta(x: Operand, other: Operand) -> RelayExpr:
    return call("special.zeta", *floats(x, other))


@aten("polygamma", "special_polygamma")
def polygamma(n: int, x: RelayExpr) -> RelayExpr:
    """The n-th derivative of digamma: a zeta function from the first one on."""
    if n == 0:
        return digamma(x)
    wide = cast(as_float(x), "float64")
    made = call("special.zeta", like(n + 1, wide), wide)
    factor = math.factorial(n) * (1 if n % 2 else -1)
    return cast(call("multiply", made, like(factor, made)), dtype_of(as_float(x)))


def _incomplete_gamma(operator: str) -> Callable[..., RelayExpr]:
    def convert(x: RelayExpr, other: RelayExpr) -> RelayExpr:
        a, b = floats(x, other)
        wide = [cast(each, "float64") for each in (a, b)]
        return cast(call(operator, *wide, lgamma(wide[0])), dtype_of(a))

    return convert


aten("igamma", "special_gammainc", "prims::igamma")(_incomplete_gamma("special.igamma"))
aten("igammac", "special_gammaincc", "prims::igammac")(_incomplete_gamma("special.igammac"))


# ---- bits of floats ----


@aten("nextafter", "prims::nextafter")
def nextafter(x: RelayExpr, other: RelayExpr) -> RelayExpr:
    """The neighbour in the direction of another number: the next whole number of its bits."""
    a, b = floats(x, other)
    bits = {"float64": "int64", "float32": "int32"}.get(dtype_of(a), "int16")
    held = call("reinterpret", a, bits)
    away = call("equal", call("greater", b, a), call("greater", a, like(0, a)))
    moved = call("where", away, call("add", held, like(1, held)),
                 call("subtract", held, like(1, held)))
    made = call("reinterpret", moved, dtype_of(a))
    least = call("reinterpret", like(1, held), dtype_of(a))
    from_zero = call("where", call("greater", b, a), least, call("negative", least))
    made = call("where", call("equal", a, like(0, a)), from_zero, made)
    made = call("where", call("equal", a, b), b, made)
    return call("where", call("logical_or", call("isnan", a), call("isnan", b)),
                call("add", a, b), made)


@aten("frexp", "prims::frexp")
def frexp(x: RelayExpr) -> list[RelayExpr]:
    """A fraction between 1/2 and 1, and the power of two that it is multiplied by."""
    wide = cast(x, "float64")
    size = call("abs", wide)
    is_plain = call("logical_and", call("isfinite", wide), call("greater", size, like(0, wide)))
    safe = call("where", is_plain, size, like(1, wide))
    power = call("floor", call("log2", safe))
    mantissa = call("divide", safe, _power_of_two(power))
    high = call("greater_equal", mantissa, like(1, mantissa))
    power = call("where", high, call("add", power, like(1, power)), power)
    mantissa = call("where", high, call("multiply", mantissa, like(0.5, mantissa)), mantissa)
    low = call("less", mantissa, like(0.5, mantissa))
    power = call("where", low, call("subtract", power, like(1, power)), power)
    mantissa = call("where", low, call("multiply", mantissa, like(2, mantissa)), mantissa)
    is_negative = call("less", wide, like(0, wide))
    mantissa = call("where", is_negative, call("negative", mantissa), mantissa)
    mantissa = call("where", is_plain, mantissa, wide)
    power = call("where", is_plain, power, like(0, power))
    return [cast(mantissa, dtype_of(x)), cast(power, "int32")]


def _power_of_two(exponent: RelayExpr) -> RelayExpr:
    return call("power", like(2, exponent), exponent)

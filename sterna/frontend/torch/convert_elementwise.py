"""Functions of one element, and of two."""

import math

from sterna.frontend.calls import call, cast, constant, dtype_of, like, type_of
from sterna.frontend.torch.checks import not_zero
from sterna.frontend.torch.promotion import (
    Operand,
    as_float,
    as_type,
    floats,
    in_float32,
    is_float,
    result_type,
    scalar,
    together,
)
from sterna.frontend.torch.table import aten
from sterna.relay.arrays import float_info
from sterna.relay.expr import RelayExpr

# ---- functions of floats: whole numbers become floats before ----

_OF_FLOATS = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan",
    "atanh": "atanh", "cos": "cos", "cosh": "cosh", "erf": "erf", "special_erf": "erf",
    "exp": "exp", "expm1": "expm1", "special_expm1": "expm1", "log": "log", "log10": "log10",
    "log1p": "log1p", "special_log1p": "log1p", "log2": "log2", "rsqrt": "rsqrt",
    "sigmoid": "sigmoid", "special_expit": "sigmoid", "sin": "sin", "sinh": "sinh",
    "sqrt": "sqrt", "tan": "tan", "tanh": "tanh", "arccos": "acos", "arcsin": "asin",
    "arctan": "atan", "arccosh": "acosh", "arcsinh": "asinh", "arctanh": "atanh",
}


def _of_floats(name: str, operator: str) -> None:
    def convert(x: RelayExpr) -> RelayExpr:
        return call(operator, as_float(x))

    aten(name)(convert)


for _name, _operator in _OF_FLOATS.items():
    _of_floats(_name, _operator)


@aten("reciprocal")
def reciprocal(x: RelayExpr) -> RelayExpr:
    x = as_float(x)
    return call("divide", like(1, x), x)


@aten("exp2", "special_exp2")
def exp2(x: RelayExpr) -> RelayExpr:
    x = as_float(x)
    return call("power", like(2, x), x)


@aten("erfc", "special_erfc")
def erfc(x: RelayExpr) -> RelayExpr:
    """The complement in float64: 1 - erf(x) loses all digits of a small result in float32."""
    x = as_float(x)
    wide = cast(x, "float64")
    return cast(call("subtract", like(1, wide), call("erf", wide)), dtype_of(x))


@aten("deg2rad")
def deg2rad(x: RelayExpr) -> RelayExpr:
    x = as_float(x)
    return call("multiply", x, like(math.pi / 180, x))


@aten("rad2deg")
def rad2deg(x: RelayExpr) -> RelayExpr:
    x = as_float(x)
    return call("multiply", x, like(180 / math.pi, x))


@aten("sinc", "special_sinc")
@in_float32
def sinc(x: RelayExpr) -> RelayExpr:
    x = as_float(x)
    turned = call("multiply", x, like(math.pi, x))
    is_zero = call("equal", turned, like(0, x))
    safe = call("where", is_zero, like(1, x), turned)
    return call("where", is_zero, like(1, x), call("divide", call("sin", safe), safe))


@aten("logit", "special_logit")
def logit(x: RelayExpr, eps: float | None = None) -> RelayExpr:
    x = as_float(x)
    if eps is not None:
        x = clamp(x, eps, 1 - eps)
    return call("log", call("divide", x, call("subtract", like(1, x), x)))


@aten("log_sigmoid")
def log_sigmoid(x: RelayExpr) -> RelayExpr:
    small = call("minimum", x, like(0, x))
    return call("subtract", small, call("log1p", call("exp", _negated_abs(x))))


def _negated_abs(x: RelayExpr) -> RelayExpr:
    return call("negative", call("abs", x))


@aten("log_sigmoid_forward")
def log_sigmoid_forward(x: RelayExpr) -> list[RelayExpr]:
    """Beside the result what its gradient is computed from on CPUs."""
    return [log_sigmoid(x), call("exp", _negated_abs(x))]


@aten("special_entr")
def entr(x: RelayExpr) -> RelayExpr:
    x = as_float(x)
    inner = call("multiply", call("negative", x), call("log", x))
    kept = call("where", call("greater", x, like(0, x)), inner, like(-math.inf, x))
    zero = call("where", call("equal", x, like(0, x)), like(0, x), kept)
    return call("where", call("isnan", x), x, zero)


@aten("xlogy", "special_xlogy")
def xlogy(x: Operand, other: Operand) -> RelayExpr:
    a, b = floats(x, other)
    return _x_log(a, b, call("log", b))


@aten("special_xlog1py")
def xlog1py(x: Operand, other: Operand) -> RelayExpr:
    a, b = floats(x, other)
    return _x_log(a, b, call("log1p", b))


def _x_log(a: RelayExpr, b: RelayExpr, log: RelayExpr) -> RelayExpr:
    zero = call("where", call("equal", a, like(0, a)), like(0, a), call("multiply", a, log))
    return call("where", call("isnan", b), b, zero)


# ---- functions that keep the type ----

_TYPE_PRESERVING = {
    "abs": "abs", "absolute": "abs", "neg": "negative", "negative": "negative",
}
_ROUNDING = {"ceil": "ceil", "floor": "floor", "trunc": "trunc", "fix": "trunc"}
_COPIES = (
    "clone", "contiguous", "detach", "alias", "lift_fresh", "lift_fresh_copy", "lift", "positive",
    "resolve_conj", "resolve_neg", "conj", "_conj", "conj_physical", "_conj_physical", "real",
    "detach_copy", "alias_copy",
)


def _same_for_bools(name: str, operator: str, only_floats: bool) -> None:
    def convert(x: RelayExpr) -> RelayExpr:
        same = dtype_of(x) == "bool" or (only_floats and not is_float(x))
        return x if same else call(operator, x)

    aten(name)(convert)


for _name, _operator in _TYPE_PRESERVING.items():
    _same_for_bools(_name, _operator, False)
for _name, _operator in _ROUNDING.items():
    _same_for_bools(_name, _operator, True)


@aten("sign", "sgn")
def sign(x: RelayExpr) -> RelayExpr:
    """0 of what is not a number, as PyTorch has it; of a bool it is itself."""
    if dtype_of(x) == "bool":
        return x
    made = call("sign", x)
    return call("where", call("isnan", x), like(0, x), made) if is_float(x) else made


@aten(*_COPIES)
def same(x: RelayExpr) -> RelayExpr:
    return x


@aten("round", "special_round")
def round_even(x: RelayExpr, decimals: int = 0) -> RelayExpr:
    if not is_float(x):
        return x
    if not decimals:
        return call("round_even", x)
    factor = like(10.0 ** abs(decimals), x)
    first, last = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
    return call(last, call("round_even", call(first, x, factor)), factor)


@aten("frac")
def frac(x: RelayExpr) -> RelayExpr:
    return call("subtract", x, call("trunc", x))


@aten("square")
def square(x: RelayExpr) -> RelayExpr:
    x = cast(x, "int64") if dtype_of(x) == "bool" else x
    return call("multiply", x, x)


@aten("nan_to_num")
def nan_to_num(
    x: RelayExpr, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> RelayExpr:
    if not is_float(x):
        return x
    largest = float(float_info(dtype_of(x)).max)
    made = call("where", call("isnan", x), like(nan or 0.0, x), x)
    high, low = like(math.inf, x), like(-math.inf, x)
    top = like(largest if posinf is None else posinf, x)
    made = call("where", call("equal", x, high), top, made)
    bottom = like(-largest if neginf is None else neginf, x)
    return call("where", call("equal", x, low), bottom, made)


# ---- tests ----


@aten("isnan")
def isnan(x: RelayExpr) -> RelayExpr:
    return call("isnan", x) if is_float(x) else call("not_equal", x, x)


@aten("isinf")
def isinf(x: RelayExpr) -> RelayExpr:
    return call("isinf", x) if is_float(x) else call("not_equal", x, x)


@aten("isfinite")
def isfinite(x: RelayExpr) -> RelayExpr:
    return call("isfinite", x) if is_float(x) else call("equal", x, x)


@aten("isposinf")
def isposinf(x: RelayExpr) -> RelayExpr:
    return call("equal", x, like(math.inf, x)) if is_float(x) else call("not_equal", x, x)


@aten("isneginf")
def isneginf(x: RelayExpr) -> RelayExpr:
    return call("equal", x, like(-math.inf, x)) if is_float(x) else call("not_equal", x, x)


@aten("isreal")
def isreal(x: RelayExpr) -> RelayExpr:
    return call("full", constant(True), tuple(type_of(x).concrete_shape))


@aten("signbit")
def signbit(x: RelayExpr) -> RelayExpr:
    """The sign of a float is its highest bit, also that of zero."""
    if not is_float(x):
        return call("less", x, like(0, x)) if dtype_of(x) != "bool" else call("not_equal", x, x)
    bits = call("reinterpret", x, f"int{type_of(x).dtype.bits}")
    return call("less", bits, like(0, bits))


# ---- arithmetic of two ----


def _scaled(other: Operand, alpha: float, dtype: str) -> RelayExpr:
    made = as_type(other, dtype)
    if dtype == "bool":
        return call("logical_and", made, like(bool(alpha), made))
    return made if alpha == 1 else call("multiply", made, like(alpha, made))


def _sum(x: Operand, other: Operand, alpha: float, operator: str) -> RelayExpr:
    dtype = result_type(x, other)
    a, b = as_type(x, dtype), _scaled(other, alpha, dtype)
    if dtype == "bool":
        return call("logical_or", a, b)
    return call(operator, a, b)


@aten("add", "_unsafe_add")
def add(x: Operand, other: Operand, alpha: float = 1) -> RelayExpr:
    return _sum(x, other, alpha, "add")


@aten("sub", "subtract")
def sub(x: Operand, other: Operand, alpha: float = 1) -> RelayExpr:
    return _sum(x, other, alpha, "subtract")


@aten("rsub")
def rsub(x: Operand, other: Operand, alpha: float = 1) -> RelayExpr:
    dtype = result_type(x, other)
    return call("subtract", as_type(other, dtype), _scaled(x, alpha, dtype))


@aten("mul", "multiply")
def mul(x: Operand, other: Operand) -> RelayExpr:
    a, b = together(x, other)
    return call("logical_and" if dtype_of(a) == "bool" else "multiply", a, b)


@aten("div", "divide", "true_divide")
def div(x: Operand, other: Operand, rounding_mode: str | None = None) -> RelayExpr:
    if rounding_mode is None:
        return call("divide", *floats(x, other))
    a, b = together(x, other)
    if rounding_mode == "floor":
        return _floor_divide(a, b)
    if is_float(a):
        return call("trunc", call("divide", a, b))
    return call("trunc_divide", a, not_zero(b))


@aten("floor_divide")
def floor_divide(x: Operand, other: Operand) -> RelayExpr:
    return _floor_divide(*together(x, other))


@in_float32
def _floor_divide(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """The floor of the exact quotient: of floats by their remainder, as 1 // 0.1 is 9, not 10."""
    if not is_float(a):
        return call("floor_divide", a, not_zero(b))
    zero = like(0, a)
    rest = call("mod", a, b)
    turned = call("not_equal", call("less", b, zero), call("less", rest, zero))
    below = call("logical_and", call("not_equal", rest, zero), turned)
    whole = call("round", call("divide", call("subtract", a, rest), b))
    made = call("where", below, call("subtract", whole, like(1, a)), whole)
    return call("where", call("equal", b, zero), call("divide", a, b), made)


@aten("remainder")
def remainder(x: Operand, other: Operand) -> RelayExpr:
    a, b = together(x, other)
    return call("floor_mod", a, not_zero(b))


@aten("fmod")
def fmod(x: Operand, other: Operand) -> RelayExpr:
    a, b = together(x, other)
    return call("mod" if is_float(a) else "trunc_mod", a, not_zero(b))


@aten("gcd")
def gcd(x: RelayExpr, other: RelayExpr) -> RelayExpr:
    return call("gcd", *together(x, other))


@aten("lcm")
def lcm(x: RelayExpr, other: RelayExpr) -> RelayExpr:
    """The product of two without what they share; of zeros it is 0, as quotients by 0 are."""
    a, b = together(x, other)
    return call("abs", call("multiply", call("trunc_divide", a, call("gcd", a, b)), b))


@aten("pow")
def power(x: Operand, exponent: Operand) -> RelayExpr:
    a, b = together(x, exponent)
    if isinstance(exponent, int | float) and exponent == 2:
        return call("multiply", a, a)
    if isinstance(exponent, float) and exponent == 0.5:
        return call("sqrt", a)
    return call("power", a, b)


@aten("float_power")
def float_power(x: Operand, exponent: Operand) -> RelayExpr:
    return power(as_type(x, "float64"), as_type(exponent, "float64"))


@aten("ldexp")
def ldexp(x: Operand, other: Operand) -> RelayExpr:
    a, b = floats(x, other)
    return call("multiply", a, call("power", like(2, b), b))


@aten("maximum", "max.other")
def maximum(x: Operand, other: Operand) -> RelayExpr:
    return _extreme(x, other, "maximum")


@aten("minimum", "min.other")
def minimum(x: Operand, other: Operand) -> RelayExpr:
    return _extreme(x, other, "minimum")


def _extreme(x: Operand, other: Operand, operator: str) -> RelayExpr:
    a, b = together(x, other)
    if dtype_of(a) == "bool":
        return call("logical_or" if operator == "maximum" else "logical_and", a, b)
    made = call(operator, a, b)
    if not is_float(a):
        return made
    made = call("where", call("isnan", b), b, made)
    return call("where", call("isnan", a), a, made)


def _number_first(x: Operand, other: Operand, operator: str) -> RelayExpr:
    """NaN only where both operands are."""
    a, b = together(x, other)
    if not is_float(a):
        return _extreme(x, other, operator)
    made = call("where", call("isnan", b), a, call(operator, a, b))
    return call("where", call("isnan", a), b, made)


@aten("fmax")
def fmax(x: Operand, other: Operand) -> RelayExpr:
    return _number_first(x, other, "maximum")


@aten("fmin")
def fmin(x: Operand, other: Operand) -> RelayExpr:
    return _number_first(x, other, "minimum")


@aten("clamp", "clip")
def clamp(x: RelayExpr, min: Operand | None = None, max: Operand | None = None) -> RelayExpr:
    bounds = [bound for bound in (min, max) if bound is not None]
    made: RelayExpr = as_type(x, result_type(x, *bounds))
    if min is not None:
        made = _extreme(made, min, "maximum")
    return made if max is None else _extreme(made, max, "minimum")


@aten("clamp_min")
def clamp_min(x: RelayExpr, min: Operand) -> RelayExpr:
    return clamp(x, min)


@aten("clamp_max")
def clamp_max(x: RelayExpr, max: Operand) -> RelayExpr:
    return clamp(x, None, max)


@aten("addcmul")
@in_float32
def addcmul(
    x: RelayExpr, tensor1: RelayExpr, tensor2: RelayExpr, value: float = 1
) -> RelayExpr:
    return add(x, mul(tensor1, tensor2), value)


@aten("prims::fma")
@in_float32
def multiply_add(a: RelayExpr, b: RelayExpr, c: RelayExpr) -> RelayExpr:
    return add(mul(a, b), c)


@aten("addcdiv")
@in_float32
def addcdiv(
    x: RelayExpr, tensor1: RelayExpr, tensor2: RelayExpr, value: float = 1
) -> RelayExpr:
    return add(x, div(tensor1, tensor2), value)


@aten("lerp")
@in_float32
def lerp(x: RelayExpr, end: RelayExpr, weight: Operand) -> RelayExpr:
    """Counted from the nearer end, so that both ends are exact."""
    factor = scalar(weight, x)
    distance = call("subtract", end, x)
    low = call("add", x, call("multiply", factor, distance))
    rest = call("subtract", like(1, x), factor)
    high = call("subtract", end, call("multiply", distance, rest))
    return call("where", call("less", call("abs", factor), like(0.5, x)), low, high)


@aten("atan2", "arctan2")
@in_float32
def atan2(x: Operand, other: Operand) -> RelayExpr:
    """The angle of a point, by the quadrant that it lies in."""
    y, base = floats(x, other)
    zero = like(0, y)
    steep = call("greater", call("abs", y), call("abs", base))
    over = call("where", steep, base, y)
    under = call("where", steep, y, base)
    safe = call("where", call("equal", under, zero), like(1, y), under)
    angle = call("atan", call("divide", over, safe))
    up = call("where", call("less", y, zero), like(-math.pi / 2, y), like(math.pi / 2, y))
    turn = call("where", signbit(y), like(-math.pi, y), like(math.pi, y))
    flat = call("where", signbit(base), call("add", angle, turn), angle)
    made = call("where", steep, call("subtract", up, angle), flat)
    lost = call("logical_or", isnan(y), isnan(base))
    return call("where", lost, like(math.nan, y), made)


@aten("hypot")
def hypot(x: Operand, other: Operand) -> RelayExpr:
    """Of what was divided by the larger one first, so that no square overflows."""
    a, b = (call("abs", each) for each in floats(x, other))
    larger, smaller = call("maximum", a, b), call("minimum", a, b)
    zero, one, endless = (like(number, larger) for number in (0, 1, math.inf))
    quotient = call("divide", smaller, call("where", call("equal", larger, zero), one, larger))
    sum_of_squares = call("add", one, call("multiply", quotient, quotient))
    made = call("multiply", larger, call("sqrt", sum_of_squares))
    lost = call("logical_or", isnan(a), isnan(b))
    is_endless = call("logical_or", call("equal", a, endless), call("equal", b, endless))
    return call("where", is_endless, endless, call("where", lost, like(math.nan, made), made))


@aten("copysign")
def copysign(x: Operand, other: Operand) -> RelayExpr:
    a, b = floats(x, other)
    size = call("abs", a)
    return call("where", signbit(b), call("negative", size), size)


@aten("heaviside")
def heaviside(x: RelayExpr, values: RelayExpr) -> RelayExpr:
    a, b = together(x, values)
    step = cast(call("greater", a, like(0, a)), dtype_of(a))
    made = call("where", call("equal", a, like(0, a)), b, step)
    return call("where", isnan(a), a, made) if is_float(a) else made


@aten("logaddexp")
@in_float32
def logaddexp(x: Operand, other: Operand) -> RelayExpr:
    a, b = floats(x, other)
    return _log_sum(a, b, "exp", "log1p")


def _log_sum(a: RelayExpr, b: RelayExpr, exp: str, log: str) -> RelayExpr:
    high = call("maximum", a, b)
    ratio = call(exp, call("negative", call("abs", call("subtract", a, b))))
    made = call("add", high, call(log, ratio))
    return call("where", call("equal", a, b), call("add", a, call(log, like(1, a))), made)


@aten("logaddexp2")
@in_float32
def logaddexp2(x: Operand, other: Operand) -> RelayExpr:
    a, b = floats(x, other)
    turn = like(math.log(2), a)
    made = _log_sum(call("multiply", a, turn), call("multiply", b, turn), "exp", "log1p")
    return call("divide", made, turn)


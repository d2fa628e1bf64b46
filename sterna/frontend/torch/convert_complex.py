"""Complex numbers as pairs of tensors.

A complex value is a tuple of its real and its imaginary part. Converters of complex operands are
registered under `complex::`, beside those of real ones; a program's complex inputs, weights and
results have both parts along a last axis, as torch.view_as_real gives them.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from sterna.frontend.calls import call, fields_of, like
from sterna.frontend.torch.complex_pairs import (
    PARTS,
    both_parts,
    is_complex,
    pair,
    stacked,
    unstacked,
)
from sterna.frontend.torch.convert_elementwise import atan2, hypot, signbit
from sterna.frontend.torch.convert_shape import shape_of
from sterna.frontend.torch.promotion import floats
from sterna.frontend.torch.table import aten, call_converter, converter_of
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

# ---- making and taking apart ----


@aten("complex")
def complex_of(real: RelayExpr, imag: RelayExpr) -> RelayExpr:
    return pair(*_same_shape(*floats(real, imag)))


def _same_shape(a: RelayExpr, b: RelayExpr) -> list[RelayExpr]:
    zero = call("multiply", a, like(0, a)), call("multiply", b, like(0, b))
    if shape_of(a) == shape_of(b):
        return [a, b]
    return [call("add", a, zero[1]), call("add", b, zero[0])]


@aten("polar")
def polar(abs: RelayExpr, angle: RelayExpr) -> RelayExpr:
    size, turn = _same_shape(*floats(abs, angle))
    return pair(call("multiply", size, call("cos", turn)),
                call("multiply", size, call("sin", turn)))


@aten("view_as_complex")
def view_as_complex(x: RelayExpr) -> RelayExpr:
    return unstacked(x)


@aten("view_as_real", "complex::view_as_real")
def view_as_real(x: RelayExpr) -> RelayExpr:
    return stacked(x)


@aten("complex::real")
def real(x: RelayExpr) -> RelayExpr:
    return fields_of(x)[0]


@aten("imag", "complex::imag")
def imag(x: RelayExpr) -> RelayExpr:
    return fields_of(x)[1]


@aten("complex::conj", "complex::_conj", "complex::conj_physical", "complex::_conj_physical")
def conj(x: RelayExpr) -> RelayExpr:
    a, b = fields_of(x)
    return pair(a, call("negative", b))


@aten("complex::clone", "complex::resolve_conj", "complex::resolve_neg", "complex::contiguous",
      "complex::detach", "complex::alias", "complex::lift_fresh_copy")
def same(x: RelayExpr) -> RelayExpr:
    return x


# ---- what each part is done to alone ----


def _of_part(value: Any, part: int, wants_both: bool) -> Any:
    """The operand of one part; wants_both: where a real one is a complex one without the other."""
    if isinstance(value, list | tuple):
        return [_of_part(each, part, wants_both) for each in value]
    if is_complex(value) or (wants_both and isinstance(value, RelayExpr)):
        return both_parts(value)[part]
    if wants_both and isinstance(value, int | float | complex):
        return (value.real, value.imag)[part]
    return value


def _by_parts(name: str, wants_both: Sequence[str] = ()) -> Callable[..., Any]:
    """A converter that lets another convert both parts; wants_both: arguments that are values."""

    def convert(**given: Any) -> Any:
        plain, dtype = converter_of(f"aten.{name}"), given.get("dtype")
        if plain is None or dtype not in (None, *PARTS):
            raise OpNotImplemented(f"{name} of complex operands")
        given = given if dtype is None else {**given, "dtype": PARTS[dtype]}
        made: list[Any] = [
            call_converter(plain, {
                key: _of_part(value, part, key in wants_both) for key, value in given.items()
            }) for part in (0, 1)
        ]
        if isinstance(made[0], RelayExpr):
            return pair(*made)
        return [pair(*each) for each in zip(*made, strict=True)]

    return convert


for _name in (
    "view", "reshape", "_unsafe_view", "_reshape_alias", "unsqueeze", "squeeze", "transpose", "t",
    "permute", "movedim", "swapaxes", "flatten", "unflatten", "ravel", "expand", "repeat", "tile",
    "roll", "flip", "rot90", "slice", "select", "narrow", "diagonal", "tril", "triu", "unfold",
    "index", "index_select", "gather", "take", "split", "split_with_sizes", "chunk", "unbind",
    "neg", "negative", "sum", "mean", "cumsum", "trace", "zeros_like", "numpy_T", "diag_embed",
    "new_zeros", "constant_pad_nd", "mT",
    "expand_copy", "view_copy", "select_backward", "slice_backward", "diff", "as_strided",
    "diag", "diagonal_copy", "alias_copy", "unsafe_chunk", "as_strided_copy", "narrow_copy",
    "permute_copy", "unsafe_split", "split_with_sizes_copy", "unbind_copy", "unfold_copy",
    "broadcast_tensors", "meshgrid", "fliplr", "flipud",
):
    aten(f"complex::{_name}")(_by_parts(_name))
for _name, _values in (
    ("cat", ["tensors"]), ("stack", ["tensors"]), ("hstack", ["tensors"]),
    ("vstack", ["tensors"]), ("where", ["x", "other"]), ("lerp.Scalar", ["x", "end"]),
    ("select_scatter", ["x", "src"]), ("slice_scatter", ["x", "src"]),
    ("diagonal_scatter", ["x", "src"]), ("as_strided_scatter", ["x", "src"]),
    ("dstack", ["tensors"]), ("column_stack", ["tensors"]), ("scatter.src", ["x", "src"]),
    ("scatter_add", ["x", "src"]), ("index_copy", ["x", "source"]),
    ("masked_scatter", ["x", "source"]), ("index_put", ["x", "values"]), ("copy", ["x", "src"]),
    ("masked_fill", ["x", "value"]),
):
    aten(f"complex::{_name}")(_by_parts(_name, _values))


# ---- arithmetic ----


def _numbers(x: Any, beside: Any) -> list[RelayExpr]:
    """Both parts of an operand, which may be one of Python's numbers beside a tensor."""
    if isinstance(x, RelayExpr):
        return both_parts(x)
    first = both_parts(beside)[0]
    return [like(part, first) for part in (x.real, x.imag)]


def sums_of(operator: str) -> Callable[..., RelayExpr]:
    def convert(x: Any, other: Any, alpha: Any = 1) -> RelayExpr:
        if alpha != 1:
            other = mul(other, alpha) if isinstance(other, RelayExpr) else other * alpha
        added = _numbers(other, x)
        both = zip(_numbers(x, other), added, strict=True)
        return pair(*(call(operator, *each) for each in both))

    return convert


aten("complex::add")(sums_of("add"))
aten("complex::sub")(sums_of("subtract"))


@aten("complex::rsub")
def rsub(x: Any, other: Any, alpha: Any = 1) -> RelayExpr:
    return sums_of("subtract")(other, x if alpha == 1 else mul(x, alpha))


@aten("complex::mul", "complex::multiply")
def mul(x: Any, other: Any) -> RelayExpr:
    return product_of(_numbers(x, other), _numbers(other, x), "multiply")


def product_of(
    x: Sequence[RelayExpr], other: Sequence[RelayExpr], times: str | Callable[..., Any]
) -> RelayExpr:
    def product(p: RelayExpr, q: RelayExpr) -> Any:
        return call(times, p, q) if isinstance(times, str) else times(p, q)

    (a, b), (c, d) = x, other
    first = call("subtract", product(a, c), product(b, d))
    return pair(first, call("add", product(a, d), product(b, c)))


@aten("complex::div", "complex::true_divide", "complex::divide")
def div(x: Any, other: Any) -> RelayExpr:
    divisor = _numbers(other, x)
    if not is_complex(other) and not isinstance(other, complex):
        return pair(*(call("divide", each, divisor[0]) for each in _numbers(x, other)))
    scale = call("maximum", *(call("abs", each) for each in divisor))  # no square overflows
    c, d = (call("divide", each, scale) for each in divisor)
    made = product_of(_numbers(x, other), [c, call("negative", d)], "multiply")
    size = call("multiply", scale, call("add", call("multiply", c, c), call("multiply", d, d)))
    return pair(*(call("divide", each, size) for each in fields_of(made)))


@aten("complex::reciprocal")
def reciprocal(x: RelayExpr) -> RelayExpr:
    return div(1, x)


@aten("complex::square")
def square(x: RelayExpr) -> RelayExpr:
    return mul(x, x)


@aten("complex::abs")
def size_of(x: RelayExpr) -> RelayExpr:
    return hypot(*fields_of(x))


@aten("complex::angle")
def angle(x: RelayExpr) -> RelayExpr:
    a, b = fields_of(x)
    return atan2(b, a)


@aten("complex::sgn")
def direction(x: RelayExpr) -> RelayExpr:
    size = size_of(x)
    is_zero = call("equal", size, like(0, size))
    divisor = call("where", is_zero, like(1, size), size)
    return pair(*(call("divide", each, divisor) for each in fields_of(x)))


@aten("complex::exp")
def exp(x: RelayExpr) -> RelayExpr:
    a, b = fields_of(x)
    return polar(call("exp", a), b)


@aten("complex::log")
def log(x: RelayExpr) -> RelayExpr:
    return pair(call("log", size_of(x)), angle(x))


@aten("complex::sqrt")
def sqrt(x: RelayExpr) -> RelayExpr:
    """The root with a real part of at least 0, of parts that do not cancel."""
    a, b = fields_of(x)
    size, zero = size_of(x), like(0, a)
    long = call("sqrt", call("divide", call("add", size, call("abs", a)), like(2, a)))
    is_zero = call("equal", size, zero)
    divisor = call("where", is_zero, like(1, a), call("multiply", like(2, a), long))
    short = call("divide", call("abs", b), divisor)
    is_right = call("greater_equal", a, zero)
    real, up = (call("where", is_right, *each) for each in ((long, short), (short, long)))
    return pair(real, call("where", signbit(b), call("negative", up), up))


@aten("complex::rsqrt")
def rsqrt(x: RelayExpr) -> RelayExpr:
    return div(1, sqrt(x))


@aten("complex::tanh")
def tanh(x: RelayExpr) -> RelayExpr:
    """Of tanh a = t and tan b = u (t + u i) / (1 + t u i), without exponentials that overflow."""
    a, b = fields_of(x)
    t, u = call("tanh", a), call("tan", b)
    one = like(1, a)
    product, beside = call("multiply", t, u), call("subtract", one, call("multiply", t, t))
    size = call("add", one, call("multiply", product, product))
    grown = call("multiply", t, call("add", one, call("multiply", u, u)))
    return pair(call("divide", grown, size), call("divide", call("multiply", u, beside), size))


@aten("complex::pow")
def power(x: Any, exponent: Any) -> RelayExpr:
    """To one real number: its power of the size, turned as often as it says.

    To others e to the logarithm times the exponent.
    """
    if isinstance(exponent, complex) and exponent.imag == 0:
        exponent = exponent.real
    if isinstance(exponent, int | float):
        if exponent == 2:
            return mul(x, x)
        size = size_of(x)
        grown = call("power", size, like(exponent, size))
        return polar(grown, call("multiply", angle(x), like(exponent, size)))
    base, grade = (
        pair(*_numbers(one, other)) for one, other in ((x, exponent), (exponent, x))
    )
    is_zero, real = eq(base, 0), fields_of(grade)[0]
    zero, nan, inf = (like(each, real) for each in (0, math.nan, math.inf))
    vanishes, grows = call("greater", real, zero), call("less", real, zero)
    of_zero = call("where", vanishes, zero, call("where", grows, inf, nan))
    made = fields_of(exp(mul(log(base), grade)))
    return pair(call("where", is_zero, of_zero, made[0]),
                call("where", is_zero, call("where", vanishes, zero, nan), made[1]))


@aten("complex::tan")
def tan(x: RelayExpr) -> RelayExpr:
    return _turned(tanh(_turned(x, 1)), -1)


@aten("complex::sigmoid")
def sigmoid(x: RelayExpr) -> RelayExpr:
    away = exp(pair(*(call("negative", part) for part in fields_of(x))))
    return reciprocal(sums_of("add")(away, 1))


@aten("complex::log2")
def log2(x: RelayExpr) -> RelayExpr:
    return div(log(x), math.log(2))


@aten("complex::log10")
def log10(x: RelayExpr) -> RelayExpr:
    return div(log(x), math.log(10))


@aten("complex::cosh")
def cosh(x: RelayExpr) -> RelayExpr:
    return _of_growth(x, "cosh", "sinh")


@aten("complex::sinh")
def sinh(x: RelayExpr) -> RelayExpr:
    return _of_growth(x, "sinh", "cosh")


def _of_growth(x: RelayExpr, first: str, second: str) -> RelayExpr:
    """f(a) cos b + g(a) sin b i, which cosh and sinh are."""
    a, b = fields_of(x)
    return pair(call("multiply", call(first, a), call("cos", b)),
                call("multiply", call(second, a), call("sin", b)))


def _turned(x: RelayExpr, quarters: int) -> RelayExpr:
    """A number times i, or times -i."""
    a, b = fields_of(x)
    return pair(call("negative", b), a) if quarters > 0 else pair(b, call("negative", a))


@aten("complex::cos")
def cos(x: RelayExpr) -> RelayExpr:
    return cosh(_turned(x, 1))


@aten("complex::sin")
def sin(x: RelayExpr) -> RelayExpr:
    return _turned(sinh(_turned(x, 1)), -1)


@aten("complex::eq")
def eq(x: Any, other: Any) -> RelayExpr:
    both = zip(_numbers(x, other), _numbers(other, x), strict=True)
    return call("logical_and", *(call("equal", *each) for each in both))


@aten("complex::ne")
def ne(x: Any, other: Any) -> RelayExpr:
    return call("logical_not", eq(x, other))


@aten("complex::isnan")
def isnan(x: RelayExpr) -> RelayExpr:
    return call("logical_or", *(call("isnan", part) for part in fields_of(x)))


@aten("complex::isfinite")
def isfinite(x: RelayExpr) -> RelayExpr:
    return call("logical_and", *(call("isfinite", part) for part in fields_of(x)))


@aten("complex::isinf")
def isinf(x: RelayExpr) -> RelayExpr:
    return call("logical_or", *(call("isinf", part) for part in fields_of(x)))


@aten("complex::ones_like", "complex::full_like")
def full_like(
    x: RelayExpr, fill_value: complex | float = 1, dtype: str | None = None
) -> RelayExpr:
    """Of the same shape; a real type is what was asked for."""
    real = fields_of(x)[0]
    parts = [call("full_like", real, like(part, real))
             for part in (fill_value.real, fill_value.imag)]
    if dtype is not None and dtype not in PARTS:
        return call("cast", parts[0], dtype)
    return pair(*parts)

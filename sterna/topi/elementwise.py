"""Functions of elements: of one operand, of two that are broadcast, casts and limits."""

from typing import Any

from sterna.ir.build import as_expr
from sterna.ir.build import cast as cast_expr
from sterna.relay.expr import const
from sterna.te import Tensor
from sterna.tir import op as functions
from sterna.topi.operators import apply_operator, operator
from sterna.topi.stage import stage
from sterna.topi.tag import ELEMWISE

_OF_EXPRESSIONS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: functions.div(a, b),
    "floor_divide": lambda a, b: functions.floordiv(a, b),
    "floor_mod": lambda a, b: functions.floormod(a, b),
    "mod": lambda a, b: functions.truncmod(a, b),
    "maximum": lambda a, b: functions.max(a, b),
    "minimum": lambda a, b: functions.min(a, b),
    "power": lambda a, b: functions.power(a, b),
}


def _binary(name: str) -> Any:
    def make(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, Tensor):
            return apply_operator(name, lhs, _like(rhs, lhs))
        if isinstance(rhs, Tensor):
            return apply_operator(name, _like(lhs, rhs), rhs)
        if name not in _OF_EXPRESSIONS:
            raise TypeError(f"topi.{name} takes a tensor at least on one side")
        return _OF_EXPRESSIONS[name](as_expr(lhs), as_expr(rhs))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{name} of two tensors that are broadcast, of a tensor and a number, or of two."
    return make


def _like(value: Any, other: Tensor) -> Any:
    """The second operand: a tensor, or a number in the type of the other."""
    return value if isinstance(value, Tensor) else const(value, str(other.dtype))


add = _binary("add")
subtract = _binary("subtract")
multiply = _binary("multiply")
divide = _binary("divide")
floor_divide = _binary("floor_divide")
trunc_divide = _binary("trunc_divide")
mod = _binary("mod")
floor_mod = _binary("floor_mod")
trunc_mod = _binary("trunc_mod")
maximum = _binary("maximum")
minimum = _binary("minimum")
power = _binary("power")
left_shift = _binary("left_shift")
right_shift = _binary("right_shift")
equal = _binary("equal")
not_equal = _binary("not_equal")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
less = _binary("less")
less_equal = _binary("less_equal")
logical_and = _binary("logical_and")
logical_or = _binary("logical_or")
logical_xor = _binary("logical_xor")
bitwise_and = _binary("bitwise_and")
bitwise_or = _binary("bitwise_or")
bitwise_xor = _binary("bitwise_xor")

abs = operator("abs")
acos = operator("acos")
acosh = operator("acosh")
asin = operator("asin")
asinh = operator("asinh")
atan = operator("atan")
atanh = operator("atanh")
bitwise_not = operator("bitwise_not")
ceil = operator("ceil")
cos = operator("cos")
cosh = operator("cosh")
erf = operator("erf")
exp = operator("exp")
fast_erf = operator("fast_erf")
fast_exp = operator("fast_exp")
fast_tanh = operator("fast_tanh")
floor = operator("floor")
isfinite = operator("isfinite")
isinf = operator("isinf")
isnan = operator("isnan")
log = operator("log")
log10 = operator("log10")
log2 = operator("log2")
logical_not = operator("logical_not")
negative = operator("negative")
round = operator("round")
rsqrt = operator("rsqrt")
sigmoid = operator("sigmoid")
sign = operator("sign")
sin = operator("sin")
sinh = operator("sinh")
sqrt = operator("sqrt")
tan = operator("tan")
tanh = operator("tanh")
trunc = operator("trunc")
clip = operator("clip")
reinterpret = operator("reinterpret")
full_like = operator("full_like")


def identity(x: Tensor) -> Tensor:
    """A copy."""
    return stage(x.shape, lambda *i: x(*i), name="T_identity", tag=ELEMWISE)


def cast(x: Any, dtype: str, span: Any = None) -> Any:
    """A tensor or an expression in another type."""
    if isinstance(x, Tensor):
        return stage(
            x.shape, lambda *i: cast_expr(dtype, x(*i)), name="T_cast", tag=ELEMWISE
        )
    return cast_expr(dtype, as_expr(x))


def elemwise_sum(xs: list[Tensor]) -> Tensor:
    """The sum of tensors of one shape."""
    if not xs:
        raise ValueError("elemwise_sum takes at least one tensor")

    def total(*indices: Any) -> Any:
        result = xs[0](*indices)
        for x in xs[1:]:
            result = result + x(*indices)
        return result

    return stage(xs[0].shape, total, name="T_elemwise_sum", tag=ELEMWISE)


def full(shape: Any, dtype: str, fill_value: Any) -> Tensor:
    """A tensor of one number."""
    number = cast_expr(dtype, as_expr(fill_value))
    return stage(tuple(shape), lambda *_: number, name="T_full", tag=ELEMWISE)

"""Say functions that a code generator has not by those that it has."""

from collections.abc import Callable, Collection

from sterna.ir import build
from sterna.ir.expr import Call, Cast, Expr, FloatImm, IntImm, Let, Select, Var
from sterna.ir.visitor import Rewriter
from sterna.support.dtype import DataType
from sterna.tir.stmt import PrimFunc

FLOAT32 = DataType("float32")


def lower_intrin(func: PrimFunc, implemented: Collection[str] = ()) -> PrimFunc:
    """sigmoid(x)   ->   1 / (1 + exp(0 - x))

    and so on for the functions below, except for those that are implemented for floats. What they
    say of integers is never a function: floor(i) is i, isnan(i) is false.
    """
    return func.with_body(_Lowering(implemented).rewrite(func.body))


class _Lowering(Rewriter):
    def __init__(self, implemented: Collection[str]) -> None:
        self.implemented = implemented

    def visit_Call(self, call: Call) -> Expr:
        done: Call = self.rewrite_children(call)
        lowered = lower_call(done, self.implemented)
        return done if lowered is None else self.rewrite(lowered)


def lower_call(call: Call, implemented: Collection[str]) -> Expr | None:
    """A call in other terms; None if it can stay."""
    rule = _RULES.get(call.op)
    if rule is None:
        return None
    dtype = call.args[0].dtype
    if not dtype.is_float:
        return _of_integers(call)
    if call.op in implemented or rule is _never:
        return None
    if dtype.bits >= FLOAT32.bits:
        return rule(call.args[0])
    wide = FLOAT32.with_lanes(dtype.lanes)  # so that the result is rounded once
    return Cast(dtype, rule(Cast(wide, call.args[0])))


def _of_integers(call: Call) -> Expr | None:
    x = call.args[0]
    dtype = x.dtype
    if call.op in ("isnan", "isinf", "isfinite"):
        return build.cast(call.dtype, IntImm(call.dtype.element, int(call.op == "isfinite")))
    if call.op == "abs" and dtype.is_int:
        number = Var("x", dtype)
        zero = build.const(0, dtype)
        return Let(number, x, Select(number < zero, zero - number, number))
    return x if dtype.is_integer or dtype.is_bool else None


def _number(value: float, like: Expr) -> Expr:
    return build.cast(like.dtype, FloatImm(like.dtype.element, value))


def _sigmoid(x: Expr) -> Expr:
    one = _number(1.0, x)
    return one / (one + Call(x.dtype, "exp", (_number(0.0, x) - x,)))


def _exp10(x: Expr) -> Expr:
    return Call(x.dtype, "pow", (_number(10.0, x), x))


def _rsqrt(x: Expr) -> Expr:
    return _number(1.0, x) / Call(x.dtype, "sqrt", (x,))


def _never(x: Expr) -> Expr:
    """A function that every code generator has for floats."""
    return x


_RULES: dict[str, Callable[[Expr], Expr]] = {
    "sigmoid": _sigmoid,
    "exp10": _exp10,
    "rsqrt": _rsqrt,
    **dict.fromkeys(
        ("abs", "floor", "ceil", "trunc", "round", "nearbyint", "isnan", "isinf", "isfinite"),
        _never,
    ),
}

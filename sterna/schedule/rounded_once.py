"""Narrow floats of an expression computed in float32, and rounded once at its end.

Each operation on bfloat16 rounds, which costs as much as several operations; what is computed of an
element while it is in registers need not. What is rounded to bfloat16 at last may be off by a few
millionths before: functions take fewer instructions then.
"""

from sterna.ir import build
from sterna.ir.build import bind
from sterna.ir.expr import BinaryExpr, Call, Cast, Div, Expr, FloatImm, IntImm, Not, Select
from sterna.ir.node import Node, map_children
from sterna.schedule.exponential import polynomial
from sterna.schedule.products import FLOAT32, wide
from sterna.support.dtype import DataType
from sterna.tir.intrinsics import INTRINSICS
from sterna.tir.stmt import BufferLoad

# erf(x) / x for |x| <= ERF_MOST, above which erf is 1, of 2 * (x / ERF_MOST)**2 - 1.
ERF_MOST = 3.5
_ERF = (
    0.403872984, -0.200701038, 0.146750182, -0.114612746, 0.0884021555, -0.0647706758,
    0.0450155394, -0.0300316878, 0.0170494159, -0.00722799494, 0.00447448006, -0.00398733269,
    0.0014808662,
)


def rounded_once(expr: Expr) -> Expr:
    """cast(bfloat16, cast(bfloat16, x) + b) -> round_bfloat16(x + cast(float32, b))"""
    if expr.dtype != "bfloat16":
        return build.cast(expr.dtype, _Widening(False).of(expr))
    return Call(expr.dtype, "round_bfloat16", (_Widening(True).of(expr),))


def short_erf(x: Expr) -> Expr:
    """The error function of a float32, off by less than 3e-6 of it and 1e-6 in all."""
    held = build.maximum(-ERF_MOST, build.minimum(ERF_MOST, x))  # NaN stays
    return bind(held, lambda h: bind(h * h * (2 / ERF_MOST**2) - 1.0, _erf_over_x, "u") * h, "h")


def _erf_over_x(u: Expr) -> Expr:
    return polynomial(u, _ERF)


def _is_narrow(dtype: DataType) -> bool:
    return wide(dtype.element) != dtype.element


def _is_one_number(expr: Expr) -> bool:
    """Whether it is the same for all elements, so that what is made of it is computed once."""
    if isinstance(expr, Cast):
        return _is_one_number(expr.value)
    constant = isinstance(expr, BufferLoad) and all(isinstance(i, IntImm) for i in expr.indices)
    return constant or isinstance(expr, FloatImm)


class _Widening:
    """float32 in the place of narrow floats; what reads bits stays."""

    def __init__(self, is_short: bool) -> None:
        self.is_short = is_short

    def of(self, expr: Node) -> Expr:
        """The expression in float32, if it is of narrow floats, and all that it is made of."""
        assert isinstance(expr, Expr)
        target = FLOAT32 if _is_narrow(expr.dtype) else expr.dtype
        if isinstance(expr, Cast):
            return build.cast(target, self.of(expr.value))
        if isinstance(expr, FloatImm):
            return FloatImm(target, expr.value)
        if isinstance(expr, Call):
            return self._call(expr, target)
        if self.is_short and isinstance(expr, Div) and _is_one_number(expr.b):
            return self.of(expr.a) * (build.const(1.0, target) / self.of(expr.b))
        if isinstance(expr, BinaryExpr | Select | Not):
            return map_children(expr, self.of)
        return build.cast(target, expr)

    def _call(self, expr: Call, target: DataType) -> Expr:
        row = INTRINSICS.get(expr.op)
        if self.is_short and expr.op == "erf" and target == FLOAT32:
            return short_erf(self.of(expr.args[0]))
        if expr.op == "if_then_else" or (row is not None and row.compute is not None):
            return Call(target, expr.op, tuple(self.of(arg) for arg in expr.args))
        return build.cast(target, expr)

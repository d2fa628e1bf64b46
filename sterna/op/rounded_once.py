"""Narrow floats of an expression computed in float32, and rounded once at its end.

Each operation on bfloat16 rounds, which costs as much as several operations; what is computed of an
element while it is in registers need not.
"""

from sterna.ir import build
from sterna.ir.expr import BinaryExpr, Call, Cast, Expr, FloatImm, Not, Select
from sterna.ir.node import Node, map_children
from sterna.op.products import FLOAT32, wide
from sterna.support.dtype import DataType
from sterna.tir.intrinsics import INTRINSICS


def rounded_once(expr: Expr) -> Expr:
    """cast(bfloat16, cast(bfloat16, x) + b) -> round_bfloat16(x + cast(float32, b))"""
    made = _widened(expr)
    if expr.dtype == "bfloat16":
        return Call(expr.dtype, "round_bfloat16", (made,))
    return build.cast(expr.dtype, made)


def _is_narrow(dtype: DataType) -> bool:
    return wide(dtype.element) != dtype.element


def _widened(expr: Node) -> Expr:
    """The expression with float32 in the place of narrow floats; what reads bits stays."""
    assert isinstance(expr, Expr)
    narrow = _is_narrow(expr.dtype)
    target = FLOAT32 if narrow else expr.dtype
    if isinstance(expr, Cast):
        return build.cast(target, _widened(expr.value))
    if isinstance(expr, FloatImm):
        return FloatImm(target, expr.value)
    if isinstance(expr, Call):
        row = INTRINSICS.get(expr.op)
        if expr.op == "if_then_else" or (row is not None and row.compute is not None):
            return Call(target, expr.op, tuple(_widened(arg) for arg in expr.args))
    elif isinstance(expr, BinaryExpr | Select | Not):
        return map_children(expr, _widened)
    return build.cast(target, expr)

"""Intrinsic lowering: say functions that a code generator has not by those that it has."""

from collections.abc import Container

from sterna.ir.expr import Call, Cast, Expr
from sterna.ir.visitor import Rewriter
from sterna.support.dtype import DataType
from sterna.tir.intrinsics import INTRINSICS
from sterna.tir.stmt import PrimFunc

FLOAT32 = DataType("float32")


def lower_intrin(func: PrimFunc, implemented: Container[str] = ()) -> PrimFunc:
    """sigmoid(x)   ->   1 / (1 + exp(0 - x))

    and so on as the rows of intrinsics.py say, except for functions that are implemented for
    floats. What they say of integers is never a function: floor(i) is i, isnan(i) is false.
    """
    return func.with_body(_Lowering(implemented).rewrite(func.body))


class _Lowering(Rewriter):
    def __init__(self, implemented: Container[str]) -> None:
        self.implemented = implemented

    def visit_Call(self, call: Call) -> Expr:
        done: Call = self.rewrite_children(call)
        lowered = lower_call(done, self.implemented)
        return done if lowered is None else self.rewrite(lowered)


def lower_call(call: Call, implemented: Container[str]) -> Expr | None:
    """A call in other terms; None if it can stay."""
    row = INTRINSICS.get(call.op)
    if row is None or (row.by is None and row.of_integers is None):
        return None
    dtype = call.args[0].dtype
    if not dtype.is_float:
        is_whole = dtype.is_integer or dtype.is_bool
        return row.of_integers(call) if row.of_integers is not None and is_whole else None
    if row.by is None or call.op in implemented:
        return None
    if dtype.bits >= FLOAT32.bits:
        return row.by(call.args[0])
    wide = FLOAT32.with_lanes(dtype.lanes)  # so that the result is rounded once
    return Cast(dtype, row.by(Cast(wide, call.args[0])))

"""Maxima that propagate NaN: the largest of several elements, as NumPy finds it."""

from typing import Any

from sterna.ir.build import const, maximum
from sterna.ir.expr import Expr
from sterna.support.dtype import DataType
from sterna.te import all as all_of
from sterna.te import any as any_of
from sterna.te import comm_reducer, isnan, logical_not, max_value, min_value, select


def lowest(dtype: DataType) -> Expr:
    """What is not larger than anything: minus infinity for floats."""
    return const(float("-inf"), dtype) if dtype.is_float else min_value(dtype)


def _larger(a: Expr, b: Expr) -> Any:
    return select(isnan(a), a, maximum(a, b)) if a.dtype.is_float else maximum(a, b)


def _above(a: Expr, b: Expr) -> Any:
    return any_of(a > b, all_of(isnan(a), logical_not(isnan(b))))


def _first_larger(a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    takes = any_of(_above(a[1], b[1]), all_of(logical_not(_above(b[1], a[1])), a[0] < b[0]))
    return select(takes, a[0], b[0]), select(takes, a[1], b[1])


largest = comm_reducer(_larger, lowest, name="largest")
"""The largest element over axes."""

first_largest = comm_reducer(
    _first_larger, lambda place, value: (max_value(place), lowest(value)), name="first_largest"
)
"""Of pairs of a place and an element: the largest element, at the first place that has it."""

"""Orders: which of two numbers comes first, and lines of numbers sorted by merging.

NaN is larger than every number and equal to NaN; of equals, the one that stood first stays first,
upwards and downwards.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim
from sterna.op.axis_rows import index_type
from sterna.op.statements import variable
from sterna.relay.arrays import Array, numpy_dtype
from sterna.support.dtype import DataType
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder


def key_type(dtype: str) -> DataType:
    """The type in which elements are compared: exact, and one that every target has."""
    kind = DataType(dtype)
    if kind.is_float:
        return kind if kind.bits >= 32 else DataType("float32")
    if kind.is_bool or kind.bits < 8:
        return DataType("int8" if kind.is_int else "uint8")
    return kind


def less(a: Expr, b: Expr) -> Expr:
    """Whether a number comes before another."""
    if not a.dtype.is_float:
        return build.less(a, b)
    number_first = build.logical_and(t.isnan(b), build.logical_not(t.isnan(a)))
    return build.logical_or(build.less(a, b), number_first)


# The order of two places of a line that are compared through what lies there.
Before = Callable[[Expr, Expr], Expr]


def merge_sort(
    ib: IRBuilder, length: Dim, columns: list[BufferVar], before: Before
) -> Expr:
    """Sorts the first half of columns of 2 * length numbers; gives where the result begins.

    before(i, j): whether what is at place i of the columns must come before what is at j. Runs of
    1, 2, 4, ... numbers are merged from one half of the columns into the other.
    """
    kind = index_type(length)
    size = build.cast(kind, build.as_expr(length))
    passes = passes_over(size)
    left, right = variable(ib, kind, "left", 0), variable(ib, kind, "right", 0)
    last = build.maximum(size - 1, build.const(0, kind))
    with ib.for_range(0, passes, name="round", dtype=kind) as round_:
        width = ib.let("width", build.const(1, kind) << round_)
        source = ib.let("source", (round_ % 2) * size)
        target = ib.let("target", size - source)
        with ib.for_range(0, last // (width * 2) + 1, name="pair") as pair:
            begin = ib.let("begin", pair * width * 2)
            middle = ib.let("middle", build.minimum(begin + width, size))
            end = ib.let("end", build.minimum(middle + width, size))
            left.set(begin)
            right.set(middle)
            with ib.for_range(begin, end, name="k") as k:
                i, j = ib.let("i", left.get()), ib.let("j", right.get())
                # both are compared even where one run is over, so they stay inside
                first, second = (source + build.minimum(place, last) for place in (i, j))
                second_wins = build.logical_or(i >= middle, before(second, first))
                takes = ib.let("takes", build.logical_and(j < end, second_wins))
                chosen = ib.let("chosen", source + build.select(takes, j, i))
                for column in columns:
                    column[target + k] = column[chosen]
                left.set(build.select(takes, i, i + 1))
                right.set(build.select(takes, j + 1, j))
    return (passes % 2) * size


def passes_over(size: Expr) -> Expr:
    """How often runs double until one is as long as all."""
    known = build.int_value(size)
    if known is not None:
        return build.const(max(known - 1, 0).bit_length(), size.dtype)
    most = build.maximum(size - 1, build.const(0, size.dtype))
    return build.const(size.dtype.bits, size.dtype) - t.clz(most)


# ---- references ----


def comparable(data: Array) -> Array:
    """An array in a type that NumPy compares."""
    return data.astype(numpy_dtype(key_type(str(data.dtype))))


def ranks(data: Array) -> Array:
    """For each element how many different ones are smaller."""
    places = np.unique(comparable(data), return_inverse=True)[1]
    return np.asarray(places, np.int64).reshape(data.shape)


def order_along(data: Array, axis: int, ascending: bool) -> Any:
    """The places along an axis from which its elements come in order."""
    keys = ranks(data)
    return np.argsort(keys if ascending else -keys, axis=axis, kind="stable")

"""Random sampling: uniform and normal numbers (Box-Muller) and weighted choices, from words."""

from collections.abc import Callable, Sequence

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim
from sterna.op.axis_rows import index_type, product
from sterna.op.indexing import INT64, as_dims, unravel
from sterna.op.ordering import passes_over
from sterna.op.statements import variable
from sterna.op.threefry import (
    NUMBERS,
    UINT64,
    each_block,
    guarded,
    normal_array,
    normal_exprs,
    real_type,
    unit_array,
    unit_expr,
    word_arrays,
    word_exprs,
)
from sterna.relay.arrays import Array, numpy_dtype
from sterna.support.dtype import DataType
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

FLOAT64 = DataType("float64")

# The words of a key, and the two of the counter where drawing begins; in a reference, as numbers.
Source = tuple[Sequence[Expr], Sequence[Expr]]
ArraySource = tuple[Sequence[int], Sequence[int]]
# A number, or what reads it.
Parameter = float | Callable[[], Expr]
Values = Callable[[IRBuilder, list[Expr], DataType], list[Expr]]


def draw(ib: IRBuilder, source: Source, out: BufferVar, values: Values) -> None:
    """Fills a buffer, four elements at a time, with values(builder, words, type)."""
    shape = as_dims(out.shape)

    def store(first: Expr, words: list[Expr]) -> None:
        found = values(ib, words, real_type(out.dtype))
        guarded(ib, shape, first, found, write)

    def write(place: Expr, value: Expr) -> None:
        out[place] = build.cast(out.dtype, value)

    each_block(ib, *source, shape, store)


def uniform(low: Parameter, high: Parameter) -> Values:
    """Numbers of [low, high); both are numbers or functions that read them."""

    def values(ib: IRBuilder, words: list[Expr], dtype: DataType) -> list[Expr]:
        first, last = _number(low, dtype), _number(high, dtype)
        return [first + unit_expr(word, dtype) * (last - first) for word in words]

    return values


def normal(mean: Parameter, scale: Parameter) -> Values:
    """Numbers around a mean with a deviation."""

    def values(ib: IRBuilder, words: list[Expr], dtype: DataType) -> list[Expr]:
        centre, width = _number(mean, dtype), _number(scale, dtype)
        return [centre + width * one for one in normal_exprs(ib, words, dtype)]

    return values


def _number(value: Parameter, dtype: DataType) -> Expr:
    return build.cast(dtype, value()) if callable(value) else build.const(float(value), dtype)


def choose(
    ib: IRBuilder, source: Source, weights: BufferVar, out: BufferVar, *, logits: bool
) -> None:
    """Places along the last axis of weights, each as often as its weight says.

    logits: the weights are logarithms. Sums of weights are searched by halves.
    """
    *lead, classes = as_dims(weights.shape)
    samples = as_dims(out.shape)[-1]
    key, (high_word, low_word) = source
    kind = index_type(classes)
    with ib.for_range(0, product(lead), name="row", kind="parallel") as row:
        at = [ib.let(f"at{i}", place) for i, place in enumerate(unravel(row, lead))]
        sums = ib.allocate(FLOAT64, (classes,), name="sums")
        weight = _weights(ib, weights, at, classes, logits)
        total = variable(ib, FLOAT64, "total", 0.0)
        with ib.for_range(0, classes, name="c") as c:
            total.set(total.get() + weight(c))
            sums[c] = total.get()
        with ib.for_range(0, samples, name="s") as s:
            element = build.cast(INT64, row) * samples + build.cast(INT64, s)
            low = ib.let("low", low_word + build.cast(UINT64, element))
            high = high_word + build.cast(UINT64, low < low_word)
            word = word_exprs(ib, key, [NUMBERS, 0, high, low])[0]
            target = ib.let("target", unit_expr(word, FLOAT64) * total.get())
            begin, end = variable(ib, kind, "begin", 0), variable(ib, kind, "end", classes - 1)
            with (
                ib.for_range(0, passes_over(build.as_expr(classes)), name="step"),
                ib.if_scope(begin.get() < end.get()),
            ):
                middle = ib.let("middle", begin.get() + (end.get() - begin.get()) // 2)
                reached = ib.let("reached", sums[middle])
                # a product that is rounded up to the total belongs to the last one with a weight
                inside = build.logical_or(reached > target, reached >= total.get())
                with ib.if_scope(inside):
                    end.set(middle)
                with ib.else_scope():
                    begin.set(middle + 1)
            out[(*at, s)] = build.cast(out.dtype, begin.get())


def _weights(
    ib: IRBuilder, weights: BufferVar, at: Sequence[Expr], classes: Dim, logits: bool
) -> Callable[[Expr], Expr]:
    def given(c: Expr) -> Expr:
        return build.cast(FLOAT64, weights[(*at, c)])

    if not logits:
        return given
    largest = variable(ib, FLOAT64, "largest", build.const(-np.inf, FLOAT64))
    with ib.for_range(0, classes, name="c") as c:
        largest.set(build.maximum(largest.get(), given(c)))
    return lambda c: t.exp(given(c) - largest.get())


# ---- references ----


def uniform_array(
    source: ArraySource, shape: Sequence[int], dtype: DataType,
    low: Array | float, high: Array | float,
) -> Array:
    """What uniform draws."""
    kind = real_type(dtype)
    units = unit_array(word_arrays(*source, int(np.prod(shape))), kind)
    first, last = (numpy_dtype(kind).type(one) for one in (low, high))
    made: Array = (first + units * (last - first)).reshape(shape)
    return made.astype(numpy_dtype(dtype))


def normal_array_of(
    source: ArraySource, shape: Sequence[int], dtype: DataType,
    mean: Array | float, scale: Array | float,
) -> Array:
    """What normal draws."""
    kind = real_type(dtype)
    count = int(np.prod(shape))
    drawn = normal_array(word_arrays(*source, -(-count // 2) * 2), kind)[:count]
    centre, width = (numpy_dtype(kind).type(one) for one in (mean, scale))
    made: Array = (centre + width * drawn).reshape(shape)
    return made.astype(numpy_dtype(dtype))


def choices_array(
    source: ArraySource, weights: Array, samples: int, dtype: DataType, *, logits: bool
) -> Array:
    """What choose draws."""
    given = weights.astype(np.float64)
    if logits:
        given = np.exp(given - given.max(-1, keepdims=True))
    sums = np.cumsum(given.reshape(-1, given.shape[-1]), -1)
    words = word_arrays(*source, 4 * len(sums) * samples)[::4]
    units = unit_array(words, FLOAT64).reshape(len(sums), samples)
    made = np.zeros(units.shape, np.int64)
    for row, reached in enumerate(sums):
        for place, unit in enumerate(units[row]):
            inside = (reached > unit * reached[-1]) | (reached >= reached[-1])
            made[row, place] = np.argmax(inside)
    return made.reshape(*weights.shape[:-1], samples).astype(numpy_dtype(dtype))

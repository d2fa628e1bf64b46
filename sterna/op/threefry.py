"""Counter-based random words: Threefry-4x64 with 20 rounds, as expressions and in NumPy.

The generator is a function of a key and a counter, four words of 64 bits each, that gives four
words. So every element is drawn by itself, in any order and in parallel, and a key always gives the
same numbers. The first word of the counter says what the words are for.
"""

from collections.abc import Callable, Sequence

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Dim
from sterna.op.axis_rows import product
from sterna.op.elementwise import Numbers
from sterna.op.indexing import INT64
from sterna.relay.arrays import Array, numpy_dtype
from sterna.support.dtype import DataType
from sterna.tir import op as t
from sterna.tir.ir_builder import IRBuilder

UINT64 = DataType("uint64")
NUMBERS, LEFT, RIGHT = 0, 1, 2

_PARITY = 0x1BD11BDAA9FC1A22
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_ROUNDS = 20


def rounds(
    key: Sequence[Numbers], counter: Sequence[Numbers], word: Callable[[Numbers | int], Numbers]
) -> list[Numbers]:
    """The words of a key and a counter; word(value) keeps a value as 64 bits."""
    schedule = list(key)
    schedule.append(word(key[0] ^ key[1] ^ key[2] ^ key[3] ^ word(_PARITY)))
    x = [word(a + b) for a, b in zip(counter, key, strict=True)]
    for index in range(_ROUNDS):
        for (i, j), distance in zip(_pairs(index), _ROTATIONS[index % 8], strict=True):
            x[i] = word(x[i] + x[j])
            x[j] = word(word((x[j] << distance) | (x[j] >> (64 - distance))) ^ x[i])
        if index % 4 == 3:
            injection = index // 4 + 1
            x = [word(x[i] + schedule[(injection + i) % 5]) for i in range(4)]
            x[3] = word(x[3] + word(injection))
    return x


def _pairs(index: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Which words a round mixes; from round to round the second and the fourth change places."""
    return ((0, 1), (2, 3)) if index % 2 == 0 else ((0, 3), (2, 1))


# ---- as statements ----


def word_exprs(ib: IRBuilder, key: Sequence[Expr], counter: Sequence[ExprLike]) -> list[Expr]:
    """Names for the four words of a key and a counter."""

    def word(value: Expr | int) -> Expr:
        expr = build.const(value, UINT64) if isinstance(value, int) else value
        return expr if build.int_value(expr) is not None else ib.let("w", expr)

    return rounds(list(key), [build.cast(UINT64, build.as_expr(c)) for c in counter], word)


def each_block(
    ib: IRBuilder, key: Sequence[Expr], start: Sequence[Expr], shape: Sequence[Dim],
    store: Callable[[Expr, list[Expr]], None],
) -> None:
    """A parallel loop over groups of four elements: store(first element, their words).

    start: where a counter of 128 bits begins, the upper word first.
    """
    count = build.cast(INT64, build.as_expr(product(shape)))
    with ib.for_range(0, (count + 3) // 4, name="block", kind="parallel") as block:
        low = ib.let("low", start[1] + build.cast(UINT64, block))
        carry = build.cast(UINT64, low < start[1])
        words = word_exprs(ib, key, [NUMBERS, 0, start[0] + carry, low])
        store(block * 4, words)


def guarded(
    ib: IRBuilder, shape: Sequence[Dim], first: Expr, values: Sequence[Expr],
    write: Callable[[Expr, Expr], None],
) -> None:
    """write(place, value) for a group's values as far as there are elements."""
    count = build.cast(INT64, build.as_expr(product(shape)))
    for offset, value in enumerate(values):
        with ib.if_scope(first + offset < count):
            write(first + offset, value)


def real_type(dtype: DataType) -> DataType:
    """The type in which real numbers are drawn."""
    return dtype if dtype.bits >= 32 else DataType("float32")


def unit_expr(word: Expr, dtype: DataType, *, above_zero: bool = False) -> Expr:
    """A number of [0, 1), or of (0, 1], from the upper bits of a word."""
    bits = 53 if dtype.bits == 64 else 24
    whole = word >> (64 - bits)
    if above_zero:
        whole = whole + build.const(1, UINT64)
    # through int64: no target is slow at that
    return build.cast(dtype, build.cast(INT64, whole)) * build.const(2.0**-bits, dtype)


def normal_exprs(ib: IRBuilder, words: Sequence[Expr], dtype: DataType) -> list[Expr]:
    """Normal numbers, two from each two words, by the method of Box and Muller."""
    made: list[Expr] = []
    for a, b in (words[:2], words[2:]):
        length = t.sqrt(build.const(-2.0, dtype) * t.log(unit_expr(a, dtype, above_zero=True)))
        radius = ib.let("radius", length)
        angle = ib.let("angle", unit_expr(b, dtype) * build.const(2 * np.pi, dtype))
        made += [radius * t.cos(angle), radius * t.sin(angle)]
    return made


# ---- in NumPy ----


def _word(value: Array | int) -> Array:
    return np.asarray(value, np.uint64)


def word_arrays(key: Sequence[int], start: Sequence[int], count: int) -> Array:
    """The words for so many elements, from a counter on."""
    blocks = -(-count // 4)
    low = _word(start[1]) + np.arange(blocks, dtype=np.uint64)
    high = _word(start[0]) + (low < _word(start[1])).astype(np.uint64)
    zero = np.zeros(blocks, np.uint64)
    words = _rounds_of(key, [zero + _word(NUMBERS), zero, high, low])
    made: Array = np.stack(words, -1).reshape(-1)[:count]
    return made


def _rounds_of(key: Sequence[int], counter: Sequence[Array | int]) -> list[Array]:
    with np.errstate(over="ignore"):
        return rounds([_word(k) for k in key], [_word(c) for c in counter], _word)


def block_arrays(key: Sequence[int], counter: Sequence[int]) -> list[int]:
    """The four words of a key and a counter."""
    return [int(word) for word in _rounds_of(key, counter)]


def unit_array(words: Array, dtype: DataType, *, above_zero: bool = False) -> Array:
    """What unit_expr gives."""
    bits = 53 if dtype.bits == 64 else 24
    whole = (words >> np.uint64(64 - bits)).astype(np.int64) + int(above_zero)
    made: Array = whole.astype(numpy_dtype(dtype)) * numpy_dtype(dtype).type(2.0**-bits)
    return made


def normal_array(words: Array, dtype: DataType) -> Array:
    """What normal_exprs gives; the number of words is a multiple of two."""
    a, b = words[0::2], words[1::2]
    radius = np.sqrt(-2 * np.log(unit_array(a, dtype, above_zero=True)))
    angle = unit_array(b, dtype) * numpy_dtype(dtype).type(2 * np.pi)
    made: Array = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).reshape(-1)
    return made

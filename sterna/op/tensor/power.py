"""Powers of floats and of integers."""

import math
from collections.abc import Callable

import numpy as np

from sterna.ir import build
from sterna.ir.build import bind
from sterna.ir.expr import Expr
from sterna.op.quantization import constant_of
from sterna.op.tensor.binary import REALS, binary
from sterna.relay.arrays import Array
from sterna.relay.op import Case
from sterna.schedule.products import wide
from sterna.support.dtype import DataType
from sterna.te.tensor import ProducerLoad
from sterna.tir import op as t

# Integers of more bits are multiplied one by one: what most exponents lack is left out.
WIDEST_OF_VECTORS = 32
FEW_BITS = 8


def _power(a: Expr, b: Expr) -> Expr:
    if a.dtype.is_float:
        known = constant_of(b.tensor) if isinstance(b, ProducerLoad) else None
        short = None if known is None else _SHORT.get(known)
        return t.power(a, b) if short is None else _in_wide(a, short)
    return bind(b, lambda exponent: _whole_power(a, exponent), "exponent")


def _in_wide(a: Expr, function: Callable[[Expr], Expr]) -> Expr:
    """A function of a float, computed in float32 at least."""
    return bind(a.astype(wide(a.dtype)), function).astype(a.dtype)


def _root(x: Expr) -> Expr:
    """Of minus infinity it is infinity, and of minus 0 it is 0."""
    return build.select(build.equal(x, -math.inf), -x, t.sqrt(x + 0.0))


_SHORT: dict[float, Callable[[Expr], Expr]] = {
    -2.0: lambda x: bind(1.0 / x, lambda inverse: inverse * inverse),
    -1.0: lambda x: 1.0 / x,
    -0.5: lambda x: 1.0 / _root(x),
    0.5: _root,
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: bind(x * x, lambda square: square * square),
}
"""Powers that products, a quotient or a root give, as exactly as power does."""


def _whole_power(a: Expr, exponent: Expr) -> Expr:
    """By squaring, a factor for every bit of the exponent that is set; modulo the type's range."""
    dtype = a.dtype
    one, zero = build.const(1, dtype), build.const(0, dtype)

    def times_rest(square: Expr, bit: int, last: int) -> Expr:
        is_set = ((exponent >> build.const(bit, dtype)) & one) != zero
        factor = build.select(is_set, square, one)
        if bit == last:
            return factor
        return factor * bind(square * square, lambda next_: times_rest(next_, bit + 1, last))

    def of_bits(last: int) -> Expr:
        return bind(a, lambda base: times_rest(base, 0, last))

    product = of_bits(dtype.bits - (2 if dtype.is_int else 1))
    if dtype.bits > WIDEST_OF_VECTORS:
        few = (exponent >> build.const(FEW_BITS, dtype)) == zero
        product = build.if_then_else(few, of_bits(FEW_BITS - 1), product)
    if dtype.is_uint:
        return product
    odd = (exponent & one) != zero
    of_minus_one = build.select(odd, build.const(-1, dtype), one)
    fraction = build.select(a == one, one, build.select(a == -one, of_minus_one, zero))
    return build.select(exponent < zero, fraction, product)


def _reference(a: Array, b: Array) -> Array:
    if DataType(str(a.dtype)).is_float:
        return np.power(a.astype(np.float64), b.astype(np.float64))
    kind = np.uint64 if DataType(str(a.dtype)).is_uint else np.int64
    base, exponent = a.astype(kind), b.astype(kind)
    product = np.power(base, np.maximum(exponent, kind(0)))
    odd = np.remainder(exponent, kind(2)) == 1
    fraction = np.where(base == 1, 1, np.where(base + kind(1) == 0, np.where(odd, -1, 1), 0))
    return np.where(exponent < 0, fraction, product)


binary("power", _power, _reference,
       "lhs to the power of rhs. Powers of integers wrap; negative ones have no fraction.",
       mixed_precision="never",
       cases=[
           REALS,
           Case((np.array([3, -2, -1, 0, -128], "int8"), np.array([[7], [-3]], "int8"))),
           Case((((3,), "uint8"), ((3,), "uint8"))),
           Case((np.array([3, -1], "int16"), np.array([1001, -63], "int16"))),
           Case((np.array([3, -7, -1, 2], "int64"), np.array([[63], [256], [1001], [-3], [0]]))),
       ])

"""Quantised numbers while a graph is rewritten: integers, and what they stand for.

A rule of an operator (`integer` in its record) is a function

    rule(attrs, operands) -> Quantized | RelayExpr | None

of operands that are Quantized where they are known as integers, else expressions; a tuple comes as
a list. It gives the result as integers, or None: the operator is computed as the user wrote it.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sterna.ir.types import TensorType
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.expr import Constant, RelayExpr, const
from sterna.relay.op import call
from sterna.support.dtype import DataType

INT32, FLOAT32 = DataType("int32"), DataType("float32")
ROUNDINGS = {"TO_EVEN": "TONEAREST_EVEN", "AWAY_FROM_ZERO": "TONEAREST"}


@dataclass(frozen=True, slots=True)
class Scheme:
    """What integers stand for: scale * (integer - zero), one of each or one for each channel."""

    scale: Array
    zero: Array
    axis: int
    dtype: DataType

    @property
    def is_single(self) -> bool:
        """Whether all elements have one scale and one zero point."""
        return self.scale.size == self.zero.size == 1

    def is_like(self, other: "Scheme") -> bool:
        """Whether equal integers stand for equal numbers, of the whole tensor."""
        if not self.is_single or not other.is_single or self.dtype != other.dtype:
            return False
        return bool(self.scale == other.scale and self.zero == other.zero)

    def nearest(self, number: float) -> int:
        """The integer for a number, of a scheme for a whole tensor."""
        low, high = int_range(self.dtype)
        if not math.isfinite(number):
            return low if number < 0 else high
        whole = np.rint(np.float32(number) / np.float32(self.scale.item())) + self.zero.item()
        return int(min(max(whole, low), high))


@dataclass(frozen=True, slots=True)
class Quantized:
    """A tensor as integers, of which low and high say where the numbers end that they stand for."""

    data: RelayExpr
    scheme: Scheme
    low: float = -math.inf
    high: float = math.inf
    parts: int = 1
    """The integers are sums of so many, and stand for their mean."""

    @property
    def is_narrow(self) -> bool:
        """Whether the integers have 8 bits, one scheme and no other bounds."""
        plain = self.low == -math.inf and self.high == math.inf and self.parts == 1
        return self.scheme.dtype.bits == 8 and self.scheme.is_single and plain

    @property
    def shape(self) -> tuple[Any, ...]:
        """The tensor's shape."""
        kind = self.data.checked_type
        assert isinstance(kind, TensorType)
        return kind.shape

    def held(self, low: float, high: float) -> "Quantized":
        """The same between other bounds."""
        return replace(self, low=min(max(self.low, low), high), high=max(min(self.high, high), low))

    def real(self) -> RelayExpr:
        """The numbers themselves."""
        scale = (self.scheme.scale / np.float32(self.parts)).astype(np.float32)
        made: RelayExpr = call("qnn.dequantize", self.data, const(scale), const(self.scheme.zero),
                               axis=self.scheme.axis, out_dtype=FLOAT32)
        return bounded(made, self.low, self.high)

    def quantized(self, scheme: Scheme, rounding: str) -> RelayExpr | None:
        """The integers of another scheme, or None where floats alone give them."""
        if not scheme.is_single:
            return None
        if self.scheme.is_like(scheme) and self.parts == 1:
            return within(self.data, self, scheme)
        if self.scheme.dtype.bits <= 16:
            return None
        wanted = scheme.scale.reshape(()) * np.float32(self.parts)
        ratio = (self.scheme.scale / wanted).astype(np.float32)
        if not np.all(np.isfinite(ratio)):
            return None
        made = call("qnn.requantize", self.data, const(ratio), const(self.scheme.zero),
                    const(np.float32(1)), const(scheme.zero.reshape(())), axis=self.scheme.axis,
                    rounding=ROUNDINGS[rounding], compute_dtype="float32",
                    out_dtype=scheme.dtype)
        return within(made, self, scheme)


# Less and more than any byte, whatever the zero point.
BEYOND_BYTES = 512.0


@dataclass(frozen=True, slots=True)
class QuantizedPair:
    """The sum or the product of two tensors of 8 bits, which the scheme of the result makes."""

    name: str
    a: Quantized
    b: Quantized
    low: float = -math.inf
    high: float = math.inf

    def held(self, low: float, high: float) -> "QuantizedPair":
        """The same between other bounds."""
        return replace(self, low=min(max(self.low, low), high), high=max(min(self.high, high), low))

    def real(self) -> RelayExpr:
        """The numbers themselves."""
        return bounded(call(self.name, self.a.real(), self.b.real()), self.low, self.high)

    def quantized(self, scheme: Scheme, rounding: str) -> RelayExpr | None:
        """The integers of a scheme, or None where floats alone give them."""
        if not scheme.is_single or rounding != "TO_EVEN" or scheme.dtype.bits != 8:
            return None
        made = (self._sum if self.name == "add" else self._product)(scheme)
        return None if made is None else within(made, self, scheme)

    def _sum(self, scheme: Scheme) -> RelayExpr | None:
        """round(a * (sa / s) + (b * (sb / s) + c)), each sum rounded to a float once."""
        own = np.float32(scheme.scale.item())
        ratios = [np.float32(x.scheme.scale.item()) / own for x in (self.a, self.b)]
        zeros = [np.float32(x.scheme.zero.item()) for x in (self.a, self.b)]
        offset = np.float64(ratios[0]) * zeros[0] + np.float64(ratios[1] * zeros[1])
        start = np.float32(scheme.zero.item()) - np.float32(offset)
        if not np.isfinite(start) or not np.all(np.isfinite(ratios)):
            return None
        made: RelayExpr = call("qnn.scaled_sum", self.a.data, self.b.data,
                               lhs_ratio=float(ratios[0]), rhs_ratio=float(ratios[1]),
                               start=float(start), out_dtype=scheme.dtype)
        return made

    def _product(self, scheme: Scheme) -> RelayExpr | None:
        """round((a - za) * (b - zb) * (sa * sb / s) + z), each step rounded to a float.

        Products of bytes are exact floats. Bounds that no byte is beyond stand between the scaled
        product and its zero point: one rounding for both would not be what is asked.
        """
        wide = []
        for part in (self.a, self.b):
            zero = const(np.int16(part.scheme.zero.item()))
            apart = call("subtract", call("cast", part.data, dtype="int16"), zero)
            wide.append(call("cast", apart, dtype=INT32))
        own, start = np.float32(scheme.scale.item()), np.float32(scheme.zero.item())
        scales = [np.float32(x.scheme.scale.item()) for x in (self.a, self.b)]
        ratio = scales[0] * scales[1] / own
        if not np.isfinite(ratio):
            return None
        product = call("cast", call("multiply", *wide), dtype=FLOAT32)
        scaled = call("multiply", product, const(ratio))
        held = call("clip", scaled, a_min=-BEYOND_BYTES, a_max=BEYOND_BYTES)
        whole = call("cast", call("round_even", call("add", held, const(start))), dtype=INT32)
        low, high = int_range(scheme.dtype)
        return call("cast", call("clip", whole, a_min=low, a_max=high), dtype=scheme.dtype)


# An operand of a rule: integers, an expression, or a tuple of such.
QuantizedLike = Quantized | QuantizedPair | RelayExpr | list["QuantizedLike"]

# What a rule gives: integers, an expression, or None to leave the operator as it is.
QuantizedResult = Quantized | QuantizedPair | RelayExpr | None


def bounded(real: RelayExpr, low: float, high: float) -> RelayExpr:
    """Numbers between bounds."""
    if low == -math.inf and high == math.inf:
        return real
    if low == 0 and high == math.inf:
        return call("nn.relu", real)
    return call("clip", real, a_min=low, a_max=high)


def within(data: RelayExpr, held: Quantized | QuantizedPair, scheme: Scheme) -> RelayExpr:
    """Integers between those that stand for bounds: rounding keeps the order of numbers."""
    low, high = scheme.nearest(held.low), scheme.nearest(held.high)
    if (low, high) == int_range(scheme.dtype):
        return data
    return call("clip", data, a_min=low, a_max=high)


def int_range(dtype: DataType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    half = 1 << dtype.bits - 1
    return (0, 2 * half - 1) if dtype.is_uint else (-half, half - 1)


def scheme_of(
    scale: QuantizedLike, zero: QuantizedLike, axis: int, dtype: DataType
) -> Scheme | None:
    """The scheme that parameters describe, if they are known and usable."""
    if not isinstance(scale, Constant) or not isinstance(zero, Constant):
        return None
    if DataType(scale.data.dtype) != FLOAT32 or not dtype.is_integer:
        return None
    factors, point = to_numpy(scale.data), to_numpy(zero.data)
    if factors.ndim > 1 or not np.all(np.isfinite(factors) & (factors > 0)):
        return None
    low, high = int_range(dtype)
    whole = point.astype(np.int64)
    if point.dtype.kind not in "iu" or np.any((whole < low) | (whole > high)):
        return None
    single = factors.size == 1 and point.size == 1
    shape = () if single else (-1,)
    kept = np.int32 if dtype.bits <= 32 else np.int64
    return Scheme(factors.reshape(shape), whole.astype(kept).reshape(shape),
                  -1 if single else axis, dtype)

"""Floating-point types of at most 16 bits: which numbers they hold, and rounding to these.

Rounding is to the nearest, to the even one of two that are as near, in one step from a double. What
is too large becomes infinity, or NaN in a type without infinity, or the largest number in a type
that has neither; saturate makes it the largest number everywhere.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

Specials = Literal["ieee", "fn", "fnuz", "finite", "scale"]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """The meaning of a type's bits: sign, exponent, fraction."""

    bits: int
    exponent_bits: int
    fraction_bits: int
    bias: int
    specials: Specials
    """What is no number. ieee: the largest exponent is for infinity and NaN. fn: all ones are NaN,
    there is no infinity. fnuz: the sign alone is NaN, there is no infinity and one zero. finite:
    nothing; NaN becomes minus zero. scale: the bits are an exponent, all ones are NaN; what is not
    above zero becomes NaN, and what is as near to two numbers becomes the larger one."""

    @property
    def sign(self) -> int:
        """The sign's bit."""
        return 0 if self.specials == "scale" else 1 << self.bits - 1

    @property
    def largest(self) -> int:
        """The bits of the largest number."""
        ones = (1 << self.exponent_bits + self.fraction_bits) - 1
        if self.specials == "ieee":
            return ones - (1 << self.fraction_bits)
        return ones - 1 if self.specials in ("fn", "scale") else ones

    @property
    def nan(self) -> int:
        """The bits that NaN becomes."""
        if self.specials == "ieee":
            return self.overflow | 1 << self.fraction_bits - 1
        return self.largest + 1 if self.specials in ("fn", "scale") else self.sign

    @property
    def overflow(self) -> int:
        """The bits of what is too large, without its sign."""
        if self.specials == "finite":
            return self.largest
        return self.largest + 1 if self.specials == "ieee" else self.nan

    @property
    def maximum(self) -> float:
        """The largest number."""
        return self.decode(self.largest)

    def decode(self, code: int) -> float:
        """The number that bits stand for."""
        magnitude = code & ~self.sign
        if self._is_nan(code):
            return math.nan
        if self.specials == "scale":
            return math.ldexp(1.0, magnitude - self.bias)
        exponent, fraction = magnitude >> self.fraction_bits, magnitude
        if exponent:
            fraction -= exponent - 1 << self.fraction_bits
        smallest = 1 - self.bias - self.fraction_bits
        number = math.ldexp(fraction, max(exponent - 1, 0) + smallest)
        if self.specials == "ieee" and magnitude > self.largest:
            number = math.inf
        return -number if code & self.sign else number

    def _is_nan(self, code: int) -> bool:
        if self.specials in ("fnuz", "finite"):
            return self.specials == "fnuz" and code == self.sign
        return (code & ~self.sign) > (self.overflow if self.specials == "ieee" else self.largest)

    def encode(self, value: float, saturate: bool = False) -> int:
        """The bits of the nearest number."""
        if math.isnan(value):
            return self.nan
        if self.specials == "scale":
            return self._encode_scale(value, saturate)
        sign = self.sign if math.copysign(1.0, value) < 0 else 0
        code = self.largest + 1 if math.isinf(value) else self._round(abs(value))
        if code > self.largest:
            code = self.largest if saturate else self.overflow
            return code if self.specials == "fnuz" and not saturate else code | sign
        return 0 if self.specials == "fnuz" and not code else code | sign

    def _round(self, magnitude: float) -> int:
        """The bits of the nearest number, if there were no largest one."""
        if not magnitude:
            return 0
        step = max(math.frexp(magnitude)[1] - 1, 1 - self.bias)
        count = round(math.ldexp(magnitude, self.fraction_bits - step))
        return (step - (1 - self.bias) << self.fraction_bits) + count

    def _encode_scale(self, value: float, saturate: bool) -> int:
        if not value > 0:
            return self.nan
        if math.isinf(value):
            return self.largest if saturate else self.nan
        fraction, exponent = math.frexp(value)  # 0.5 <= fraction < 1
        code = exponent - 1 + self.bias
        if code < 0:
            return 0
        code += fraction >= 0.75
        return min(code, self.largest if saturate else self.nan)


FORMATS = {
    "float16": FloatFormat(16, 5, 10, 15, "ieee"),
    "bfloat16": FloatFormat(16, 8, 7, 127, "ieee"),
    "float8_e3m4": FloatFormat(8, 3, 4, 3, "ieee"),
    "float8_e4m3": FloatFormat(8, 4, 3, 7, "ieee"),
    "float8_e4m3b11fnuz": FloatFormat(8, 4, 3, 11, "fnuz"),
    "float8_e4m3fn": FloatFormat(8, 4, 3, 7, "fn"),
    "float8_e4m3fnuz": FloatFormat(8, 4, 3, 8, "fnuz"),
    "float8_e5m2": FloatFormat(8, 5, 2, 15, "ieee"),
    "float8_e5m2fnuz": FloatFormat(8, 5, 2, 16, "fnuz"),
    "float8_e8m0fnu": FloatFormat(8, 8, 0, 127, "scale"),
    "float6_e2m3fn": FloatFormat(6, 2, 3, 1, "finite"),
    "float6_e3m2fn": FloatFormat(6, 3, 2, 3, "finite"),
    "float4_e2m1fn": FloatFormat(4, 2, 1, 1, "finite"),
}


@cache
def format_of(name: str) -> FloatFormat:
    """The format of a type of at most 16 bits."""
    return FORMATS[name]


def is_small_float(name: str) -> bool:
    """Whether a type, by its element's name, is a float of at most 16 bits."""
    return name in FORMATS


def exact_enough(value: int) -> float:
    """An integer as a double that rounds to any shorter float as the integer itself does."""
    surplus = value.bit_length() - 53
    if surplus <= 0:
        return float(value)
    kept = abs(value) >> surplus
    if kept << surplus != abs(value):
        kept |= 1  # a trace of what is lost, so that a tie is seen to be none
    if value.bit_length() > 1024:
        return math.copysign(math.inf, value)
    return math.copysign(math.ldexp(kept, surplus), value)

"""NumPy arrays of elements that NumPy has no type for.

Elements of less than a byte lie one after the other in a row of bits, which begins with the lowest
bit of the first byte: of int4 two are in a byte, the first one in its lower half.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.support.dtype import DataType
from sterna.support.float_format import FloatFormat, format_of

Array = npt.NDArray[Any]


def pack(codes: Array, dtype: DataType) -> Array:
    """Elements, given by their bits, in as few bytes as they take."""
    bits = np.arange(dtype.bits, dtype=np.uint8)
    row = (codes.reshape(-1, 1).astype(np.uint8) >> bits) & 1
    return np.packbits(row.reshape(-1), bitorder="little")


def unpack(packed: Array, count: int, dtype: DataType) -> Array:
    """The bits of each of some elements, one to a byte."""
    row = np.unpackbits(packed, bitorder="little")[: count * dtype.bits]
    weights = (1 << np.arange(dtype.bits)).astype(np.uint8)
    found: Array = (row.reshape(count, dtype.bits) * weights).sum(axis=1, dtype=np.uint8)
    return found


def signed(codes: Array, bits: int) -> Array:
    """Numbers of a few bits with a sign, from these bits."""
    sign = 1 << (bits - 1)
    return (codes ^ sign).astype(np.int8) - np.int8(sign)


@cache
def _values(format: FloatFormat) -> tuple[Array, Array]:
    """The number of every code; and those of the codes from 0 to the largest, and one more step."""
    every = np.array([format.decode(code) for code in range(1 << format.bits)])
    rising = every[: format.largest + 1]
    return every, np.append(rising, 2 * rising[-1] - rising[-2])


def decode(codes: Array, dtype: DataType) -> Array:
    """The numbers that bits stand for, as float32, which holds them all."""
    every, _ = _values(format_of(dtype.element))
    with np.errstate(invalid="ignore"):
        return every[codes].astype(np.float32)


def encode(values: Array, dtype: DataType, saturate: bool = False) -> Array:
    """The bits of the nearest numbers; see float_format.py."""
    format = format_of(dtype.element)
    _, rising = _values(format)
    numbers = np.asarray(values, np.float64)
    size = np.abs(numbers)
    above = np.clip(np.searchsorted(rising, size), 1, len(rising) - 1)
    to_lower, to_upper = size - rising[above - 1], rising[above] - size
    even = (above % 2 == 0) | (format.specials == "scale")
    up = (to_upper < to_lower) | ((to_upper == to_lower) & even)
    codes = np.where(up, above, above - 1)
    sign = np.where(np.signbit(numbers), format.sign, 0)
    if format.specials == "fnuz":
        sign = np.where(codes == 0, 0, sign)
    too_large = codes > format.largest
    if saturate:
        codes = np.where(too_large, format.largest, codes)
    else:
        codes = np.where(too_large, format.overflow, codes)
        sign = np.where(too_large & (format.specials == "fnuz"), 0, sign)
    codes = np.where(np.isnan(numbers), format.nan, codes | sign)
    if format.specials == "scale":
        codes = np.where(numbers > 0, codes, format.nan)
    return codes.astype(np.uint16 if format.bits == 16 else np.uint8)

"""Affine quantisation: integers of 8 bits that stand for scale * (integer - zero point)."""

from dataclasses import dataclass

import numpy as np

from sterna.relay.arrays import Array
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType

# Scales below this would make subnormal products; a tensor of zeros has it.
SMALLEST_SCALE = 2.0**-60


@dataclass(frozen=True, slots=True)
class Affine:
    """One scale and one zero point for a whole tensor."""

    scale: float
    zero: int
    dtype: str

    @staticmethod
    def of_range(low: float, high: float, dtype: str) -> "Affine":
        """The numbers from low to high, and 0, on all integers of a type."""
        first, last = int_range(DataType(dtype))
        low, high = min(low, 0.0), max(high, 0.0)
        scale = float(np.float32(max((high - low) / (last - first), SMALLEST_SCALE)))
        zero = int(min(max(round(first - low / scale), first), last))
        return Affine(scale, zero, dtype)

    @staticmethod
    def symmetric(reach: float, dtype: str) -> "Affine":
        """The numbers from -reach to reach, with 0 for 0, or in the middle of unsigned ones."""
        first, last = int_range(DataType(dtype))
        scale = max(2 * reach / (last - first - 1), SMALLEST_SCALE)
        return Affine(float(np.float32(scale)), (first + last + 1) // 2, dtype)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest number that integers stand for."""
        first, last = int_range(DataType(self.dtype))
        return self.scale * (first - self.zero), self.scale * (last - self.zero)

    def integers(self, numbers: Array) -> Array:
        """The nearest integers, halves to even, as QuantizeLinear has it."""
        first, last = int_range(DataType(self.dtype))
        whole = np.rint(numbers / np.float32(self.scale)) + self.zero
        made: Array = np.clip(whole, first, last).astype(self.dtype)
        return made

    def nearest(self, numbers: Array) -> Array:
        """The numbers that the integers for some numbers stand for."""
        scale = np.float32(self.scale)
        first, last = int_range(DataType(self.dtype))
        whole = np.clip(np.rint(numbers / scale), first - self.zero, last - self.zero)
        made: Array = whole * scale
        return made

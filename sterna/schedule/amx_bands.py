"""AMX: how a contraction is cut into tiles, registers of 16 rows of 64 bytes each.

A sum goes over segments of numbers that lie side by side: the channels of a pixel, or of all
columns of a window. A tile takes a part of a segment of up to 16 positions, each some numbers after
the one before it; the other holds the weights of 16 channels for that part.
"""

from dataclasses import dataclass

import numpy as np

from sterna.relay.arrays import Array
from sterna.schedule.contraction import Contraction
from sterna.tir.tiles import GROUP_BYTES, ROW_BYTES, ROWS

# A tile's columns of sums.
COLUMNS = ROW_BYTES // GROUP_BYTES
# Tiles of positions and of channels that are multiplied with each other.
PAIR = 2
# What positions read stays in the innermost cache while all channels pass over it; where weights do
# not stay in the second cache, they are read for as many positions as share that with them.
BAND_BYTES, FAR_WEIGHTS, FAR_BAND_BYTES = 24 * 1024, 1024 * 1024, 1024 * 1024
# Cycles: to multiply two tiles of few rows; to store a row of sums and to load it again.
LEAST_CYCLES, ROW_CYCLES = 10, 2.0
# Half of it is the smallest float that is not subnormal.
LEAST_TO_HALVE = 2.0**-125


def parts_of(segment: int, item: int = 1) -> tuple[int, int]:
    """How many parts a segment has, and how long they are; the last may overlap others.

    item: the bytes of a number.
    """
    group, fewest = GROUP_BYTES // item, -(-segment * item // ROW_BYTES)
    size = group * -(-segment // (group * fewest))
    if size <= segment:
        return fewest, size
    return fewest + 1, group * -(-segment // (group * (fewest + 1)))


def unpack_tiles(packed: Array, channels: int, segments: int, segment: int) -> Array:
    """What pack_tiles was given."""
    count, size = parts_of(segment, packed.dtype.itemsize)
    blocks = len(packed)
    every = packed.transpose(0, 3, 1, 2, 4).reshape(blocks * COLUMNS, segments, count, size)
    plain = np.zeros((channels, segments, segment), packed.dtype)
    for part in range(count):
        first = min(part * size, segment - size)
        plain[:, :, first : first + size] += every[:channels, :, part]
    return plain


def _share(one: Array, other: Array) -> None:
    """Weights of products that two parts add: halves of floats, the whole in one part else.

    A weight of 0 in one part would make an infinite number NaN. Halves are exact but for the
    smallest, which tiles take for 0.
    """
    other[...] = 0
    if one.dtype.kind not in "iu":
        values = one.astype(np.float32)
        halves = np.where(np.abs(values) < LEAST_TO_HALVE, values, values / 2)
        other[...] = values - halves
        one[...] = halves


def pack_tiles(plain: Array) -> Array:
    """(channel, segment, number) as (block of channels, part, row of a tile, channel, number)."""
    channels, segments, segment = plain.shape
    group = GROUP_BYTES // plain.dtype.itemsize
    count, size = parts_of(segment, plain.dtype.itemsize)
    blocks = -(-channels // COLUMNS)
    made = np.zeros((blocks * COLUMNS, segments, count, size), plain.dtype)
    for part in range(count):
        first = min(part * size, segment - size)
        made[:channels, :, part] = plain[:, :, first : first + size]
    if seen := count * size - segment:
        _share(made[:, :, -2, size - seen :], made[:, :, -1, :seen])
    tiles = made.reshape(blocks, COLUMNS, segments * count, size // group, group)
    return np.ascontiguousarray(tiles.transpose(0, 2, 3, 1, 4))


@dataclass(frozen=True, slots=True)
class Positions:
    """Some positions, cut into tiles of as many rows; the last may overlap others."""

    count: int

    @property
    def high(self) -> int:
        """Tiles that share what they load."""
        return PAIR if self.count > ROWS else 1

    @property
    def groups(self) -> int:
        return -(-self.count // (self.high * ROWS))

    @property
    def rows(self) -> int:
        return -(-self.count // (self.high * self.groups))


@dataclass(frozen=True, slots=True)
class Bands:
    """A contraction in bands of positions that stay in a cache while all channels meet them."""

    made: Contraction

    @property
    def in_place(self) -> bool:
        """Whether each position's numbers follow those of the one before it as the data lies."""
        return self.made.is_pointwise

    @property
    def segment(self) -> int:
        """Numbers side by side that are summed over."""
        return self.made.inputs * (self.made.window[1] if self.made.dilation[1] == 1 else 1)

    @property
    def segments(self) -> int:
        """How many of these there are."""
        return self.made.products // self.segment

    @property
    def across(self) -> int:
        """Positions of a row, those between its end and the next row included."""
        made, width = self.made, self.made.result[1]
        if self.in_place:
            return width
        seen = (width - 1) * made.strides[1] + (made.window[1] - 1) * made.dilation[1] + 1
        return -(-seen // made.strides[1])

    @property
    def far_weights(self) -> bool:
        """Whether weights come from beyond the second cache."""
        return self.made.weight_bytes >= FAR_WEIGHTS

    @property
    def band_bytes(self) -> int:
        """What the positions of a band may read."""
        return FAR_BAND_BYTES if self.far_weights else BAND_BYTES

    @property
    def pixel_bytes(self) -> int:
        """The bytes of all channels of a pixel of the data."""
        return self.made.inputs * self.made.data.bytes

    def rows_of_band(self) -> int:
        """Rows whose data fits into a cache, as many in each band as can be."""
        height = self.made.result[0]
        row = self.across * self.made.strides[1] * self.pixel_bytes * len(self.phases)
        most = max(1, min(height, self.band_bytes // row - self.below))
        return -(-height // -(-height // most))

    @property
    def phases(self) -> list[int]:
        """Rows of the data that are read by every row of results, up to whole steps."""
        down, step = self.made.dilation[0], self.made.strides[0]
        return sorted({row * down % step for row in range(self.made.window[0])})

    @property
    def below(self) -> int:
        """Steps from a row of results to the last row of data that it reads."""
        return (self.made.window[0] - 1) * self.made.dilation[0] // self.made.strides[0]

    def positions(self) -> Positions:
        """Those of a band."""
        if self.in_place:
            pair = PAIR * ROWS
            most = max(1, self.band_bytes // (pair * self.pixel_bytes)) * pair
            return Positions(min(self.made.pixels, most))
        return Positions((self.rows_of_band() - 1) * self.across + self.made.result[1])

    @property
    def count(self) -> int:
        """How many bands there are."""
        if self.in_place:
            return -(-self.made.pixels // self.positions().count)
        return self.made.batch * -(-self.made.result[0] // self.rows_of_band())

    def cycles(self) -> float:
        """What the products take, with the way of their sums to vectors."""
        count, size = parts_of(self.segment, self.made.data.bytes)
        seen = self.positions()
        blocks = -(-self.made.outputs // COLUMNS)
        tiles = self.count * seen.groups * seen.high * blocks
        dot = max(seen.rows, size * self.made.data.bytes // GROUP_BYTES, LEAST_CYCLES)
        return tiles * (self.segments * count * dot + seen.rows * ROW_CYCLES)

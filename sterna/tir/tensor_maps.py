"""Tensor maps in the interpreter: boxes of arrays that are copied to and from shared memory.

The line of a map is that of runtime/gpu/kernels.h. Rows of a box lie in shared memory by the
swizzle of the map: pieces of 16 bytes change places by the number of the row that they are in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sterna.tir.device_blocks import Numbers
from sterna.tir.memory import Pointer

_SIZES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 4, 11: 4, 12: 4}
"""The bytes of elements, by the driver's numbers of their types."""
_SWIZZLED_BITS = {0: 0, 1: 1, 2: 3, 3: 7}
"""By a map's number of a swizzle: the bits of a row's number that places are changed by."""


def swizzled(places: Numbers, bits: int) -> Numbers:
    """Where bytes lie that would be at some places in rows of 128 bytes without a swizzle."""
    return np.asarray(places ^ ((places >> 7 & bits) << 4))


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How an array lies in memory and how large its boxes are."""

    memory: Numbers
    """The array's bytes."""
    size: int
    """Of an element, in bytes."""
    swizzle: int
    shape: tuple[int, ...]
    """Innermost first."""
    pitches: tuple[int, ...]
    """Bytes from one element to the next, along each axis."""
    box: tuple[int, ...] = ()
    corners: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """im2col: where windows begin at the least, and by how much that ends before the last."""
    steps: tuple[int, ...] = ()
    """im2col: from one window to the next."""

    @classmethod
    def of(cls, array: Pointer, line: str) -> "TensorMap":
        """The map of an array by the line that a kernel says."""
        word, *rest = line.split()
        kind, swizzle, rank, *numbers = map(int, rest)
        given = iter(numbers)

        def take(count: int) -> tuple[int, ...]:
            return tuple(next(given) for _ in range(count))

        shape, size = take(rank), _SIZES[kind]
        pitches = (size, *take(rank - 1))
        memory = array.memory.view(np.uint8)[array.offset * array.memory.itemsize :]
        if word == "tiled":
            return cls(memory, size, swizzle, shape, pitches, take(rank))
        lower, upper = take(rank - 2), take(rank - 2)
        return cls(memory, size, swizzle, shape, pitches, take(2), (lower, upper), take(rank))

    def places(self, start: int) -> Numbers:
        """Where the bytes of a box are in shared memory, a row for each element."""
        count = int(np.prod(self.box)) * self.size
        at = swizzled(np.arange(start, start + count), _SWIZZLED_BITS[self.swizzle])
        return at.reshape(-1, self.size)

    def tile(self, at: Sequence[int]) -> tuple[Numbers, Numbers]:
        """The first bytes of a box's elements in memory, and which of them there are."""
        axes = [first + np.arange(extent) for first, extent in zip(at, self.box, strict=True)]
        grids = np.meshgrid(*axes[::-1], indexing="ij")[::-1]  # innermost last
        return self._located(grids)

    def windows(self, at: Sequence[int], taps: Sequence[int]) -> tuple[Numbers, Numbers]:
        """The same of what neighbouring windows read at one of their taps."""
        channels, pixels = self.box
        lower, upper = self.corners
        ends = [extent + more for extent, more in zip(self.shape[1:-1], upper, strict=True)]
        place, image, found = list(at[1:-1]), at[-1], []
        for _ in range(pixels):
            found.append([*(p + tap for p, tap in zip(place, taps, strict=True)), image])
            for axis in range(len(place)):
                place[axis] += self.steps[axis + 1]
                if place[axis] < ends[axis]:
                    break
                place[axis] = lower[axis]
            else:
                image += 1
        rows = np.array(found)
        grids = [np.broadcast_to(at[0] + np.arange(channels), (pixels, channels))]
        grids += [np.broadcast_to(column[:, None], (pixels, channels)) for column in rows.T]
        return self._located(grids)

    def _located(self, grids: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
        there = np.ones(grids[0].shape, bool)
        offsets = np.zeros(grids[0].shape, np.int64)
        for grid, extent, pitch in zip(grids, self.shape, self.pitches, strict=True):
            there &= (grid >= 0) & (grid < extent)
            offsets += grid * pitch
        return offsets.reshape(-1), there.reshape(-1)

    def load(self, shared: Numbers, start: int, found: tuple[Numbers, Numbers]) -> int:
        """Copy elements into shared memory; gives the bytes that have come."""
        offsets, there = found
        places = self.places(start)
        sources = np.where(there, offsets, 0)[:, None] + np.arange(self.size)
        shared[places] = np.where(there[:, None], self.memory[sources], 0)
        return int(places.size)

    def store(self, shared: Numbers, start: int, found: tuple[Numbers, Numbers]) -> None:
        """Copy elements out of shared memory; what is outside of the array is left out."""
        offsets, there = found
        values = shared[self.places(start)]
        self.memory[offsets[there][:, None] + np.arange(self.size)] = values[there]

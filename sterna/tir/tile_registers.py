"""AMX tiles of the interpreter: what tiles.py says, in NumPy."""

from typing import Any

import numpy as np
import numpy.typing as npt

from sterna.support.dtype import DataType
from sterna.tir.memory import Pointer
from sterna.tir.tiles import GROUP_BYTES

_BYTE = DataType("uint8")


class TileRegisters:
    """The tiles of one thread: each a matrix of bytes, or nothing while it has no shape."""

    def __init__(self) -> None:
        self.held: list[npt.NDArray[np.uint8] | None] = []

    def run(self, op: str, args: list[Any]) -> int:
        """Do what a call says; its value is 0."""
        getattr(self, op.removeprefix("tile_"))(*args)
        return 0

    def configure(self, *numbers: int) -> None:
        shapes = list(zip(numbers[::2], numbers[1::2], strict=True))
        self.held = [np.zeros(shape, np.uint8) if shape[0] else None for shape in shapes]

    def release(self) -> None:
        self.held = []

    def zero(self, tile: int) -> None:
        self._tile(tile)[:] = 0

    def load(self, tile: int, start: Pointer, step: int) -> None:
        for number, row in enumerate(self._tile(tile)):
            row[:] = _row(start, number * step, len(row))

    def store(self, tile: int, start: Pointer, step: int) -> None:
        for number, row in enumerate(self._tile(tile)):
            _row(start, number * step, len(row))[:] = row

    def dot(self, total: int, a: int, b: int, kinds: str) -> None:
        c, first, second = (self._tile(tile) for tile in (total, a, b))
        if c.shape != (len(first), second.shape[1]) or first.shape[1] != len(second) * GROUP_BYTES:
            shapes = ", ".join(str(tile.shape) for tile in (c, first, second))
            raise ValueError(f"tiles of {shapes} bytes do not multiply")
        left, right = (_numbers(tile, kind) for tile, kind in zip((first, second), kinds.split(),
                                                                  strict=True))
        rows, columns = len(c), second.shape[1] // GROUP_BYTES
        deep = right.reshape(len(second), columns, -1).transpose(0, 2, 1).reshape(-1, columns)
        with np.errstate(all="ignore"):
            product = left.reshape(rows, -1) @ deep
            sums = c.view(np.float32 if product.dtype.kind == "f" else np.int32)
            sums[:] = (sums + product).astype(sums.dtype)

    def _tile(self, number: int) -> npt.NDArray[np.uint8]:
        found = self.held[number] if number < len(self.held) else None
        if found is None:
            raise RuntimeError(f"tile {number} is used without a shape")
        return found


def _row(start: Pointer, offset: int, size: int) -> npt.NDArray[np.uint8]:
    at = start.viewed_as(_BYTE)
    first = at.offset + offset
    if first < 0 or first + size > len(at.memory):
        raise IndexError(f"a tile's row of {size} bytes begins at byte {first} of {len(at.memory)}")
    found: npt.NDArray[np.uint8] = at.memory[first : first + size]
    return found


def _numbers(tile: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[Any]:
    """The elements of a tile in a type in which products are exact, or nearly."""
    if kind == "bfloat16":
        return (tile.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return tile.view(kind).astype(np.int64)

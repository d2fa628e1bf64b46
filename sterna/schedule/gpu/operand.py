"""Matrices in the memory of a device, and how boxes of them come into shared memory.

Shared memory holds rows of 128 bytes in the order that Tensor Cores read without conflicts (the
swizzle of 128 bytes): a *block* is as many products of a sum as one such row has numbers.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

from sterna.ir.expr import Expr, ExprLike
from sterna.schedule.contraction import Contraction
from sterna.support.dtype import DataType
from sterna.tir.warpgroups import tma_load, tma_load_im2col

ROW_BYTES = 128
"""Of a row in shared memory, where sums have so much of it."""
SWIZZLES = {128: 3, 64: 2, 32: 1}
"""What a driver calls the orders of rows of so many bytes that are read without conflicts."""
SWIZZLE_128 = SWIZZLES[ROW_BYTES]

# What a driver calls types of elements.
TF32 = 11
"""What a driver calls float32 of whose fractions ten bits are left, rounded by the copies."""
MAP_TYPES = {
    "bfloat16": 9, "float16": 6, "float32": 7, "int32": 3, "int8": 0, "uint8": 0,
    "float8_e4m3fn": 0, "float8_e5m2": 0,
}

# The constant part of a matrix's descriptor: the swizzle; eight rows from one group to the next;
# where neighbours lie along rows of 128 bytes, 8,192 bytes between boxes of 64.
_ALONG_SUM = {128: 0x4000004000010000, 64: 0x2000010000 - (1 << 63), 32: 0x1000010000 - (1 << 62)}
_ALONG_ROWS = 0x4000004002000000


class Operand(ABC):
    """One of the two factors of a product of matrices: rows, each of the numbers of one sum."""

    kind: DataType
    along_rows = False
    """Whether neighbours in memory belong to neighbouring rows, not to one sum."""
    pitch = ROW_BYTES
    """Bytes of a row in shared memory: fewer where taps of a window have few channels."""

    @abstractmethod
    def map_line(self, rows: int) -> str:
        """What its tensor map holds, for tiles of so many rows."""

    @abstractmethod
    def loads(
        self, map_: Expr, to: Expr, barrier: Expr, rows: int, at: "Place"
    ) -> list[Expr]:
        """The copies of a block of a tile of so many rows."""

    @abstractmethod
    def in_tf32(self) -> "Operand":
        """The same, rounded by the copies to the bits of float32 that Tensor Cores read."""

    @abstractmethod
    def in_rows(self, pitch: int) -> "Operand":
        """The same in rows of so many bytes."""

    @property
    def unit(self) -> int:
        """The numbers of a sum in one block."""
        return self.pitch // self.kind.bytes

    @property
    def descriptor(self) -> int:
        """What a descriptor holds beside the address."""
        return _ALONG_ROWS if self.along_rows else _ALONG_SUM[self.pitch]

    @property
    def step(self) -> int:
        """By how much a descriptor grows from one product to the next: 32 bytes of each sum."""
        return 16 * ROW_BYTES // 16 if self.along_rows else 2


@dataclass(frozen=True, slots=True)
class Place:
    """A block of a tile."""

    row: Expr
    """The first row."""
    channel: Expr
    """The first number of a sum among its channels."""
    tap: Expr
    """The number of the tap of a window."""
    batch: ExprLike
    """The number of the matrix."""


@dataclass(frozen=True)
class Matrix(Operand):
    """One of an array: [batch, rows, taps, depth], or [batch, taps, depth, rows] along rows."""

    kind: DataType
    rows: int
    depth: int
    taps: int = 1
    batch: int = 1
    along_rows: bool = False
    wide: bool = False
    """Whether it is float32 in memory, and rounded to its kind on the way to the products."""
    tf32: bool = False
    """Whether copies round its numbers of float32 to the bits that Tensor Cores read."""
    pitch: int = ROW_BYTES

    def in_tf32(self) -> "Matrix":
        return replace(self, tf32=True)

    def in_rows(self, pitch: int) -> "Matrix":
        return replace(self, pitch=pitch)

    @property
    def stored(self) -> DataType:
        """The type of its numbers in memory."""
        return DataType("float32") if self.wide else self.kind

    @cached_property
    def _axes(self) -> list[tuple[str, int]]:
        """Innermost first."""
        names = ["row", "channel", "tap", "batch"] if self.along_rows else (
            ["channel", "tap", "row", "batch"]
        )
        sizes = {"row": self.rows, "channel": self.depth, "tap": self.taps, "batch": self.batch}
        return [(name, sizes[name]) for name in names]

    @property
    def _kept(self) -> list[int]:
        """The axes that have more than one place, and at least two."""
        wanted = {"row", "channel"}
        return [n for n, (name, size) in enumerate(self._axes) if name in wanted or size > 1]

    def map_line(self, rows: int) -> str:
        axes = self._axes
        pitches = [self.stored.bytes]
        for _, size in axes:
            pitches.append(pitches[-1] * size)
        channels = self.unit if self.along_rows else self.pitch // self.stored.bytes
        boxes = {"row": self.unit if self.along_rows else rows, "channel": channels}
        kept = self._kept
        kind = TF32 if self.tf32 else MAP_TYPES[str(self.stored)]
        numbers = [
            kind, SWIZZLES[self.pitch], len(kept), *[axes[n][1] for n in kept],
            *[pitches[n] for n in kept[1:]], *[boxes.get(axes[n][0], 1) for n in kept],
        ]
        return " ".join(["tiled", *map(str, numbers)])

    def loads(
        self, map_: Expr, to: Expr, barrier: Expr, rows: int, at: Place
    ) -> list[Expr]:
        found: list[Expr] = []
        boxes, size = self.stored.bytes // self.kind.bytes, rows * self.pitch
        if self.along_rows:
            boxes, size = rows // self.unit, self.unit * ROW_BYTES
        for box in range(boxes):
            row, channel = at.row, at.channel
            if self.along_rows:
                row = row + self.unit * box
            elif box:
                channel = channel + self.unit // boxes * box
            places = {"row": row, "channel": channel, "tap": at.tap, "batch": at.batch}
            named = [places[self._axes[n][0]] for n in self._kept]
            found.append(tma_load(to + box * size, barrier, map_, named))
        return found


@dataclass(frozen=True)
class Windows(Operand):
    """What the windows of a convolution read, a row for each pixel of the result (im2col)."""

    made: Contraction
    tf32: bool = False
    pitch: int = ROW_BYTES

    def in_tf32(self) -> "Windows":
        return replace(self, tf32=True)

    def in_rows(self, pitch: int) -> "Windows":
        return replace(self, pitch=pitch)

    @property
    def kind(self) -> DataType:  # type: ignore[override]
        """The type of its numbers."""
        return self.made.data

    def map_line(self, rows: int) -> str:
        made = self.made
        (height, width), channels, size = made.image, made.inputs, self.kind.bytes
        pitches = [channels * size, channels * size * width, channels * size * width * height]
        lower = [-made.before[1], -made.before[0]]
        upper = [
            made.after[axis] - (made.window[axis] - 1) * made.dilation[axis] for axis in (1, 0)
        ]
        kind = TF32 if self.tf32 else MAP_TYPES[str(self.kind)]
        numbers = [
            kind, SWIZZLES[self.pitch], 4, channels, width, height, made.batch,
            *pitches, *lower, *upper, self.unit, rows, 1, made.strides[1], made.strides[0], 1,
        ]
        return " ".join(["im2col", *map(str, numbers)])

    def loads(
        self, map_: Expr, to: Expr, barrier: Expr, rows: int, at: Place
    ) -> list[Expr]:
        made = self.made
        high, wide = made.result
        across, down = at.tap % made.window[1], at.tap // made.window[1]
        x = at.row % wide * made.strides[1] - made.before[1]
        y = at.row // wide % high * made.strides[0] - made.before[0]
        image = at.row // (wide * high)
        taps = (across * made.dilation[1], down * made.dilation[0])
        return [tma_load_im2col(to, barrier, map_, (at.channel, x, y, image), taps)]

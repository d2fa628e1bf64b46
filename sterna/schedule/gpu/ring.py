"""Products of matrices in tiles, and the ring buffer in shared memory that holds their blocks."""

from dataclasses import dataclass, replace

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.gpu.operand import ROW_BYTES, SWIZZLES, Operand
from sterna.schedule.products import FLOAT32
from sterna.support.dtype import DataType

WARP, GROUP, GROUP_ROWS = 32, 128, 64
"""The threads of a warp and of four, and the rows that these multiply."""
MOST_TAP_BYTES = 512
"""Of taps of few channels that a stage has for each row."""
SPREAD = 16
"""Columns that blocks have multiples of where they share a tile's unevenly."""
ALIGNMENT = 1024
"""Bytes between arrays in shared memory: as many as the order of their rows repeats after."""
TALL = 16
"""Tiles down the result whose blocks run side by side, so that they share what they read."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The tile of a block, and how much of the sum is in shared memory at once."""

    rows: int
    columns: int
    stages: int
    split: int = 1
    """Blocks that add up parts of one sum (split-K)."""
    apart: int = 1
    """Blocks that add up parts of one sum which another kernel adds up."""
    turned: bool = False
    """Whether its rows are the columns of the result."""
    resident: int = 0
    """Blocks that stay and make one tile after the other; 0: each makes one."""
    wide: bool = False
    """Whether the data is float32 in shared memory, and rounded on the way to the products."""
    ahead: int = 0
    """Tiles down the result whose data is rounded while the products of those before run; 0: the
    data is not rounded so."""
    thrice: bool = False
    """Whether three products of tf32 stand for one of float32."""
    pitch: int = ROW_BYTES
    """Bytes of a row of an operand in shared memory."""
    taps: int = 1
    """Of a window, in one stage."""
    together: int = 1
    """Blocks that stay on one processor."""
    kept: int = 0
    """Blocks of a sum whose columns' operand stays in shared memory: all of them, or none."""

    @property
    def consumers(self) -> int:
        """Groups of four warps that multiply."""
        return -(-self.rows // GROUP_ROWS)

    @property
    def threads(self) -> int:
        """Of a block: those that multiply, and a warp that loads."""
        loading = GROUP if self.moves_registers else WARP
        return self.consumers * GROUP + loading + (GROUP if self.rounds_columns else 0)

    @property
    def rounds_columns(self) -> bool:
        """Whether warps of their own round what the columns are made of."""
        return self.wide and self.turned

    @property
    def row_bytes(self) -> int:
        """A block of the rows' operand."""
        return self.rows * self.tap_bytes * (2 if self.wide and not self.turned else 1)

    @property
    def tap_bytes(self) -> int:
        """What a stage has of one row of an operand."""
        return self.pitch * self.taps

    @property
    def wide_column_bytes(self) -> int:
        """A block of the columns' operand before it is rounded."""
        return self.columns * ROW_BYTES * 2 if self.rounds_columns else 0

    @property
    def moves_registers(self) -> bool:
        """Whether consumers take registers of threads that hardly need any."""
        return self.consumers * self.columns >= 512

    @property
    def stage_bytes(self) -> int:
        """A block of both operands, or of the rows' where the columns' stays."""
        if self.kept:
            return self.row_bytes
        columns = self.columns * self.tap_bytes * (2 if self.thrice else 1)
        return self.row_bytes + columns + self.wide_column_bytes

    @property
    def kept_bytes(self) -> int:
        """What stays of the columns' operand, up to where another array may begin."""
        return -(-self.kept * self.columns * self.tap_bytes // ALIGNMENT) * ALIGNMENT

    @property
    def ring_bytes(self) -> int:
        """All stages, and the tile of the result, which lies there afterwards or beside them."""
        stages = self.stages * self.stage_bytes
        if self.resident:
            return stages + self.kept_bytes + self.consumers * 2 * GROUP_ROWS * ROW_BYTES
        whole = ROW_BYTES // 2
        columns = self.columns if self.turned else -(-self.columns // whole) * whole
        return max(stages, self.rows * columns * 2)

    @property
    def shared_bytes(self) -> int:
        """With the barriers, and what other blocks send."""
        barriers = (3 if self.rounds_columns else 2) * self.stages + 1
        return self.ring_bytes + self.sent_bytes + 8 * barriers

    @property
    def sent_bytes(self) -> int:
        """What a block gets of all parts of sums, of which it adds up its own: whole quads."""
        threads = self.consumers * GROUP
        quads = -(-self.rows * self.columns // (threads * 4 * self.split))
        return quads * 16 * threads * self.split if self.split > 1 else 0

    @property
    def own_columns(self) -> int:
        """The columns whose sums a block has at last: the last block may have fewer."""
        if self.is_even:
            return self.columns // self.split
        return -(-self.columns // (self.split * SPREAD)) * SPREAD

    @property
    def is_even(self) -> bool:
        """Whether blocks have as many columns each."""
        return self.columns % self.split == 0

    def __str__(self) -> str:
        parts = f", sums in {self.split} parts" if self.split > 1 else ""
        parts = f", sums in {self.apart} parts apart" if self.apart > 1 else parts
        stay = f", {self.resident} blocks stay" if self.resident else ""
        turned = ", turned" if self.turned else ""
        wide = ", rounded there" if self.wide else ""
        wide = f", rounded {self.ahead} tiles ahead" if self.ahead else wide
        thrice = ", three times" if self.thrice else ""
        kept = ", columns kept" if self.kept else ""
        tile = f"{self.rows} x {self.columns}, {self.stages} stages"
        if self.pitch < ROW_BYTES:
            tile += f" of {self.tap_bytes} bytes"
        return f"{tile}{parts}{stay}{kept}{turned}{wide}{thrice}"


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices: result[batch, row, column] = sum(a[batch, row] * b[batch, column])."""

    a: Operand
    b: Operand
    rows: int
    columns: int
    taps: int
    depth: int
    batch: int = 1
    fixed: str = ""
    """Which of a and b are known before the kernels before this one are done."""
    tf32: int = 0
    """How many products of tf32 may stand for one of float32: Tensor Cores read ten bits of a
    number's fraction. 0: none, 1, or 3."""
    group: int = 0
    """Columns whose sums read the same channels of the rows; those of the next so many read the
    next ones. 0: all read all."""

    def in_tf32(self, times: int) -> "Product":
        """The same where so many products of tf32 may stand for one of float32."""
        if times != 1:
            return replace(self, tf32=times)
        return replace(self, a=self.a.in_tf32(), b=self.b.in_tf32(), tf32=times)

    def in_rows(self, pitch: int) -> "Product":
        """The same with rows of so many bytes in shared memory."""
        return replace(self, a=self.a.in_rows(pitch), b=self.b.in_rows(pitch))

    @property
    def least_pitch(self) -> int:
        """Bytes of rows in shared memory that have room for the channels of a tap, if those are
        few, else of whole rows."""
        if self.is_exact or self.a.along_rows or self.b.along_rows:
            return ROW_BYTES
        return min((n for n in SWIZZLES if n >= self.depth * self.a.kind.bytes), default=ROW_BYTES)

    @property
    def taps_together(self) -> int:
        """Taps that a stage has: several where they have few channels, a part of all of them."""
        pitch = self.least_pitch
        most = MOST_TAP_BYTES // pitch if pitch < ROW_BYTES else 1
        return max(n for n in range(1, most + 1) if self.taps % n == 0)

    def has_whole(self, columns: int) -> bool:
        """Whether tiles of so many columns read the channels of one group each."""
        return not self.group or self.group % columns == 0

    def turned(self) -> "Product":
        """The same with its operands exchanged."""
        return replace(
            self, a=self.b, b=self.a, rows=self.columns, columns=self.rows,
            fixed=self.fixed.translate({ord("a"): "b", ord("b"): "a"}),
        )

    @property
    def blocks(self) -> int:
        """Of a sum."""
        return self.taps * -(-self.depth // self.a.unit)

    @property
    def is_exact(self) -> bool:
        """Whether its numbers are float32, and all of their bits count."""
        return self.a.kind == "float32" and self.tf32 != 1

    def by_lanes(self, ring: Ring) -> bool:
        """Whether lanes of warps multiply, not Tensor Cores."""
        return self.is_exact and not ring.thrice

    @property
    def sums(self) -> DataType:
        """The type that products are added in."""
        return DataType("int32") if self.a.kind.is_integer else FLOAT32


def tile_of(number: Expr, down: int, across: int, high: int = TALL) -> tuple[Expr, Expr]:
    """Which tile a block makes: some down, then the same in the next column."""
    if down <= high:
        return number % down, number // down
    group, within = number // (high * across), number % (high * across)
    tall = build.minimum(high, down - group * high) if down % high else build.const(high)
    return group * high + within % tall, within // tall

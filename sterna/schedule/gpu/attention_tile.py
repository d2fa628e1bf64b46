"""Tiles of attention on Tensor Cores, and what is multiplied."""

from dataclasses import dataclass

from sterna.schedule.gpu.operand import ROW_BYTES
from sterna.schedule.gpu.ring import GROUP, GROUP_ROWS

KINDS = ("bfloat16", "float16")
MOST_WIDTH = 256
"""Of queries, keys and values."""
WIDE_BOXES = 2
"""Boxes of values beyond which registers have room for the scores of fewer keys."""
BOX = 64
"""Numbers of 16 bits in a row of shared memory."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """What a block holds at once."""

    groups: int
    """Groups of four warps, each with 64 queries."""
    keys: int
    stages: int
    boxes: int
    """Boxes of 64 numbers in a row of queries and keys."""
    value_boxes: int
    in_turns: bool = False
    """Whether one group begins its products while the other makes powers."""

    @property
    def queries(self) -> int:
        """Of a block."""
        return self.groups * GROUP_ROWS

    @property
    def threads(self) -> int:
        """Of a block: a group that loads beside those that multiply."""
        return (self.groups + 1) * GROUP

    @property
    def query_bytes(self) -> int:
        """All queries."""
        return self.queries * self.boxes * ROW_BYTES

    @property
    def key_bytes(self) -> int:
        """A tile of keys."""
        return self.keys * self.boxes * ROW_BYTES

    @property
    def value_bytes(self) -> int:
        """A tile of values."""
        return self.keys * self.value_boxes * ROW_BYTES

    @property
    def shared_bytes(self) -> int:
        """With the barriers."""
        tiles = self.stages * (self.key_bytes + self.value_bytes)
        return self.query_bytes + tiles + 8 * (4 * self.stages + 1)

    def __str__(self) -> str:
        turns = ", in turns" if self.in_turns else ""
        return f"{self.queries} queries, {self.keys} keys at once, {self.stages} stages{turns}"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is multiplied."""

    kind: str
    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    value_width: int

    @property
    def suits(self) -> bool:
        """Whether rows are whole, and fit into the registers of a group."""
        widths = (self.width, self.value_width)
        return self.kind in KINDS and all(n % 8 == 0 and n <= MOST_WIDTH for n in widths)

    @property
    def boxes(self) -> tuple[int, int]:
        """How many boxes of 64 numbers a row of keys, and of values, has."""
        return -(-self.width // BOX), -(-self.value_width // BOX)

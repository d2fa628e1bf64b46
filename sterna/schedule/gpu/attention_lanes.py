"""Tiles of attention whose products lanes make, and what they cost.

A thread has scores of some queries and keys, and then sums of values of the same queries: the more
of both it has, the fewer numbers it loads for each product. Several blocks share a processor, so
that one multiplies while another waits for keys.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

ACROSS = 16
"""Threads along keys, and along the width of values."""
QUAD = 4
"""Numbers that a thread loads at once."""
QUERIES = (128, 64, 32, 16)
KEYS = (64, 32, 16)
OWN_QUERIES = (8, 4, 2)
MOST_SUMS = 128
"""Numbers that a thread has in registers: scores and sums."""
WARP = 32
# Of a device, and of a processor: warps that multiply at once, threads, registers.
PROCESSORS, SCHEDULERS, THREADS, REGISTERS = 132, 4, 2048, 65536
# Registers of a thread beside scores, sums and what it multiplies.
BESIDE = 56
OF_DRIVER = 1024
"""Bytes of shared memory that the driver takes of each block."""
# Products of a processor in a cycle, and bytes that it has of the second cache. These and what
# follows are fitted to 340 kernels of 15 shapes, timed on an H200.
PRODUCTS, CACHE_BYTES = 128, 9
# Operations for a score and for a sum of values beside products; cycles that a tile waits for
# others and for memory.
OF_SCORE, OF_SUM, WAITS = 29, 8, 1090
# What loads of shared memory take of the time that is counted for them, and how much of loads or
# products, where they are the lesser, is not hidden behind the other.
LOADS_TAKE, NOT_HIDDEN = 1.2, 0.4
# How much longer blocks take that share a processor, and how much of a last wave that is not full.
SHARING, LAST_WAVE = 1.28, 0.5


@dataclass(frozen=True, slots=True)
class Room:
    """Shared memory, in bytes."""

    of_block: int
    of_processor: int


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block takes at once."""

    queries: int
    keys: int
    width: int
    """Of queries and keys."""
    value_width: int
    own: int
    """Queries of a thread."""

    @property
    def threads(self) -> int:
        """Of a block."""
        return ACROSS * self.queries // self.own

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """The arrays in shared memory; columns beside let threads read different banks."""
        beside = QUAD if self.width % QUAD == 0 else 1
        return {
            "query": (self.queries, self.width + beside), "key": (self.keys, self.width + beside),
            "value": (self.keys, self.value_width), "power": (self.queries, self.keys + QUAD),
            "largest": (self.queries, ACROSS + QUAD),
        }

    @property
    def places(self) -> dict[str, int]:
        """How many numbers each array has room for; powers lie where the keys were."""
        counts = {name: rows * columns for name, (rows, columns) in self.sizes.items()}
        counts["key"] = max(counts["key"], counts.pop("power"))
        return {name: -(-count // QUAD) * QUAD for name, count in counts.items()}

    @property
    def shared_bytes(self) -> int:
        """What they take."""
        return 4 * sum(self.places.values())

    @property
    def columns(self) -> int:
        """Of the values that a thread sums."""
        return -(-self.value_width // ACROSS)

    @property
    def held(self) -> int:
        """Scores and sums of a thread."""
        return self.own * (self.keys // ACROSS + self.columns)

    def time(self, heads: int, queries: int, keys: int, room: Room, causal: bool) -> float:
        """Cycles until all blocks are through."""
        registers = self.held + QUAD * (self.own + self.keys // ACROSS) + BESIDE
        together = min(
            room.of_processor // (self.shared_bytes + OF_DRIVER), THREADS // self.threads,
            REGISTERS // (registers * self.threads),
        )
        blocks = heads * -(-queries // self.queries)
        together = max(1, min(together, -(-blocks // PROCESSORS)))
        waves = blocks / (PROCESSORS * together)
        if waves > 1:
            waves += LAST_WAVE * (math.ceil(waves) - waves)
        turns = float(-(-keys // self.keys))
        if causal and blocks > PROCESSORS:
            turns = (turns + 1) / 2
        return max(1.0, waves) * turns * self._turn(together)

    def _turn(self, together: int) -> float:
        """Cycles of a tile of keys, for all blocks that share a processor."""
        warps = self.threads / WARP
        own_keys, width = self.keys // ACROSS, self.columns * ACROSS
        scores = self.queries * self.keys
        multiply = scores * (self.width + width) / PRODUCTS
        # A quad of 16 threads takes two cycles of shared memory, and one that all of them read one.
        loads = warps * (self.width * (self.own + 2 * own_keys)
                         + self.keys * (self.own + 2 * self.columns)) / QUAD
        beside = (scores * OF_SCORE + self.queries * width * OF_SUM) / PRODUCTS
        work = beside + max(multiply, LOADS_TAKE * loads) + NOT_HIDDEN * min(multiply, loads)
        fetch = 4 * self.keys * (self.width + self.value_width) / CACHE_BYTES
        alone = work * max(1, SCHEDULERS / warps)
        return max(together * work * SHARING, alone + fetch + WAITS)

    def __str__(self) -> str:
        return f"{self.queries} queries, {self.keys} keys at once, {self.own} queries a thread"


def tiles_of(width: int, value_width: int) -> Iterator[Tile]:
    """All that registers have room for, of more than one warp."""
    for queries, keys, own in product(QUERIES, KEYS, OWN_QUERIES):
        tile = Tile(queries, keys, width, value_width, own)
        if tile.held <= MOST_SUMS and tile.threads > WARP:
            yield tile

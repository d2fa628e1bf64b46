"""The caches that a network is cut for: what a tuner asks of the whole network.

Bands, panels, blocks and implementations all follow from the sizes of the two inner caches. Where
nobody is sure of them (a target's attributes, a processor that the tables do not know), hundreds of
answers are wrong at once, and none of them is mended alone. So they are one question, which is
answered for all layers together: `machine/caches`.
"""

import math
from dataclasses import dataclass, replace

from sterna.schedule.choose import choose, deciding
from sterna.schedule.kernel import Processor

MACHINE = "machine"
"""The scope of questions about the processor itself: every layer takes part in the answer."""


@dataclass(frozen=True, slots=True)
class Caches:
    """The sizes of a core's own caches, in bytes."""

    first: int
    second: int

    def __str__(self) -> str:
        """64 + 1024 KiB"""
        return f"{self.first / 1024:g} + {self.second / 1024:g} KiB"

    def distance(self, other: "Caches") -> float:
        """How many times one of them is to be doubled to become the other."""
        first, second = self.first / other.first, self.second / other.second
        return abs(math.log2(first)) + abs(math.log2(second))


# As cores of the last fifteen years have them: from small ones to those with the largest.
KNOWN = tuple(
    Caches(first * 1024, second * 1024)
    for first, second in (
        (32, 128), (32, 256), (32, 512), (32, 1024), (64, 512), (64, 1024), (48, 2048), (128, 4096),
    )
)
# What most cores come near to: sizes that may be wrong say little about where the right ones are.
COMMON = Caches(64 * 1024, 512 * 1024)


def with_caches(processor: Processor) -> Processor:
    """The processor with the caches that its network is cut for.

    What the machine itself or the table of its core says is not asked.
    """
    if processor.knows_caches or not processor.has_spare_memory:
        return processor
    own = Caches(processor.l1_bytes, processor.l2_bytes)
    with deciding(MACHINE):
        offered = (own, *(each for each in KNOWN if each != own))
        taken = choose("caches", offered, lambda c: 0.0 if c == own else 1 + COMMON.distance(c))
    first, second = taken.first, taken.second
    return replace(processor, l1_bytes=first, l2_bytes=second, knows_caches=True)

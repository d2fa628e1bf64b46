"""Cores: their caches, and what they do in a cycle."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Throughput:
    """What a core does in a cycle, and how many cycles a multiply-add takes."""

    multiply_adds: int = 2
    """Vectors of products that it adds in a cycle."""
    loads: int = 2
    latency: int = 4
    """Cycles of a multiply-add."""
    issue_width: int = 4
    """Instructions of any kind that it starts in a cycle."""
    loop_overhead: int = 3
    """Instructions of a step of a sum that only count."""
    l2_vector_cycles: int = 0
    """Cycles until the second cache has sent a vector."""
    streams_ahead: bool = False
    """Whether weights that are read in order come while it multiplies, as measured."""
    streamed: int = 8
    """Bytes of transformed weights that come from behind the second cache in a cycle, in order."""
    streamed_again: int = 0
    """The same where it streams ahead and they come once more; 0: while it multiplies."""
    fetched_pixels: float = math.inf
    """How much of the first cache the pixels of two tiles may take where those of the second are
    prefetched, as measured; more of them push out weights."""


COMMON = Throughput()


@dataclass(frozen=True, slots=True)
class SharedCore:
    """What simultaneous multithreading (SMT) leaves, where the sibling runs another program.

    Instructions are scarce before multiply-adds are, and steps are written out to save some.
    """

    issue_width: int
    loop_overhead: int
    l2_vector_cycles: int

    def left_of(self, whole: Throughput) -> Throughput:
        """The throughput beside others on the same core."""
        return replace(
            whole, issue_width=self.issue_width, loop_overhead=self.loop_overhead,
            l2_vector_cycles=self.l2_vector_cycles,
        )


@dataclass(frozen=True, slots=True)
class Core:
    """One core that is known by name; of a cache that several share, its part."""

    l1_kib: int | None = None
    l2_kib: int | None = None
    throughput: Throughput = COMMON
    instruction_order: str = ""
    """The processor in whose order of instructions LLVM's code runs best here, as measured; empty:
    its own."""
    divides_quickly: bool = False
    """Whether dividing vectors of float32 takes fewer cycles than an estimate of the inverse and
    two steps by Newton, as measured."""
    fetches_stored_lines: bool = False
    """Whether stores of whole lines of the cache go faster where a prefetch has brought the line,
    as measured."""


UNKNOWN = Core()


def by_name(cores: Mapping[str, Core]) -> dict[str, Core]:
    """Cores by each of the names that their keys list."""
    return {name: core for names, core in cores.items() for name in names.split()}

"""Plans by the name of an algorithm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sterna.tir.usmp.buffers import BufferInfo, check_buffers, live_bound
from sterna.tir.usmp.greedy import greedy_by_conflicts, greedy_by_size, linear_scan
from sterna.tir.usmp.hill_climb import hill_climb

Algorithm = Callable[[Sequence[BufferInfo]], list[int]]

ALGORITHMS: dict[str, Algorithm] = {
    "greedy_by_size": greedy_by_size,
    "greedy_by_conflicts": greedy_by_conflicts,
    "linear_scan": linear_scan,
    "hill_climb": hill_climb,
}
"""By name, what gives the offsets of buffers in their order."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where buffers lie in an arena, and how good that is."""

    buffers: tuple[BufferInfo, ...]
    offsets: dict[str, int]
    size: int
    lower_bound: int
    """No plan is smaller than this."""

    @property
    def proven(self) -> bool:
        """Whether no plan can be smaller."""
        return self.size == self.lower_bound


def plan_memory(buffers: Sequence[BufferInfo], algorithm: str = "auto") -> MemoryPlan:
    """The plan that an algorithm makes."""
    check_buffers(buffers)
    if algorithm == "auto":
        plans = [_run(buffers, name) for name in ALGORITHMS]
        return min(plans, key=lambda made: made.size)
    if algorithm not in ALGORITHMS:
        known = ", ".join(("auto", *ALGORITHMS))
        raise ValueError(f"unknown memory planning algorithm '{algorithm}'; known are: {known}")
    return _run(buffers, algorithm)


def plan(buffers: Sequence[BufferInfo], algorithm: str = "auto") -> tuple[dict[str, int], int]:
    """Offsets by name, and the size of the arena."""
    made = plan_memory(buffers, algorithm)
    return made.offsets, made.size


def _run(buffers: Sequence[BufferInfo], algorithm: str) -> MemoryPlan:
    places = ALGORITHMS[algorithm](buffers)
    offsets = {b.name: at for b, at in zip(buffers, places, strict=True)}
    size = max((at + b.size for b, at in zip(buffers, places, strict=True)), default=0)
    return MemoryPlan(tuple(buffers), offsets, size, live_bound(buffers))

"""Plans by the name of an algorithm."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sterna.tir.usmp.buffers import BufferInfo, check_buffers, live_bound
from sterna.tir.usmp.greedy import crowded, greedy_by_conflicts, greedy_by_size, linear_scan
from sterna.tir.usmp.hill_climb import hill_climb
from sterna.tir.usmp.optimal import optimal

QUICK: dict[str, Callable[[Sequence[BufferInfo]], list[int]]] = {
    "greedy_by_size": greedy_by_size,
    "greedy_by_conflicts": greedy_by_conflicts,
    "linear_scan": linear_scan,
}
"""By name, what gives the offsets of buffers in their order."""

ALGORITHMS = ("auto", *QUICK, "hill_climb", "optimal")

TIME_LIMITS = {"auto": 0.5, "optimal": 30.0}
"""In seconds of a usual processor: the work is counted, so that plans are the same everywhere."""


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


def check_algorithm(name: str) -> None:
    """Raise ValueError for a name that no algorithm has."""
    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise ValueError(f"unknown memory planning algorithm '{name}'; known are: {known}")


def plan_memory(
    buffers: Sequence[BufferInfo],
    algorithm: str = "auto",
    time_limit: float | None = None,
    enough: int = 0,
) -> MemoryPlan:
    """The plan of an algorithm; "auto" and "optimal" search no further for less than is enough.

    "auto" takes the best of the quick ones and, where a smaller plan may exist, searches for it
    for a short time.
    """
    check_buffers(buffers)
    check_algorithm(algorithm)
    if algorithm in QUICK:
        return _plan_of(buffers, QUICK[algorithm](buffers))
    if algorithm == "hill_climb":
        return _plan_of(buffers, hill_climb(buffers))
    best = _best_quick_plan(buffers)
    if best.size <= max(best.lower_bound, enough):
        return best
    limit = TIME_LIMITS[algorithm] if time_limit is None else time_limit
    found = optimal(buffers, list(best.offsets.values()), limit, enough)
    return _plan_of(buffers, found.offsets, found.needed)


def _best_quick_plan(buffers: Sequence[BufferInfo]) -> MemoryPlan:
    """The smallest plan of the quick ways; one at the bound ends the search for others."""
    best: MemoryPlan | None = None
    for way in ("linear_scan", "greedy_by_size", "greedy_by_conflicts"):
        made = _plan_of(buffers, QUICK[way](buffers))
        best = made if best is None or made.size < best.size else best
        if best.proven or crowded(buffers):
            break
    assert best is not None
    return best


def plan(buffers: Sequence[BufferInfo], algorithm: str = "auto") -> tuple[dict[str, int], int]:
    """Offsets by name, and the size of the arena."""
    made = plan_memory(buffers, algorithm)
    return made.offsets, made.size


def _plan_of(buffers: Sequence[BufferInfo], places: Sequence[int], needed: int = 0) -> MemoryPlan:
    offsets = {b.name: at for b, at in zip(buffers, places, strict=True)}
    size = max((at + b.size for b, at in zip(buffers, places, strict=True)), default=0)
    return MemoryPlan(tuple(buffers), offsets, size, max(needed, live_bound(buffers)))

"""Buffers with known sizes and lives, and what is true of every plan for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from sterna.ir.memory_pools import PoolInfo


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """A buffer that lives from its first step up to, not including, its last."""

    name: str
    size: int
    first: int
    last: int
    alignment: int = field(default=1, compare=False)
    """Divides its size, and so the offset that any of our plans gives it."""
    pool_candidates: tuple[PoolInfo, ...] = field(default=(), compare=False, repr=False)
    """Where it may lie, what is preferred first."""
    conflicts: list["BufferInfo"] = field(default_factory=list, compare=False, repr=False)
    """Those that live at one moment with it; filled in for planners from elsewhere."""

    @property
    def name_hint(self) -> str:
        """Its name."""
        return self.name

    @property
    def size_bytes(self) -> int:
        """Its size."""
        return self.size

    def meets(self, other: "BufferInfo") -> bool:
        """Whether both live at one moment."""
        return self.first < other.last and other.first < self.last


def check_buffers(buffers: Sequence[BufferInfo]) -> None:
    """Raise ValueError for the first buffer that no plan can hold."""
    names: set[str] = set()
    for buffer in buffers:
        if buffer.size < 0:
            raise ValueError(f"buffer '{buffer.name}' has a negative size: {buffer.size}")
        if buffer.last <= buffer.first:
            raise ValueError(
                f"buffer '{buffer.name}' lives from step {buffer.first} up to, not including, "
                f"{buffer.last}: its last step must be after its first"
            )
        if buffer.name in names:
            raise ValueError(f"two buffers are named '{buffer.name}': give each its own name")
        names.add(buffer.name)


def live_bound(buffers: Sequence[BufferInfo]) -> int:
    """The most that is alive at one moment: no plan can be smaller."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        changes[buffer.first] = changes.get(buffer.first, 0) + buffer.size
        changes[buffer.last] = changes.get(buffer.last, 0) - buffer.size
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)

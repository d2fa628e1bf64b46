"""Buffers with known sizes and lives, and what is true of every plan for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """A buffer that lives from its first step up to, not including, its last."""

    name: str
    size: int
    first: int
    last: int

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

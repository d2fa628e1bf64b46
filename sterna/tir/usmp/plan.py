"""Offsets for buffers whose sizes and lives are known."""

from collections.abc import Sequence
from dataclasses import dataclass


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


def plan(buffers: Sequence[BufferInfo], algorithm: str = "auto") -> tuple[dict[str, int], int]:
    """Offsets by name, and the size of the arena."""
    offsets = greedy_by_size(buffers)
    return offsets, max((offsets[b.name] + b.size for b in buffers), default=0)


def greedy_by_size(buffers: Sequence[BufferInfo]) -> dict[str, int]:
    """Large buffers first, each at the lowest place that is free for its life."""
    placed: list[BufferInfo] = []
    offsets: dict[str, int] = {}
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.first, b.name)):
        near = sorted((b for b in placed if b.meets(buffer)), key=lambda b: offsets[b.name])
        at = 0
        for other in near:
            if offsets[other.name] - at >= buffer.size:
                break
            at = max(at, offsets[other.name] + other.size)
        offsets[buffer.name] = at
        placed.append(buffer)
    return offsets

"""Where a graph's intermediate tensors lie: one arena, planned by their live ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.lowering.work import bytes_of
from sterna.tir.usmp import BufferInfo, plan_memory

if TYPE_CHECKING:
    from sterna.lowering.graph import Entry, Graph

ALIGNMENT = 64


@dataclass(slots=True)
class StoragePlan:
    """Per entry its place in the arena and the number of its storage."""

    offsets: list[int]
    """-1 for inputs and parameters, which are not in the arena."""
    storage_ids: list[int]
    arena_bytes: int
    bound_bytes: int
    """No plan can be smaller."""


def plan_storage(graph: Graph, algorithm: str = "auto") -> StoragePlan:
    """The plan of a graph; entries that share memory have one storage."""
    owners = _owners(graph)
    entries: list[Entry] = [
        (number, index)
        for number, node in enumerate(graph.nodes)
        for index in range(len(node.types))
    ]
    last = _last_uses(graph, owners)
    buffers = []
    for entry in entries:
        node = graph.nodes[entry[0]]
        if owners[entry] == entry and node.op != "null":
            size = -(-max(1, bytes_of(node.types[entry[1]])) // ALIGNMENT) * ALIGNMENT
            name = f"{entry[0]}:{entry[1]} of {node.name}"
            end = last.get(entry, entry[0]) + 1
            buffers.append((entry, BufferInfo(name, size, entry[0], end)))
    made = plan_memory([info for _, info in buffers], algorithm)
    placed = {entry: made.offsets[info.name] for entry, info in buffers}
    ids: dict[tuple[str, int], int] = {}
    found = StoragePlan([], [], made.size, made.lower_bound)
    for entry in entries:
        offset = placed.get(owners[entry], -1)
        key = ("arena", offset) if offset >= 0 else ("own", owners[entry][0])
        found.storage_ids.append(ids.setdefault(key, len(ids)))
        found.offsets.append(offset)
    return found


def _owners(graph: Graph) -> dict[Entry, Entry]:
    """Per entry the one whose memory it is: views are of their inputs' memory."""
    owners: dict[Entry, Entry] = {}
    for number, node in enumerate(graph.nodes):
        for index in range(len(node.types)):
            own = (number, index)
            owners[own] = owners[node.inputs[0]] if node.is_view else own
    return owners


def _last_uses(graph: Graph, owners: dict[Entry, Entry]) -> dict[Entry, int]:
    """Per owner the last step that reads it; what the graph gives lives to the end."""
    last: dict[Entry, int] = {}
    for number, node in enumerate(graph.nodes):
        for entry in node.inputs:
            last[owners[entry]] = number
    for entry in graph.heads:
        last[owners[entry]] = len(graph.nodes)
    return last

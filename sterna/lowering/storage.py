"""Where a graph's intermediate tensors lie: one arena, planned by their live ranges."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.lowering.work import bytes_of
from sterna.tir.usmp import BufferInfo, MemoryPlan, plan_memory

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
    memory: MemoryPlan
    """What lies where, and how small it could be."""
    scratch: dict[int, list[int]]
    """By node, where the memory lies that its kernel works in."""

    @property
    def bound_bytes(self) -> int:
        """No plan can be smaller."""
        return self.memory.lower_bound


def plan_storage(
    graph: Graph,
    algorithm: str = "auto",
    alignment: int = ALIGNMENT,
    elsewhere: Collection[Entry] = (),
    scratch: Mapping[int, Sequence[int]] | None = None,
) -> StoragePlan:
    """The plan of a graph; entries that share memory have one storage.

    elsewhere: entries that have memory of their own. scratch: by node, how many bytes its kernel
    needs while it runs, once or several times.
    """
    owners = owners_of(graph)
    entries: list[Entry] = [
        (number, index)
        for number, node in enumerate(graph.nodes)
        for index in range(len(node.types))
    ]
    last = _last_uses(graph, owners)
    buffers: dict[Entry, BufferInfo] = {}
    for entry in entries:
        node = graph.nodes[entry[0]]
        if owners[entry] == entry and node.op != "null" and entry not in elsewhere:
            size = _up(bytes_of(node.types[entry[1]]), alignment)
            name = f"{entry[0]}:{entry[1]} of {node.name}"
            end = last.get(entry, entry[0]) + 1
            buffers[entry] = BufferInfo(name, size, entry[0], end)
    works = {
        number: [
            BufferInfo(f"{number}.{place} in {graph.nodes[number].name}",
                       _up(size, alignment), number, number + 1)
            for place, size in enumerate(sizes)
        ]
        for number, sizes in (scratch or {}).items()
    }  # fmt: skip
    every = [*buffers.values(), *(info for infos in works.values() for info in infos)]
    made = plan_memory(every, algorithm)
    placed = {entry: made.offsets[info.name] for entry, info in buffers.items()}
    ids: dict[tuple[str, int], int] = {}
    worked = {n: [made.offsets[info.name] for info in infos] for n, infos in works.items()}
    found = StoragePlan([], [], made.size, made, worked)
    for entry in entries:
        offset = placed.get(owners[entry], -1)
        key = ("arena", offset) if offset >= 0 else ("own", owners[entry][0])
        found.storage_ids.append(ids.setdefault(key, len(ids)))
        found.offsets.append(offset)
    return found


def _up(size: int, alignment: int) -> int:
    return -(-max(1, size) // alignment) * alignment


def owners_of(graph: Graph) -> dict[Entry, Entry]:
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

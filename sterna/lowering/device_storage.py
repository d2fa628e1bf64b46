"""Static memory planning for graphs on several devices: an arena on each.

The arena of the first entry's device is the graph's. Every other device has one storage, which all
entries in its arena share, at their offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.lowering.storage import Layout, owners_of, plan_storage

if TYPE_CHECKING:
    from sterna.lowering.graph import Entry, Graph


@dataclass(frozen=True, slots=True)
class DevicesPlan:
    """Per entry its storage, and its offset in the arena of its device; -1: it is in none."""

    storage_ids: list[int]
    offsets: list[int]
    arenas: dict[int, int]
    """The bytes of each device's arena."""
    first: int
    """The device whose arena is the graph's."""

    @property
    def first_arena(self) -> int:
        """The bytes of the graph's arena."""
        return self.arenas[self.first]


def plan_devices_storage(graph: Graph, layout: Layout) -> DevicesPlan:
    """The plan of a graph whose nodes know their devices."""
    devices = {
        (number, index): node.device
        for number, node in enumerate(graph.nodes) for index in range(len(node.types))
    }
    kinds = list(dict.fromkeys(devices.values())) or [1]
    plans = {
        kind: plan_storage(graph, layout, {e for e, other in devices.items() if other != kind})
        for kind in kinds
    }
    arenas = {kind: plan.arena_bytes for kind, plan in plans.items()}
    if len(kinds) == 1:
        (plan,) = plans.values()
        return DevicesPlan(plan.storage_ids, plan.offsets, arenas, kinds[0])
    owners = owners_of(graph)
    ids: dict[tuple[str, Entry | int], int] = {}
    found = DevicesPlan([], [], arenas, kinds[0])
    for place, (entry, kind) in enumerate(devices.items()):
        offset = plans[kind].offsets[place]
        in_first: tuple[str, Entry | int] = ("at", offset)
        in_other: tuple[str, Entry | int] = ("arena of", kind)
        own: tuple[str, Entry | int] = ("own", owners[entry])
        key = own if offset < 0 else in_first if kind == kinds[0] else in_other
        found.storage_ids.append(ids.setdefault(key, len(ids)))
        found.offsets.append(offset)
    return found

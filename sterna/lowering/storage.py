"""Static memory planning: intermediate tensors in an arena or in pools, by their live ranges."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from sterna.ir.memory_pools import PoolInfo, WorkspacePoolInfo
from sterna.ir.types import TensorType
from sterna.lowering.work import bytes_of
from sterna.tir.in_place import Overlap
from sterna.tir.usmp import (
    BufferInfo,
    Link,
    MemoryPlan,
    OverlappingPlan,
    PoolAllocation,
    PoolPlan,
    plan_overlapping,
    plan_pools,
)

if TYPE_CHECKING:
    from sterna.lowering.graph import Entry, Graph, Node

ALIGNMENT = 64
ARENA = WorkspacePoolInfo("global_workspace", [])
"""The pool of networks that are given none: as large as it must be."""

Place = tuple[int, int]
"""The number of a pool, and an offset in it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the memory between the kernels is arranged."""

    algorithm: str = "auto"
    alignment: int = ALIGNMENT
    scratch: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By kernel, the sizes of the memory that it is given as its last arguments."""
    take_over: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """By kernel, inputs whose memory an output may lie in, both by their places."""
    pools: Sequence[PoolInfo] = (ARENA,)
    """What is preferred first."""
    custom: str = ""
    """The name of a registered function that plans instead of the algorithm."""
    holds_operands: bool = False
    """Whether inputs and outputs lie in the pools too."""
    threads: int = 1
    """How many write each tensor; each keeps to the memory that it wrote before."""
    overlaps: Mapping[str, Sequence[Overlap]] = field(default_factory=dict)
    """By kernel, inputs that an output may lie over in part."""


@dataclass(slots=True)
class StoragePlan:
    """Per entry its place in the pools and the number of its storage."""

    places: dict[Entry, Place]
    """Of the entries that lie in pools."""
    offsets: list[int]
    """-1 for entries that do not."""
    storage_ids: list[int]
    memory: PoolPlan
    """What lies where, and how small it could be."""
    scratch: dict[int, list[Place]]
    """By node, where the memory lies that its kernel works in."""
    in_place: int
    """How many tensors lie in the memory of what they are computed from."""
    output_places: dict[Entry, Place]
    """Where the graph's outputs lie, if they lie in pools."""
    lives: list[tuple[BufferInfo, Place]]
    """Every tensor and all memory that kernels work in, each with its own life."""

    @property
    def arena_bytes(self) -> int:
        """The bytes that are used, in all pools together."""
        return self.memory.size

    @property
    def bound_bytes(self) -> int:
        """No plan can be smaller."""
        return self.memory.lower_bound

    def over_kernels(self, graph: Graph) -> MemoryPlan:
        """What lies where while which kernels run, by their numbers; pools stand on one another."""
        calls = [n for n, node in enumerate(graph.nodes) if node.op != "null" and not node.is_view]
        starts = [0, *accumulate(self.memory.sizes.values())]
        buffers = tuple(
            replace(info, first=bisect_left(calls, info.first), last=bisect_left(calls, info.last))
            for info, _ in self.lives
        )
        offsets = {info.name: starts[pool] + offset for info, (pool, offset) in self.lives}
        return MemoryPlan(buffers, offsets, self.arena_bytes, self.bound_bytes)


def plan_storage(
    graph: Graph, layout: Layout | None = None, elsewhere: Collection[Entry] = ()
) -> StoragePlan:
    """The plan of a graph; entries that share memory have one storage.

    elsewhere: entries that have memory of their own.
    """
    layout = layout or Layout()
    owners = owners_of(graph)
    alone = _tensors(graph, layout, owners, elsewhere)
    works = {**_works(graph, layout), **_copies(graph, layout, owners)}
    heirs = _heirs(graph, layout, owners, alone)
    memory = _plan(_merged(alone, heirs), works, layout)
    if heirs and memory.size > memory.lower_bound:
        # Longer lives can be harder to place.
        separate = _plan(alone, works, layout)
        if separate.size < memory.size:
            memory, heirs = separate, {}
    in_place = len(heirs)
    overlapping = _overlapping(graph, layout, owners, alone, works)
    if overlapping is not None and overlapping.size < memory.size:
        memory, heirs, in_place = _pool_of(overlapping, layout), {}, overlapping.linked

    def place(info: BufferInfo) -> Place:
        found = memory.places[info.name]
        return layout.pools.index(found.pool_info), found.byte_offset

    placed = {entry: place(alone[heirs.get(entry, entry)]) for entry in alone}
    worked = {number: [place(info) for info in infos] for number, infos in works.items()}
    lives = [(info, placed[entry]) for entry, info in alone.items()]
    lives += [(info, place(info)) for infos in works.values() for info in infos]
    places = {e: placed[owner] for e, owner in owners.items() if owner in placed}
    ids: dict[tuple[str, Place], int] = {}
    copied = [head for head in graph.heads if layout.holds_operands and head not in places]
    outputs = {head: places[head] for head in graph.heads if head in places}
    outputs.update(zip(dict.fromkeys(copied), worked.pop(len(graph.nodes), ()), strict=True))
    found = StoragePlan(places, [], [], memory, worked, in_place, outputs, lives)
    for entry, owner in owners.items():
        key = ("pool", places[entry]) if entry in places else ("own", owner)
        found.storage_ids.append(ids.setdefault(key, len(ids)))
        found.offsets.append(places[entry][1] if entry in places else -1)
    return found


def _plan(
    tensors: Mapping[Entry, BufferInfo], works: Mapping[int, list[BufferInfo]], layout: Layout
) -> PoolPlan:
    every = [*tensors.values(), *(info for infos in works.values() for info in infos)]
    return plan_pools(every, layout.pools, layout.algorithm, layout.custom, layout.threads)


def _tensors(
    graph: Graph, layout: Layout, owners: Mapping[Entry, Entry], elsewhere: Collection[Entry]
) -> dict[Entry, BufferInfo]:
    """The entries that have memory in the pools, and their lives."""
    last = last_uses(graph, owners)
    found: dict[Entry, BufferInfo] = {}
    for entry, owner in owners.items():
        number, index = entry
        node = graph.nodes[number]
        is_input = node.op == "null"
        if owner != entry or entry in elsewhere:
            continue
        if is_input and (node.name in graph.params or not layout.holds_operands):
            continue
        first = -1 if is_input else number  # all inputs are there before the first step
        found[entry] = BufferInfo(
            describe(node, index), _up(bytes_of(node.types[index]), layout.alignment),
            first, last.get(entry, first) + 1, layout.alignment,
        )
    return found


def _works(graph: Graph, layout: Layout) -> dict[int, list[BufferInfo]]:
    """By node, the memory that its kernel works in."""
    return {
        number: [
            BufferInfo(f"that {describe(node)} works in ({place})", _up(size, layout.alignment),
                       number, number + 1, layout.alignment)
            for place, size in enumerate(layout.scratch[node.attrs["func_name"]])
        ]
        for number, node in enumerate(graph.nodes)
        if node.op != "null" and layout.scratch.get(node.attrs["func_name"])
    }


def _copies(
    graph: Graph, layout: Layout, owners: Mapping[Entry, Entry]
) -> dict[int, list[BufferInfo]]:
    """Behind the last step, the memory of outputs that are constants."""
    if not layout.holds_operands:
        return {}
    end = len(graph.nodes)
    constants = [h for h in graph.heads if graph.nodes[owners[h][0]].name in graph.params]
    return {
        end: [
            BufferInfo(f"the output that is the constant {describe(graph.nodes[number], index)}",
                       _up(bytes_of(graph.nodes[number].types[index]), layout.alignment),
                       end, end + 1, layout.alignment)
            for number, index in dict.fromkeys(constants)
        ]
    }


def _heirs(
    graph: Graph, layout: Layout, owners: Mapping[Entry, Entry], alone: Mapping[Entry, BufferInfo]
) -> dict[Entry, Entry]:
    """Entries that lie in the memory of an input of theirs, and the first that lay there."""
    roots: dict[Entry, Entry] = {}
    for number, node in enumerate(graph.nodes):
        if node.op == "null":
            continue
        sources = [owners[entry] for entry in node.inputs]
        taken: set[Entry] = set()
        for place, index in layout.take_over.get(node.attrs["func_name"], ()):
            source, target = sources[place], (number, index)
            if (
                source in alone and target in alone
                and target not in roots and source not in taken
                and sources.count(source) == 1 and alone[source].last == number + 1
                and alone[source].size == alone[target].size
            ):
                roots[target] = roots.get(source, source)
                taken.add(source)
    return roots


def _overlapping(
    graph: Graph, layout: Layout, owners: Mapping[Entry, Entry], alone: Mapping[Entry, BufferInfo],
    works: Mapping[int, list[BufferInfo]],
) -> OverlappingPlan | None:
    """A plan of one pool in which results lie over what they are computed from, if any may."""
    if len(layout.pools) > 1 or layout.custom or not layout.overlaps:
        return None
    links: list[Link] = []
    for number, node in enumerate(graph.nodes):
        if node.op == "null":
            continue
        sources = [owners[entry] for entry in node.inputs]
        for overlap in layout.overlaps.get(node.attrs["func_name"], ()):
            source, target = sources[overlap.source], (number, overlap.target)
            if (
                source in alone and target in alone
                and sources.count(source) == 1 and alone[source].last == number + 1
            ):
                lead = _up(overlap.lead, layout.alignment) if overlap.lead else 0
                links.append(Link(alone[source], alone[target], lead))
    every = [*alone.values(), *(info for infos in works.values() for info in infos)]
    return plan_overlapping(every, links)


def _pool_of(plan: OverlappingPlan, layout: Layout) -> PoolPlan:
    (pool,) = layout.pools
    places = {name: PoolAllocation(pool, offset) for name, offset in plan.offsets.items()}
    return PoolPlan((pool,), places, {pool.pool_name: plan.size}, plan.lower_bound)


def _merged(
    alone: Mapping[Entry, BufferInfo], heirs: Mapping[Entry, Entry]
) -> dict[Entry, BufferInfo]:
    """One buffer for all that lie in the same memory one after the other."""
    made = {entry: info for entry, info in alone.items() if entry not in heirs}
    for entry, root in heirs.items():
        made[root] = replace(made[root], last=max(made[root].last, alone[entry].last))
    return made


def describe(node: Node, index: int = 0) -> str:
    """A step's result as its user knows it: by the kernel, and by nodes of the imported model."""
    name = f"'{node.name}'" if len(node.types) < 2 else f"'{node.name}' ({index})"
    sources = json.loads(node.attrs.get("sources", "[]"))
    return f"{name}, which computes {', '.join(sources)}," if sources else name


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


def last_uses(graph: Graph, owners: Mapping[Entry, Entry]) -> dict[Entry, int]:
    """Per owner the last step that reads it; what the graph gives lives to the end."""
    last: dict[Entry, int] = {}
    for number, node in enumerate(graph.nodes):
        for entry in node.inputs:
            last[owners[entry]] = number
    for entry in graph.heads:
        last[owners[entry]] = len(graph.nodes)
    return last


@dataclass(frozen=True, slots=True)
class ConstantLayout:
    """The pools that constants lie in; none: each is by itself."""

    pools: Sequence[PoolInfo] = ()
    alignment: int = ALIGNMENT


def plan_constants(graph: Graph, layout: ConstantLayout) -> tuple[PoolPlan, dict[str, Place]]:
    """Where constants lie in their pools, all of them at any time."""
    if not layout.pools:
        return PoolPlan((), {}, {}, 0), {}
    buffers = {
        node.name: BufferInfo(_constant_words(graph, number), _up(bytes_of(node.types[0]),
                              layout.alignment), 0, 1, layout.alignment)
        for number, node in enumerate(graph.nodes) if node.name in graph.params
    }
    algorithm = "linear_scan" if len(layout.pools) == 1 else "greedy_by_size"
    plan = plan_pools(list(buffers.values()), layout.pools, algorithm)
    found: dict[str, Place] = {}
    for name, info in buffers.items():
        at = plan.places[info.name]
        found[name] = (layout.pools.index(at.pool_info), at.byte_offset)
    return plan, found


def _constant_words(graph: Graph, number: int) -> str:
    node = graph.nodes[number]
    readers = [other for other in graph.nodes if (number, 0) in other.inputs]
    whose = f" of {describe(readers[0])}" if readers else ""
    return f"'{node.attrs.get('parameter', node.name)}', a constant {node.types[0]!r}{whose}"


def in_place_candidates(
    graph: Graph, operands: bool = False, any_size: bool = False
) -> dict[str, list[tuple[int, int]]]:
    """By kernel, inputs that some call is the last to use, with outputs that are as large.

    Where the kernel's loops allow it, the output can lie in the input's memory. operands: also if
    that is an input of the network. any_size: also outputs that are larger or smaller.
    """
    owners = owners_of(graph)
    last = last_uses(graph, owners)
    found: dict[str, list[tuple[int, int]]] = {}
    for number, node in enumerate(graph.nodes):
        if node.op == "null" or node.is_view:
            continue
        sources = [owners[entry] for entry in node.inputs]
        for place, source in enumerate(sources):
            origin = graph.nodes[source[0]]
            kept = origin.op == "null" and (origin.name in graph.params or not operands)
            if kept or last[source] != number or sources.count(source) > 1:
                continue
            given = origin.types[source[1]]
            for index, kind in enumerate(node.types):
                same = kind.dtype == given.dtype and (any_size or _same_size(kind, given))
                known = found.setdefault(node.attrs["func_name"], [])
                if same and (place, index) not in known:
                    known.append((place, index))
    return {kernel: pairs for kernel, pairs in found.items() if pairs}


def repeated_operands(graph: Graph) -> dict[str, set[int]]:
    """By kernel the places at which some call gives it a tensor that another one is given too."""
    owners = owners_of(graph)
    found: dict[str, set[int]] = {}
    for node in graph.nodes:
        if node.op != "null" and not node.is_view:
            sources = [owners[entry] for entry in node.inputs]
            again = {n for n, source in enumerate(sources) if sources.count(source) > 1}
            found.setdefault(node.attrs["func_name"], set()).update(again)
    return found


def _same_size(a: TensorType, b: TensorType) -> bool:
    """Whether two tensors of one element type take as much memory, whatever the run."""
    return bytes_of(a) == bytes_of(b) if a.is_static and b.is_static else a == b

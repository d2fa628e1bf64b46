"""Overlapping: buffers that lie in part in the memory of one that they are computed from.

A kernel that reads in the order of memory may write over what it has read. So its result may begin
so many bytes before its data, and both take little more than the larger one. Buffers that are bound
to one another so are a chain; plans move chains as wholes.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sterna.tir.usmp.buffers import BufferInfo


@dataclass(frozen=True, slots=True)
class Link:
    """That a buffer may lie over another, which dies as it is made."""

    source: BufferInfo
    target: BufferInfo
    lead: int
    """The bytes by which target then begins before source: some of its alignment."""

    @property
    def step(self) -> int:
        """When both are there."""
        return self.target.first

    @property
    def spared(self) -> int:
        """The bytes that both have in common."""
        source, target = self.source.size, self.target.size
        return max(0, min(source, target - self.lead))


@dataclass(frozen=True, slots=True)
class OverlappingPlan:
    """Where buffers lie, and how many of them over others."""

    offsets: dict[str, int]
    size: int
    lower_bound: int
    """No plan with these links is smaller."""
    linked: int


def plan_overlapping(
    buffers: Sequence[BufferInfo], links: Sequence[Link]
) -> OverlappingPlan:
    """The smallest plan that was found; links are used at the steps that need the most.

    Of those of a step the one that spares most comes first. Then they are used for what lies
    highest, because its neighbours leave no room below. A link where it is not needed would only
    bind what could lie anywhere.
    """
    used: list[Link] = []
    best: OverlappingPlan | None = None
    rest = sorted((link for link in links if link.spared), key=lambda x: (x.step, -x.spared))
    while True:
        made = _packed(buffers, used)
        if best is None or made.size < best.size:
            best = made
        needs = _needs(buffers, used)
        most = max(needs.values(), default=0)
        high = {b.name for b in buffers if made.offsets[b.name] + b.size == made.size}
        now = next((link for link in rest if needs[link.step] == most), None)
        if now is None and best.size > most:
            now = next((link for link in rest if high & {link.source.name, link.target.name}), None)
        if now is None:
            return best
        used.append(now)
        rest = [link for link in rest
                if link.source is not now.source and link.target is not now.target]


def _needs(buffers: Sequence[BufferInfo], links: Sequence[Link]) -> dict[int, int]:
    """By step, the least bytes that it takes."""
    found: dict[int, int] = defaultdict(int)
    for buffer in buffers:
        for step in range(buffer.first, buffer.last):
            found[step] += buffer.size
    for link in links:
        found[link.step] -= link.spared
    return found


def _packed(buffers: Sequence[BufferInfo], links: Sequence[Link]) -> OverlappingPlan:
    """First fit: chains one after the other, by their largest buffers or as they are made."""
    relative = _relative(buffers, links)
    chains: dict[str, list[BufferInfo]] = defaultdict(list)
    for buffer in buffers:
        chains[relative[buffer.name][0]].append(buffer)
    bound = max(_needs(buffers, links).values(), default=0)
    by_size = sorted(chains.values(), key=lambda chain: -max(b.size for b in chain))
    in_turn = sorted(chains.values(), key=lambda chain: min(b.first for b in chain))
    plans = [_first_fit(order, relative) for order in (by_size, in_turn)]
    sizes = [max((at[b.name] + b.size for b in buffers), default=0) for at in plans]
    best = min(range(len(plans)), key=sizes.__getitem__)
    return OverlappingPlan(plans[best], sizes[best], bound, len(links))


def _first_fit(
    chains: Sequence[Sequence[BufferInfo]], relative: Mapping[str, tuple[str, int]]
) -> dict[str, int]:
    """Offsets, by name: each chain as low as those before it allow."""
    offsets: dict[str, int] = {}
    placed: list[BufferInfo] = []
    for chain in chains:
        own = {buffer.name: relative[buffer.name][1] for buffer in chain}
        at = _lowest(chain, own, placed, offsets)
        offsets |= {name: at + offset for name, offset in own.items()}
        placed += chain
    return offsets


def _relative(
    buffers: Sequence[BufferInfo], links: Sequence[Link]
) -> dict[str, tuple[str, int]]:
    """By buffer, the first of its chain and the bytes from there, the least of which are none."""
    to = {link.target.name: link for link in links}
    found: dict[str, tuple[str, int]] = {}
    for buffer in sorted(buffers, key=lambda b: b.first):
        link = to.get(buffer.name)
        if link is None:
            found[buffer.name] = buffer.name, 0
        else:
            first, offset = found[link.source.name]
            found[buffer.name] = first, offset - link.lead
    least: dict[str, int] = defaultdict(int)
    for first, offset in found.values():
        least[first] = min(least[first], offset)
    return {name: (first, offset - least[first]) for name, (first, offset) in found.items()}


def _lowest(
    chain: Sequence[BufferInfo], own: Mapping[str, int], placed: Sequence[BufferInfo],
    offsets: Mapping[str, int],
) -> int:
    """The lowest place of a chain beside what lies somewhere already."""
    # From each of these places up to the other, a buffer of the chain would lie over another.
    taken = sorted(
        (offsets[other.name] - own[b.name] - b.size, offsets[other.name] + other.size - own[b.name])
        for b in chain for other in placed if b.meets(other)
    )
    at = 0
    for begin, end in taken:
        if begin >= at:
            break
        at = max(at, end)
    return at

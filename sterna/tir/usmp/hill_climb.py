"""Hill climbing: many greedy plans, each in an order that differs a little from the best."""

import math
import random
from collections.abc import Sequence

from sterna.tir.usmp.buffers import BufferInfo, live_bound
from sterna.tir.usmp.greedy import conflicts_of, order_by_size, place_in_order

ATTEMPTS = 500
LOOKS = 5_000_000
"""Pairs of buffers that all attempts together may look at, so that large graphs end too."""
WARMTH = 0.02
"""How much worse, as a fraction of the size, the first attempts may get."""


def hill_climb(buffers: Sequence[BufferInfo]) -> list[int]:
    """Move a buffer of the highest end before one below it; keep what is no worse, mostly."""
    conflicts = conflicts_of(buffers)
    order = order_by_size(buffers)
    offsets = place_in_order(buffers, conflicts, order)
    bound, size = live_bound(buffers), _size(buffers, offsets)
    best, best_size = offsets, size
    attempts = min(ATTEMPTS, LOOKS // (1 + sum(map(len, conflicts))))
    source = random.Random(len(buffers))
    for attempt in range(attempts):
        if best_size <= bound:
            break
        trial = _neighbour(buffers, conflicts, order, offsets, size, source)
        trial_offsets = place_in_order(buffers, conflicts, trial)
        trial_size = _size(buffers, trial_offsets)
        warmth = WARMTH * bound * (1 - attempt / attempts)
        if trial_size <= size or source.random() < math.exp((size - trial_size) / warmth):
            order, offsets, size = trial, trial_offsets, trial_size
        if size < best_size:
            best, best_size = offsets, size
    return best


def _neighbour(
    buffers: Sequence[BufferInfo],
    conflicts: Sequence[Sequence[int]],
    order: Sequence[int],
    offsets: Sequence[int],
    size: int,
    source: random.Random,
) -> list[int]:
    """The order with one buffer that ends highest, or one it meets, moved forward."""
    highest = [n for n in order if offsets[n] + buffers[n].size == size]
    chosen = source.choice(highest)
    positions = {n: position for position, n in enumerate(order)}
    if conflicts[chosen] and source.random() < 0.5:
        chosen = source.choice(conflicts[chosen])
    earlier = [positions[n] for n in conflicts[chosen] if positions[n] < positions[chosen]]
    position = source.choice(earlier) if earlier else source.randrange(len(order))
    moved = [n for n in order if n != chosen]
    moved.insert(position, chosen)
    return moved


def _size(buffers: Sequence[BufferInfo], offsets: Sequence[int]) -> int:
    return max((at + b.size for at, b in zip(offsets, buffers, strict=True)), default=0)

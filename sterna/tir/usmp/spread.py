"""Buffers over several pools: each lies in the first pool that has room when its turn comes."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sterna.ir.memory_pools import PoolInfo
from sterna.tir.usmp.buffers import BufferInfo
from sterna.tir.usmp.greedy import conflicts_of, lowest_place, order_by_size
from sterna.tir.usmp.plan import plan_memory

Place = tuple[int, int]
"""The number of a pool, and an offset in it."""

ATTEMPTS = 500
LOOKS = 5_000_000
"""Pairs of buffers that all attempts together may look at, so that large graphs end too."""
MOVES = 64
"""How many buffers "optimal" tries to move to a better pool."""

Order = Callable[[Sequence[BufferInfo], Sequence[Sequence[int]]], list[int]]

ORDERS: dict[str, Order] = {
    "greedy_by_size": lambda buffers, _: order_by_size(buffers),
    "greedy_by_conflicts": lambda buffers, conflicts: sorted(
        order_by_size(buffers), key=lambda n: -len(conflicts[n])
    ),
    "linear_scan": lambda buffers, _: sorted(
        order_by_size(buffers), key=lambda n: buffers[n].first
    ),
}
"""By the name of an algorithm, the order in which buffers get their turns."""


@dataclass(slots=True)
class _Trial:
    """What came of an order: where buffers lie, and which found no room."""

    order: list[int]
    places: list[Place]
    homeless: list[int]
    missing: int
    """The bytes that the first of those lacks."""
    cost: tuple[int, int, int]
    """Bytes without a place, bytes by how far down their pool is, and bytes used in all pools."""


def spread(buffers: Sequence[BufferInfo], pools: Sequence[PoolInfo], algorithm: str) -> list[Place]:
    """Where each buffer lies; ValueError if the pools are too small."""
    conflicts = conflicts_of(buffers)
    names = [algorithm] if algorithm in ORDERS else list(ORDERS)
    trials = [_try(buffers, conflicts, ORDERS[n](buffers, conflicts), pools) for n in names]
    best = min(trials, key=lambda trial: trial.cost)
    if algorithm not in ORDERS:
        best = _climb(buffers, conflicts, best, pools)
    if best.homeless:
        raise no_room(buffers[best.homeless[0]], pools, best.missing)
    return _tighten(buffers, pools, best.places) if algorithm == "optimal" else best.places


def no_room(
    buffer: BufferInfo, pools: Sequence[PoolInfo], missing: int, beside: str = "", hint: str = ""
) -> ValueError:
    """What is said of pools that are too small, and what else could be done about it."""
    sizes = ", ".join(f"{pool.pool_name} ({pool.limit} bytes)" for pool in pools)
    return ValueError(
        "TVM USMP Error: the space available in the provided pools exceeded when trying to "
        f"allocate the buffer {buffer.name} of {buffer.size} bytes: {missing} bytes are missing "
        f"in {sizes}{beside}. Please increase the size_hints for memory pools{hint}"
    )


def _try(
    buffers: Sequence[BufferInfo], conflicts: Sequence[Sequence[int]], order: list[int],
    pools: Sequence[PoolInfo],
) -> _Trial:
    places: list[Place] = [(-1, 0)] * len(buffers)
    homeless: list[int] = []
    missing = 0
    used = [0] * len(pools)
    down = 0
    for number in order:
        size, shortfalls = buffers[number].size, []
        for pool, info in enumerate(pools):
            near = [
                (places[n][1], buffers[n].size) for n in conflicts[number] if places[n][0] == pool
            ]
            at = lowest_place(near, size)
            if info.limit is None or at + size <= info.limit:
                places[number] = (pool, at)
                used[pool] = max(used[pool], at + size)
                down += pool * size
                break
            shortfalls.append(at + size - info.limit)
        else:
            missing = missing or min(shortfalls)
            homeless.append(number)
    lost = sum(buffers[n].size for n in homeless)
    return _Trial(order, places, homeless, missing, (lost, down, sum(used)))


def _climb(
    buffers: Sequence[BufferInfo], conflicts: Sequence[Sequence[int]], best: _Trial,
    pools: Sequence[PoolInfo],
) -> _Trial:
    """Give one buffer after the other an earlier turn, and keep what is no worse."""
    source = random.Random(len(buffers))
    attempts = min(ATTEMPTS, LOOKS // (1 + sum(map(len, conflicts))))
    for _ in range(attempts):
        if best.cost[:2] == (0, 0) or len(buffers) < 2:
            break
        low = best.homeless or [n for n in best.order if best.places[n][0] > 0]
        moved = source.choice(low if source.random() < 0.5 else best.order)
        order = [n for n in best.order if n != moved]
        order.insert(source.randrange(best.order.index(moved) + 1), moved)
        trial = _try(buffers, conflicts, order, pools)
        if trial.cost <= best.cost:
            best = trial
    return best


def _tighten(
    buffers: Sequence[BufferInfo], pools: Sequence[PoolInfo], places: Sequence[Place]
) -> list[Place]:
    """Pack each pool as tightly as can be, then move up what there is room for."""
    home = [pool for pool, _ in places]
    large = sorted((n for n, pool in enumerate(home) if pool), key=lambda n: -buffers[n].size)
    for number in large[:MOVES]:
        for pool in range(home[number]):
            limit = pools[pool].limit
            here = [b for b, at in zip(buffers, home, strict=True) if at == pool]
            if limit is None or plan_memory([*here, buffers[number]], "auto").size <= limit:
                home[number] = pool
                break
    made = list(places)
    for pool in range(len(pools)):
        inside = [n for n, at in enumerate(home) if at == pool]
        offsets = plan_memory([buffers[n] for n in inside], "optimal").offsets
        for n in inside:
            made[n] = (pool, offsets[buffers[n].name])
    return made

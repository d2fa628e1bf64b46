"""Plans over pools of memory, each of some size."""

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir.memory_pools import PoolInfo
from sterna.tir.usmp.buffers import BufferInfo, check_buffers, live_bound
from sterna.tir.usmp.custom import custom_places
from sterna.tir.usmp.plan import check_algorithm, plan_memory
from sterna.tir.usmp.settle import settle
from sterna.tir.usmp.spread import Place, no_room, spread


@dataclass(frozen=True, slots=True)
class PoolAllocation:
    """Where a buffer lies."""

    pool_info: PoolInfo
    byte_offset: int


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Which buffer lies where in which pool."""

    pools: tuple[PoolInfo, ...]
    places: dict[str, PoolAllocation]
    """By the name of a buffer."""
    sizes: dict[str, int]
    """By the name of a pool, what of it is used."""
    lower_bound: int
    """No plan needs less in all pools together."""

    @property
    def size(self) -> int:
        """What is used in all pools together."""
        return sum(self.sizes.values())


def plan_pools(
    buffers: Sequence[BufferInfo],
    pools: Sequence[PoolInfo],
    algorithm: str = "auto",
    custom: str = "",
    threads: int = 1,
) -> PoolPlan:
    """A plan for pools of which the first are preferred, by an algorithm or a registered function.

    One pool is planned as plan_memory does. Over several, a buffer lies in the first pool that has
    room for it when its turn comes, and the algorithm says whose turn it is. "auto" and
    "hill_climb" try many orders; "optimal" then packs each pool as tightly as can be and moves up
    what then fits. Where several threads write the buffers of one pool, each settles down.
    """
    check_buffers(buffers)
    check_algorithm(algorithm)
    bound = live_bound(buffers)
    if custom:
        places = custom_places(buffers, pools, custom)
    elif len(pools) == 1:
        made = plan_memory(buffers, algorithm)
        offsets = settle(buffers, [made.offsets[b.name] for b in buffers], threads)
        places, bound = [(0, at) for at in offsets], made.lower_bound
        _check_room(buffers, places, pools[0], algorithm, bound)
    else:
        places = spread(buffers, pools, algorithm)
    sizes = {pool.pool_name: 0 for pool in pools}
    found: dict[str, PoolAllocation] = {}
    for buffer, (number, offset) in zip(buffers, places, strict=True):
        pool = pools[number]
        found[buffer.name] = PoolAllocation(pool, offset)
        sizes[pool.pool_name] = max(sizes[pool.pool_name], offset + buffer.size)
    return PoolPlan(tuple(pools), found, sizes, bound)


def _check_room(
    buffers: Sequence[BufferInfo], places: Sequence[Place], pool: PoolInfo, algorithm: str,
    bound: int,
) -> None:
    ends = [at + buffer.size for buffer, (_, at) in zip(buffers, places, strict=True)]
    if pool.limit is None or not ends or max(ends) <= pool.limit:
        return
    buffer, beside, hint = buffers[ends.index(max(ends))], "", ""
    largest = max((b for b in buffers if b.meets(buffer)), key=lambda b: b.size)
    if largest.size > buffer.size:
        beside = f", which must hold the buffer {largest.name} of {largest.size} bytes beside it"
    if algorithm not in ("auto", "optimal") and bound <= pool.limit:
        hint = f', or plan with "optimal": "{algorithm}" may need more than there must be'
    raise no_room(buffer, [pool], max(ends) - pool.limit, beside, hint)

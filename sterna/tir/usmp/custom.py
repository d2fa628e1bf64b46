"""Plans by a function that a program registered as tir.usmp.algo.<name>."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sterna.ir.memory_pools import PoolInfo
from sterna.runtime import get_global_func
from sterna.tir.usmp.buffers import BufferInfo, live_bound
from sterna.tir.usmp.greedy import conflicts_of
from sterna.tir.usmp.spread import Place, no_room

PREFIX = "tir.usmp.algo."


def custom_places(
    buffers: Sequence[BufferInfo], pools: Sequence[PoolInfo], name: str
) -> list[Place]:
    """Where the function puts each buffer; a plan that cannot be is refused.

    The function is called with the buffers, which know their pool_candidates and conflicts, and
    with the most bytes that are alive at once. It gives a PoolAllocation for each buffer.
    """
    plan = get_global_func(PREFIX + name, allow_missing=True)
    if plan is None:
        raise ValueError(
            f"The selected custom USMP algorithm : {name} is not defined. Please register it as "
            f"{PREFIX}{name}"
        )
    shown = [replace(b, pool_candidates=tuple(pools), conflicts=[]) for b in buffers]
    conflicts = conflicts_of(buffers)
    for buffer, others in zip(shown, conflicts, strict=True):
        buffer.conflicts.extend(shown[other] for other in others)
    made = plan(shown, live_bound(buffers))
    if not isinstance(made, Mapping):
        raise TypeError(
            f"{PREFIX}{name} must give a dict of PoolAllocations by BufferInfo, not "
            f"{type(made).__name__}"
        )
    missing = [buffer.name for buffer in shown if buffer not in made]
    if missing:
        raise ValueError(f"{PREFIX}{name} gives no place to the buffer {missing[0]}")
    places = [_place(name, buffer, pools, made[buffer]) for buffer in shown]
    _check_disjoint(name, buffers, conflicts, places)
    return places


def _place(name: str, buffer: BufferInfo, pools: Sequence[PoolInfo], given: object) -> Place:
    pool, offset = getattr(given, "pool_info", None), getattr(given, "byte_offset", None)
    number = next((n for n, one in enumerate(pools) if one is pool), None)
    if number is None or not isinstance(offset, int) or offset < 0 or offset % buffer.alignment:
        raise ValueError(
            f"{PREFIX}{name} puts the buffer {buffer.name} at {given!r}; it lies in one of its "
            f"pool_candidates, at an offset that {buffer.alignment} divides"
        )
    limit = pools[number].limit
    if limit is not None and offset + buffer.size > limit:
        raise no_room(buffer, [pools[number]], offset + buffer.size - limit)
    return number, offset


def _check_disjoint(
    name: str, buffers: Sequence[BufferInfo], conflicts: Sequence[Sequence[int]],
    places: Sequence[Place],
) -> None:
    for one, others in enumerate(conflicts):
        pool, low = places[one]
        for other in others:
            other_pool, start = places[other]
            end, other_end = low + buffers[one].size, start + buffers[other].size
            if other_pool == pool and low < other_end and start < end:
                raise ValueError(
                    f"{PREFIX}{name} puts the buffers {buffers[one].name} and "
                    f"{buffers[other].name} into the same memory, but both are needed at one moment"
                )

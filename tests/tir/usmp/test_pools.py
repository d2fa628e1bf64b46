"""Plans over pools: nothing overlaps, nothing is too large, and good pools are used first."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.ir.memory_pools import (
    ConstantMemoryPools,
    ConstantPoolInfo,
    PoolInfoProperties,
    WorkspaceMemoryPools,
    WorkspacePoolInfo,
)
from sterna.tir.usmp import ALGORITHMS, BufferInfo, PoolPlan, plan_memory, plan_pools


def pools(*sizes: int) -> list[WorkspacePoolInfo]:
    return [
        WorkspacePoolInfo(f"pool{place}", [], PoolInfoProperties(size_hint_bytes=size))
        for place, size in enumerate(sizes)
    ]


def check(buffers: list[BufferInfo], plan: PoolPlan) -> None:
    assert set(plan.places) == {b.name for b in buffers}
    for pool in plan.pools:
        assert pool.limit is None or plan.sizes[pool.pool_name] <= pool.limit
    for at, one in enumerate(buffers):
        mine = plan.places[one.name]
        assert mine.byte_offset + one.size <= plan.sizes[mine.pool_info.pool_name]
        for other in buffers[at + 1 :]:
            its = plan.places[other.name]
            if mine.pool_info is its.pool_info and one.meets(other):
                low, high = mine.byte_offset, its.byte_offset
                assert low + one.size <= high or high + other.size <= low


@st.composite
def draw_buffers(draw: Any) -> list[BufferInfo]:
    count = draw(st.integers(1, 14))
    made = []
    for number in range(count):
        first = draw(st.integers(0, 20))
        made.append(BufferInfo(f"T{number}", draw(st.integers(1, 40)) * 16, first,
                               first + draw(st.integers(1, 8))))
    return made


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=60)
@given(buffers=draw_buffers(), sizes=st.lists(st.integers(1, 1200), min_size=1, max_size=3))
def test_plans_are_right_or_refused(
    algorithm: str, buffers: list[BufferInfo], sizes: list[int]
) -> None:
    try:
        plan = plan_pools(buffers, pools(*sizes), algorithm)
    except ValueError as error:
        named = [b for b in buffers if f"the buffer {b.name} " in str(error)]
        assert named and "bytes are missing" in str(error)
        largest, together = max(b.size for b in buffers), sum(b.size for b in buffers)
        assert largest > max(sizes) or together > max(sizes)
    else:
        check(buffers, plan)
        assert plan.size >= plan.lower_bound


@given(buffers=draw_buffers())
def test_one_pool_without_a_limit_is_one_arena(buffers: list[BufferInfo]) -> None:
    plan = plan_pools(buffers, [WorkspacePoolInfo("all", [])])
    assert plan.size == plan_memory(buffers).size


def test_good_pools_are_used_first() -> None:
    buffers = [BufferInfo(f"T{i}", size, 0, 1) for i, size in enumerate((64, 48, 32, 16))]
    for algorithm in ALGORITHMS:
        assert plan_pools(buffers, pools(96, 128), algorithm).sizes == {"pool0": 96, "pool1": 64}


def test_orders_that_greed_does_not_find() -> None:
    """Large ones first leaves a little of each pool unused, and no room for the last."""
    sizes = (96, 80, 64, 48, 48, 48)
    buffers = [BufferInfo(f"T{i}", size, 0, 1) for i, size in enumerate(sizes)]
    with pytest.raises(ValueError, match="the buffer T5 of 48 bytes: 16 bytes are missing"):
        plan_pools(buffers, pools(192, 192), "greedy_by_size")
    for algorithm in ("auto", "hill_climb", "optimal"):
        plan = plan_pools(buffers, pools(192, 192), algorithm)
        check(buffers, plan)


def test_bad_pools() -> None:
    with pytest.raises(ValueError, match="two memory pools are named a"):
        WorkspaceMemoryPools([WorkspacePoolInfo("a", []), WorkspacePoolInfo("a", [])])
    with pytest.raises(TypeError, match="WorkspaceMemoryPools holds WorkspacePoolInfos"):
        WorkspaceMemoryPools([ConstantPoolInfo("a", [])])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="the build fills the memory pool flash"):
        ConstantMemoryPools([ConstantPoolInfo("flash", [], [1])])
    with pytest.raises(ValueError, match="size_hint_bytes must be positive, or -1"):
        PoolInfoProperties(size_hint_bytes=0)
    with pytest.raises(ValueError, match="read_latency_cycles must not be negative"):
        PoolInfoProperties(read_latency_cycles=-1)
    with pytest.raises(TypeError, match="the targets of the memory pool a are a list"):
        WorkspacePoolInfo("a", "c")
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        WorkspacePoolInfo("a", []).colour  # noqa: B018
    assert WorkspacePoolInfo("a", []).size_hint_bytes == -1
    assert WorkspacePoolInfo("a", []).read_latency_cycles == 0


def test_a_better_algorithm_is_named() -> None:
    """Greed needs more than is alive at once; the smallest plan would fit."""
    lives = [(64, 6, 10), (48, 0, 4), (48, 3, 7), (32, 2, 4), (32, 2, 3)]
    buffers = [BufferInfo(f"T{i}", *life) for i, life in enumerate(lives)]
    with pytest.raises(ValueError, match=r'16 bytes are missing in pool0 .*or plan with "optimal"'):
        plan_pools(buffers, pools(128), "greedy_by_size")
    assert plan_pools(buffers, pools(128), "optimal").size == 128

"""USMP, static memory planning: buffers with known lives in one arena, or in several pools."""

from sterna.support.classic import classic_names
from sterna.tir.usmp.buffers import BufferInfo, live_bound
from sterna.tir.usmp.draw import draw_plan
from sterna.tir.usmp.overlap import Link, OverlappingPlan, plan_overlapping
from sterna.tir.usmp.plan import ALGORITHMS, MemoryPlan, plan, plan_memory
from sterna.tir.usmp.pools import PoolAllocation, PoolPlan, plan_pools

__all__ = [
    "ALGORITHMS",
    "BufferInfo",
    "Link",
    "MemoryPlan",
    "OverlappingPlan",
    "PoolAllocation",
    "PoolPlan",
    "draw_plan",
    "live_bound",
    "plan",
    "plan_memory",
    "plan_overlapping",
    "plan_pools",
]

__getattr__ = classic_names(__name__)

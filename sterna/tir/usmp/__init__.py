"""Static memory planning: where buffers with known lives lie in one arena."""

from sterna.tir.usmp.buffers import BufferInfo, live_bound
from sterna.tir.usmp.draw import draw_plan
from sterna.tir.usmp.plan import ALGORITHMS, MemoryPlan, plan, plan_memory

__all__ = [
    "ALGORITHMS",
    "BufferInfo",
    "MemoryPlan",
    "draw_plan",
    "live_bound",
    "plan",
    "plan_memory",
]

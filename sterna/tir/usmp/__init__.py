"""Static memory planning: where buffers with known lives lie in one arena."""

from sterna.tir.usmp.plan import BufferInfo, plan

__all__ = ["BufferInfo", "plan"]

"""The graph executor, under its classic name."""

from sterna.runtime.graph_executor import GraphModule, create

__all__ = ["GraphModule", "create"]

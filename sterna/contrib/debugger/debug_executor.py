"""The graph executor with a view inside, under its classic name."""

from sterna.runtime.debug_executor import GraphModuleDebug, create

__all__ = ["GraphModuleDebug", "create"]

"""What runs compiled networks."""

from sterna.runtime.executor.aot_executor import AotModule

__all__ = ["AotModule"]

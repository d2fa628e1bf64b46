"""Modules under the names that users of the classic API know."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterna.contrib import cc, clang, debugger, graph_executor, onnx_backend

_MODULES = frozenset({"cc", "clang", "debugger", "graph_executor", "onnx_backend"})

__all__ = ["cc", "clang", "debugger", "graph_executor", "onnx_backend"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sterna.contrib' has no attribute '{name}'")
    return importlib.import_module(f"sterna.contrib.{name}")

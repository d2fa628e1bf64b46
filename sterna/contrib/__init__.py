"""Modules under the names that users of the classic API know."""

import importlib
from typing import TYPE_CHECKING, Any

from sterna.support.classic import find_moved

if TYPE_CHECKING:
    from sterna.contrib import cc, clang, debugger, graph_executor, ndk, onnx_backend, utils

_MODULES = frozenset({"cc", "clang", "debugger", "graph_executor", "ndk", "onnx_backend", "utils"})

__all__ = ["cc", "clang", "debugger", "graph_executor", "ndk", "onnx_backend", "utils"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    return find_moved(__name__, name)

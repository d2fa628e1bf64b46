"""Modules under the names that users of the classic API know."""

import importlib
from typing import TYPE_CHECKING, Any

from sterna.support.classic import find_moved

if TYPE_CHECKING:
    from sterna.contrib import (
        cc,
        clang,
        cuda_graph,
        debugger,
        graph_executor,
        ndk,
        nvcc,
        onnx_backend,
        utils,
    )

__all__ = [
    "cc", "clang", "cuda_graph", "debugger", "graph_executor", "ndk", "nvcc", "onnx_backend",
    "utils",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    return find_moved(__name__, name)

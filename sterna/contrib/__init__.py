"""Modules under the names that users of the classic API know."""

import importlib
from typing import TYPE_CHECKING, Any

from sterna.support.classic import find_moved

if TYPE_CHECKING:
    from sterna.contrib import (
        cblas,
        cc,
        clang,
        cuda_graph,
        debugger,
        dlpack,
        graph_executor,
        ndk,
        nvcc,
        onnx_backend,
        random,
        tar,
        utils,
    )

__all__ = [
    "cblas", "cc", "clang", "cuda_graph", "debugger", "dlpack", "graph_executor", "ndk", "nvcc",
    "onnx_backend", "random", "tar", "utils",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    return find_moved(__name__, name)

"""Modules under the names that users of the classic API know."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterna.contrib import cc

_MODULES = frozenset({"cc"})

__all__ = ["cc"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sterna.contrib' has no attribute '{name}'")
    return importlib.import_module(f"sterna.contrib.{name}")

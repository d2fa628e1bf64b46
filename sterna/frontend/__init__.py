"""Importers: models of other frameworks as graphs. Each is loaded when it is first used."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterna.frontend.onnx.importer import from_onnx

_WHERE = {"from_onnx": "sterna.frontend.onnx.importer"}

__all__ = ["from_onnx"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"relay.frontend has no importer '{name}'")
    return getattr(importlib.import_module(_WHERE[name]), name)

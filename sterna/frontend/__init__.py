"""Importers: models of other frameworks as graphs. Each is loaded when it is first used."""

import importlib
from typing import TYPE_CHECKING, Any

from sterna.support.classic import MOVED, find_moved

if TYPE_CHECKING:
    from sterna.frontend.onnx.declared_inputs import declared_inputs
    from sterna.frontend.onnx.importer import from_onnx
    from sterna.frontend.onnx.model import has_external_data, load_model

_WHERE = {
    "declared_inputs": "sterna.frontend.onnx.declared_inputs",
    "from_onnx": "sterna.frontend.onnx.importer",
    "has_external_data": "sterna.frontend.onnx.model",
    "load_model": "sterna.frontend.onnx.model",
}

__all__ = ["declared_inputs", "from_onnx", "has_external_data", "load_model"]


def __getattr__(name: str) -> Any:
    if f"{__name__}.{name}" in MOVED:
        return find_moved(__name__, name)
    if name not in _WHERE:
        raise AttributeError(f"relay.frontend has no importer '{name}'")
    return getattr(importlib.import_module(_WHERE[name]), name)

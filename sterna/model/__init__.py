"""Whole models for people: compile, load, call, time and explain them.

The names are loaded when they are first used, so that a model in a file runs without the compiler.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterna.model.arguments import InputError
    from sterna.model.bounds import measure_bounds
    from sterna.model.cache_writer import build_of_cached, write_to_cache
    from sterna.model.compile_model import compile, target_of
    from sterna.model.compiled_model import CompiledModel, load
    from sterna.model.import_and_build import build_model
    from sterna.model.open_shapes import OpenShapeError

_WHERE = {
    "CompiledModel": "compiled_model",
    "InputError": "arguments",
    "OpenShapeError": "open_shapes",
    "build_model": "import_and_build",
    "build_of_cached": "cache_writer",
    "compile": "compile_model",
    "load": "compiled_model",
    "measure_bounds": "bounds",
    "target_of": "compile_model",
    "write_to_cache": "cache_writer",
}

__all__ = [
    "CompiledModel", "InputError", "OpenShapeError", "build_model", "build_of_cached", "compile",
    "load", "measure_bounds", "target_of", "write_to_cache",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'sterna.model' has no attribute '{name}'")
    return getattr(importlib.import_module(f"sterna.model.{_WHERE[name]}"), name)

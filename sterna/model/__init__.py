"""Whole models for people: compile, load, call, time and explain them.

The names are loaded when they are first used, so that a model in a file runs without the compiler.
"""

from typing import TYPE_CHECKING, Any

from sterna.support.discovery import load_name

if TYPE_CHECKING:
    from sterna.frontend.open_shapes import OpenShapeError
    from sterna.model.arguments import InputError
    from sterna.model.bounds import measure_bounds
    from sterna.model.building import build_model
    from sterna.model.compile_model import compile, target_of
    from sterna.model.compiled_model import CompiledModel, load
    from sterna.model.keeping import build_of_kept, keep_model

_WHERE = {
    "CompiledModel": "sterna.model.compiled_model:CompiledModel",
    "InputError": "sterna.model.arguments:InputError",
    "OpenShapeError": "sterna.frontend.open_shapes:OpenShapeError",
    "build_model": "sterna.model.building:build_model",
    "build_of_kept": "sterna.model.keeping:build_of_kept",
    "compile": "sterna.model.compile_model:compile",
    "keep_model": "sterna.model.keeping:keep_model",
    "load": "sterna.model.compiled_model:load",
    "measure_bounds": "sterna.model.bounds:measure_bounds",
    "target_of": "sterna.model.compile_model:target_of",
}

__all__ = [
    "CompiledModel", "InputError", "OpenShapeError", "build_model", "build_of_kept", "compile",
    "keep_model", "load", "measure_bounds", "target_of",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'sterna.model' has no attribute '{name}'")
    return load_name(_WHERE[name])

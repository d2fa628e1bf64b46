"""Whole models for people: compile, load, call, time and explain them.

The names are loaded when they are first used, so that a model in a file runs without the compiler.
"""

from typing import TYPE_CHECKING, Any

from sterna.support.discovery import load_name

if TYPE_CHECKING:
    from sterna.frontend.open_shapes import OpenShapeError
    from sterna.model.arguments import InputError
    from sterna.model.bounds import measure_bounds
    from sterna.model.cache_writer import build_of_cached, write_to_cache
    from sterna.model.compile_model import compile, compile_closed, target_of
    from sterna.model.compiled_model import CompiledModel, load
    from sterna.model.gpu_bounds import bounds_of_gpu
    from sterna.model.import_and_build import build_model
    from sterna.model.open_build import build_open
    from sterna.model.open_files import read_open
    from sterna.model.open_model import OpenModel
    from sterna.model.portable import export_portable
    from sterna.model.tuned_answers import read_tuned

_WHERE = {
    "CompiledModel": "sterna.model.compiled_model:CompiledModel",
    "OpenModel": "sterna.model.open_model:OpenModel",
    "InputError": "sterna.model.arguments:InputError",
    "OpenShapeError": "sterna.frontend.open_shapes:OpenShapeError",
    "build_model": "sterna.model.import_and_build:build_model",
    "build_open": "sterna.model.open_build:build_open",
    "build_of_cached": "sterna.model.cache_writer:build_of_cached",
    "compile": "sterna.model.compile_model:compile",
    "compile_closed": "sterna.model.compile_model:compile_closed",
    "export_portable": "sterna.model.portable:export_portable",
    "bounds_of_gpu": "sterna.model.gpu_bounds:bounds_of_gpu",
    "load": "sterna.model.compiled_model:load",
    "measure_bounds": "sterna.model.bounds:measure_bounds",
    "read_open": "sterna.model.open_files:read_open",
    "read_tuned": "sterna.model.tuned_answers:read_tuned",
    "target_of": "sterna.model.compile_model:target_of",
    "write_to_cache": "sterna.model.cache_writer:write_to_cache",
}

__all__ = [
    "CompiledModel", "InputError", "OpenModel", "OpenShapeError", "bounds_of_gpu", "build_model",
    "build_of_cached", "build_open", "compile", "compile_closed", "export_portable", "load",
    "measure_bounds", "read_open", "read_tuned", "target_of", "write_to_cache",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'sterna.model' has no attribute '{name}'")
    return load_name(_WHERE[name])

"""The cache of compiled models on disk, by what they were compiled from: a file and all settings.

What is here finds and runs them, without the compiler; cache_writer.py writes them.
"""

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.frontend.files import open_plain
from sterna.frontend.formats import recognise
from sterna.ir.pass_context import PassContext
from sterna.runtime import Module, NDArray, _core, load_param_dict
from sterna.runtime.built_graph import BuiltGraph
from sterna.schedule.choose import answers_now
from sterna.support.cache import Cache
from sterna.target import Target, host_of, machine_of
from sterna.target.code_generator import KernelCodeGenerator
from sterna.version import __version__

SIZE = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model's file, and everything else that compiling it depends on."""

    path: Path
    seen: tuple[int, int]
    """The size and the time of the file when it was read."""
    key: str
    target: Target

    @classmethod
    def of(
        cls, model: Any, target: Target, context: PassContext, settings: Mapping[str, Any]
    ) -> "Recipe | None":
        """None for what is no file, where passes are watched or told what is no plain data."""
        if not isinstance(model, str | os.PathLike) or context.is_watched:
            return None
        told = [context.opt_level, context.required_pass, context.disabled_pass, context.config,
                answers_now()]
        path = Path(model)
        try:
            seen = _seen(path)
            kind = recognise(path).name
            with open_plain(path) as (file, _):
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            machine = repr(machine_of(host_of(target)))
            made = [__version__, target.kind.fingerprint(), str(target), machine, told, settings,
                    digest]
            return cls(path, seen, json.dumps([kind, *made], sort_keys=True), target)
        except (OSError, TypeError, ValueError):  # the importer says what is wrong with a file
            return None

    def is_current(self) -> bool:
        """Whether the file is still the one that was read."""
        try:
            return _seen(self.path) == self.seen
        except OSError:
            return False


def _seen(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_size, about.st_mtime_ns


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model as it was compiled before."""

    head: Mapping[str, Any]
    """Its graph, and what there is to tell about its kernels."""
    objects: dict[str, bytes]
    """Kernels by name, and what they share, as object code."""
    params: dict[str, NDArray]
    module: Module
    """What makes executors of it."""

    @classmethod
    def find(cls, recipe: Recipe) -> "CachedModel | None":
        """The one that was made by a recipe."""
        return model_cache().read(recipe.key, lambda found: cls._load(found, recipe.target))

    @classmethod
    def _load(cls, found: memoryview, target: Target) -> "CachedModel":
        (size,) = SIZE.unpack_from(found)
        at = SIZE.size + size
        head = json.loads(bytes(found[SIZE.size : at]))
        objects = {}
        for name, length in head["objects"]:
            objects[name] = bytes(found[at : at + length])
            at += length
        params = load_param_dict(bytes(found[at:]))
        generator = target.kind.code_generator()
        assert isinstance(generator, KernelCodeGenerator)  # others' models are not kept
        find = generator.load(list(objects.values()))
        kernels: Module = _core.module_from_symbols(head["name"], find)
        for module in generator.device_modules(list(objects.values())):
            kernels.import_module(module)
        module = BuiltGraph(kernels, head["graph"], params, head["name"]).module()
        return cls(head, objects, params, module)


def model_cache() -> Cache:
    """Where models are; the rest of the folder is for kernels."""
    return Cache("models", 0.75)

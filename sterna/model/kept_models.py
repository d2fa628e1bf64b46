"""Compiled models kept on disk, by what they were compiled from: a file and all settings."""

import hashlib
import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sterna.driver import GraphExecutorFactoryModule
from sterna.driver.build import llvm_options, runs_here
from sterna.driver.code import KernelsCode
from sterna.driver.compile_kernels import fingerprint
from sterna.driver.kernel import KernelNotes
from sterna.ir.pass_context import PassContext
from sterna.model.build import Build
from sterna.model.import_model import lies_in_one_file
from sterna.model.report import KernelFacts
from sterna.runtime import load_param_dict, save_param_dict
from sterna.support.cache import Cache
from sterna.target import Target, machine_of
from sterna.version import __version__

_SIZE = struct.Struct("<Q")

# Of the folder's bytes; a larger model would drive out all others.
LARGEST_PART = 2


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
        """None for what is no file, or what is told to passes and is no plain data."""
        if not isinstance(model, str | os.PathLike) or context.instruments:
            return None
        told = [context.opt_level, context.required_pass, context.disabled_pass, context.config]
        path = Path(model)
        try:
            seen = _seen(path)
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            machine = repr(machine_of(target))
            made = [__version__, fingerprint(), str(target), machine, told, settings, digest]
            return cls(path, seen, json.dumps([path.suffix, *made], sort_keys=True), target)
        except (OSError, TypeError):  # the importer says what is wrong with a file
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


def find(recipe: Recipe, again: Callable[[], Build]) -> Build | None:
    """The model, if it was kept; again compiles it, for what is not kept: its code as text."""
    found = _cache().get(recipe.key)
    if found is None:
        return None
    (size,) = _SIZE.unpack_from(found)
    at = _SIZE.size + size
    head = json.loads(bytes(found[_SIZE.size : at]))
    objects = {}
    for name, length in head["objects"]:
        objects[name] = bytes(found[at : at + length])
        at += length
    notes = {name: KernelNotes(**given) for name, given in head["notes"].items()}
    facts = {
        name: KernelFacts(tuple(operators), notes.get(name))
        for name, operators in head["operators"].items()
    }

    def text(form: str) -> str:
        return again().factory.lib.code.source(form)

    target = recipe.target
    code = KernelsCode(objects, runs_here(target), llvm_options(target), text)
    factory = GraphExecutorFactoryModule(
        code, head["graph"], load_param_dict(bytes(found[at:])), head["name"], target,
        kernel_notes=notes,
    )  # fmt: skip
    return Build(factory, head["opt_level"], head["stages"], facts)


def keep(recipe: Recipe, build: Build) -> None:
    """Keep a model for the next time, if it can be and is not too large."""
    factory, cache = build.factory, _cache()
    code, params = factory.lib.code, factory.params
    if not isinstance(code, KernelsCode) or not recipe.is_current():
        return
    weights = sum(array.nbytes for array in params.values())
    if cache.folder is None or weights > cache.limit // LARGEST_PART:
        return
    if not lies_in_one_file(recipe.path):
        return
    facts = build.kernels()
    head = json.dumps({
        "name": factory.libmod_name,
        "graph": factory.graph_json,
        "opt_level": build.opt_level,
        "stages": dict(build.stages),
        "objects": [(name, len(content)) for name, content in code.objects.items()],
        "notes": {name: asdict(note) for name, note in factory.kernel_notes.items()},
        "operators": {name: fact.operators for name, fact in facts.items()},
    }).encode()  # fmt: skip
    size = _SIZE.pack(len(head))
    cache.put(recipe.key, size, head, *code.objects.values(), save_param_dict(params))
    cache.trim()


def _cache() -> Cache:
    return Cache("models", 0.75)

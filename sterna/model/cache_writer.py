"""Writes compiled models to the cache on disk, and tells of one from there how it was compiled."""

import json
from collections.abc import Callable
from dataclasses import asdict

from sterna.codegen.code import KernelsCode
from sterna.driver import GraphExecutorFactoryModule
from sterna.driver.kernel import KernelNotes
from sterna.frontend.formats import recognise
from sterna.model.build_record import BuildRecord
from sterna.model.cached_model import SIZE, CachedModel, Recipe, model_cache
from sterna.model.report import KernelFacts
from sterna.runtime import save_param_dict
from sterna.support.memory import give_back_memory
from sterna.target import Target
from sterna.target.code_generator import KernelCodeGenerator
from sterna.target.here import runs_here

# Of the bytes that models may take; a larger one would drive out all others.
LARGEST_PART = 2


def write_to_cache(recipe: Recipe, build: BuildRecord) -> None:
    """Cache a model for the next time, if it runs here, is in one file and is not too large."""
    factory, cache = build.factory, model_cache()
    code, params = factory.lib.code, factory.params
    weights = sum(array.nbytes for array in params.values())
    if cache.folder is None or weights > cache.limit // LARGEST_PART:
        return
    if not isinstance(code, KernelsCode) or not code.names or not runs_here(recipe.target):
        return
    if not recipe.is_current() or not recognise(recipe.path).holds_all(recipe.path):
        return
    head = json.dumps({
        "name": factory.libmod_name,
        "graph": factory.graph_json,
        "opt_level": build.opt_level,
        "stages": dict(build.stages),
        "objects": [(name, len(content)) for name, content in code.kernels.items()],
        "notes": {name: asdict(note) for name, note in factory.kernel_notes.items()},
        "operators": {name: facts.operators for name, facts in build.kernels().items()},
    }).encode()
    size = SIZE.pack(len(head))
    cache.put(recipe.key, size, head, *code.kernels.values(), save_param_dict(params))
    cache.trim()
    give_back_memory()


def build_of_cached(
    cached: CachedModel, target: Target, again: Callable[[], BuildRecord]
) -> BuildRecord:
    """How a cached model was compiled; again compiles it, for its text, which is not cached."""
    head = cached.head
    notes = {name: KernelNotes(**given) for name, given in head["notes"].items()}
    facts = {
        name: KernelFacts(tuple(operators), notes.get(name))
        for name, operators in head["operators"].items()
    }

    def text(form: str) -> str:
        return again().factory.lib.code.source(form)

    generator = target.kind.code_generator()
    assert isinstance(generator, KernelCodeGenerator)  # others' models are not cached
    code = generator.link(cached.objects, target, text)
    factory = GraphExecutorFactoryModule(
        code, head["graph"], cached.params, head["name"], target, kernel_notes=notes
    )
    return BuildRecord(factory, head["opt_level"], head["stages"], facts)

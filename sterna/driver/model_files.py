"""Files, for a linker or compiler, that hold a model beside its code."""

import json
from pathlib import Path

from sterna.codegen.model_data import ModelData
from sterna.driver.operator_module import OperatorModule

# Forms of files that are linked into programs, which must learn of the model when they start.
STATIC_FORMS = frozenset({".o", ".a", ".c", ".wasm"})


def write_model_files(
    lib: OperatorModule, model: ModelData, folder: Path, form: str, is_compiled_here: bool,
    cc: str | None,
) -> list[Path]:
    """The files of a model that a form of output, .so or another, takes beside its code.

    is_compiled_here: whether their sources are compiled here, by cc.
    """
    called = _called(lib, model) if form in STATIC_FORMS else None
    compiles = form != ".c" and is_compiled_here
    generator = lib.target.kind.code_generator()
    return generator.write_model(model, lib.target, folder, called, cc, compiles)


def _called(lib: OperatorModule, model: ModelData) -> list[str]:
    """The kernels that the graph calls."""
    nodes = json.loads(model.graph_json)["nodes"]
    called = {node["attrs"]["func_name"] for node in nodes if node["op"] == "tvm_op"}
    return sorted(called & set(lib.code.names))

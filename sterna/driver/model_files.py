"""Files, for a linker or compiler, that hold a model beside its code."""

import json
from collections.abc import Callable
from pathlib import Path

from sterna.codegen.model_data import MOST_LINKED, ModelData
from sterna.codegen.symbols import MODEL_SYMBOL
from sterna.driver.export import LIBRARY_FORMS
from sterna.driver.operator_module import OperatorModule
from sterna.support.elf_segment import append_segment
from sterna.support.table import show_bytes

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


def expect_library(model: ModelData, form: str, is_linked_here: bool) -> None:
    """Refuse to write a large model into anything but a library that is linked here."""
    if form not in LIBRARY_FORMS or not is_linked_here:
        raise ValueError(
            f"the model has {show_bytes(model.size)} of data, which goes behind a linked library: "
            f"export it as .so, without fcompile; {form} holds at most {show_bytes(MOST_LINKED)}"
        )


def data_behind(model: ModelData) -> Callable[[Path], None]:
    """What puts a large model's data behind a library, to be mapped when that is loaded."""

    def attach(library: Path) -> None:
        symbol = f"{MODEL_SYMBOL}_{model.name}"
        append_segment(library, symbol, model.size, model.write_to)

    return attach


def _called(lib: OperatorModule, model: ModelData) -> list[str]:
    """The kernels that the graph calls."""
    nodes = json.loads(model.graph_json)["nodes"]
    called = {node["attrs"]["func_name"] for node in nodes if node["op"] == "tvm_op"}
    return sorted(called & set(lib.code.names))

"""Files, for a linker or compiler, that hold a model beside its code."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sterna.codegen import c
from sterna.codegen.llvm import LLVMOptions, linked_model_object, model_object
from sterna.driver.code import Code, KernelsCode, LLVMCode, MixedCode
from sterna.driver.model_data import ModelData
from sterna.support import toolchain

# Forms of files that are linked into programs, which must learn of the model when they start.
STATIC_FORMS = frozenset({".o", ".a", ".c", ".wasm"})

DATA_FILE = "model.bin"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model and the code that it calls."""

    data: ModelData
    code: Code

    def write(
        self, folder: Path, form: str, is_compiled_here: bool, cc: str | None
    ) -> list[Path]:
        """The files for a form of output, .so or another, whose sources are compiled by cc."""
        functions = self._called() if form in STATIC_FORMS else None
        options = _llvm_options(self.code)
        if options is not None:
            return self._objects(folder, functions, options)
        return self._c(folder, functions, form != ".c" and is_compiled_here, cc)

    def _called(self) -> list[str]:
        """The kernels that the graph calls."""
        nodes = json.loads(self.data.graph_json)["nodes"]
        called = {node["attrs"]["func_name"] for node in nodes if node["op"] == "tvm_op"}
        return sorted(called & set(self.code.names))

    def _objects(
        self, folder: Path, functions: Sequence[str] | None, options: LLVMOptions
    ) -> list[Path]:
        files = [folder / "model.o"]
        content, at = model_object(options, self.data.name, self.data.size)
        self.data.write_into(content, at)
        files[0].write_bytes(content)
        if functions is not None:
            files.append(folder / "linked.o")
            files[1].write_bytes(linked_model_object(options, self.data.name, functions))
        return files

    def _c(
        self, folder: Path, functions: Sequence[str] | None, by_assembler: bool, cc: str | None
    ) -> list[Path]:
        source = folder / "model.c"
        if by_assembler:
            text = c.assembled_model_text(self.data.name, DATA_FILE, self.data.size)
        else:
            text = c.model_text(self.data.name, self.data.to_bytes())
        if functions is not None:
            text += c.linked_model_text(self.data.name, functions)
        source.write_text(text, "utf-8")
        if not by_assembler:
            return [source]
        (folder / DATA_FILE).write_bytes(self.data.to_bytes())
        toolchain.compile_object(folder / "model.o", source, cc=cc, cwd=folder)
        return [folder / "model.o"]


def _llvm_options(code: Code) -> LLVMOptions | None:
    """What LLVM makes the code for, if it is LLVM that makes it."""
    if isinstance(code, MixedCode):
        code = code.parts[0]
    return code.options if isinstance(code, LLVMCode | KernelsCode) else None

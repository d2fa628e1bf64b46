"""Code in C, and loading it by way of the machine's compiler."""

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from sterna.codegen.c.module import generate
from sterna.codegen.code import Code, Members, names_of
from sterna.codegen.part import Part
from sterna.codegen.symbols import HOST, LIBRARY_CONTEXT
from sterna.runtime import Module, _core
from sterna.runtime._core import PackedFunc
from sterna.support import toolchain
from sterna.support.once import computed_once
from sterna.tir.stmt import PrimFunc


class CCode:
    """Code in C, compiled by the machine's compiler when it is first run."""

    kind = "c"
    can_rename = True
    context = 0

    def __init__(
        self, functions: Sequence[PrimFunc], name: str, *, vectors: bool = False
    ) -> None:
        self.functions = functions
        self.names = names_of(functions)
        self.name = name
        self.vectors = vectors
        self.text = generate(functions, name, vectors=vectors)

    @computed_once
    def library(self) -> ctypes.CDLL:
        """The code in memory; who loads it tells it the host and its module."""
        with tempfile.TemporaryDirectory() as name:
            library = ctypes.CDLL(str(_compile_c(self.text, Path(name))))
        for variable, address in ((HOST, _core.host_address()), (LIBRARY_CONTEXT, self.context)):
            if hasattr(library, variable):
                ctypes.c_void_p.in_dll(library, variable).value = address or None
        return library

    def find(self, name: str) -> int | PackedFunc | None:
        try:
            found = self.library[f"__tvm_ffi_{name}"]
        except AttributeError:
            return None
        return ctypes.cast(found, ctypes.c_void_p).value

    def source(self, form: str) -> str:
        if form in ("", "c"):
            return self.text
        raise ValueError(f"a C module has the source c, not '{form}'")

    def joins(self, other: Code) -> bool:
        return isinstance(other, CCode)

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        parts = [Part(m.functions, own) for m, own in members if isinstance(m, CCode)]
        path = folder / f"{stem}.c"
        text = generate(parts, self.name, table, vectors=self.vectors)
        path.write_text(text, encoding="utf-8")
        return [path]


def load_c(text: str) -> Module:
    """A file of C as a module, by way of the machine's compiler."""
    with tempfile.TemporaryDirectory() as name:
        return cast(Module, _core.load_module(_compile_c(text, Path(name))))


def _compile_c(text: str, folder: Path) -> Path:
    source, library = folder / "lib.c", folder / "lib.so"
    source.write_text(text, encoding="utf-8")
    toolchain.link_shared(library, [source], ["-lm"])
    return library

"""Compiled code in its forms: what runs here, what is shown, what is written."""

import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Protocol

from sterna.codegen.llvm import CompiledModule, JitModule
from sterna.runtime import load_module
from sterna.runtime._core import PackedFunc
from sterna.support import toolchain


class Code(Protocol):
    """The code of one module."""

    def find(self, name: str) -> int | PackedFunc | None:
        """A packed function of it, ready to run here."""

    def source(self, form: str) -> str:
        """It as text, in a form."""

    def object_files(self, folder: Path) -> list[Path]:
        """It as files that a linker or compiler takes."""


class LLVMCode:
    """Code made by LLVM."""

    suffix = ".o"

    def __init__(self, compiled: CompiledModule, runs_here: bool, description: str) -> None:
        self.compiled = compiled
        self.runs_here = runs_here
        self.description = description

    def find(self, name: str) -> int | PackedFunc | None:
        if not self.runs_here:
            raise _elsewhere(self.description)
        return self.jit.find(f"__tvm_ffi_{name}")

    @cached_property
    def jit(self) -> JitModule:
        """The code in memory."""
        return self.compiled.jit()

    def source(self, form: str) -> str:
        if form in ("", "ll"):
            return self.compiled.ir()
        if form in ("s", "asm"):
            return self.compiled.assembly()
        raise ValueError(f"an LLVM module has the sources ll and asm, not '{form}'")

    def object_files(self, folder: Path) -> list[Path]:
        path = folder / "lib0.o"
        path.write_bytes(self.compiled.object_bytes())
        return [path]


class CCode:
    """Code in C, compiled by the machine's compiler when it is first run."""

    suffix = ".c"

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def loaded(self) -> object:
        """The code as a module of the runtime."""
        with tempfile.TemporaryDirectory() as name:
            library = Path(name) / "lib.so"
            toolchain.link_shared(library, self.object_files(Path(name)), ["-lm"])
            return load_module(library)

    def find(self, name: str) -> int | PackedFunc | None:
        return self.loaded._get_function(name, False)  # type: ignore[attr-defined,no-any-return]

    def source(self, form: str) -> str:
        if form in ("", "c"):
            return self.text
        raise ValueError(f"a C module has the source c, not '{form}'")

    def object_files(self, folder: Path) -> list[Path]:
        path = folder / "lib0.c"
        path.write_text(self.text, encoding="utf-8")
        return [path]


class KernelsCode:
    """The kernels of a graph, each an object file of its own."""

    suffix = ".o"

    def __init__(
        self, objects: dict[str, bytes], runs_here: bool, triple: str, text: Callable[[str], str]
    ) -> None:
        self.objects = objects
        self.runs_here = runs_here
        self.description = triple
        self._text = text

    def find(self, name: str) -> int | PackedFunc | None:
        if not self.runs_here:
            raise _elsewhere(self.description)
        return self.jit.find(f"__tvm_ffi_{name}") if self.objects else None

    @cached_property
    def jit(self) -> JitModule:
        """The code in memory."""
        return JitModule(*self.objects.values())

    def source(self, form: str) -> str:
        return self._text(form)

    def object_files(self, folder: Path) -> list[Path]:
        paths = []
        for place, content in enumerate(self.objects.values()):
            paths.append(folder / f"kernel{place}.o")
            paths[-1].write_bytes(content)
        return paths


def _elsewhere(triple: str) -> RuntimeError:
    return RuntimeError(
        f"the module is built for {triple}, which is not this machine; export it with "
        "export_library and run it there"
    )

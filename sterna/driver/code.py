"""Compiled code in its forms: what runs here, what is shown, what is written."""

import ctypes
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from sterna.codegen import c
from sterna.codegen.llvm import CompiledModule, JitModule, LLVMOptions
from sterna.codegen.part import Part
from sterna.codegen.symbols import HOST, LIBRARY_CONTEXT
from sterna.runtime import Module, _core, load_module
from sterna.runtime._core import PackedFunc
from sterna.support import toolchain
from sterna.tir.stmt import PrimFunc


class Code(Protocol):
    """The code of one module."""

    kind: str
    """llvm or c."""
    context: int
    """The address of the module, once there is one."""
    names: list[str]
    """Its packed functions, and _library_ctx if it looks others up."""
    can_rename: bool
    """Whether their symbols are still open."""

    def find(self, name: str) -> int | PackedFunc | None:
        """A packed function of it, ready to run here."""

    def source(self, form: str) -> str:
        """It as text, in a form."""

    def joins(self, other: "Code") -> bool:
        """Whether other code can be in one file with it."""

    def write(self, folder: Path, stem: str, members: "Members", table: bytes) -> list[Path]:
        """Files for a linker or a compiler: it and those that join it, and the modules' table."""


Members = Sequence[tuple[Code, Mapping[str, str]]]
"""Code with the symbols of those functions whose symbol is not __tvm_ffi_<name>."""


def names_of(functions: Sequence[PrimFunc]) -> list[str]:
    """Those of the packed ones, and _library_ctx if they look others up."""
    names = [function.name for function in functions if function.attrs.get("packed")]
    return [*names, "_library_ctx"] if Part(functions).calls_by_name() else names


class LLVMCode:
    """Code made by LLVM."""

    kind = "llvm"
    can_rename = True
    context = 0

    def __init__(
        self, functions: Sequence[PrimFunc], options: LLVMOptions, name: str, runs_here: bool
    ) -> None:
        self.functions = functions
        self.names = names_of(functions)
        self.options = options
        self.name = name
        self.runs_here = runs_here
        self.compiled = CompiledModule(functions, options, name)

    def find(self, name: str) -> int | PackedFunc | None:
        if not self.runs_here:
            raise _elsewhere(self.options.triple)
        return self.jit.find(f"__tvm_ffi_{name}")

    @cached_property
    def jit(self) -> JitModule:
        """The code in memory."""
        return self.compiled.jit(self.context if "_library_ctx" in self.names else 0)

    def source(self, form: str) -> str:
        if form in ("", "ll"):
            return self.compiled.ir()
        if form in ("s", "asm"):
            return self.compiled.assembly()
        raise ValueError(f"an LLVM module has the sources ll and asm, not '{form}'")

    def joins(self, other: Code) -> bool:
        return isinstance(other, LLVMCode) and other.options == self.options

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        parts = [Part(m.functions, own) for m, own in members if isinstance(m, LLVMCode)]
        alone = not table and parts == [Part(self.functions)]
        made = self.compiled if alone else CompiledModule(parts, self.options, self.name, table)
        path = folder / f"{stem}.o"
        path.write_bytes(made.object_bytes())
        return [path]


class CCode:
    """Code in C, compiled by the machine's compiler when it is first run."""

    kind = "c"
    can_rename = True
    context = 0

    def __init__(self, functions: Sequence[PrimFunc], name: str) -> None:
        self.functions = functions
        self.names = names_of(functions)
        self.name = name
        self.text = c.generate(functions, name)

    @cached_property
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
        path.write_text(c.generate(parts, self.name, table), encoding="utf-8")
        return [path]


class KernelsCode:
    """The kernels of a graph, each an object file of its own."""

    kind = "llvm"
    can_rename = False
    context = 0

    def __init__(
        self,
        objects: dict[str, bytes],
        runs_here: bool,
        options: LLVMOptions,
        text: Callable[[str], str],
    ) -> None:
        self.objects = objects
        self.names = list(objects)
        self.runs_here = runs_here
        self.options = options
        self._text = text

    def find(self, name: str) -> int | PackedFunc | None:
        if not self.runs_here:
            raise _elsewhere(self.options.triple)
        return self.jit.find(f"__tvm_ffi_{name}") if self.objects else None

    @cached_property
    def jit(self) -> JitModule:
        """The code in memory."""
        return JitModule(*self.objects.values(), context=self.context)

    def source(self, form: str) -> str:
        return self._text(form)

    def joins(self, other: Code) -> bool:
        return False

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        contents = list(self.objects.values())
        if table:
            made = CompiledModule([], self.options, "modules", table)
            contents.insert(0, made.object_bytes())
        paths = [folder / f"{stem}.{place}.o" for place in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return paths


class MixedCode:
    """The functions of one module, compiled for different targets."""

    can_rename = True

    def __init__(self, parts: Sequence[LLVMCode | CCode]) -> None:
        self.parts = parts
        self.kind = parts[0].kind
        self.names = [name for part in parts for name in part.names]

    @property
    def context(self) -> int:
        """The address of the module."""
        return self.parts[0].context

    @context.setter
    def context(self, address: int) -> None:
        for part in self.parts:
            part.context = address

    def find(self, name: str) -> int | PackedFunc | None:
        home = next((part for part in self.parts if name in part.names), None)
        return None if home is None else home.find(name)

    def source(self, form: str) -> str:
        raise ValueError(
            "the module's functions are compiled for different targets; build it for one target "
            "to see its source"
        )

    def joins(self, other: Code) -> bool:
        return False

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        _, own = members[0]
        files: list[Path] = []
        for place, part in enumerate(self.parts):
            files += part.write(folder, f"{stem}.{place}", [(part, own)], b"" if files else table)
        return files


def _elsewhere(triple: str) -> RuntimeError:
    return RuntimeError(
        f"the module is built for {triple}, which is not this machine; export it with "
        "export_library and run it there"
    )


def load_c(text: str) -> Module:
    """A file of C as a module, by way of the machine's compiler."""
    with tempfile.TemporaryDirectory() as name:
        return load_module(_compile_c(text, Path(name)))


def _compile_c(text: str, folder: Path) -> Path:
    source, library = folder / "lib.c", folder / "lib.so"
    source.write_text(text, encoding="utf-8")
    toolchain.link_shared(library, [source], ["-lm"])
    return library

"""Code made by LLVM: of one module, or of kernels that were compiled one by one."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sterna.codegen.code import Code, KernelsCode, Members, names_of
from sterna.codegen.llvm.compiled import CompiledModule
from sterna.codegen.llvm.jit import JitModule
from sterna.codegen.llvm.machine import LLVMOptions
from sterna.codegen.part import Part
from sterna.runtime._core import PackedFunc
from sterna.support.once import computed_once
from sterna.tir.stmt import PrimFunc


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

    @computed_once
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


class LLVMKernels(KernelsCode):
    """The kernels of a graph, each an object file of its own."""

    kind = "llvm"

    def __init__(
        self, kernels: Mapping[str, bytes], text: Callable[[str], str], options: LLVMOptions,
        runs_here: bool,
    ) -> None:
        super().__init__(kernels, text)
        self.options = options
        self.runs_here = runs_here

    def find(self, name: str) -> int | PackedFunc | None:
        if not self.runs_here:
            raise _elsewhere(self.options.triple)
        return self.jit.find(f"__tvm_ffi_{name}") if self.names else None

    @computed_once
    def jit(self) -> JitModule:
        """The code in memory."""
        return JitModule(*self.kernels.values(), context=self.context)

    def write(self, folder: Path, stem: str, members: Members, table: bytes) -> list[Path]:
        contents = list(self.kernels.values())
        if table:
            made = CompiledModule([], self.options, "modules", table)
            contents.insert(0, made.object_bytes())
        paths = [folder / f"{stem}.{place}.o" for place in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return paths


def _elsewhere(triple: str) -> RuntimeError:
    return RuntimeError(
        f"the module is built for {triple}, which is not this machine; export it with "
        "export_library and run it there"
    )

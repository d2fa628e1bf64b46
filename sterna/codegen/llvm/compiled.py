"""A module of functions through LLVM: optimised IR, assembly, object code, or running here."""

import llvmlite.binding as llvm

from sterna.codegen.imports import imported_texts, llvm_intrinsics
from sterna.codegen.llvm.emitter import Support
from sterna.codegen.llvm.function import generate
from sterna.codegen.llvm.jit import JitModule
from sterna.codegen.llvm.machine import (
    LOCK,
    LLVMOptions,
    create_machine,
    optimize,
    optimize_functions,
)
from sterna.codegen.llvm.out_of_process import compile_out_of_process
from sterna.codegen.llvm.scalar_loops import has_scalar_loops
from sterna.codegen.part import Functions, as_parts
from sterna.support.errors import InternalError


class CompiledModule:
    """Functions compiled for one target. Each form is made when it is first asked for."""

    def __init__(
        self,
        functions: Functions,
        options: LLVMOptions | None = None,
        name: str = "sterna",
        table: bytes = b"",
        support: Support = Support.OWN,
    ) -> None:
        self.options = options or LLVMOptions.native()
        self._text = generate(functions, self.options, name, table, support)
        every = [function for part in as_parts(functions) for function in part.functions]
        is_kernel = support is Support.ELSEWHERE and self.options.opt_level > 0
        has_vectors = is_kernel and not has_scalar_loops(every)
        self._optimize = optimize_functions if has_vectors else optimize
        self._optimized: str | None = None
        self._assembly: str | None = None
        self._object: bytes | None = None
        imports, intrinsics = imported_texts(every, "llvm"), llvm_intrinsics(every)
        if imports or intrinsics:
            self._text, self._object = compile_out_of_process(
                self._text, imports, intrinsics, self.options
            )

    def ir(self) -> str:
        """LLVM IR as it was generated."""
        return self._text

    def optimized_ir(self) -> str:
        """LLVM IR after optimisation."""
        if self._optimized is None:
            with LOCK:
                self._optimized = str(self._run()[0])
        return self._optimized

    def assembly(self) -> str:
        """The target's assembly language."""
        if self._assembly is None:
            with LOCK:
                module, machine = self._run()
                self._assembly = machine.emit_assembly(module)
        return self._assembly

    def object_bytes(self) -> bytes:
        """An object file of the target."""
        if self._object is None:
            with LOCK:
                module, machine = self._run()
                self._object = machine.emit_object(module)
        return self._object

    def jit(self, context: int = 0) -> JitModule:
        """The functions loaded into this process; context: the address of their module."""
        return JitModule(self.object_bytes(), context=context)

    def _run(self) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
        machine = create_machine(self.options)
        context = llvm.create_context()
        try:
            module = llvm.parse_assembly(self._text, context)
            module.verify()
        except RuntimeError as error:
            raise InternalError(f"the generated LLVM IR is wrong: {error}") from None
        self._optimize(module, machine, self.options.opt_level)
        return module, machine

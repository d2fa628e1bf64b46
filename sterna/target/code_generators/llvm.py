"""Machine code through LLVM, which is loaded when something is first compiled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.codegen import llvm
from sterna.codegen.code import SUPPORT, Code, KernelsCode
from sterna.codegen.model_data import ModelData
from sterna.target.abi import check_abi
from sterna.target.code_generator import KernelCodeGenerator
from sterna.target.machine import machine_of
from sterna.target.needed import needed
from sterna.target.target import Target
from sterna.tir.stmt import PrimFunc

if TYPE_CHECKING:
    from sterna.codegen.llvm import LLVMOptions


class LLVMGenerator(KernelCodeGenerator):
    """Object files, of kernels one by one or of a whole module."""

    forms = ("ll", "asm")
    picks_instructions = True

    def compile(
        self, functions: Sequence[PrimFunc], target: Target, name: str,
        targets: Sequence[Target] = (),
    ) -> Code:
        needs = needed(*map(machine_of, targets or [target]))
        options = replace(llvm_options(target), needs=needs)
        return llvm.LLVMCode(functions, options, name, self.runs_here(target))

    def compile_kernel(self, functions: Sequence[PrimFunc], target: Target, name: str) -> bytes:
        options, elsewhere = llvm_options(target), llvm.Support.ELSEWHERE
        return llvm.CompiledModule(functions, options, name, support=elsewhere).object_bytes()

    def link(
        self, kernels: Mapping[str, bytes], target: Target, text: Callable[[str], str]
    ) -> KernelsCode:
        options = llvm_options(target)
        if SUPPORT not in kernels:
            kernels = {SUPPORT: llvm.support_object(options), **kernels}
        return llvm.LLVMKernels(kernels, text, options, self.runs_here(target))

    def load(self, kernels: Sequence[bytes]) -> Callable[[str], int | None]:
        return llvm.JitModule(*kernels).find

    def write_model(
        self, model: ModelData, target: Target, folder: Path, called: Sequence[str] | None,
        cc: str | None, compiles: bool,
    ) -> list[Path]:
        """As object files, which no compiler is needed for."""
        options = llvm_options(target)
        files = [folder / "model.o"]
        if model.is_large:
            files[0].write_bytes(llvm.model_place_object(options, model.name))
            return files
        content, at = llvm.model_object(options, model.name, model.size, model.symbol)
        model.write_into(content, at)
        files[0].write_bytes(content)
        if called is not None:
            files.append(folder / "linked.o")
            files[1].write_bytes(llvm.linked_model_object(options, model.name, called))
        return files


def llvm_options(target: Target) -> "LLVMOptions":
    """What LLVM is told about a target."""
    machine = machine_of(target)
    check_abi(machine)
    level = target.attrs.get("opt-level", 3)
    if not isinstance(level, int) or not 0 <= level <= 3:
        raise ValueError(f"-opt-level of target '{target}' is 0, 1, 2 or 3, not {level}")
    return llvm.LLVMOptions(
        machine.triple, machine.cpu, machine.features, level, machine.abi,
        machine.instructions, machine.matrix_tiles, needed(machine),
        machine.core.instruction_order, machine.core.divides_quickly,
        machine.core.fetches_stored_lines,
    )


GENERATOR = LLVMGenerator()

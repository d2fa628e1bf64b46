"""Machine code through LLVM."""

from sterna.codegen.llvm.compiled import CompiledModule
from sterna.codegen.llvm.function import generate, symbol_of
from sterna.codegen.llvm.jit import JitModule
from sterna.codegen.llvm.machine import LLVMOptions
from sterna.codegen.llvm.model import linked_model_object, model_object

__all__ = [
    "CompiledModule", "JitModule", "LLVMOptions", "generate", "linked_model_object",
    "model_object", "symbol_of",
]  # fmt: skip

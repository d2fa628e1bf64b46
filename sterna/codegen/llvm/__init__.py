"""Machine code through LLVM."""

from sterna.codegen.llvm.compiled import CompiledModule
from sterna.codegen.llvm.function import generate, symbol_of
from sterna.codegen.llvm.jit import JitModule
from sterna.codegen.llvm.machine import LLVMOptions

__all__ = ["CompiledModule", "JitModule", "LLVMOptions", "generate", "symbol_of"]

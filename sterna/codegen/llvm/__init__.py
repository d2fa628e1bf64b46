"""Machine code through LLVM. The names are loaded when they are first used."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterna.codegen.llvm.code import LLVMCode, LLVMKernels
    from sterna.codegen.llvm.compiled import CompiledModule
    from sterna.codegen.llvm.function import generate, symbol_of
    from sterna.codegen.llvm.jit import JitModule
    from sterna.codegen.llvm.machine import LLVMOptions
    from sterna.codegen.llvm.model import linked_model_object, model_object

_WHERE = {
    "CompiledModule": "compiled",
    "JitModule": "jit",
    "LLVMCode": "code",
    "LLVMKernels": "code",
    "LLVMOptions": "machine",
    "generate": "function",
    "linked_model_object": "model",
    "model_object": "model",
    "symbol_of": "function",
}

__all__ = [
    "CompiledModule", "JitModule", "LLVMCode", "LLVMKernels", "LLVMOptions", "generate",
    "linked_model_object", "model_object", "symbol_of",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)

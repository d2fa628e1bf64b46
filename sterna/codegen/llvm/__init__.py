"""Machine code through LLVM. The names are loaded when they are first used."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterna.codegen.llvm.code import LLVMCode, LLVMKernels
    from sterna.codegen.llvm.compiled import CompiledModule
    from sterna.codegen.llvm.emitter import Support
    from sterna.codegen.llvm.function import generate, symbol_of
    from sterna.codegen.llvm.jit import JitModule
    from sterna.codegen.llvm.machine import LLVMOptions
    from sterna.codegen.llvm.model import (
        levels_object,
        linked_model_object,
        model_object,
        model_place_object,
    )
    from sterna.codegen.llvm.support import support_object

_WHERE = {
    "CompiledModule": "compiled",
    "JitModule": "jit",
    "LLVMCode": "code",
    "LLVMKernels": "code",
    "LLVMOptions": "machine",
    "Support": "emitter",
    "generate": "function",
    "levels_object": "model",
    "linked_model_object": "model",
    "model_object": "model",
    "model_place_object": "model",
    "support_object": "support",
    "symbol_of": "function",
}

__all__ = [
    "CompiledModule", "JitModule", "LLVMCode", "LLVMKernels", "LLVMOptions", "Support", "generate",
    "levels_object", "linked_model_object", "model_object", "model_place_object", "support_object",
    "symbol_of",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)

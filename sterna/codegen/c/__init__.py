"""C99 from loops."""

from sterna.codegen.c.interface import ConstantData, Interface, Operand, PoolMemory
from sterna.codegen.c.model import assembled_model_text, linked_model_text, model_text
from sterna.codegen.c.module import generate
from sterna.codegen.c.types import CodegenError

__all__ = [
    "CodegenError", "ConstantData", "Interface", "Operand", "PoolMemory", "assembled_model_text",
    "generate", "linked_model_text", "model_text",
]

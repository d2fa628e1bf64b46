"""C99 from loops."""

from sterna.codegen.c.code import CCode, load_c
from sterna.codegen.c.interface import ConstantData, Interface, Operand, PoolMemory
from sterna.codegen.c.model import assembled_model_text, linked_model_text, model_text
from sterna.codegen.c.module import generate
from sterna.codegen.c.program import ProgramCode
from sterna.codegen.c.types import CodegenError

__all__ = [
    "CCode", "CodegenError", "ConstantData", "Interface", "Operand", "PoolMemory", "ProgramCode",
    "assembled_model_text", "generate", "linked_model_text", "load_c", "model_text",
]

"""C99 from loops."""

from sterna.codegen.c.module import generate
from sterna.codegen.c.types import CodegenError

__all__ = ["CodegenError", "generate"]

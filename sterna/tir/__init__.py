"""The loop IR."""

from sterna.tir.lexer import ParseError
from sterna.tir.parser import parse
from sterna.tir.printer import script
from sterna.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)

__all__ = [
    "Allocate", "AssertStmt", "AttrStmt", "Buffer", "BufferLoad", "BufferStore", "Evaluate", "For",
    "IfThenElse", "LetStmt", "ParseError", "PrimFunc", "SeqStmt", "Stmt", "parse", "script",
]  # fmt: skip

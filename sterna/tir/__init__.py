"""The loop IR, and the scalar expressions and functions that it is made of."""

from sterna.ir.build import const
from sterna.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from sterna.support.classic import classic_names
from sterna.tir import analysis as analysis
from sterna.tir import classic_func as classic_func
from sterna.tir import ir_builder, stmt_functor, transform
from sterna.tir import op as _op
from sterna.tir.buffer import decl_buffer
from sterna.tir.external import (
    add_pairs,
    address_of,
    call_extern,
    call_intrin,
    call_llvm_intrin,
    call_llvm_pure_intrin,
    call_packed,
    call_pure_extern,
    dot2,
    dot4,
    reinterpret,
)
from sterna.tir.fragments import (
    ptx_commit_group,
    ptx_cp_async,
    ptx_ldmatrix,
    ptx_mma,
    ptx_wait_group,
    tvm_fill_fragment,
    tvm_load_matrix_sync,
    tvm_mma_sync,
    tvm_store_matrix_sync,
)
from sterna.tir.index_map import IndexMap
from sterna.tir.lexer import ParseError
from sterna.tir.op import *  # noqa: F403  (its __all__ is part of this module)
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
    ForKind,
    IfThenElse,
    LetStmt,
    Prefetch,
    PrimFunc,
    SeqStmt,
    Stmt,
    Tensorized,
)
from sterna.tir.tiles import (
    tile_configure,
    tile_dot,
    tile_load,
    tile_release,
    tile_store,
    tile_zero,
)

__all__ = [
    "EQ", "GE", "GT", "LE", "LT", "NE", "Add", "Allocate", "And", "AssertStmt", "AttrStmt",
    "Broadcast", "Buffer", "BufferLoad", "BufferStore", "Call", "Cast", "Div", "Evaluate",
    "FloatImm", "FloorDiv", "FloorMod", "For", "ForKind", "IfThenElse", "IndexMap", "IntImm", "Let",
    "LetStmt", "Max", "Min", "Mul", "Not", "Or", "ParseError", "Prefetch", "PrimFunc", "Ramp",
    "Select", "SeqStmt", "Shuffle", "Stmt", "StringImm", "Sub", "Tensorized", "TruncDiv",
    "TruncMod", "Var", "address_of", "call_extern", "call_intrin", "call_llvm_intrin",
    "call_llvm_pure_intrin", "call_packed", "call_pure_extern", "const", "decl_buffer",
    "add_pairs", "dot2", "dot4", "ir_builder", "parse", "ptx_commit_group", "ptx_cp_async",
    "ptx_ldmatrix", "ptx_mma", "ptx_wait_group", "reinterpret", "script", "stmt_functor",
    "tile_configure", "tvm_fill_fragment", "tvm_load_matrix_sync", "tvm_mma_sync",
    "tvm_store_matrix_sync",
    "tile_dot", "tile_load", "tile_release", "tile_store", "tile_zero", "transform",
    *_op.__all__,
]

__getattr__ = classic_names(__name__)

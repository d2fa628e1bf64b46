"""What every IR is made of: nodes, scalar expressions, modules."""

from sterna.ir import build, instrument, printer, transform
from sterna.ir.build import as_expr, const
from sterna.ir.expr import Expr, FloatImm, IntImm, StringImm, Var
from sterna.ir.memory_pools import (
    ConstantMemoryPools,
    ConstantPoolInfo,
    PoolInfo,
    PoolInfoProperties,
    WorkspaceMemoryPools,
    WorkspacePoolInfo,
)
from sterna.ir.module import IRModule
from sterna.ir.node import Node, map_children, node, post_order
from sterna.ir.serialize import load_json, save_json
from sterna.ir.structural import (
    assert_structural_equal,
    explain_difference,
    structural_equal,
    structural_hash,
)
from sterna.ir.visitor import ExprVisitor, Rewriter
from sterna.support.classic import classic_names

__all__ = [
    "ConstantMemoryPools", "ConstantPoolInfo", "PoolInfo", "PoolInfoProperties",
    "WorkspaceMemoryPools", "WorkspacePoolInfo",
    "Expr", "ExprVisitor", "FloatImm", "IRModule", "IntImm", "Node", "Rewriter", "StringImm", "Var",
    "as_expr", "assert_structural_equal", "build", "const", "map_children", "node", "post_order",
    "explain_difference", "instrument", "load_json", "printer", "save_json", "structural_equal",
    "structural_hash", "transform",
]

__getattr__ = classic_names(__name__)

"""The passes over graphs under the names that users know."""

from sterna.ir.transform import Pass, PassContext, Sequential, function_pass, module_pass
from sterna.relay.passes.alter_op_layout import AlterOpLayout
from sterna.relay.passes.canonicalize_ops import CanonicalizeOps
from sterna.relay.passes.convert_layout import ConvertLayout
from sterna.relay.passes.dead_code_elimination import DeadCodeElimination
from sterna.relay.passes.dynamic_to_static import DynamicToStatic
from sterna.relay.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from sterna.relay.passes.fast_math import FastMath
from sterna.relay.passes.fold_constant import FoldConstant
from sterna.relay.passes.fold_scale_axis import (
    BackwardFoldScaleAxis,
    FoldScaleAxis,
    ForwardFoldScaleAxis,
)
from sterna.relay.passes.fuse_ops import FuseOps
from sterna.relay.passes.infer_type import InferType
from sterna.relay.passes.legalize import Legalize
from sterna.relay.passes.remove_unused_functions import RemoveUnusedFunctions
from sterna.relay.passes.simplify_expr import SimplifyExpr, SimplifyExprPostAlterOp
from sterna.relay.passes.simplify_inference import SimplifyInference
from sterna.relay.passes.to_a_normal_form import ToANormalForm
from sterna.relay.passes.to_graph_normal_form import ToGraphNormalForm

__all__ = [
    "AlterOpLayout", "BackwardFoldScaleAxis", "CanonicalizeOps", "ConvertLayout",
    "DeadCodeElimination", "DynamicToStatic", "EliminateCommonSubexpr", "FastMath",
    "FoldConstant", "FoldScaleAxis", "ForwardFoldScaleAxis", "FuseOps", "InferType", "Legalize",
    "Pass", "PassContext", "RemoveUnusedFunctions", "Sequential", "SimplifyExpr",
    "SimplifyExprPostAlterOp", "SimplifyInference",
    "ToANormalForm", "ToGraphNormalForm", "function_pass", "module_pass",
]  # fmt: skip

"""The passes over graphs under the names that users know."""

from sterna.ir.transform import Pass, PassContext, Sequential, function_pass, module_pass
from sterna.relay.passes.alter_op_layout import AlterOpLayout
from sterna.relay.passes.convert_layout import ConvertLayout
from sterna.relay.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from sterna.relay.passes.fold_constant import FoldConstant
from sterna.relay.passes.fold_scale_axis import (
    BackwardFoldScaleAxis,
    FoldScaleAxis,
    ForwardFoldScaleAxis,
)
from sterna.relay.passes.fuse_ops import FuseOps
from sterna.relay.passes.infer_type import InferType
from sterna.relay.passes.simplify_inference import SimplifyInference

__all__ = [
    "AlterOpLayout", "BackwardFoldScaleAxis", "ConvertLayout", "EliminateCommonSubexpr",
    "FoldConstant", "FoldScaleAxis", "ForwardFoldScaleAxis", "FuseOps", "InferType", "Pass",
    "PassContext", "Sequential", "SimplifyInference", "function_pass", "module_pass",
]  # fmt: skip

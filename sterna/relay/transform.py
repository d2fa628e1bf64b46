"""The passes over graphs under the names that users know."""

from sterna.ir.transform import (
    Pass,
    PassContext,
    Sequential,
    function_pass,
    module_pass,
    register_pass,
)
from sterna.relay.passes.add_up_parallel import AddUpParallelConv2D
from sterna.relay.passes.alter_op_layout import AlterOpLayout
from sterna.relay.passes.annotate_target import AnnotateTarget
from sterna.relay.passes.canonicalize_cast import CanonicalizeCast
from sterna.relay.passes.canonicalize_ops import CanonicalizeOps
from sterna.relay.passes.choose_implementations import ChooseImplementations
from sterna.relay.passes.combine_parallel import (
    CombineParallelBatchMatmul,
    CombineParallelConv2D,
    CombineParallelDense,
)
from sterna.relay.passes.convert_layout import ConvertLayout
from sterna.relay.passes.dead_code_elimination import DeadCodeElimination
from sterna.relay.passes.defuse_ops import DefuseOps
from sterna.relay.passes.delay_views import DelayViews
from sterna.relay.passes.dynamic_to_static import DynamicToStatic
from sterna.relay.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from sterna.relay.passes.fast_math import FastMath
from sterna.relay.passes.fewer_kernels import FewerKernels
from sterna.relay.passes.flatten_atrous_conv import FlattenAtrousConv
from sterna.relay.passes.fold_constant import FoldConstant
from sterna.relay.passes.fold_dead_channels import FoldDeadChannels
from sterna.relay.passes.fold_explicit_padding import FoldExplicitPadding
from sterna.relay.passes.fold_scale_axis import (
    BackwardFoldScaleAxis,
    FoldScaleAxis,
    ForwardFoldScaleAxis,
)
from sterna.relay.passes.fold_weights import FoldWeights
from sterna.relay.passes.fuse_ops import FuseOps
from sterna.relay.passes.infer_type import InferType
from sterna.relay.passes.inline import Inline, InlineGlobals
from sterna.relay.passes.integer_arithmetic import IntegerArithmetic
from sterna.relay.passes.legalize import Legalize
from sterna.relay.passes.merge_compiler_regions import MergeCompilerRegions
from sterna.relay.passes.merge_composite import MergeComposite
from sterna.relay.passes.partition_graph import PartitionGraph
from sterna.relay.passes.plan_devices import PlanDevices
from sterna.relay.passes.remove_unused_functions import RemoveUnusedFunctions
from sterna.relay.passes.share_joined_parts import ShareJoinedParts
from sterna.relay.passes.simplify_expr import SimplifyExpr, SimplifyExprPostAlterOp
from sterna.relay.passes.simplify_inference import SimplifyInference
from sterna.relay.passes.single_op_kernels import SingleOpKernels
from sterna.relay.passes.skip_border_taps import SkipBorderTaps
from sterna.relay.passes.sum_rows import SumRows
from sterna.relay.passes.tabulate_bytes import TabulateBytes
from sterna.relay.passes.to_a_normal_form import ToANormalForm
from sterna.relay.passes.to_basic_block_normal_form import ToBasicBlockNormalForm
from sterna.relay.passes.to_graph_normal_form import ToGraphNormalForm
from sterna.relay.passes.to_mixed_precision import ToMixedPrecision
from sterna.relay.passes.widen_floats import WidenFloats
from sterna.support.classic import classic_names

__all__ = [
    "AddUpParallelConv2D", "AlterOpLayout", "AnnotateTarget", "BackwardFoldScaleAxis",
    "CanonicalizeCast", "CanonicalizeOps", "ChooseImplementations",
    "CombineParallelBatchMatmul", "CombineParallelConv2D", "CombineParallelDense",
    "ConvertLayout", "DeadCodeElimination", "DefuseOps", "DelayViews",
    "DynamicToStatic",
    "EliminateCommonSubexpr", "FastMath", "FewerKernels", "FlattenAtrousConv", "FoldConstant",
    "FoldDeadChannels", "FoldExplicitPadding",
    "FoldScaleAxis", "FoldWeights", "ForwardFoldScaleAxis", "FuseOps",
    "InferType", "Inline", "InlineGlobals", "IntegerArithmetic", "Legalize",
    "MergeCompilerRegions", "MergeComposite", "PartitionGraph", "Pass", "PassContext",
    "PlanDevices",
    "RemoveUnusedFunctions", "Sequential", "ShareJoinedParts", "SimplifyExpr",
    "SimplifyExprPostAlterOp", "SimplifyInference", "SingleOpKernels", "SkipBorderTaps", "SumRows",
    "TabulateBytes",
    "ToANormalForm", "ToBasicBlockNormalForm", "ToGraphNormalForm", "ToMixedPrecision",
    "WidenFloats",
    "function_pass", "module_pass",
]

__getattr__ = classic_names(__name__)

# Other passes may require these by name.
for _name in __all__:
    if _name not in ("Pass", "PassContext", "Sequential", "function_pass", "module_pass"):
        register_pass(_name, globals()[_name])

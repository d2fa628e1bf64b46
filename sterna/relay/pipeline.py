"""The passes over graphs that a build runs, in order.

docs/passes.md says which run at each level; `python -m sterna.relay.describe_passes` writes it.
"""

from typing import Any

from sterna.ir.transform import Pass
from sterna.relay import transform as T


def passes(processor: Any = None, target: Any = None, on_gpu: bool = False) -> list[Pass]:
    """What happens between a user's graph and its kernels; the context's level picks from it.

    processor is what operators are told about the machine when they choose layouts, target what
    they are told when they choose other operators; on_gpu says that it runs blocks of threads.
    """
    return [
        # one graph, with types
        T.RemoveUnusedFunctions(),
        T.InferType(),
        T.Inline(),
        T.ToGraphNormalForm(),
        # fewer kinds of operators
        T.IntegerArithmetic(),  # before constants are folded: dequantised weights would be floats
        T.Legalize(target),
        T.SimplifyInference(),
        # fewer calls
        T.EliminateCommonSubexpr(),
        T.ShareJoinedParts(),
        T.CombineParallelConv2D(3),
        T.CombineParallelDense(3),
        T.CombineParallelBatchMatmul(3),
        T.FoldConstant(),
        T.FoldScaleAxis(),  # after norms have become factors, which constants must be
        T.SimplifyExpr(),
        T.CanonicalizeCast(),  # after equal casts were joined; it takes them apart again
        T.FoldWeights(),  # below the level of FoldConstant too: they are packed at every level
        T.AddUpParallelConv2D(),  # of weights that factors are in
        T.FoldExplicitPadding(),  # before convolutions of rows become those of images
        T.CanonicalizeOps(),
        *([] if on_gpu else [T.WidenFloats(processor)]),  # after factors are in the weights
        T.Legalize(target),  # what rows and volumes have become, as images
        T.FlattenAtrousConv(),
        T.FoldDeadChannels(processor),  # of known weights and borders, before these are packed
        T.SkipBorderTaps(processor),  # after factors are in the weights, and all dilations known
        # layouts: after factors are in the weights, which are packed now
        T.AlterOpLayout(processor, on_gpu),
        T.CanonicalizeOps(),  # again: what became images of one column with the channels last
        T.SimplifyExprPostAlterOp(),
        *([] if on_gpu else [T.DelayViews()]),  # after transposes that did nothing became views
        T.FastMath(),
        T.FoldConstant(),
        T.FoldWeights(),
        *([] if on_gpu else [T.TabulateBytes(processor)]),  # after layouts, which pass through it
        T.ChooseImplementations(processor),  # after weights are constants in their last layout
        *([T.FewerKernels()] if on_gpu else []),  # after constants are folded
        # near the end: kernels are not looked into
        T.FuseOps(processor=processor, notes_fixed=on_gpu),
        T.SingleOpKernels(),  # if fusion was turned off
        T.SumRows(processor),  # of what has become kernels of their own
        T.InferType(),
    ]

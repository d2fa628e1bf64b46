"""The passes over graphs that a build runs, in order."""

from typing import Any

from sterna.ir.transform import Pass
from sterna.relay import transform as T


def passes(processor: Any = None) -> list[Pass]:
    """What happens between a user's graph and its kernels; the context's level picks from it.

    processor is what operators are told about the target when they choose layouts.
    """
    return [
        T.InferType(),
        T.SimplifyInference(),
        T.EliminateCommonSubexpr(),
        T.FoldConstant(),
        T.FoldScaleAxis(),  # after norms have become factors
        T.AlterOpLayout(processor),  # after factors are in the weights, which it packs
        T.FoldConstant(),
        T.FuseOps(),  # last: kernels are not looked into
    ]

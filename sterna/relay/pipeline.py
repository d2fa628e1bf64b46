"""The passes over graphs that a build runs, in order."""

from sterna.ir.transform import Pass
from sterna.relay import transform as T


def passes() -> list[Pass]:
    """What happens between a user's graph and its kernels; the context's level picks from it."""
    return [
        T.InferType(),
        T.SimplifyInference(),
        T.EliminateCommonSubexpr(),
        T.FoldConstant(),
        T.FuseOps(),
    ]

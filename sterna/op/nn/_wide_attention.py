"""Attention on GPUs by products whose scores go through memory, where queries or values are wide.

    nn.attention(%q, %k, %v)  ->  nn.batch_matmul(nn.softmax(nn.batch_matmul(%q, %k)), %v)

A group of warps has registers for sums of 256 columns; kernels that keep wider ones elsewhere took
nine times as long on an H200 as products by Tensor Cores with all scores in memory.
"""

import math

import numpy as np

from sterna.op.dynamic import tensor_type
from sterna.relay.expr import RelayExpr, const
from sterna.relay.op import call
from sterna.schedule.gpu.attention_tile import MOST_WIDTH
from sterna.schedule.gpu.tensor_cores import has_warp_products
from sterna.target import Target, is_gpu

KINDS = ("bfloat16", "float16", "float32")
# What scores may take: longer attention is rather slow than without memory.
MOST_BYTES = 1 << 31


def by_products(
    args: tuple[RelayExpr, ...], target: Target | None, scale: float, fill: float = 0.0
) -> RelayExpr | None:
    """Attention without a causal mask, perhaps with a given one; None where it stays a kernel."""
    if target is None or not is_gpu(target) or not has_warp_products(target.attrs.get("arch")):
        return None
    kinds = [tensor_type(arg) for arg in args]
    if not all(kind.is_static for kind in kinds) or str(kinds[0].dtype) not in KINDS:
        return None
    batch, length, heads, width = kinds[0].concrete_shape
    _, keys, _, value_width = kinds[2].concrete_shape
    size = math.prod((batch, heads, length, keys)) * 4
    if max(width, value_width) <= MOST_WIDTH or not 0 < size <= MOST_BYTES:
        return None
    query, key, value = (_by_heads(arg) for arg in args[:3])
    products = call("nn.batch_matmul", query, key, transpose_b=True, out_dtype="float32")
    scores: RelayExpr = call("multiply", products, const(np.float32(scale)))
    if len(args) > 3:
        scores = call("reshape", scores, newshape=(batch, heads, length, keys))
        scores = _masked(scores, args[3], fill)
        scores = call("reshape", scores, newshape=(batch * heads, length, keys))
    weights = call("cast", call("nn.softmax", scores, axis=-1), dtype=str(kinds[0].dtype))
    made = call("nn.batch_matmul", weights, value, transpose_b=False)
    made = call("reshape", made, newshape=(batch, heads, length, value_width))
    return call("transpose", made, axes=(0, 2, 1, 3))


def _by_heads(operand: RelayExpr) -> RelayExpr:
    batch, length, heads, width = tensor_type(operand).concrete_shape
    moved = call("transpose", operand, axes=(0, 2, 1, 3))
    return call("reshape", moved, newshape=(batch * heads, length, width))


def _masked(scores: RelayExpr, mask: RelayExpr, fill: float) -> RelayExpr:
    if tensor_type(mask).dtype == "bool":
        return call("where", mask, scores, const(np.float32(fill)))
    return call("add", scores, call("cast", mask, dtype="float32"))

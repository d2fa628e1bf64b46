"""The largest of a window before numbers become bytes: fewer numbers do.

    nn.max_pool2d(qnn.quantize(nn.relu(nn.bias_add(%x, %b)), %s, %z))  ->
        qnn.quantize(nn.relu(nn.bias_add(nn.max_pool2d(%x), %b)), %s, %z)

None of these calls puts a number behind a smaller one, so that the largest stays the largest, bit
for bit. Nor does qnn.requantize, which brings sums of products to bytes. Floats and sums take more
room than bytes: only those that stay in a core's cache are kept as such.
"""

import math
from typing import Any

import numpy as np

from sterna.ir.types import TensorType
from sterna.op.quantization import is_single
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.infer import infer
from sterna.relay.op import call, is_call_of

# Floats that are pooled as such: 128 KiB; and sums: 32 KiB, as layers store them beside their data.
MOST_ELEMENTS, MOST_SUMS = 1 << 15, 1 << 13
# There are this many times fewer after pooling.
FEWER = 2


def pool_first(pool: Call) -> RelayExpr | None:
    """The bytes of the largest in place of the largest of bytes, if those are much fewer."""
    quantize = pool.args[0]
    if not is_call_of(quantize, "qnn.quantize") or not _is_monotone(quantize):
        return None
    before, after = infer(quantize), infer(pool)
    if not isinstance(before, TensorType) or not isinstance(after, TensorType):
        return None
    if not before.is_static or len(before.concrete_shape) < 3:
        return None
    if not _are_fewer(before, after, MOST_ELEMENTS):
        return None
    steps = [quantize]
    data = _first(quantize)
    while is_call_of(data, "nn.relu") or _is_bias_of_channels(data, pool):
        steps.append(data)
        data = _first(data)
    return _behind(steps, Call(pool.op, (data,), pool.attrs))


def pool_sums_first(attrs: Any, scaled: RelayExpr) -> RelayExpr | None:
    """The bytes of the largest sum in place of the largest byte of a qnn.requantize, likewise."""
    if not is_call_of(scaled, "qnn.requantize"):
        return None
    assert isinstance(scaled, Call)
    own: Any = scaled.attrs
    sums = infer(scaled.args[0])
    if not isinstance(sums, TensorType) or not sums.is_static or sums.dtype != "int32":
        return None
    rank = len(sums.shape)
    if len(attrs.layout) != rank or attrs.layout[own.axis % rank] != "C" or attrs.out_layout:
        return None
    if not _see_data(attrs):
        return None
    scales = [scaled.args[place] for place in (1, 3)]
    if not all(isinstance(one, Constant) and np.all(to_numpy(one.data) > 0) for one in scales):
        return None
    made = call(f"nn.max_pool{rank - 2}d", scaled.args[0], **dict(attrs.items()))
    after = infer(made)
    if not isinstance(after, TensorType) or not _are_fewer(sums, after, MOST_SUMS):
        return None
    return _behind([scaled], made)


def _see_data(attrs: Any) -> bool:
    """Whether there is data in all windows: the least sum is no byte that scales know."""
    pads = [*attrs.before, *attrs.after]
    if not any(pads):
        return True
    is_even = not attrs.ceil_mode and all(n == 1 for n in attrs.dilation)
    return is_even and max(pads) < min(attrs.pool_size)


def _are_fewer(before: TensorType, after: TensorType, most: int) -> bool:
    """Whether pooling leaves much less, of what may be kept as it is."""
    count = math.prod(before.concrete_shape)
    return FEWER * math.prod(after.concrete_shape) <= count <= most


def _behind(steps: list[RelayExpr], made: RelayExpr) -> RelayExpr:
    """The calls of these steps, the last first, on another expression."""
    for step in reversed(steps):
        assert isinstance(step, Call)
        made = Call(step.op, (made, *step.args[1:]), step.attrs)
    return made


def _first(expr: RelayExpr) -> RelayExpr:
    assert isinstance(expr, Call)
    return expr.args[0]


def _is_monotone(quantize: RelayExpr) -> bool:
    """Whether one scale above 0 is for all numbers, which end in the range of their type."""
    assert isinstance(quantize, Call)
    attrs: Any = quantize.attrs
    scale = quantize.args[1]
    kind = infer(scale)
    if not isinstance(kind, TensorType) or not is_single(kind.shape) or attrs.block_size:
        return False
    is_known = isinstance(scale, Constant) and bool(to_numpy(scale.data).reshape(-1)[0] > 0)
    return is_known and attrs.saturate and attrs.out_dtype.is_integer


def _is_bias_of_channels(data: RelayExpr, pool: Call) -> bool:
    """Whether a number for each channel is added, along which no window moves."""
    if not is_call_of(data, "nn.bias_add"):
        return False
    assert isinstance(data, Call)
    attrs: Any = data.attrs
    moved: Any = pool.attrs
    kind = infer(data)
    assert isinstance(kind, TensorType)
    rank = len(kind.shape)
    return len(moved.layout) == rank and bool(moved.layout[attrs.axis % rank] == "C")

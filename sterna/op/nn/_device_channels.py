"""Convolutions whose channels fill no vectors of a GPU, with further ones; few groups one by one.

    nn.conv2d(%x of 50 channels, %w)  ->  strided_slice(nn.conv2d(nn.pad(%x), nn.pad(%w)))
    nn.conv2d(%x, %w, groups=2)       ->  concatenate(nn.conv2d(%x[:, :c], %w[:o]), ...)

Tensor Cores, and the lanes that multiply float32, read rows of whole vectors of 16 bytes, and know
no groups: what has neither took up to 25 times as long on an H200.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.op.dynamic import tensor_type
from sterna.op.nn._conv_shape import contraction_of
from sterna.relay.arrays import numpy_dtype
from sterna.relay.expr import RelayExpr, Tuple, const
from sterna.relay.layout import layout_of
from sterna.relay.op import call
from sterna.target import Target, is_gpu

KINDS = ("bfloat16", "float16", "float32")
VECTOR_BYTES = 16
# Products from which on what is moved beside them costs less than what is gained.
LEAST_MACS = 1 << 26
# Groups that are convolutions of their own, and the channels that each has at least.
MOST_GROUPS, LEAST_CHANNELS = 8, 16


def with_device_channels(
    attrs: Any, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """A convolution for a GPU, where vectors and its channels do not fit, or that has few groups;
    None where it stays as it is."""
    if target is None or not is_gpu(target):
        return None
    data, weight = (tensor_type(arg) for arg in args)
    layouts = [layout_of(name) for name in (
        attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)]
    if not data.is_static or not weight.is_static or any(one.is_blocked for one in layouts):
        return None
    kinds = {str(data.dtype), str(weight.dtype), attrs.out_dtype or str(data.dtype)}
    made = contraction_of(attrs, data, weight)
    if made is None or made.macs < LEAST_MACS or len(kinds) > 1 or not kinds <= {*KINDS}:
        return None
    if attrs.groups > 1:
        each = min(made.inputs, made.outputs) // attrs.groups
        fits = attrs.groups <= MOST_GROUPS and each >= LEAST_CHANNELS
        return _one_by_one(attrs, args, layouts, made.inputs, made.outputs) if fits else None
    lanes = VECTOR_BYTES // data.dtype.bytes
    # So few channels have a kernel of their own.
    more_in = -made.inputs % lanes if made.inputs > lanes else 0
    more_out = -made.outputs % lanes
    if not more_in and not more_out:
        return None
    wide = call(
        "nn.conv2d", _padded(args[0], {layouts[0].index_of("C"): more_in}),
        _padded(args[1], {layouts[1].index_of("I"): more_in, layouts[1].index_of("O"): more_out}),
        **{**dict(attrs.items()), "channels": made.outputs + more_out})
    return _part(wide, layouts[2].index_of("C"), 0, made.outputs) if more_out else wide


def _one_by_one(
    attrs: Any, args: tuple[RelayExpr, ...], layouts: Sequence[Any], inputs: int, outputs: int
) -> RelayExpr:
    """Each group as a convolution of its own."""
    each_in, each_out = inputs // attrs.groups, outputs // attrs.groups
    own = {**dict(attrs.items()), "channels": each_out, "groups": 1}
    found = tuple(
        call(
            "nn.conv2d", _part(args[0], layouts[0].index_of("C"), n * each_in, each_in),
            _part(args[1], layouts[1].index_of("O"), n * each_out, each_out), **own)
        for n in range(attrs.groups)
    )
    return call("concatenate", Tuple(found), axis=layouts[2].index_of("C"))


def _part(expr: RelayExpr, axis: int, first: int, count: int) -> RelayExpr:
    return call("strided_slice", expr, begin=(first,), end=(first + count,), axes=(axis,))


def _padded(expr: RelayExpr, more: dict[int, int]) -> RelayExpr:
    """With zeros behind the last elements of axes."""
    if not any(more.values()):
        return expr
    kind = tensor_type(expr)
    widths = tuple((0, more.get(axis, 0)) for axis in range(kind.ndim))
    nothing = const(np.zeros((), numpy_dtype(kind.dtype)))
    return call("nn.pad", expr, nothing, pad_width=widths)

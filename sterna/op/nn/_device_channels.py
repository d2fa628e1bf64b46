"""Convolutions whose channels fill no vectors of a GPU, with further ones; few groups one by one.

    nn.conv2d(%x of 50 channels, %w)  ->  strided_slice(nn.conv2d(nn.pad(%x), nn.pad(%w)))
    nn.conv2d(%x, %w, groups=2)       ->  concatenate(nn.conv2d(%x[:, :c], %w[:o]), ...)
    nn.conv2d(%x, %w, groups=32)      ->  nn.conv2d(%x, where(%same, %w %w ..., 0), groups=8)

Tensor Cores, and the lanes that multiply float32, read rows of whole vectors of 16 bytes, and only
groups that fill their tiles: what has neither took up to 25 times as long on an H200. Where groups
have few channels, several become one whose weights are zeros between channels of different groups:
Tensor Cores multiply these faster than other kernels leave them out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from sterna.op.dynamic import tensor_type
from sterna.op.nn._conv_shape import contraction_of
from sterna.relay.arrays import numpy_dtype
from sterna.relay.expr import RelayExpr, Tuple, const
from sterna.relay.layout import layout_of
from sterna.relay.op import call
from sterna.schedule.choose import choose, deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.gpu.tensor_cores import convolution_time
from sterna.target import Target, is_gpu

KINDS = ("bfloat16", "float16", "float32")
VECTOR_BYTES = 16
# Products from which on what is moved beside them costs less than what is gained.
LEAST_MACS = 1 << 20
# The same of groups: nothing is moved where they fill tiles.
LEAST_GROUPED_MACS = 1 << 22
# Groups that are convolutions of their own, and the channels that each has at least.
MOST_GROUPS, LEAST_CHANNELS = 8, 16
# By measurement on an H200: products a microsecond of kernels that know all groups, and the
# microseconds of each product of a sum where their threads are too few for that; products a
# microsecond of kernels of any GPU that know no groups; the microseconds of one more kernel, and
# the bytes of copies in one.
GROUPED_RATE, STEP, PLAIN_RATE = 6e6, 0.2, 2e7
LAUNCH, COPIED = 4.0, 3e6


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
    sums = attrs.out_dtype or str(data.dtype)
    known = data.dtype == weight.dtype and data.dtype in KINDS and sums in (data.dtype, "float32")
    made = contraction_of(attrs, data, weight)
    least = LEAST_MACS if attrs.groups == 1 else LEAST_GROUPED_MACS
    if made is None or made.macs < least or not known:
        return None
    if attrs.groups > 1:
        return _fewer_groups(attrs, args, layouts, made, target.attrs.get("arch"))
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


@dataclass(frozen=True, slots=True)
class _Way:
    """How groups are computed."""

    count: int
    """Of groups, once several have become one."""
    apart: bool = False
    """Whether each is a convolution of its own."""

    def __str__(self) -> str:
        return f"{self.count} {'convolutions' if self.apart else 'groups'}"


def _fewer_groups(
    attrs: Any, args: tuple[RelayExpr, ...], layouts: Sequence[Any], made: Contraction, arch: object
) -> RelayExpr | None:
    """The same in fewer groups that have more channels each; None if it stays as it is.

    Zeros are multiplied only where Tensor Cores or lanes do that.
    """
    each = min(made.inputs, made.outputs) // attrs.groups
    if each == 1:
        return None
    zeros = math.isfinite(convolution_time(replace(made, groups=1), arch))
    offered = [
        _Way(count, apart)
        for count in range(1, attrs.groups + 1) if attrs.groups % count == 0
        for apart in (False, True)[: 2 if 1 < count <= MOST_GROUPS else 1]
        if count == attrs.groups or zeros
        if attrs.groups // count * each >= LEAST_CHANNELS or (count == attrs.groups and not apart)
    ]
    with deciding(f"groups {tensor_type(args[0])!r} {tensor_type(args[1])!r}"):
        way = choose("groups of a convolution", offered, partial(_time, made, arch))
    if way == _Way(attrs.groups):
        return None
    weight = _together(args[1], made, layouts, attrs.groups // way.count)
    return _apart(attrs, args[0], weight, layouts, made, way.count) if way.apart else call(
        "nn.conv2d", args[0], weight, **{**dict(attrs.items()), "groups": way.count})


def _time(made: Contraction, arch: object, way: _Way) -> float:
    """The microseconds that it should take."""
    if not way.apart:
        fewer = replace(made, groups=way.count)
        tiled = convolution_time(fewer, arch)
        steps = fewer.macs // max(fewer.pixels * fewer.outputs, 1)
        return tiled if math.isfinite(tiled) else max(fewer.macs / GROUPED_RATE, STEP * steps)
    own = replace(
        made, groups=1, inputs=made.inputs // way.count, outputs=made.outputs // way.count)
    elements = made.batch * math.prod(made.image) * made.inputs + made.pixels * made.outputs
    moved = LAUNCH + 2 * elements * made.data.bytes / COPIED
    tiled = convolution_time(own, arch)
    alone = tiled if math.isfinite(tiled) else own.macs / PLAIN_RATE
    return way.count * (alone + LAUNCH) + moved


def _together(
    weight: RelayExpr, made: Contraction, layouts: Sequence[Any], together: int
) -> RelayExpr:
    """The weights of groups of which so many are one: zeros between their channels."""
    if together == 1:
        return weight
    kind, into, out = tensor_type(weight), layouts[1].index_of("I"), layouts[1].index_of("O")
    wide = call("concatenate", Tuple((weight,) * together), axis=into)
    own_out = made.outputs // made.groups
    rows = np.arange(made.outputs) // own_out % together
    same = rows[:, None] == np.arange(together * made.depth) // made.depth
    shape = [1] * kind.ndim
    shape[out], shape[into] = same.shape
    same = (same if out < into else same.T).reshape(shape)
    return call("where", const(same), wide, const(np.zeros((), numpy_dtype(kind.dtype))))


def _apart(
    attrs: Any, data: RelayExpr, weight: RelayExpr, layouts: Sequence[Any], made: Contraction,
    count: int,
) -> RelayExpr:
    """Each group as a convolution of its own."""
    out, each_in, each_out = (
        layouts[1].index_of("O"), made.inputs // count, made.outputs // count)
    own = {**dict(attrs.items()), "channels": each_out, "groups": 1}
    found = tuple(
        call(
            "nn.conv2d", _part(data, layouts[0].index_of("C"), n * each_in, each_in),
            _part(weight, out, n * each_out, each_out), **own)
        for n in range(count)
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

"""Convolutions whose windows are deformed: every place of a window is moved by an offset.

Offsets lie along axis 1 of their tensor as (deformable group, place in the window, y or x). What
lies between pixels is interpolated from the four around it; outside the image there are zeros.
"""

import math
from typing import Any

import numpy as np

from sterna.ir.build import const
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import expect_dim, map_dims, of_kind, tensor
from sterna.op.nn._conv_shape import Sizes, sizes_of
from sterna.op.windows import Padding, Windowed, positive
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import attributes
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.schedule.gemm import schedule_contraction
from sterna.schedule.products import AS_DATA, narrowed, result_dtype, wide, widened
from sterna.schedule.sum_of_products import CHANNEL, TAP, describe_sum
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute, floor, if_then_else, reduce_axis
from sterna.te import all as all_of
from sterna.te import sum as te_sum


@attributes
class DeformableConv2DAttrs(Windowed):
    """Of nn.deformable_conv2d."""

    strides: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    deformable_groups: int = 1
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, int] | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: DataType = AS_DATA


def _infer(
    attrs: DeformableConv2DAttrs, data: Type, offset: Type, weight: Type, mask: Type | None = None
) -> TensorType:
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    if layouts != ("NCHW", "OIHW", "NCHW"):
        raise ValueError(f"a deformable convolution is of NCHW by OIHW, not of {layouts}")
    positive([attrs.deformable_groups], "deformable_groups")
    x = of_kind(tensor(data, "data", 4), "data", "float")
    w = tensor(weight, "weight", 4)
    sizes = sizes_of(attrs, x, w)
    if sizes.multiplied:
        raise ValueError(f"weight has 1 input channel for {attrs.groups} groups, not {w.shape[1]}")
    channels = x.shape[1]
    if isinstance(channels, int) and channels % attrs.deformable_groups:
        raise ValueError(f"{channels} channels do not fall into {attrs.deformable_groups} "
                         "deformable groups")
    _expect_places(attrs, tensor(offset, "offset", 4), "offset", 2, sizes)
    if mask is not None:
        _expect_places(attrs, tensor(mask, "mask", 4), "mask", 1, sizes)
    dtype = result_dtype(attrs.out_dtype, x, w, "weight")
    return TensorType((sizes.batch, sizes.out_channels, *sizes.result), dtype)


def _expect_places(
    attrs: DeformableConv2DAttrs, kind: TensorType, name: str, each: int, sizes: Sizes
) -> None:
    of_kind(kind, name, "float")
    places: Dim = attrs.deformable_groups * each
    for extent in sizes.window:
        places = places * extent
    for i, want in enumerate((sizes.batch, places, *sizes.result)):
        expect_dim(kind.shape[i], want, f"extent {i} of {name}")


def _complete(attrs: DeformableConv2DAttrs, *kinds: Type | None) -> list[Type | None]:
    data, weight = kinds[0], kinds[2]
    known = attrs.channels is not None and attrs.kernel_size is not None
    if weight is None and known and isinstance(data, TensorType) and data.ndim == 4:
        assert attrs.channels is not None
        assert attrs.kernel_size is not None
        inner = map_dims(lambda c: c // attrs.groups, data.shape[1])
        weight = TensorType((attrs.channels, inner, *attrs.kernel_size), data.dtype)
    return [*kinds[:2], weight, *kinds[3:]]


def _compute(
    attrs: DeformableConv2DAttrs, out: TensorType, data: Tensor, offset: Tensor, weight: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    batch, channels, height, width = data.shape
    inner, kh, kw = weight.shape[1:]
    oh, ow = out.shape[2:]
    dtype, parts = wide(out.dtype), attrs.deformable_groups
    name = "T_deformable_conv2d"

    def position(axis: int) -> Tensor:
        """Where each place of each window reads along an axis."""
        def element(*at: Expr) -> Any:
            n, part, p, q, i, j = at
            moved = offset(n, ((part * kh + p) * kw + q) * 2 + axis, i, j).astype(dtype)
            step, place = (i, p) if axis == 0 else (j, q)
            start = step * attrs.strides[axis] + (place * attrs.dilation[axis] - attrs.before[axis])
            return start.astype(dtype) + moved

        made: Tensor = compute(
            (batch, parts, kh, kw, oh, ow), element, name=f"{name}_{'yx'[axis]}"
        )
        return made

    ys, xs = position(0), position(1)

    def sample(n: Expr, c: Expr, *at: Expr) -> Any:
        part = c // (channels // parts)
        y, x = ys(n, part, *at), xs(n, part, *at)
        top, left = floor(y), floor(x)
        total: Any = const(0, dtype)
        for down in (0, 1):
            for right in (0, 1):
                row, column = top.astype("int32") + down, left.astype("int32") + right
                near_y, near_x = y - top, x - left
                fraction = (near_y if down else 1.0 - near_y) * (near_x if right else 1.0 - near_x)
                inside = all_of(row >= 0, row < height, column >= 0, column < width)
                pixel = if_then_else(inside, data(n, c, row, column).astype(dtype), const(0, dtype))
                total = total + fraction * pixel
        if mask is not None:
            p, q, i, j = at
            total = total * mask(n, (part * kh + p) * kw + q, i, j).astype(dtype)
        seen = all_of(y > -1.0, y < height.astype(dtype), x > -1.0, x < width.astype(dtype))
        return if_then_else(seen, total, const(0, dtype))

    samples = compute((batch, channels, kh, kw, oh, ow), sample, name=f"{name}_samples")
    rc = reduce_axis((0, inner), "rc")
    ry, rx = reduce_axis((0, kh), "ry"), reduce_axis((0, kw), "rx")

    def element(n: Expr, o: Expr, i: Expr, j: Expr) -> Any:
        group = o // (weight.shape[0] // attrs.groups) if attrs.groups > 1 else const(0)
        read = samples(n, group * inner + rc.var, ry, rx, i, j)
        return te_sum(read * weight(o, rc, ry, rx).astype(dtype), axis=[rc, ry, rx])

    total = compute(out.shape, element, name=name)
    total = describe_sum(total, [CHANNEL, TAP, TAP])
    return narrowed(total, out.dtype, f"{name}_cast")


def _pixels(images: Array, row: Array, column: Array) -> Array:
    """Pixels of (batch, part, channel, H, W) at places of (batch, part, n); zeros outside."""
    height, width = images.shape[-2:]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    place = np.where(inside, row * width + column, 0)
    flat = images.reshape(*images.shape[:3], -1)
    return np.where(
        inside[:, :, None], np.take_along_axis(flat, place[:, :, None], -1), 0
    ).astype(images.dtype)


def _reference(
    attrs: DeformableConv2DAttrs, data: Array, offset: Array, weight: Array,
    mask: Array | None = None,
) -> Array:
    dtype = attrs.out_dtype or str(data.dtype)
    x, w, moved = (widened(part, dtype) for part in (data, weight, offset))
    parts, (outer, inner, kh, kw) = attrs.deformable_groups, w.shape
    batch, oh, ow = offset.shape[0], *offset.shape[2:]
    moved = moved.reshape(batch, parts, kh * kw, 2, oh, ow)
    p, q, i, j = np.ogrid[:kh, :kw, :oh, :ow]
    start_y = i * attrs.strides[0] + p * attrs.dilation[0] - attrs.before[0] + 0 * (q + j)
    start_x = j * attrs.strides[1] + q * attrs.dilation[1] - attrs.before[1] + 0 * (p + i)
    y = (moved[:, :, :, 0] + start_y.reshape(kh * kw, oh, ow)).reshape(batch, parts, -1)
    x_at = (moved[:, :, :, 1] + start_x.reshape(kh * kw, oh, ow)).reshape(batch, parts, -1)
    images = x.reshape(batch, parts, -1, *x.shape[2:])
    seen = (y > -1) & (y < x.shape[2]) & (x_at > -1) & (x_at < x.shape[3])
    y, x_at = np.where(seen, y, 0), np.where(seen, x_at, 0)
    top, left = np.floor(y).astype("int64"), np.floor(x_at).astype("int64")
    samples: Array = np.zeros((*images.shape[:3], y.shape[-1]), x.dtype)
    for down, right in np.ndindex(2, 2):
        fraction = (1 - np.abs(y - top - down)) * (1 - np.abs(x_at - left - right))
        samples = samples + fraction[:, :, None] * _pixels(images, top + down, left + right)
    if mask is not None:
        samples = samples * widened(mask, dtype).reshape(batch, parts, 1, -1)
    samples = np.where(seen[:, :, None], samples, 0)
    columns = samples.reshape(batch, attrs.groups, inner * kh * kw, oh * ow)
    kernel = w.reshape(attrs.groups, outer // attrs.groups, inner * kh * kw)
    made: Array = np.matmul(kernel, columns.astype(x.dtype))
    return made.reshape(batch, outer, oh, ow).astype(numpy_dtype(dtype))


def _macs(attrs: DeformableConv2DAttrs, out: TensorType, *kinds: TensorType) -> int:
    return math.prod(out.concrete_shape) * math.prod(kinds[2].concrete_shape[1:])


def _register(name: str, inputs: tuple[str, ...], cases: list[Case], doc: str) -> None:
    register(OpRecord(
        name,
        inputs=inputs,
        attrs=DeformableConv2DAttrs,
        infer=_infer,
        complete=_complete,
        compute=_compute,
        reference=_reference,
        macs=_macs,
        pattern=OUT_ELEMWISE_FUSABLE,
        schedules={"cpu": schedule_contraction},
        cases=cases,
        doc=doc,
    ))


_MOVES = {"padding": 1, "strides": (2, 1), "dilation": (1, 2), "deformable_groups": 2, "groups": 2}

_register("nn.deformable_conv2d", ("data", "offset", "weight"), [
    Case(((1, 3, 5, 6), (1, 18, 3, 4), (2, 3, 3, 3)), {"channels": 2, "kernel_size": 3}, 1e-4),
    Case(((2, 4, 5, 6), (2, 36, 3, 4), (6, 2, 3, 3)), _MOVES, 1e-4),
], "Convolution in which every place of every window is moved by an offset.")

_register("nn.modulated_deformable_conv2d", ("data", "offset", "weight", "mask"), [
    Case(((2, 4, 5, 6), (2, 36, 3, 4), (6, 2, 3, 3), (2, 18, 3, 4)), _MOVES, 1e-4),
], "Deformable convolution in which every place of every window has a factor too, its mask.")

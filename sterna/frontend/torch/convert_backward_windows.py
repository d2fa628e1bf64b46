"""Gradients of poolings, of padding and of resizing.

What is linear along every axis by itself (means, padding, interpolation) is one small matrix for
each; its transpose gives the gradient. The matrix is what the operator makes of the unit matrix.
"""

import math
from collections.abc import Sequence

import numpy as np

from sterna.frontend.calls import call, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_layers import Numbers, per_axis
from sterna.frontend.torch.convert_shape import shape_of
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


def _transposed(grad: RelayExpr, matrices: Sequence[RelayExpr]) -> RelayExpr:
    """A gradient, each of whose last axes a matrix [input, result] brings to the input's."""
    made = grad
    first = rank_of(grad) - len(matrices)
    for axis, matrix in enumerate(matrices, first):
        order = [*(each for each in range(rank_of(grad)) if each != axis), axis]
        last = call("transpose", made, order)
        *outer, out = shape_of(last)
        rows = call("nn.dense", reshaped(last, (math.prod(outer), out)), matrix)
        back = reshaped(rows, (*outer, shape_of(matrix)[0]))
        made = call("transpose", back, tuple(np.argsort(order).tolist()))
    return made


def _units(extent: int, dtype: str) -> RelayExpr:
    """The unit matrix, each of whose rows is a channel of one axis."""
    return constant(np.eye(extent)[None], dtype)


# ---- largest elements ----


@aten("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(
    grad_output: RelayExpr, x: RelayExpr, kernel_size: Numbers, stride: Numbers,
    padding: Numbers, dilation: Numbers, ceil_mode: bool, indices: RelayExpr,
) -> RelayExpr:
    return _to_places(grad_output, x, indices, len(per_axis(kernel_size, 2)))


@aten("adaptive_max_pool2d_backward")
def adaptive_max_backward(
    grad_output: RelayExpr, x: RelayExpr, indices: RelayExpr
) -> RelayExpr:
    return _to_places(grad_output, x, indices, 2)


@aten("adaptive_max_pool3d_backward")
def adaptive_max_volume_backward(
    grad_output: RelayExpr, x: RelayExpr, indices: RelayExpr
) -> RelayExpr:
    return _to_places(grad_output, x, indices, 3)


def _to_places(
    grad: RelayExpr, x: RelayExpr, indices: RelayExpr, rank: int
) -> RelayExpr:
    """Every result's gradient goes to the element that it was."""
    shape = shape_of(x)
    outer, size = math.prod(shape[:-rank]), math.prod(shape[-rank:])
    start = call("zeros", (outer, size), dtype_of(x))
    flat = [reshaped(each, (outer, -1)) for each in (indices, grad)]
    return reshaped(call("scatter_elements", start, *flat, axis=1, reduction="add"), shape)


# ---- means ----


@aten("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(
    grad_output: RelayExpr, x: RelayExpr, kernel_size: Numbers, stride: Numbers,
    padding: Numbers, ceil_mode: bool, count_include_pad: bool,
    divisor_override: int | None = None,
) -> RelayExpr:
    rank = 2 if isinstance(kernel_size, int) else len(kernel_size)
    window = per_axis(kernel_size, rank)
    steps, zeros = per_axis(stride, rank) if stride else window, per_axis(padding, rank)
    if rank == 2 and rank_of(x) == 4 and divisor_override is None:
        return call(
            "nn.avg_pool2d_grad", grad_output, x, pool_size=window, strides=steps,
            padding=zeros * 2, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
        )
    matrices = [
        _means(shape_of(x)[axis - rank], shape_of(grad_output)[axis - rank], size, step, pad,
               count_include_pad, divisor_override is not None)
        for axis, (size, step, pad) in enumerate(zip(window, steps, zeros, strict=True))
    ]
    made = _transposed(grad_output, [constant(each, dtype_of(x)) for each in matrices])
    return made if divisor_override is None else call(
        "divide", made, like(divisor_override, made)
    )


def _means(
    extent: int, out: int, size: int, step: int, pad: int, counts_pad: bool, sums: bool
) -> np.ndarray:
    """What part an element [input, result] has of a window's mean, or of its sum."""
    low = np.arange(out) * step - pad
    high = np.minimum(low + size, extent + pad)
    first, last = np.maximum(low, 0), np.minimum(high, extent)
    count = np.maximum(high - low if counts_pad else last - first, 1)
    place = np.arange(extent)[:, None]
    inside = (place >= first) & (place < last)
    return np.where(inside, 1.0 if sums else 1.0 / count, 0.0)


@aten("_adaptive_avg_pool2d_backward")
def adaptive_average_backward(grad_output: RelayExpr, x: RelayExpr) -> RelayExpr:
    return _adaptive_average_gradient(grad_output, x, 2)


@aten("_adaptive_avg_pool3d_backward")
def adaptive_average_volume_backward(grad_output: RelayExpr, x: RelayExpr) -> RelayExpr:
    return _adaptive_average_gradient(grad_output, x, 3)


def _adaptive_average_gradient(grad: RelayExpr, x: RelayExpr, rank: int) -> RelayExpr:
    extents, outs = shape_of(x)[-rank:], shape_of(grad)[-rank:]
    pairs = list(zip(extents, outs, strict=True))
    if all(extent % out == 0 for extent, out in pairs):  # windows of one size: it is repeated
        spread = grad
        for axis, (extent, out) in enumerate(pairs, rank_of(x) - rank):
            spread = call("repeat", spread, extent // out, axis=axis)
        return call("divide", spread, like(math.prod(extents) // math.prod(outs), spread))
    matrices = []
    for extent, out in pairs:
        means = call("nn.adaptive_avg_pool1d", _units(extent, dtype_of(x)), output_size=(out,),
                     layout="NCW")
        matrices.append(reshaped(means, (extent, out)))
    return _transposed(grad, matrices)


# ---- padding and resizing ----


@aten("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward")
def replication_pad_backward(
    grad_output: RelayExpr, x: RelayExpr, padding: Sequence[int]
) -> RelayExpr:
    """Every result's gradient goes to the element at the border that it is a copy of."""
    matrices = []
    for axis in range(len(padding) // 2):
        extent = shape_of(x)[-1 - axis]
        before, behind = padding[2 * axis : 2 * axis + 2]
        source = np.clip(np.arange(-before, extent + behind), 0, extent - 1)
        copied = np.arange(extent)[:, None] == source
        matrices.append(constant(copied, dtype_of(grad_output)))
    return _transposed(grad_output, matrices[::-1])


for _kind, _method in (("bilinear", "linear"), ("bicubic", "cubic")):

    def _antialiased_backward(
        grad_output: RelayExpr, output_size: Sequence[int], input_size: Sequence[int],
        align_corners: bool, scales_h: float | None = None, scales_w: float | None = None,
        _method: str = _method,
    ) -> RelayExpr:
        if align_corners:
            raise OpNotImplemented("antialiasing with align_corners")
        matrices = []
        for extent, out, scale in zip(
            input_size[2:], output_size, (scales_h, scales_w), strict=True
        ):
            made = call(
                "image.smooth_resize", _units(extent, dtype_of(grad_output)), (out,), axes=(2,),
                method=_method, cubic_alpha=-0.5, exclude_outside=True,
                scales=() if scale is None else (scale,),
            )
            matrices.append(reshaped(made, (extent, out)))
        return _transposed(grad_output, matrices)

    aten(f"_upsample_{_kind}2d_aa_backward")(_antialiased_backward)

"""Gradients of layers: what training graphs hold beside plain operators."""

import math
from collections.abc import Sequence

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_elementwise import mul
from sterna.frontend.torch.convert_layers import (
    Numbers,
    conv,
    conv_transpose,
    per_axis,
)
from sterna.frontend.torch.convert_shape import expand, shape_of, slice_
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@aten("convolution_backward")
def convolution_backward(
    grad_output: RelayExpr, input: RelayExpr, weight: RelayExpr,
    bias_sizes: Sequence[int] | None, stride: Numbers, padding: Numbers, dilation: Numbers,
    transposed: bool, output_padding: Numbers, groups: int, output_mask: Sequence[bool],
) -> list[RelayExpr | None]:
    if transposed:
        raise OpNotImplemented("the gradient of a transposed convolution")
    rank = rank_of(weight) - 2
    steps, zeros, widths = (per_axis(each, rank) for each in (stride, padding, dilation))
    found: list[RelayExpr | None] = [None, None, None]
    if output_mask[0]:
        more = [
            extent - ((out - 1) * step - 2 * pad + width * (size - 1) + 1)
            for extent, out, step, pad, width, size in zip(
                shape_of(input)[2:], shape_of(grad_output)[2:], steps, zeros, widths,
                shape_of(weight)[2:], strict=True,
            )
        ]
        found[0] = conv_transpose(grad_output, weight, None, steps, zeros, more, groups, widths)
    if output_mask[1]:
        found[1] = _weight_gradient(grad_output, input, weight, steps, zeros, widths, groups)
    if output_mask[2]:
        axes = tuple(axis for axis in range(rank + 2) if axis != 1)
        found[2] = call("sum", grad_output, axis=axes)
    return found


def _weight_gradient(
    grad: RelayExpr, data: RelayExpr, weight: RelayExpr, steps: Sequence[int],
    zeros: Sequence[int], widths: Sequence[int], groups: int,
) -> RelayExpr:
    """A convolution of the data by the gradient: images are its channels, channels its images."""
    batch, channels, *extents = shape_of(data)
    units, per_group, *kernel = shape_of(weight)
    axes = tuple(range(3, 3 + len(extents)))
    split = reshaped(data, (batch, groups, channels // groups, *extents))
    images = reshaped(
        call("transpose", split, (2, 1, 0, *axes)), (per_group, groups * batch, *extents)
    )
    outs = shape_of(grad)[2:]
    filters = call("transpose", grad, (1, 0, *range(2, 2 + len(outs))))
    made = conv(images, filters, None, widths, zeros, steps, groups)
    for axis, size in enumerate(kernel):
        made = slice_(made, 2 + axis, 0, size)
    order = (1, 0, *range(2, 2 + len(kernel)))
    return reshaped(call("transpose", made, order), (units, per_group, *kernel))


@aten("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(
    grad_output: RelayExpr, x: RelayExpr, kernel_size: Numbers, stride: Numbers,
    padding: Numbers, dilation: Numbers, ceil_mode: bool, indices: RelayExpr,
) -> RelayExpr:
    """Every result's gradient goes to the element that it was."""
    rank = len(per_axis(kernel_size, 2))
    shape = shape_of(x)
    outer, size = math.prod(shape[:-rank]), math.prod(shape[-rank:])
    start = call("zeros", (outer, size), dtype_of(x))
    flat = [reshaped(each, (outer, -1)) for each in (indices, grad_output)]
    return reshaped(call("scatter_elements", start, *flat, axis=1, reduction="add"), shape)


@aten("avg_pool2d_backward")
def avg_pool_backward(
    grad_output: RelayExpr, x: RelayExpr, kernel_size: Numbers, stride: Numbers,
    padding: Numbers, ceil_mode: bool, count_include_pad: bool,
    divisor_override: int | None = None,
) -> RelayExpr:
    window = per_axis(kernel_size, 2)
    if rank_of(x) != 4 or divisor_override is not None:
        raise OpNotImplemented("the gradient of this average pool")
    return call(
        "nn.avg_pool2d_grad", grad_output, x, pool_size=window,
        strides=per_axis(stride, 2) if stride else window, padding=per_axis(padding, 2) * 2,
        ceil_mode=ceil_mode, count_include_pad=count_include_pad,
    )


@aten("_adaptive_avg_pool2d_backward")
def adaptive_average_backward(grad_output: RelayExpr, x: RelayExpr) -> RelayExpr:
    """Windows of equal size, as a divisible extent has them."""
    extents, outs = shape_of(x)[-2:], shape_of(grad_output)[-2:]
    if any(extent % out for extent, out in zip(extents, outs, strict=True)):
        raise OpNotImplemented("the gradient of an adaptive pool with windows that differ")
    sizes = [extent // out for extent, out in zip(extents, outs, strict=True)]
    spread = grad_output
    for axis, size in zip((-2, -1), sizes, strict=True):
        spread = call("repeat", spread, size, axis=rank_of(x) + axis)
    return call("divide", spread, like(math.prod(sizes), spread))


@aten("embedding_dense_backward")
def embedding_backward(
    grad_output: RelayExpr, indices: RelayExpr, num_weights: int, padding_idx: int,
    scale_grad_by_freq: bool = False,
) -> RelayExpr:
    if scale_grad_by_freq:
        raise OpNotImplemented("gradients scaled by how often a word is there")
    count, width = math.prod(shape_of(indices)), shape_of(grad_output)[-1]
    rows = reshaped(grad_output, (count, width))
    places = reshaped(cast(indices, "int64"), (count, 1))
    if padding_idx >= 0:
        kept = call("not_equal", places, constant(padding_idx, "int64"))
        rows = call("where", kept, rows, like(0, rows))
    start = call("zeros", (num_weights, width), dtype_of(grad_output))
    lines = expand(places, (count, width))
    return call("scatter_elements", start, lines, rows, axis=0, reduction="add")


@aten("native_dropout_backward")
def dropout_backward(grad_output: RelayExpr, mask: RelayExpr, scale: float) -> RelayExpr:
    return mul(mul(grad_output, mask), scale)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    query: RelayExpr, key: RelayExpr, value: RelayExpr, dropout_p: float = 0.0,
    is_causal: bool = False, attn_mask: RelayExpr | None = None, scale: float | None = None,
) -> list[RelayExpr]:
    """The result, and the logarithms of the sums that its gradient needs."""
    weights, sums = _weights(query, key, dropout_p, is_causal, attn_mask, scale)
    return [_product(weights, value, False, False), sums]


def _scores(
    query: RelayExpr, key: RelayExpr, is_causal: bool, mask: RelayExpr | None, factor: float
) -> RelayExpr:
    made = _product(query, key, False, True)
    made = call("multiply", made, like(factor, made))
    if is_causal:
        length, reach = shape_of(made)[-2:]
        places = call("expand_dims", constant(list(range(length)), "int64"), 1)
        seen = call("greater_equal", places, constant(list(range(reach)), "int64"))
        made = call("where", seen, made, like(-math.inf, made))
    return made if mask is None else call("add", made, cast(mask, dtype_of(made)))


def _factor(query: RelayExpr, scale: float | None) -> float:
    return 1 / math.sqrt(shape_of(query)[-1]) if scale is None else scale


def _weights(
    query: RelayExpr, key: RelayExpr, dropout_p: float, is_causal: bool,
    mask: RelayExpr | None, scale: float | None,
) -> tuple[RelayExpr, RelayExpr]:
    if dropout_p:
        raise OpNotImplemented("attention that drops weights at random")
    scores = _scores(query, key, is_causal, mask, _factor(query, scale))
    high = call("max", scores, axis=-1, keepdims=True)
    powers = call("exp", call("subtract", scores, high))
    total = call("sum", powers, axis=-1, keepdims=True)
    sums = call("squeeze", call("add", call("log", total), high), axis=(-1,))
    return call("divide", powers, total), sums


def _product(a: RelayExpr, b: RelayExpr, turn_a: bool, turn_b: bool) -> RelayExpr:
    return call("nn.batch_matmul", a, b, transpose_a=turn_a, transpose_b=turn_b)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    grad_out: RelayExpr, query: RelayExpr, key: RelayExpr, value: RelayExpr, out: RelayExpr,
    logsumexp: RelayExpr, dropout_p: float, is_causal: bool,
    attn_mask: RelayExpr | None = None, scale: float | None = None,
) -> list[RelayExpr]:
    factor = _factor(query, scale)
    scores = _scores(query, key, is_causal, attn_mask, factor)
    weights = call("exp", call("subtract", scores, call("expand_dims", logsumexp, 3)))
    by_weights = _product(grad_out, value, False, True)
    mean = call("sum", call("multiply", grad_out, out), axis=-1, keepdims=True)
    by_scores = call("multiply", weights, call("subtract", by_weights, mean))
    by_scores = call("multiply", by_scores, like(factor, by_scores))
    return [
        _product(by_scores, key, False, False), _product(by_scores, query, True, False),
        _product(weights, grad_out, True, False),
    ]

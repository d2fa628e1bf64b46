"""Gradients of layers: what training graphs hold beside plain operators."""

import math
from collections.abc import Sequence

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_counts import bag_of_place
from sterna.frontend.torch.convert_elementwise import mul
from sterna.frontend.torch.convert_layers import (
    Numbers,
    conv,
    conv_transpose,
    per_axis,
)
from sterna.frontend.torch.convert_shape import expand, shape_of, slice_
from sterna.frontend.torch.promotion import HALVES
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented


@aten("convolution_backward")
def convolution_backward(
    grad_output: RelayExpr, input: RelayExpr, weight: RelayExpr,
    bias_sizes: Sequence[int] | None, stride: Numbers, padding: Numbers, dilation: Numbers,
    transposed: bool, output_padding: Numbers, groups: int, output_mask: Sequence[bool],
) -> list[RelayExpr | None]:
    rank = rank_of(weight) - 2
    steps, zeros, widths = (per_axis(each, rank) for each in (stride, padding, dilation))
    found: list[RelayExpr | None] = [None, None, None]
    if output_mask[0] and transposed:
        made = conv(grad_output, weight, None, steps, zeros, widths, groups)
        for axis, extent in enumerate(shape_of(input)[2:], 2):
            made = slice_(made, axis, 0, extent)
        found[0] = made
    elif output_mask[0]:
        more = [
            extent - ((out - 1) * step - 2 * pad + width * (size - 1) + 1)
            for extent, out, step, pad, width, size in zip(
                shape_of(input)[2:], shape_of(grad_output)[2:], steps, zeros, widths,
                shape_of(weight)[2:], strict=True,
            )
        ]
        found[0] = conv_transpose(grad_output, weight, None, steps, zeros, more, groups, widths)
    if output_mask[1]:
        small, large = (input, grad_output) if transposed else (grad_output, input)
        found[1] = _weight_gradient(small, large, weight, steps, zeros, widths, groups)
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


@aten("batch_norm_backward", "native_batch_norm_backward")
def batch_norm_backward(
    grad_out: RelayExpr, input: RelayExpr, weight: RelayExpr | None,
    running_mean: RelayExpr | None, running_var: RelayExpr | None, eps: float,
    output_mask: Sequence[bool], save_mean: RelayExpr | None = None,
    save_var: RelayExpr | None = None, save_invstd: RelayExpr | None = None,
    update: bool = True, train: bool = True, reserve: RelayExpr | None = None,
) -> list[RelayExpr | None]:
    """Of the data, the factor and the offset; of a batch's own mean and variance by both.

    16 bits are computed in 32; factor and offset have the type of the weight.
    """
    kind = dtype_of(input)
    if kind in HALVES:
        gamma, *wide = [
            None if each is None else cast(each, "float32")
            for each in (weight, running_mean, running_var, save_mean, save_var, save_invstd)
        ]
        made = batch_norm_backward(
            cast(grad_out, "float32"), cast(input, "float32"), gamma, wide[0], wide[1], eps,
            output_mask, wide[2], wide[3], wide[4], update, train,
        )
        own = kind if weight is None else dtype_of(weight)
        return [
            None if each is None else cast(each, to)
            for each, to in zip(made, (kind, own, own), strict=True)
        ]
    inverse = save_var if save_var is not None else save_invstd
    middle, learns = save_mean, train and update
    if not learns:
        assert running_mean is not None and running_var is not None
        spread = call("add", running_var, like(eps, running_var))
        middle, inverse = running_mean, call("rsqrt", spread)
    assert middle is not None and inverse is not None
    rank = rank_of(input)
    axes = tuple(axis for axis in range(rank) if axis != 1)

    def along(line: RelayExpr) -> RelayExpr:
        return reshaped(line, (1, -1, *[1] * (rank - 2)))

    normal = mul(call("subtract", input, along(middle)), along(inverse))
    offset = call("sum", grad_out, axis=axes)
    factor = call("sum", mul(grad_out, normal), axis=axes)
    part = grad_out
    if learns:
        count = math.prod(shape_of(input)[axis] for axis in axes)
        mean, slope = (along(call("divide", each, like(count, each))) for each in (offset, factor))
        part = call("subtract", call("subtract", grad_out, mean), mul(normal, slope))
    scale = inverse if weight is None else mul(inverse, weight)
    found = [mul(part, along(scale)), factor, offset]
    return [each if wanted else None for each, wanted in zip(found, output_mask, strict=True)]


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


@aten("_embedding_bag_backward", "_embedding_bag_dense_backward")
def embedding_bag_backward(
    grad: RelayExpr, indices: RelayExpr, offset2bag: RelayExpr, bag_size: RelayExpr,
    maximum_indices: RelayExpr, num_weights: int, scale_grad_by_freq: bool, mode: int,
    offsets: RelayExpr | None = None, sparse: bool = False,
    per_sample_weights: RelayExpr | None = None, padding_idx: int = -1,
) -> RelayExpr:
    """Each row of a bag gets the gradient of its sum, its share of a mean's, or a maximum's."""
    if scale_grad_by_freq:
        raise OpNotImplemented("gradients scaled by how often a word is there")
    if mode == 2:
        start = call("zeros", (num_weights, shape_of(grad)[1]), dtype_of(grad))
        filled = call("greater", call("expand_dims", bag_size, 1), like(0, bag_size))
        rows = call("where", filled, grad, like(0, grad))
        places = cast(maximum_indices, "int64")
        return call("scatter_elements", start, places, rows, axis=0, reduction="add")
    if mode == 1:
        count = call("maximum", bag_size, like(1, bag_size))
        grad = call("divide", grad, call("expand_dims", cast(count, dtype_of(grad)), 1))
    rows = call("take", grad, _bags(offset2bag, offsets, indices), axis=0)
    if per_sample_weights is not None:
        rows = call("multiply", rows, call("expand_dims", per_sample_weights, 1))
    return embedding_backward(rows, indices, num_weights, padding_idx)


def _bags(known: RelayExpr, offsets: RelayExpr | None, indices: RelayExpr) -> RelayExpr:
    """The bag of every index, which is not kept where it is found again by the offsets."""
    count = shape_of(indices)[0]
    if offsets is None or shape_of(known)[0] == count:
        return cast(known, "int64")
    return bag_of_place(offsets, count)


@aten("_embedding_bag_per_sample_weights_backward")
def embedding_bag_weights_backward(
    grad: RelayExpr, weight: RelayExpr, indices: RelayExpr, offsets: RelayExpr,
    offset2bag: RelayExpr, mode: int, padding_idx: int = -1,
) -> RelayExpr:
    """What a sum's gradient and the row that a factor scales have in common."""
    own = call("take", grad, _bags(offset2bag, offsets, indices), axis=0)
    rows = call("take", weight, cast(indices, "int64"), axis=0)
    made = call("sum", call("multiply", own, rows), axis=-1)
    if padding_idx >= 0:
        skipped = call("equal", indices, like(padding_idx, indices))
        made = call("where", skipped, like(0, made), made)
    return made


@aten("_weight_norm_interface_backward")
def weight_norm_backward(
    grad_w: RelayExpr, saved_v: RelayExpr, saved_g: RelayExpr, saved_norms: RelayExpr, dim: int
) -> list[RelayExpr]:
    """Of the rows' directions, without what would lengthen them, and of their lengths."""
    axes = tuple(axis for axis in range(rank_of(saved_v)) if dim == -1 or axis != dim)
    along = call("sum", call("multiply", grad_w, saved_v), axis=axes, keepdims=True)
    by_length = call("divide", along, saved_norms)
    own = call("multiply", saved_v, call("divide", by_length, saved_norms))
    factor = call("divide", saved_g, saved_norms)
    return [call("multiply", factor, call("subtract", grad_w, own)), by_length]


@aten("native_dropout_backward")
def dropout_backward(grad_output: RelayExpr, mask: RelayExpr, scale: float) -> RelayExpr:
    return mul(mul(grad_output, mask), scale)


@aten("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    query: RelayExpr, key: RelayExpr, value: RelayExpr, dropout_p: float = 0.0,
    is_causal: bool = False, attn_mask: RelayExpr | None = None, scale: float | None = None,
) -> list[RelayExpr]:
    """The result, and the logarithms of the sums that its gradient needs, which are wide."""
    kind = dtype_of(query)
    if kind in HALVES:
        query, key, value = (cast(each, "float32") for each in (query, key, value))
        made, sums = flash_attention(
            query, key, value, dropout_p, is_causal, attn_mask, scale
        )
        return [cast(made, kind), sums]
    key, value = (_for_each_head(part, query) for part in (key, value))
    weights, sums = _weights(query, key, dropout_p, is_causal, attn_mask, scale)
    return [_product(weights, value, False, False), sums]


def _for_each_head(part: RelayExpr, query: RelayExpr) -> RelayExpr:
    """Keys or values that groups of the queries' heads share, once for each head."""
    heads, held = shape_of(query)[1], shape_of(part)[1]
    return part if heads == held else call("repeat", part, heads // held, axis=1)


def _of_groups(grad: RelayExpr, part: RelayExpr) -> RelayExpr:
    """The gradient of what groups of heads share: the sum of theirs."""
    batch, held, *rest = shape_of(part)
    heads = shape_of(grad)[1]
    if heads == held:
        return grad
    return call("sum", reshaped(grad, (batch, held, heads // held, *rest)), axis=(2,))


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
    is_empty = call("equal", high, like(-math.inf, high))  # a row of which the mask leaves nothing
    high = call("where", is_empty, like(0, high), high)
    powers = call("exp", call("subtract", scores, high))
    total = call("sum", powers, axis=-1, keepdims=True)
    sums = call("squeeze", call("add", call("log", total), high), axis=(-1,))
    return call("divide", powers, call("where", is_empty, like(1, total), total)), sums


def _product(a: RelayExpr, b: RelayExpr, turn_a: bool, turn_b: bool) -> RelayExpr:
    return call("nn.batch_matmul", a, b, transpose_a=turn_a, transpose_b=turn_b)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_backward(
    grad_out: RelayExpr, query: RelayExpr, key: RelayExpr, value: RelayExpr, out: RelayExpr,
    logsumexp: RelayExpr, dropout_p: float, is_causal: bool,
    attn_mask: RelayExpr | None = None, scale: float | None = None,
) -> list[RelayExpr]:
    kind = dtype_of(query)
    if kind in HALVES:
        grad_out, query, key, value, out = (
            cast(each, "float32") for each in (grad_out, query, key, value, out)
        )
        made = flash_attention_backward(
            grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale
        )
        return [cast(each, kind) for each in made]
    shared = key, value
    key, value = (_for_each_head(part, query) for part in shared)
    factor = _factor(query, scale)
    scores = _scores(query, key, is_causal, attn_mask, factor)
    sums = call("expand_dims", logsumexp, 3)
    sums = call("where", call("equal", sums, like(-math.inf, sums)), like(0, sums), sums)
    weights = call("exp", call("subtract", scores, sums))
    by_weights = _product(grad_out, value, False, True)
    mean = call("sum", call("multiply", grad_out, out), axis=-1, keepdims=True)
    by_scores = call("multiply", weights, call("subtract", by_weights, mean))
    by_scores = call("multiply", by_scores, like(factor, by_scores))
    others = _product(by_scores, query, True, False), _product(weights, grad_out, True, False)
    return [
        _product(by_scores, key, False, False),
        *(_of_groups(grad, part) for grad, part in zip(others, shared, strict=True)),
    ]

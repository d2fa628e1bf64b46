"""Layers of neural networks: convolutions, poolings, normalisations, softmax."""

import math
from collections.abc import Sequence

import numpy as np

from sterna.frontend.calls import (
    axis_below,
    call,
    cast,
    constant,
    dtype_of,
    like,
    parts,
    rank_of,
    reshape,
    size_of,
    type_of,
)
from sterna.frontend.node import Result
from sterna.frontend.onnx.checks import within_size
from sterna.frontend.onnx.host_nodes import TEXT
from sterna.frontend.onnx.node import Node, converter
from sterna.frontend.onnx.windows import (
    KERNEL,
    KERNEL_TRANSPOSED,
    LAYOUT,
    bordered,
    cropped,
    expect_kernel,
    numbers,
    padding,
    shared,
    spatial_rank,
)
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

# ---- convolutions ----


@converter("Conv")
def conv(node: Node) -> RelayExpr:
    made = convolution(node, node[0], node[1])
    return call("nn.bias_add", made, node[2], axis=1) if node.has(2) else made


def convolution(
    node: Node, data: RelayExpr, weight: RelayExpr, zeros: Sequence[RelayExpr] = ()
) -> RelayExpr:
    """The convolution that a node's attributes describe; zeros: points of whole numbers."""
    rank = spatial_rank(node)
    channels, _, *kernel = node.shape_of(weight)
    expect_kernel(node, kernel)
    data, pads = cropped(data, padding(node, kernel)) if zeros else bordered(node, data, kernel)
    kind, scales = ("qnn", (constant(1, "float32"),) * 2) if zeros else ("nn", ())
    return call(
        f"{kind}.conv{rank}d", data, weight, *zeros, *scales,
        strides=numbers(node, "strides", rank), padding=pads,
        dilation=numbers(node, "dilations", rank), groups=node.attr("group", 1),
        channels=channels, kernel_size=tuple(kernel), data_layout=LAYOUT[rank],
        kernel_layout=KERNEL[rank],
    )


@converter("ConvTranspose")
def conv_transpose(node: Node) -> RelayExpr:
    rank, groups = spatial_rank(node), node.attr("group", 1)
    _, per_group, *kernel = node.shape(1)
    expect_kernel(node, kernel)
    strides, dilations = numbers(node, "strides", rank), numbers(node, "dilations", rank)
    spatial = range(2, rank + 2)
    more = tuple(node.attr("output_padding") or (0,) * rank)
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    wanted = node.attr("output_shape")
    mode = node.attr("auto_pad", "NOTSET") or "NOTSET"
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [e * s for e, s in zip(node.extents(spatial), strides, strict=True)]
    if wanted is None:
        pads = padding(node, kernel)
    else:
        whole = [
            (extent - 1) * stride + size + extra
            for extent, stride, size, extra in zip(
                node.extents(spatial), strides, reach, more, strict=True
            )
        ]
        total = [full - want for full, want in zip(whole, wanted[-rank:], strict=True)]
        missing, is_upper = [max(-t, 0) for t in total], mode == "SAME_UPPER"
        pads = shared([max(t, 0) for t in total], is_upper)
        if node.attr("output_shape") is None:  # where nothing is cut off, zeros are shared alike
            added = shared(missing, is_upper)
            pads = tuple(cut - zeros for cut, zeros in zip(pads, added, strict=True))
        else:
            more = tuple(e + m for e, m in zip(more, missing, strict=True))
    made = call(
        f"nn.conv{rank}d_transpose", node[0], node[1], strides=strides,
        padding=tuple(max(p, 0) for p in pads), dilation=dilations, groups=groups,
        channels=per_group * groups, kernel_size=tuple(kernel), data_layout=LAYOUT[rank],
        kernel_layout=KERNEL_TRANSPOSED[rank], output_padding=more,
    )
    if any(p < 0 for p in pads):
        width = [(max(-pads[i], 0), max(-pads[rank + i], 0)) for i in range(rank)]
        made = call("nn.pad", made, ((0, 0), (0, 0), *width), like(0, made))
    return call("nn.bias_add", made, node[2], axis=1) if node.has(2) else made


@converter("DeformConv")
def deform_conv(node: Node) -> RelayExpr:
    rank = spatial_rank(node)
    channels, _, *kernel = node.shape(1)
    if rank != 2:
        raise OpNotImplemented(f"deformable convolutions of {rank} axes")
    attrs = {
        "strides": numbers(node, "strides", rank), "padding": padding(node, kernel),
        "dilation": numbers(node, "dilations", rank), "groups": node.attr("group", 1),
        "deformable_groups": node.attr("offset_group", 1), "channels": channels,
        "kernel_size": tuple(kernel),
    }
    data, weight, offset = node[0], node[1], node[2]
    if node.has(4):
        made = call("nn.modulated_deformable_conv2d", data, offset, weight, node[4], **attrs)
    else:
        made = call("nn.deformable_conv2d", data, offset, weight, **attrs)
    return call("nn.bias_add", made, node[3], axis=1) if node.has(3) else made


# ---- poolings ----


@converter("MaxPool", "AveragePool", "LpPool")
def pool(node: Node) -> Result:
    rank = spatial_rank(node)
    kernel = numbers(node, "kernel_shape", rank)
    data, pads = cropped(node[0], padding(node, kernel))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, numbers(node, "dilations", rank), strict=True)]
    if any(pad >= size for pad, size in zip(pads, reach * 2, strict=True)):
        raise ValueError(f"the padding {pads} is not smaller than the window {reach}")
    attrs = {
        "pool_size": kernel, "strides": numbers(node, "strides", rank), "padding": pads,
        "dilation": numbers(node, "dilations", rank), "layout": LAYOUT[rank],
        "ceil_mode": bool(node.attr("ceil_mode", 0)),
    }
    if node.kind == "AveragePool":
        include = bool(node.attr("count_include_pad", 0))
        return call(f"nn.avg_pool{rank}d", data, count_include_pad=include, **attrs)
    if node.kind == "LpPool":
        return call(f"nn.lp_pool{rank}d", data, p=node.attr("p", 2), **attrs)
    if not node.wants(1):
        return call(f"nn.max_pool{rank}d", data, **attrs)
    order = node.attr("storage_order", 0)
    made = parts(call(f"nn.max_pool{rank}d_with_indices", data, storage_order=order, **attrs), 2)
    return [made[0], cast(made[1], "int64")]


_GLOBAL = {"GlobalAveragePool": "avg", "GlobalMaxPool": "max", "GlobalLpPool": "lp"}


@converter(*_GLOBAL)
def global_pool(node: Node) -> RelayExpr:
    rank = spatial_rank(node)
    more = {"p": node.attr("p", 2)} if node.kind == "GlobalLpPool" else {}
    name = f"nn.global_{_GLOBAL[node.kind]}_pool{rank}d"
    return call(name, node[0], layout=LAYOUT[rank], **more)


@converter("MaxUnpool")
def max_unpool(node: Node) -> RelayExpr:
    batch, channels, *extents = node.shape()
    rank = len(extents)
    kernel = numbers(node, "kernel_shape", rank)
    strides, pads = numbers(node, "strides", rank), padding(node, kernel)
    own = [
        (extents[i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank)
    ]
    indices = within_size(node, 1, math.prod((batch, channels, *own)))
    made = call("nn.max_unpool", node[0], indices, output_shape=(batch, channels, *own))
    if not node.has(2):
        return made
    # Indices are those of the size that the window gives; what is more lies behind, in zeros.
    wanted = node.ints(2, "output_shape")[2:]
    if len(wanted) != rank or any(w < o for w, o in zip(wanted, own, strict=True)):
        raise ValueError(f"output_shape is at least {own} in its last dimensions, not {wanted}")
    widths = [(0, 0), (0, 0), *((0, w - o) for w, o in zip(wanted, own, strict=True))]
    return call("nn.pad", made, tuple(widths), like(0, made))


# ---- normalisations ----


@converter("BatchNormalization")
def batch_norm(node: Node) -> Result:
    data, epsilon = node[0], node.attr("epsilon", 1e-5)
    scale, bias, mean, variance = (cast(node[i], dtype_of(data)) for i in range(1, 5))
    if not node.attr("training_mode", 0):
        made = call("nn.batch_norm", data, scale, bias, mean, variance, axis=1, epsilon=epsilon)
        return parts(made, 1)
    axes = tuple(i for i in range(rank_of(data)) if i != 1)
    now = call("mean", data, axis=axes)
    spread = call("variance", data, axis=axes)
    made = call("nn.batch_norm", data, scale, bias, now, spread, axis=1, epsilon=epsilon)
    momentum = node.attr("momentum", 0.9)

    def moved(old: RelayExpr, new: RelayExpr, kind: str) -> RelayExpr:
        kept = call("multiply", old, like(momentum, old))
        return cast(call("add", kept, call("multiply", new, like(1 - momentum, new))), kind)

    kinds = [dtype_of(node[i]) for i in (3, 4)]
    return [*parts(made, 1), moved(mean, now, kinds[0]), moved(variance, spread, kinds[1])]


@converter("InstanceNormalization")
def instance_norm(node: Node) -> RelayExpr:
    epsilon = node.attr("epsilon", 1e-5)
    return call("nn.instance_norm", node[0], node[1], node[2], axis=1, epsilon=epsilon)


@converter("LayerNormalization")
def layer_norm(node: Node) -> Result:
    data, epsilon = node[0], node.attr("epsilon", 1e-5)
    rank = rank_of(data)
    axes = tuple(range(axis_below(node.attr("axis", -1), rank), rank))
    made = normalised(node, data, node[1], node.get(2), axes, epsilon)
    if not node.wants(1) and not node.wants(2):
        return made
    wide = cast(data, "float32")
    mean = call("mean", wide, axis=axes, keepdims=True)
    spread = call("variance", wide, axis=axes, keepdims=True)
    return [made, mean, call("rsqrt", call("add", spread, like(epsilon, spread)))]


def normalised(
    node: Node, data: RelayExpr, scale: RelayExpr, bias: RelayExpr | None, axes: tuple[int, ...],
    epsilon: float,
) -> RelayExpr:
    """Layer normalisation; scale and bias broadcast to the axes that are normalised."""
    wanted = node.extents_of(data, axes)
    given = [like(0, data) if bias is None else bias, scale]
    beta, gamma = (_spread(cast(part, dtype_of(data)), wanted) for part in given)
    axis = axes[0] if len(axes) == 1 else axes
    return call("nn.layer_norm", data, gamma, beta, axis=axis, epsilon=epsilon)


def _spread(part: RelayExpr, wanted: tuple[int, ...]) -> RelayExpr:
    return part if type_of(part).shape == wanted else call("broadcast_to", part, wanted)


@converter("GroupNormalization")
def group_norm(node: Node) -> RelayExpr:
    data, groups = node[0], node.attr("num_groups")
    (channels,) = node.extents([1])
    scale, bias = node[1], node[2]
    if node.opset < 21:  # a factor for each group
        scale, bias = (call("repeat", p, channels // groups, axis=0) for p in (scale, bias))
    epsilon = node.attr("epsilon", 1e-5)
    return call("nn.group_norm", data, scale, bias, num_groups=groups, axis=1, epsilon=epsilon)


@converter("RMSNormalization")
def rms_norm(node: Node) -> RelayExpr:
    data = node[0]
    rank = rank_of(data)
    axes = tuple(range(axis_below(node.attr("axis", -1), rank), rank))
    scale = _spread(cast(node[1], dtype_of(data)), node.extents(axes))
    axis = axes[0] if len(axes) == 1 else axes
    return call("nn.rms_norm", data, scale, axis=axis, epsilon=node.attr("epsilon", 1e-5))


@converter("LRN")
def lrn(node: Node) -> RelayExpr:
    return call(
        "nn.lrn", node[0], size=node.attr("size"), axis=1, bias=node.attr("bias", 1.0),
        alpha=node.attr("alpha", 0.0001), beta=node.attr("beta", 0.75),
    )


@converter("LpNormalization")
def lp_normalization(node: Node) -> RelayExpr:
    return call("nn.lp_normalize", node[0], axis=node.attr("axis", -1), p=node.attr("p", 2))


@converter("MeanVarianceNormalization")
def mean_variance_normalization(node: Node) -> RelayExpr:
    axes = tuple(node.attr("axes") or (0, 2, 3))
    return call("nn.mean_variance_normalization", node[0], axis=axes)


# ---- softmax ----

HALVES = ("float16", "bfloat16")
_SOFTMAX = {"Softmax": "nn.softmax", "LogSoftmax": "nn.log_softmax", "Hardmax": "nn.hardmax"}


@converter(*_SOFTMAX, until=12)
def softmax_of_rows(node: Node) -> RelayExpr:
    """Before version 13: over all axes from one on together."""
    data, rank = node[0], rank_of(node[0])
    axis = axis_below(node.attr("axis", 1), rank)
    if axis == rank - 1:
        return call(_SOFTMAX[node.kind], data, axis=axis)
    extents = node.dims()
    if all(isinstance(extent, int) and extent == 1 for extent in extents[axis + 1 :]):
        return call(_SOFTMAX[node.kind], data, axis=axis)
    rows = reshape(data, (size_of(extents[:axis]), size_of(extents[axis:])))
    return reshape(call(_SOFTMAX[node.kind], rows, axis=1), extents)


@converter(*_SOFTMAX, since=13)
def softmax(node: Node) -> RelayExpr:
    axis = node.attr("axis", -1)
    if node.kind == "Softmax":
        return softmax_of(node[0], axis)
    return call(_SOFTMAX[node.kind], node[0], axis=axis)


def softmax_of(data: RelayExpr, axis: int) -> RelayExpr:
    """The body that the standard gives: float16 is rounded after every step of it.

    bfloat16 has so few digits that numbers rounded once, at the end, are the better ones.
    """
    return call("nn.softmax", data, axis=axis, stepwise=dtype_of(data) == "float16")


# ---- the rest ----


def _dropped(node: Node, ratio: float) -> list[RelayExpr]:
    """Elements dropped as in training, by the seed and the generator of ONNX's own definition.

    The host draws the mask in each run.
    """
    generator, shape = np.random.RandomState(node.attr("seed")), node.shape(0)

    def draw(operands: list[Array]) -> list[Array]:
        return [generator.uniform(0, 1.0, shape) >= ratio]

    (kept,) = node.feeds.by_host(draw, [node[0]], 1, TEXT)
    scale = like(1 / (1 - ratio) if ratio < 1 else 0.0, node[0])
    scaled = call("multiply", call("multiply", node[0], scale), cast(kept, dtype_of(node[0])))
    return [scaled, kept]


@converter("Dropout")
def dropout(node: Node) -> Result:
    training = node.opset >= 12 and node.has(2) and bool(node.number(2, "training_mode"))
    ratio = float(node.number(1, "ratio")) if training and node.has(1) else 0.5
    if training and ratio != 0:
        return _dropped(node, ratio)
    kept = call("ones_like", node[0])
    return [node[0], cast(kept, "bool" if node.opset >= 10 else dtype_of(node[0]))]


@converter("NegativeLogLikelihoodLoss")
def nll_loss(node: Node) -> RelayExpr:
    return _loss(node, node[0])


@converter("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(node: Node) -> Result:
    logs = call("nn.log_softmax", node[0], axis=1)
    return [_loss(node, logs), logs]


def _loss(node: Node, predictions: RelayExpr) -> RelayExpr:
    (classes,) = node.extents([1])
    weights = node.get(2) or call("full", like(1, predictions), (classes,))
    ignored = node.attr("ignore_index", -1 - (1 << 30))
    how = node.attr("reduction", "mean")
    return call("nn.nll_loss", predictions, node[1], weights, reduction=how, ignore_index=ignored)

"""Layers of networks: convolutions and normalisations."""

import math
from collections.abc import Sequence

from sterna.frontend.calls import call, cast, constant, dtype_of, like, parts, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.checks import within_axis
from sterna.frontend.torch.convert_create import filled
from sterna.frontend.torch.convert_quantized import quantized_bias
from sterna.frontend.torch.convert_shape import extent_of, shape_of, squeeze, unsqueeze
from sterna.frontend.torch.extents import dims_of
from sterna.frontend.torch.promotion import HALVES
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

LAYOUT = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
KERNEL = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
TRANSPOSED = {1: "IOW", 2: "IOHW", 3: "IODHW"}

Numbers = int | Sequence[int]


def per_axis(given: Numbers, rank: int) -> tuple[int, ...]:
    """One number per axis; a single one holds for all."""
    listed = (given,) if isinstance(given, int) else tuple(given)
    return listed * rank if len(listed) == 1 else listed


# ---- convolutions ----


@aten("conv1d", "conv2d", "conv3d")
def conv(
    input: RelayExpr, weight: RelayExpr, bias: RelayExpr | None = None, stride: Numbers = 1,
    padding: Numbers | str = 0, dilation: Numbers = 1, groups: int = 1,
) -> RelayExpr:
    rank = rank_of(weight) - 2
    if rank not in LAYOUT:
        raise OpNotImplemented(f"a convolution along {rank} axes")
    alone = rank_of(input) == rank + 1
    data = unsqueeze(input, 0) if alone else input
    channels, _, *kernel = shape_of(weight)
    widths = per_axis(dilation, rank)
    made = call(
        f"nn.conv{rank}d", data, weight, strides=per_axis(stride, rank),
        padding=_padding(padding, kernel, widths), dilation=widths, groups=groups,
        channels=channels, kernel_size=tuple(kernel), data_layout=LAYOUT[rank],
        kernel_layout=KERNEL[rank], **_summed_in(data, bias),
    )
    if bias is not None:
        made = _with_bias(made, quantized_bias(input, weight, bias), dtype_of(data))
    return squeeze(made, 0) if alone else made


def _summed_in(data: RelayExpr, bias: RelayExpr | None) -> dict[str, str]:
    """Sums of 16-bit products that get a bias are rounded behind it, as PyTorch does."""
    narrow = bias is not None and dtype_of(data) in ("float16", "bfloat16")
    return {"out_dtype": "float32"} if narrow else {}


def _with_bias(sums: RelayExpr, bias: RelayExpr, dtype: str) -> RelayExpr:
    if dtype not in ("float16", "bfloat16"):
        return call("nn.bias_add", sums, bias, axis=1)
    return cast(call("nn.bias_add", sums, cast(bias, "float32"), axis=1), dtype)


def _padding(
    padding: Numbers | str, kernel: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """The padding before every axis, then behind every one."""
    if padding == "same":
        total = [width * (size - 1) for size, width in zip(kernel, dilation, strict=True)]
        return (*(each // 2 for each in total), *(each - each // 2 for each in total))
    if isinstance(padding, str):
        return (0,) * (2 * len(kernel))
    return per_axis(padding, len(kernel)) * 2


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    input: RelayExpr, weight: RelayExpr, bias: RelayExpr | None = None, stride: Numbers = 1,
    padding: Numbers = 0, output_padding: Numbers = 0, groups: int = 1, dilation: Numbers = 1,
) -> RelayExpr:
    rank = rank_of(weight) - 2
    alone = rank_of(input) == rank + 1
    data = unsqueeze(input, 0) if alone else input
    _, per_group, *kernel = shape_of(weight)
    made = call(
        f"nn.conv{rank}d_transpose", data, weight, strides=per_axis(stride, rank),
        padding=per_axis(padding, rank) * 2, dilation=per_axis(dilation, rank), groups=groups,
        channels=per_group * groups, kernel_size=tuple(kernel), data_layout=LAYOUT[rank],
        kernel_layout=TRANSPOSED[rank], output_padding=per_axis(output_padding, rank),
        **_summed_in(data, bias),
    )
    made = made if bias is None else _with_bias(made, bias, dtype_of(data))
    return squeeze(made, 0) if alone else made


@aten("convolution", "_convolution", "convolution_overrideable")
def convolution(
    input: RelayExpr, weight: RelayExpr, bias: RelayExpr | None, stride: Numbers,
    padding: Numbers, dilation: Numbers, transposed: bool, output_padding: Numbers, groups: int,
) -> RelayExpr:
    if transposed:
        return conv_transpose(
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return conv(input, weight, bias, stride, padding, dilation, groups)


# ---- normalisations ----


def _or_filled(
    given: RelayExpr | None, value: float, data: RelayExpr, count: int
) -> RelayExpr:
    kind = dtype_of(data)
    return filled((count,), value, kind) if given is None else cast(given, kind)


@aten("_native_batch_norm_legit_no_training", "batch_norm", "native_batch_norm",
      "cudnn_batch_norm", "_batch_norm_no_update")
def batch_norm(
    input: RelayExpr, weight: RelayExpr | None, bias: RelayExpr | None,
    running_mean: RelayExpr | None, running_var: RelayExpr | None, momentum: float = 0.1,
    eps: float = 1e-5, training: bool = False,
) -> list[RelayExpr]:
    kind = dtype_of(input)
    if training and kind in HALVES:  # rounded once, as PyTorch does
        wide = cast(input, "float32")
        made = batch_norm(wide, weight, bias, None, None, momentum, eps, True)
        return [cast(each, kind) for each in made]
    channels = extent_of(input, 1)
    gamma = _or_filled(weight, 1, input, channels)
    beta = _or_filled(bias, 0, input, channels)
    empty = filled((0,), 0, kind)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("without training it needs running_mean and running_var")
        fixed = call(
            "nn.batch_norm", input, gamma, beta, cast(running_mean, kind),
            cast(running_var, kind), axis=1, epsilon=eps,
        )
        return [*parts(fixed, 1), empty, empty]
    axes = tuple(axis for axis in range(rank_of(input)) if axis != 1)
    middle = call("mean", input, axis=axes)
    spread = call("variance", input, axis=axes)
    whole = call("nn.batch_norm", input, gamma, beta, middle, spread, axis=1, epsilon=eps)
    inverse = call("rsqrt", call("add", spread, like(eps, spread)))
    return [*parts(whole, 1), middle, inverse]


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_of_batch(
    input: RelayExpr, weight: RelayExpr | None, bias: RelayExpr | None, training: bool,
    momentum: float, eps: float,
) -> list[RelayExpr]:
    return batch_norm(input, weight, bias, None, None, momentum, eps, True)


@aten("_native_batch_norm_legit_functional")
def batch_norm_with_state(
    input: RelayExpr, weight: RelayExpr | None, bias: RelayExpr | None,
    running_mean: RelayExpr, running_var: RelayExpr, training: bool, momentum: float, eps: float,
) -> list[RelayExpr]:
    made = batch_norm(input, weight, bias, running_mean, running_var, momentum, eps, training)
    if not training:
        return [*made, running_mean, running_var]
    axes = tuple(axis for axis in range(rank_of(input)) if axis != 1)
    count = math.prod(shape_of(input)[axis] for axis in axes)
    held = dtype_of(running_var)
    data = cast(input, "float32") if dtype_of(input) in HALVES else input
    middle, spread = (call(name, data, axis=axes) for name in ("mean", "variance"))
    wide = call("multiply", spread, like(count / max(count - 1, 1), spread))

    def moved(old: RelayExpr, new: RelayExpr) -> RelayExpr:
        kept = call("multiply", old, like(1 - momentum, old))
        return call("add", kept, cast(call("multiply", new, like(momentum, new)), held))

    return [*made, moved(running_mean, middle), moved(running_var, wide)]


@aten("_batch_norm_with_update_functional")
def batch_norm_with_update(
    input: RelayExpr, weight: RelayExpr | None, bias: RelayExpr | None,
    running_mean: RelayExpr, running_var: RelayExpr, momentum: float, eps: float,
) -> list[RelayExpr]:
    """With room for what other kernels would keep, of which there is nothing."""
    *made, mean, var = batch_norm_with_state(
        input, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return [*made, filled((0,), 0, "uint8"), mean, var]


@aten("layer_norm", "native_layer_norm")
def layer_norm(
    input: RelayExpr, normalized_shape: Sequence[int], weight: RelayExpr | None = None,
    bias: RelayExpr | None = None, eps: float = 1e-5, cudnn_enable: bool = True,
) -> list[RelayExpr]:
    rank, inner = rank_of(input), tuple(normalized_shape)
    axes = tuple(range(rank - len(inner), rank))
    kind = dtype_of(input)
    gamma = filled(inner, 1, kind) if weight is None else cast(weight, kind)
    beta = filled(inner, 0, kind) if bias is None else cast(bias, kind)
    axis = axes[0] if len(axes) == 1 else axes
    made = call("nn.layer_norm", input, gamma, beta, axis=axis, epsilon=eps)
    middle = call("mean", input, axis=axes, keepdims=True)
    spread = call("variance", input, axis=axes, keepdims=True)
    return [made, middle, call("rsqrt", call("add", spread, like(eps, spread)))]


@aten("rms_norm", "_fused_rms_norm")
def rms_norm(
    input: RelayExpr, normalized_shape: Sequence[int], weight: RelayExpr | None = None,
    eps: float | None = None,
) -> list[RelayExpr]:
    rank, inner = rank_of(input), tuple(normalized_shape)
    axes = tuple(range(rank - len(inner), rank))
    kind = dtype_of(input)
    gamma = filled(inner, 1, kind) if weight is None else cast(weight, kind)
    axis = axes[0] if len(axes) == 1 else axes
    least = 2.0**-52 if kind == "float64" else 2.0**-23  # of the type that it is computed in
    small = least if eps is None else eps
    made = call("nn.rms_norm", input, gamma, axis=axis, epsilon=small)
    squares = call("mean", call("multiply", input, input), axis=axes, keepdims=True)
    return [made, call("rsqrt", call("add", squares, like(small, squares)))]


@aten("group_norm")
def group_norm(
    input: RelayExpr, num_groups: int, weight: RelayExpr | None = None,
    bias: RelayExpr | None = None, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> RelayExpr:
    channels = extent_of(input, 1)
    gamma = _or_filled(weight, 1, input, channels)
    beta = _or_filled(bias, 0, input, channels)
    return call("nn.group_norm", input, gamma, beta, num_groups=num_groups, axis=1, epsilon=eps)


@aten("native_group_norm")
def native_group_norm(
    input: RelayExpr, weight: RelayExpr | None, bias: RelayExpr | None, N: int, C: int,
    HxW: int, group: int, eps: float,
) -> list[RelayExpr]:
    rows = reshaped(input, (N, group, C // group * HxW))
    middle = call("mean", rows, axis=2)
    spread = call("variance", rows, axis=2)
    inverse = call("rsqrt", call("add", spread, like(eps, spread)))
    return [group_norm(input, group, weight, bias, eps), middle, inverse]


@aten("instance_norm")
def instance_norm(
    input: RelayExpr, weight: RelayExpr | None, bias: RelayExpr | None,
    running_mean: RelayExpr | None, running_var: RelayExpr | None, use_input_stats: bool,
    momentum: float, eps: float, cudnn_enabled: bool = True,
) -> RelayExpr:
    if not use_input_stats:
        return batch_norm(input, weight, bias, running_mean, running_var, momentum, eps)[0]
    channels = extent_of(input, 1)
    gamma = _or_filled(weight, 1, input, channels)
    beta = _or_filled(bias, 0, input, channels)
    return call("nn.instance_norm", input, gamma, beta, axis=1, epsilon=eps)


@aten("local_response_norm")
def local_response_norm(
    input: RelayExpr, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> RelayExpr:
    return call("nn.lrn", input, size=size, axis=1, bias=k, alpha=alpha, beta=beta)


# ---- others ----


@aten("embedding")
def embedding(
    weight: RelayExpr, indices: RelayExpr, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> RelayExpr:
    places = within_axis(indices, dims_of(weight)[0], 0)
    return call("take", weight, places, axis=0)


@aten("dropout", "native_dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
def dropout(
    input: RelayExpr, p: float, train: bool | None = False
) -> list[RelayExpr]:
    if train and p:
        raise OpNotImplemented(
            "dropping elements at random; call eval() of the model before it is exported"
        )
    return [input, call("broadcast_to", constant(True), dims_of(input))]


@aten("dropout_", "alpha_dropout_", "feature_dropout_", "feature_alpha_dropout_")
def dropout_in_place(x: RelayExpr, p: float, train: bool | None = False) -> RelayExpr:
    """Its operand has another name in the schema."""
    return dropout(x, p, train)[0]


@aten("_weight_norm", "_weight_norm_interface")
def weight_norm(v: RelayExpr, g: RelayExpr, dim: int = 0) -> list[RelayExpr]:
    """Rows of a weight, each as long as a number says, and how long they were."""
    axes = tuple(axis for axis in range(rank_of(v)) if dim == -1 or axis != dim)
    square = call("sum", call("multiply", v, v), axis=axes, keepdims=True)
    norm = call("sqrt", square)
    return [call("multiply", v, call("divide", g, norm)), norm]

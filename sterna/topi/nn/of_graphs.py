"""Layers that are the operators of graphs, by the arguments that topi has for them."""

from collections.abc import Sequence
from typing import Any

from sterna.te import Tensor
from sterna.topi.operators import one_tensor, operator
from sterna.topi.utils import get_const_int

cross_entropy_with_logits = operator("nn.cross_entropy_with_logits")
fifo_buffer = operator("nn.fifo_buffer")


def group_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, num_groups: int, channel_axis: int = 1,
    axes: Sequence[int] | None = None, epsilon: float = 1e-5,
) -> Tensor:
    """The channels of each group with mean 0 and variance 1, times gamma plus beta.

    axes: those over which a group is summed beside its channels; all behind the batch if not given.
    """
    rank = len(data.shape)
    rest = set(range(1, rank)) - {channel_axis % rank}
    if axes is not None and {axis % rank for axis in axes} - {channel_axis % rank} != rest:
        raise ValueError(f"group_norm of {data}: the axes are all but those of batch and channels")
    return one_tensor("nn.group_norm", data, gamma, beta, num_groups, channel_axis, epsilon)


def nll_loss(
    predictions: Tensor, targets: Tensor, weights: Tensor, reduction: str, ignore_index: int
) -> Tensor:
    """The negative logarithmic likelihood of targets."""
    return one_tensor("nn.nll_loss", predictions, targets, weights, reduction, ignore_index)


def correlation_nchw(
    data1: Tensor, data2: Tensor, kernel_size: int, max_displacement: int, stride1: int,
    stride2: int, padding: Any, is_multiply: bool,
) -> Tensor:
    """How patches of two images agree at each displacement."""
    return one_tensor("nn.correlation", data1, data2, kernel_size, max_displacement, stride1,
                      stride2, _each(padding, 2), is_multiply)


def deformable_conv2d_nchw(
    data: Tensor, offset: Tensor, kernel: Tensor, strides: Any, padding: Any, dilation: Any,
    deformable_groups: int, groups: int, out_dtype: str | None = None,
) -> Tensor:
    """A convolution whose taps lie where the offsets say; weights are OIHW."""
    return one_tensor("nn.deformable_conv2d", data, offset, kernel, _each(strides, 2),
                      _each(padding, 2), _each(dilation, 2), deformable_groups, groups,
                      **_typed(out_dtype))


def conv1d_transpose_ncw(
    data: Tensor, kernel: Tensor, stride: Any, padding: Any, out_dtype: str | None,
    output_padding: Any,
) -> Tensor:
    """The transposed convolution of sequences; weights are IOW."""
    return _transposed(1, data, kernel, stride, padding, out_dtype, output_padding)


def conv3d_transpose_ncdhw(
    Input: Tensor, Filter: Tensor, strides: Any, padding: Any, out_dtype: str | None,
    output_padding: Any = (0, 0, 0),
) -> Tensor:
    """The transposed convolution of volumes; weights are IODHW."""
    return _transposed(3, Input, Filter, strides, padding, out_dtype, output_padding)


def _transposed(
    rank: int, data: Tensor, kernel: Tensor, stride: Any, padding: Any, out_dtype: str | None,
    output_padding: Any,
) -> Tensor:
    window = tuple(get_const_int(extent) for extent in kernel.shape[2:])
    return one_tensor(
        f"nn.conv{rank}d_transpose", data, kernel, strides=_each(stride, rank),
        padding=_each(padding, rank), output_padding=_each(output_padding, rank),
        kernel_size=window, channels=get_const_int(kernel.shape[1]), **_typed(out_dtype),
    )


def _typed(out_dtype: str | None) -> dict[str, str]:
    return {} if out_dtype is None else {"out_dtype": out_dtype}


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)

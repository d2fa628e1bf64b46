"""Activations, norms, softmax and pools of tensors."""

from collections.abc import Sequence
from typing import Any

from sterna import te
from sterna.te import Tensor
from sterna.topi.operators import one_tensor, operator
from sterna.topi.stage import stage
from sterna.topi.tag import BROADCAST, ELEMWISE, INJECTIVE
from sterna.topi.utils import differ, prod

batch_to_space_nd = operator("nn.batch_to_space_nd")
depth_to_space = operator("nn.depth_to_space")
fast_softmax = operator("nn.fast_softmax")
instance_norm = operator("nn.instance_norm")
l2_normalize = operator("nn.l2_normalize")
layer_norm = operator("nn.layer_norm")
lrn = operator("nn.lrn")
mirror_pad = operator("nn.mirror_pad")
prelu = operator("nn.prelu")
rms_norm = operator("nn.rms_norm")
space_to_batch_nd = operator("nn.space_to_batch_nd")
space_to_depth = operator("nn.space_to_depth")
upsampling = operator("nn.upsampling")


def relu(x: Tensor) -> Tensor:
    """Negative numbers become zero."""
    zero = te.const(0, str(x.dtype))
    return stage(x.shape, lambda *i: te.max(x(*i), zero), name="T_relu", tag=ELEMWISE)


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """Negative numbers are multiplied by alpha."""
    zero, factor = te.const(0, str(x.dtype)), te.const(alpha, str(x.dtype))

    def element(*i: Any) -> Any:
        return te.select(x(*i) > zero, x(*i), x(*i) * factor)

    return stage(x.shape, element, name="T_leaky_relu", tag=ELEMWISE)


def flatten(data: Tensor) -> Tensor:
    """All dimensions but the first as one."""
    extents = list(data.shape[1:])

    def element(i: Any, j: Any) -> Any:
        at = []
        for extent in reversed(extents):
            at.append(te.indexmod(j, extent))
            j = te.indexdiv(j, extent)
        return data(i, *reversed(at))

    return stage((data.shape[0], prod(extents)), element, name="T_flatten", tag=INJECTIVE)


def _expect_channels(data: Tensor, place: int, *of_channels: Tensor) -> None:
    """A ValueError where there is not a number for each channel."""
    for one in of_channels:
        if len(one.shape) != 1 or differ(one.shape[0], data.shape[place]):
            raise ValueError(f"{one} has not one number for each of {data.shape[place]} channels")


def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Tensor:
    """A number added to each channel."""
    place = axis % len(data.shape)
    _expect_channels(data, place, bias)
    return stage(data.shape, lambda *i: data(*i) + bias(i[place]), name="T_bias_add",
                      tag=BROADCAST)


def scale_shift_nchw(data: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """A factor and a number added, of each channel."""
    _expect_channels(data, 1, scale, shift)
    return stage(data.shape, lambda b, c, i, j: data(b, c, i, j) * scale(c) + shift(c),
                      name="ScaleShift", tag=BROADCAST)


def scale_shift_nhwc(data: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """The same with channels last."""
    _expect_channels(data, 3, scale, shift)
    return stage(data.shape, lambda b, i, j, c: data(b, i, j, c) * scale(c) + shift(c),
                      name="ScaleShift", tag=BROADCAST)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Softmax in four stages: the largest, exponentials, their sum, and the quotients."""
    rank = len(x.shape)
    place = axis % rank if -rank <= axis < rank else axis
    if not 0 <= place < rank:
        raise ValueError(f"axis {axis} is none of a tensor of {rank} dimensions, {x}")
    outer = [extent for i, extent in enumerate(x.shape) if i != place]
    k1 = te.reduce_axis((0, x.shape[place]), name="k")
    k2 = te.reduce_axis((0, x.shape[place]), name="k")

    def at(indices: Sequence[Any], k: Any) -> list[Any]:
        return [*indices[:place], k, *indices[place:]]

    def without(indices: Sequence[Any]) -> list[Any]:
        return [*indices[:place], *indices[place + 1:]]

    largest = stage(
        tuple(outer), lambda *i: te.max(x(*at(i, k1)), axis=k1), name="T_softmax_maxelem"
    )
    powers = stage(
        x.shape, lambda *i: te.exp(x(*i) - largest(*without(i))), name="T_softmax_exp"
    )
    total = stage(
        tuple(outer), lambda *i: te.sum(powers(*at(i, k2)), axis=k2), name="T_softmax_expsum"
    )
    return stage(
        x.shape, lambda *i: powers(*i) / total(*without(i)), name="T_softmax_norm",
        tag="softmax_output", attrs={"axis": place},
    )


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """The logarithm of softmax."""
    return one_tensor("nn.log_softmax", x, axis=axis)


def batch_norm(
    data: Tensor, gamma: Tensor, beta: Tensor, moving_mean: Tensor, moving_var: Tensor,
    axis: int = 1, epsilon: float = 1e-5, center: bool = True, scale: bool = True,
) -> list[Tensor]:
    """Batch norm by given statistics, which come back as they are."""
    place = axis % len(data.shape)
    _expect_channels(data, place, gamma, beta, moving_mean, moving_var)
    small = te.const(epsilon, str(data.dtype))

    def element(*i: Any) -> Any:
        c = i[place]
        value = (data(*i) - moving_mean(c)) / te.sqrt(moving_var(c) + small)
        if scale:
            value = value * gamma(c)
        return value + beta(c) if center else value

    made = stage(data.shape, element, name="T_batch_norm", tag=BROADCAST)
    return [made, moving_mean, moving_var]


def _pool(kind: str, rank: int, what: str = "") -> str:
    if kind not in ("avg", "max"):
        raise ValueError(f"pool_type is avg or max, not {kind}")
    return f"nn.{what}{kind}_pool{rank}d"


def _pooled(
    rank: int, data: Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
    ceil_mode: bool, layout: str, count_include_pad: bool,
) -> Tensor:
    more = {"count_include_pad": count_include_pad} if pool_type == "avg" else {}
    return one_tensor(
        _pool(pool_type, rank), data, pool_size=kernel, strides=stride, dilation=dilation,
        padding=padding, layout=layout, ceil_mode=ceil_mode, **more,
    )


def pool1d(
    data: Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
    ceil_mode: bool = False, layout: str = "NCW", count_include_pad: bool = True,
) -> Tensor:
    """The largest or the mean of windows along one axis."""
    return _pooled(1, data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout,
                   count_include_pad)


def pool2d(
    data: Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
    ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True,
) -> Tensor:
    """The largest or the mean of windows of images."""
    return _pooled(2, data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout,
                   count_include_pad)


def pool3d(
    data: Tensor, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: str,
    ceil_mode: bool = False, layout: str = "NCDHW", count_include_pad: bool = True,
) -> Tensor:
    """The largest or the mean of windows of volumes."""
    return _pooled(3, data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout,
                   count_include_pad)


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """The largest or the mean of each channel."""
    return one_tensor(_pool(pool_type, 2, "global_"), data, layout=layout)


def adaptive_pool(
    data: Tensor, output_size: Any, pool_type: str, layout: str = "NCHW"
) -> Tensor:
    """So many windows of about equal size."""
    return one_tensor(
        _pool(pool_type, 2, "adaptive_"), data, output_size=tuple(output_size), layout=layout
    )

"""References of operators in NumPy, and the schedules that tests of operators use.

Each reference is the one in an operator's record, which its own tests are held against.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.relay.op import find
from sterna.target import Target
from sterna.te import Schedule
from sterna.topi.schedules import scheduled

Array = np.ndarray[Any, Any]


def _reference(name: str, *arrays: Any, **attrs: Any) -> Any:
    record = find(name)
    assert record.reference is not None
    return record.reference(record.attrs(**attrs) if record.attrs else None, *arrays)


def _pads(padding: Any, kernel: tuple[int, ...]) -> Any:
    if isinstance(padding, str):
        total = [0 if padding == "VALID" else extent - 1 for extent in kernel]
        before = [(n + 1) // 2 for n in total]
        return (*before, *[n - b for n, b in zip(total, before, strict=True)])
    return padding


def _conv(
    name: str, layouts: tuple[str, str], data: Array, weight: Array, stride: Any, padding: Any,
    groups: int = 1, dilation: Any = 1,
) -> Array:
    layout, kernel_layout = layouts
    space = [letter for letter in layout if letter not in "NC"]
    kernel = tuple(weight.shape[kernel_layout.index(letter)] for letter in space)
    rank = len(space)
    result: Array = _reference(
        name, data, weight, strides=_each(stride, rank),
        padding=_each(_pads(padding, kernel), rank), dilation=_each(dilation, rank),
        groups=groups, data_layout=layout,
        kernel_layout=kernel_layout, kernel_size=kernel,
        channels=weight.shape[kernel_layout.index("O")],
    )
    return result


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def conv2d_nchw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1
) -> Array:
    """A convolution with channels first; weights are OIHW."""
    return _conv("nn.conv2d", ("NCHW", "OIHW"), a_np, w_np, stride, padding, groups)


def conv2d_nhwc_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1
) -> Array:
    """A convolution with channels last; weights are HWIO."""
    return _conv("nn.conv2d", ("NHWC", "HWIO"), a_np, w_np, stride, padding, groups)


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Any, padding: Any) -> Array:
    """A convolution with the batch last; weights are HWIO."""
    found = conv2d_nhwc_python(a_np.transpose(3, 0, 1, 2), w_np, stride, padding)
    return found.transpose(1, 2, 3, 0)


def conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, dilation: Any = 1
) -> Array:
    """A convolution of sequences; weights are OIW."""
    return _conv("nn.conv1d", ("NCW", "OIW"), a_np, w_np, stride, padding, 1, dilation)


def conv3d_ncdhw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1
) -> Array:
    """A convolution of volumes; weights are OIDHW."""
    return _conv("nn.conv3d", ("NCDHW", "OIDHW"), a_np, w_np, stride, padding, groups)


def conv3d_ndhwc_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, groups: int = 1
) -> Array:
    """The same with channels last; weights are DHWIO."""
    return _conv("nn.conv3d", ("NDHWC", "DHWIO"), a_np, w_np, stride, padding, groups)


def depthwise_conv2d_python_nchw(a_np: Array, w_np: Array, stride: Any, padding: Any) -> Array:
    """Each channel by itself; weights are (channels, multiplier, height, width)."""
    channels, times, high, wide = w_np.shape
    weight = w_np.reshape(channels * times, 1, high, wide)
    return _conv("nn.conv2d", ("NCHW", "OIHW"), a_np, weight, stride, padding, channels)


def depthwise_conv2d_python_nhwc(a_np: Array, w_np: Array, stride: Any, padding: Any) -> Array:
    """The same with channels last; weights are (height, width, channels, multiplier)."""
    found = depthwise_conv2d_python_nchw(
        a_np.transpose(0, 3, 1, 2), w_np.transpose(2, 3, 0, 1), stride, padding
    )
    return found.transpose(0, 2, 3, 1)


def conv2d_transpose_nchw_python(
    a_np: Array, w_np: Array, stride: Any, padding: Any, output_padding: Any = (0, 0)
) -> Array:
    """The transposed convolution; weights are IOHW."""
    kernel = w_np.shape[2:]
    result: Array = _reference(
        "nn.conv2d_transpose", a_np, w_np, strides=_each(stride, 2),
        padding=_each(_pads(padding, kernel), 2), output_padding=tuple(output_padding),
        kernel_size=kernel, channels=w_np.shape[1],
    )
    return result


def poolnd_python(
    np_data: Array, kernel: Any, strides: Any, dilation: Any, padding_before: Any,
    padding_after: Any, pool_type: str, count_include_pad: bool = True, ceil_mode: bool = False,
    dtype: str = "float32", layout: str | None = None,
) -> Array:
    """The maxima or means of windows; channels come second unless the layout says otherwise."""
    if pool_type not in ("max", "avg"):
        raise ValueError(f'pool_type is "max" or "avg", not "{pool_type}"')
    rank = len(kernel)
    counted = {"count_include_pad": count_include_pad} if pool_type == "avg" else {}
    found = _reference(
        f"nn.{pool_type}_pool{rank}d", np_data, pool_size=tuple(kernel), strides=tuple(strides),
        dilation=tuple(dilation), padding=(*padding_before, *padding_after),
        layout=layout or "NC" + "DHW"[3 - rank:], ceil_mode=ceil_mode, **counted,
    )
    return np.asarray(found, dtype)


def depth_to_space_python(data: Array, block_size: int, mode: str = "DCR") -> Array:
    """Channels as blocks of pixels; channels come second."""
    result: Array = _reference("nn.depth_to_space", data, block_size=block_size, mode=mode)
    return result


def space_to_depth_python(data: Array, block_size: int) -> Array:
    """Blocks of pixels as channels; channels come second."""
    result: Array = _reference("nn.space_to_depth", data, block_size=block_size)
    return result


def lrn_python(
    a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float
) -> Array:
    """The normalisation of an element by its neighbours along an axis."""
    result: Array = _reference(
        "nn.lrn", a_np, size=size, axis=axis, bias=bias, alpha=alpha, beta=beta
    )
    return result


def l2_normalize_python(a_np: Array, eps: float, axis: Any = None) -> Array:
    """Elements over the root of the sum of their squares along axes."""
    axes = (axis,) if isinstance(axis, int) else axis
    result: Array = _reference("nn.l2_normalize", a_np, eps=eps, axis=axes)
    return result


def searchsorted_ref(
    sorted_sequence: Array, values: Array, right: bool, out_dtype: str
) -> Array:
    """The places at which values keep rows sorted."""
    result: Array = _reference(
        "searchsorted", sorted_sequence, values, right=right, dtype=out_dtype
    )
    return result


def dilate_python(
    input_np: Array, strides: Any, dilation_value: float = 0.0, out_dtype: Any = None
) -> Array:
    """An array with strides - 1 values between its elements."""
    shape = [(n - 1) * s + 1 for n, s in zip(input_np.shape, strides, strict=True)]
    result = np.full(shape, dilation_value, out_dtype or input_np.dtype)
    result[tuple(slice(None, None, s) for s in strides)] = input_np
    return result


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """Softmax along an axis."""
    powers = np.exp(a_np - a_np.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """The logarithm of softmax."""
    moved = a_np - a_np.max(axis, keepdims=True)
    return np.asarray(moved - np.log(np.exp(moved).sum(axis, keepdims=True)))


def batch_matmul(
    x: Array, y: Array, out_dtype: Any = None, trans_x: bool = False, trans_y: bool = True
) -> Array:
    """The products of matrices pair by pair."""
    left = x.swapaxes(1, 2) if trans_x else x
    right = y.swapaxes(1, 2) if trans_y else y
    kind = out_dtype or x.dtype
    return np.asarray(np.matmul(left.astype(kind), right.astype(kind)))


def dense(
    x: Array, y: Array, bias: Array, use_bias: bool = False, use_relu: bool = False,
    out_dtype: Any = None,
) -> Array:
    """Rows of x times rows of y."""
    kind = out_dtype or x.dtype
    result = x.astype(kind) @ y.astype(kind).T
    if use_bias:
        result = result + bias
    return np.asarray(np.maximum(result, 0) if use_relu else result)


def strided_slice_python(
    data: Array, begin: Any, end: Any, strides: Any, slice_mode: str = "end", axes: Any = None
) -> Array:
    """A slice by begins, ends (or sizes) and strides."""
    result: Array = _reference(
        "strided_slice", data, begin=tuple(begin), end=tuple(end), strides=tuple(strides or (1,)),
        slice_mode=slice_mode, axes=axes,
    )
    return result


def one_hot(
    indices: Array, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str
) -> Array:
    """on_value where an index says, off_value elsewhere."""
    result: Array = _reference(
        "one_hot", indices, np.asarray(on_value, dtype), np.asarray(off_value, dtype), depth=depth,
        axis=axis, dtype=dtype,
    )
    return result


def dispatch(target: Any, dispatch_map: Any) -> Any:
    """What a map from targets' kinds and keys to functions has for a target."""
    found = Target(target)
    for key in (found.kind.name, *found.keys):
        if key in dispatch_map:
            return dispatch_map[key]
    if "generic" not in dispatch_map:
        raise KeyError(f"nothing is given for {found} among {', '.join(dispatch_map)}")
    return dispatch_map["generic"]


def _schedule_for(target: Any) -> Callable[[Any], Schedule]:
    def make(outs: Any) -> Schedule:
        with Target(target):
            return scheduled(outs)

    return make


get_injective_schedule = _schedule_for
get_broadcast_schedule = _schedule_for
get_elemwise_schedule = _schedule_for
get_reduce_schedule = _schedule_for
get_softmax_schedule = _schedule_for

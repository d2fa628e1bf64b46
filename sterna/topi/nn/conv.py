"""Convolutions as two stages: the padded data, and the sum over channels and taps.

The stages are those that schedules of the classic kind expect: the first operand of the sum is the
padded data, its reduce axes are the channel (rc) and the taps in order (ry, rx).
"""

from collections.abc import Sequence
from typing import Any

from sterna import te
from sterna.ir import build
from sterna.te import Tensor
from sterna.topi.nn.padding import Padding, dilate, pad, pad_widths
from sterna.topi.stage import stage
from sterna.topi.utils import get_const_int, simplify

# The names of the reduce axes over taps, by how many there are.
_TAPS = {1: ("rx",), 2: ("ry", "rx"), 3: ("rz", "ry", "rx")}


def _several(value: int | Sequence[int], rank: int, what: str) -> list[int]:
    found = [value] * rank if isinstance(value, int) else [int(one) for one in value]
    if len(found) == 1:
        found *= rank
    if len(found) != rank or min(found) < 1:
        raise ValueError(f"{what} is a positive number or {rank} of them, not {value}")
    return found


def _tap_axes(kernel: Sequence[int], names: Sequence[str]) -> list[Any]:
    """The reduce axes over taps."""
    return [te.reduce_axis((0, k), name=name) for k, name in zip(kernel, names, strict=True)]


def _places(layout: str, letters: str) -> list[int]:
    missing = [letter for letter in letters if letter not in layout]
    if missing or len(layout) != len(letters):
        raise ValueError(f'a layout of the letters {letters} is needed, not "{layout}"')
    return [layout.index(letter) for letter in letters]


def conv(
    data: Tensor, weight: Tensor, stride: int | Sequence[int], padding: Padding,
    dilation: int | Sequence[int], groups: int, data_layout: str, weight_layout: str,
    out_dtype: str | None, name: str, tag: str,
) -> Tensor:
    """A convolution of any rank, in groups, in layouts such as NCHW and OIHW."""
    rank = len(data.shape) - 2
    space = "DHW"[3 - rank:]
    batch_at, channel_at, *space_at = _places(data_layout, f"NC{space}")
    out_at, in_at, *taps_at = _places(weight_layout, f"OI{space}")
    strides, dilations = _several(stride, rank, "stride"), _several(dilation, rank, "dilation")
    kernel = [get_const_int(weight.shape[place]) for place in taps_at]
    widths = pad_widths(padding, [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)])
    channels, outputs = data.shape[channel_at], weight.shape[out_at]
    if groups < 1:
        raise ValueError(f"groups is a positive number, not {groups}")
    if groups > 1 and (get_const_int(channels) % groups or get_const_int(outputs) % groups):
        raise ValueError(f"{groups} groups do not divide {channels} channels and {outputs} outputs")
    of_group = weight.shape[in_at]
    if not _equal(of_group * groups, channels):
        raise ValueError(
            f"the weights {weight} are for {of_group} channels of each of {groups} groups, the "
            f"data {data} has {channels} in all"
        )
    before, after = [0] * (rank + 2), [0] * (rank + 2)
    for place, low, high in zip(space_at, *widths, strict=True):
        before[place], after[place] = low, high
    padded = pad(data, before, after, 0, name="pad_temp")
    shape: list[Any] = [None] * (rank + 2)
    shape[batch_at], shape[channel_at] = data.shape[batch_at], outputs
    for i, place in enumerate(space_at):
        reach = (kernel[i] - 1) * dilations[i] + 1
        shape[place] = simplify(
            te.indexdiv(build.as_expr(padded.shape[place]) - reach, strides[i]) + 1
        )
    channel: Any = te.reduce_axis((0, of_group), name="rc")
    taps = _tap_axes(kernel, _TAPS[rank])
    kind = str(data.dtype) if out_dtype is None else out_dtype
    per_group = te.indexdiv(build.as_expr(outputs), groups)

    def element(*at: Any) -> Any:
        first = te.indexdiv(at[channel_at], per_group) * of_group if groups > 1 else 0
        read: list[Any] = list(at)
        of_weight: list[Any] = [None] * (rank + 2)
        read[channel_at] = first + channel if groups > 1 else channel
        of_weight[out_at], of_weight[in_at] = at[channel_at], channel
        for i, place in enumerate(space_at):
            read[place] = at[place] * strides[i] + taps[i] * dilations[i]
            of_weight[taps_at[i]] = taps[i]
        product = padded(*read).astype(kind) * weight(*of_weight).astype(kind)
        return te.sum(product, axis=_in_order(data_layout, channel, taps))

    return stage(tuple(shape), element, name=name, tag=tag)


def _equal(left: Any, right: Any) -> bool:
    return build.int_value(simplify(build.as_expr(left) - right)) == 0


def _in_order(data_layout: str, channel: Any, taps: list[Any]) -> list[Any]:
    """The reduce axes: channels run innermost where they lie so."""
    return [*taps, channel] if data_layout.endswith("C") else [channel, *taps]


def conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Padding, dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of images with channels first; weights are OIHW."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NCHW", "OIHW", out_dtype,
                "conv2d_nchw", "conv2d_nchw")


def conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Padding, dilation: Any = 1,
    out_dtype: str | None = "float32", auto_scheduler_rewritten_layout: str = "",
) -> Tensor:
    """A convolution of images with channels last; weights are HWIO."""
    return conv(Input, Filter, stride, padding, dilation, 1, "NHWC", "HWIO", out_dtype,
                "conv2d_nhwc", "conv2d_nhwc")


def conv2d_hwcn(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Padding, dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of images with the batch last; weights are HWIO."""
    return conv(Input, Filter, stride, padding, dilation, 1, "HWCN", "HWIO", out_dtype,
                "Conv2dOutput", "conv2d_hwcn")


def group_conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Padding, dilation: Any, groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution in groups, channels first."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NCHW", "OIHW", out_dtype,
                "group_conv2d_nchw", "group_conv2d_nchw")


def group_conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Padding, dilation: Any, groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution in groups, channels last."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NHWC", "HWIO", out_dtype,
                "group_conv2d_nhwc", "group_conv2d_nhwc")


def conv2d(
    data: Tensor, kernel: Tensor, strides: Any, padding: Padding, dilation: Any,
    data_layout: str, kernel_layout: str = "", out_dtype: str | None = None,
) -> Tensor:
    """A convolution of images in any of the layouts NCHW, NHWC and HWCN."""
    own = kernel_layout or ("OIHW" if data_layout == "NCHW" else "HWIO")
    return conv(data, kernel, strides, padding, dilation, 1, data_layout, own, out_dtype,
                "conv2d", f"conv2d_{data_layout.lower()}")


def conv1d_ncw(
    data: Tensor, kernel: Tensor, strides: Any = 1, padding: Padding = "VALID", dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of sequences with channels first; weights are OIW."""
    return conv(data, kernel, strides, padding, dilation, 1, "NCW", "OIW", out_dtype,
                "conv1d_ncw", "conv1d_ncw")


def conv1d_nwc(
    data: Tensor, kernel: Tensor, strides: Any = 1, padding: Padding = "VALID", dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of sequences with channels last; weights are WIO."""
    return conv(data, kernel, strides, padding, dilation, 1, "NWC", "WIO", out_dtype,
                "conv1d_nwc", "conv1d_nwc")


def conv3d_ncdhw(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Padding, dilation: Any, groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of volumes with channels first; weights are OIDHW."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype,
                "conv3d_ncdhw", "conv3d_ncdhw")


def conv3d_ndhwc(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Padding, dilation: Any, groups: int = 1,
    out_dtype: str | None = "float32",
) -> Tensor:
    """A convolution of volumes with channels last; weights are DHWIO."""
    return conv(Input, Filter, stride, padding, dilation, groups, "NDHWC", "DHWIO", out_dtype,
                "conv3d_ndhwc", "conv3d_ndhwc")


def _depthwise(
    data: Tensor, weight: Tensor, layout: str, weight_layout: str, stride: Any, padding: Padding,
    dilation: Any, out_dtype: str | None, name: str,
) -> Tensor:
    channel_at, *space_at = _places(layout, "NCHW")[1:]
    from_at, times_at, *taps_at = _places(weight_layout, "CMHW")
    strides, dilations = _several(stride, 2, "stride"), _several(dilation, 2, "dilation")
    kernel = [get_const_int(weight.shape[place]) for place in taps_at]
    widths = pad_widths(padding, [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)])
    before, after = [0] * 4, [0] * 4
    for place, low, high in zip(space_at, *widths, strict=True):
        before[place], after[place] = low, high
    padded = pad(data, before, after, 0, name="PaddedInput")
    times = get_const_int(weight.shape[times_at])
    shape = list(data.shape)
    shape[channel_at] = simplify(build.as_expr(shape[channel_at]) * times)
    for i, place in enumerate(space_at):
        reach = (kernel[i] - 1) * dilations[i] + 1
        shape[place] = simplify(
            te.indexdiv(build.as_expr(padded.shape[place]) - reach, strides[i]) + 1
        )
    taps = _tap_axes(kernel, ("di", "dj"))
    kind = str(data.dtype) if out_dtype is None else out_dtype

    def element(*at: Any) -> Any:
        read: list[Any] = list(at)
        of_weight: list[Any] = [None] * 4
        read[channel_at] = te.indexdiv(at[channel_at], times)
        of_weight[from_at] = te.indexdiv(at[channel_at], times)
        of_weight[times_at] = te.indexmod(at[channel_at], times)
        for i, place in enumerate(space_at):
            read[place] = at[place] * strides[i] + taps[i] * dilations[i]
            of_weight[taps_at[i]] = taps[i]
        product = padded(*read).astype(kind) * weight(*of_weight).astype(kind)
        return te.sum(product, axis=taps)

    return stage(tuple(shape), element, name="DepthwiseConv2d", tag=name)


def depthwise_conv2d_nchw(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Padding, dilation: Any = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """A convolution of each channel by itself; weights are (channels, multiplier, height, width)"""
    return _depthwise(Input, Filter, "NCHW", "CMHW", stride, padding, dilation, out_dtype,
                      "depthwise_conv2d_nchw")


def depthwise_conv2d_nhwc(
    Input: Tensor, Filter: Tensor, stride: Any, padding: Padding, dilation: Any = 1,
    kernel_layout: str = "HWOI", out_dtype: str | None = None,
) -> Tensor:
    """The same with channels last; weights are (height, width, channels, multiplier)."""
    own = {"HWOI": "HWCM", "HWIO": "HWMC"}.get(kernel_layout)
    if own is None:
        raise ValueError(f"kernel_layout is HWOI or HWIO, not {kernel_layout}")
    return _depthwise(Input, Filter, "NHWC", own, stride, padding, dilation, out_dtype,
                      "depthwise_conv2d_nhwc")


def conv2d_transpose_nchw(
    Input: Tensor, Filter: Tensor, strides: Any, padding: Padding, out_dtype: str | None = None,
    output_padding: Any = (0, 0),
) -> Tensor:
    """The transposed convolution; weights are IOHW."""
    by, extra = _several(strides, 2, "strides"), [int(n) for n in output_padding]
    if any(not 0 <= n < s for n, s in zip(extra, by, strict=True)):
        raise ValueError(f"output_padding {output_padding} lies below the strides {strides}")
    kernel = [get_const_int(extent) for extent in Filter.shape[2:]]
    (top, left), (bottom, right) = pad_widths(padding, kernel)
    spread = dilate(Input, [1, 1, *by], name="data_dilate")
    before = [0, 0, kernel[0] - 1 - top, kernel[1] - 1 - left]
    after = [0, 0, kernel[0] - 1 - bottom + extra[0], kernel[1] - 1 - right + extra[1]]
    if min(*before, *after) < 0:
        raise ValueError(f"padding {padding} is wider than the kernel {tuple(kernel)} reaches")
    padded = pad(spread, before, after, 0, name="data_pad")
    channel: Any = te.reduce_axis((0, Filter.shape[0]), name="dc")
    taps = _tap_axes(kernel, ("dh", "dw"))
    kind = str(Input.dtype) if out_dtype is None else out_dtype
    high, wide = [simplify(build.as_expr(n) - k + 1)
                  for n, k in zip(padded.shape[2:], kernel, strict=True)]

    def element(b: Any, c: Any, h: Any, w: Any) -> Any:
        flipped = Filter(channel, c, kernel[0] - 1 - taps[0], kernel[1] - 1 - taps[1])
        return te.sum(
            padded(b, channel, h + taps[0], w + taps[1]).astype(kind) * flipped.astype(kind),
            axis=[channel, *taps],
        )

    return stage((Input.shape[0], Filter.shape[1], high, wide), element,
                      name="T_conv2d_transpose_nchw", tag="conv2d_transpose_nchw")

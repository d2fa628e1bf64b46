"""Convolutions as two stages: the padded data, and the sum over channels and taps.

The stages are those that schedules of the classic kind expect: the first operand of the sum is the
padded data, its reduce axes are the channel (rc) and the taps in order (ry, rx).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sterna import te
from sterna.ir import build
from sterna.te import Tensor
from sterna.topi.nn.padding import Padding, dilate, pad, pad_widths
from sterna.topi.stage import stage
from sterna.topi.utils import differ, get_const_int, simplify

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


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows that a convolution sums over: its padded data, its taps, where they read."""

    padded: Tensor
    space_at: list[int]
    taps_at: list[int]
    taps: list[Any]
    strides: list[int]
    dilations: list[int]
    extents: list[Any]
    """Of the result, along the axes of space."""

    @staticmethod
    def of(
        data: Tensor, weight: Tensor, space_at: list[int], taps_at: list[int], stride: Any,
        padding: Padding, dilation: Any, name: str, names: Sequence[str],
    ) -> "_Windows":
        rank = len(space_at)
        strides, dilations = _several(stride, rank, "stride"), _several(dilation, rank, "dilation")
        kernel = [get_const_int(weight.shape[place]) for place in taps_at]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        before, after = [0] * len(data.shape), [0] * len(data.shape)
        for place, low, high in zip(space_at, *pad_widths(padding, reach), strict=True):
            before[place], after[place] = low, high
        padded = pad(data, before, after, 0, name=name)
        extents = [
            simplify(te.indexdiv(build.as_expr(padded.shape[place]) - r, s) + 1)
            for place, r, s in zip(space_at, reach, strides, strict=True)
        ]
        taps = _tap_axes(kernel, names)
        return _Windows(padded, space_at, taps_at, taps, strides, dilations, extents)

    def shape(self, data: Tensor, channel_at: int, channels: Any) -> list[Any]:
        """The result's, with so many channels."""
        made = list(data.shape)
        made[channel_at] = channels
        for place, extent in zip(self.space_at, self.extents, strict=True):
            made[place] = extent
        return made

    def product(
        self, at: Sequence[Any], weight: Tensor, own: dict[int, Any], of_weight: dict[int, Any],
        kind: str,
    ) -> Any:
        """One product: own and of_weight are the indices of data and weights besides the taps."""
        read = {**dict(enumerate(at)), **own}
        for i, place in enumerate(self.space_at):
            read[place] = at[place] * self.strides[i] + self.taps[i] * self.dilations[i]
        found = {**of_weight, **dict(zip(self.taps_at, self.taps, strict=True))}
        left = self.padded(*[read[i] for i in range(len(read))])
        return left.astype(kind) * weight(*[found[i] for i in range(len(found))]).astype(kind)


def conv(
    data: Tensor, weight: Tensor, stride: int | Sequence[int], padding: Padding,
    dilation: int | Sequence[int], groups: int, data_layout: str, weight_layout: str,
    out_dtype: str | None, name: str, tag: str,
) -> Tensor:
    """A convolution of any rank, in groups, in layouts such as NCHW and OIHW."""
    rank = len(data.shape) - 2
    space = "DHW"[3 - rank:]
    channel_at, *space_at = _places(data_layout, f"NC{space}")[1:]
    out_at, in_at, *taps_at = _places(weight_layout, f"OI{space}")
    channels, outputs = data.shape[channel_at], weight.shape[out_at]
    if groups < 1:
        raise ValueError(f"groups is a positive number, not {groups}")
    if groups > 1 and (get_const_int(channels) % groups or get_const_int(outputs) % groups):
        raise ValueError(f"{groups} groups do not divide {channels} channels and {outputs} outputs")
    of_group = weight.shape[in_at]
    if differ(of_group * groups, channels):
        raise ValueError(
            f"the weights {weight} are for {of_group} channels of each of {groups} groups, the "
            f"data {data} has {channels} in all"
        )
    windows = _Windows.of(
        data, weight, space_at, taps_at, stride, padding, dilation, "pad_temp", _TAPS[rank]
    )
    channel: Any = te.reduce_axis((0, of_group), name="rc")
    kind = str(data.dtype) if out_dtype is None else out_dtype
    per_group = te.indexdiv(build.as_expr(outputs), groups)

    def element(*at: Any) -> Any:
        first = te.indexdiv(at[channel_at], per_group) * of_group if groups > 1 else 0
        own = {channel_at: first + channel if groups > 1 else channel}
        of_weight = {out_at: at[channel_at], in_at: channel}
        product = windows.product(at, weight, own, of_weight, kind)
        return te.sum(product, axis=_in_order(data_layout, channel, windows.taps))

    return stage(windows.shape(data, channel_at, outputs), element, name=name, tag=tag)


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
    """A convolution of images in any of the layouts NCHW, NHWC and HWCN.

    The type of the sums may stand behind data_layout, as it did before there were kernel layouts.
    """
    if kernel_layout and out_dtype is None and kernel_layout[0].islower():
        kernel_layout, out_dtype = "", kernel_layout
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
    channels, times = data.shape[channel_at], get_const_int(weight.shape[times_at])
    if differ(weight.shape[from_at], channels):
        raise ValueError(
            f"the weights {weight} are for {weight.shape[from_at]} channels, the data {data} has "
            f"{channels}"
        )
    windows = _Windows.of(
        data, weight, space_at, taps_at, stride, padding, dilation, "PaddedInput", ("di", "dj")
    )
    kind = str(data.dtype) if out_dtype is None else out_dtype

    def element(*at: Any) -> Any:
        channel = te.indexdiv(at[channel_at], times)
        of_weight = {from_at: channel, times_at: te.indexmod(at[channel_at], times)}
        product = windows.product(at, weight, {channel_at: channel}, of_weight, kind)
        return te.sum(product, axis=windows.taps)

    outputs = simplify(build.as_expr(channels) * times)
    return stage(windows.shape(data, channel_at, outputs), element, name="DepthwiseConv2d",
                 tag=name)


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
    if differ(Filter.shape[0], Input.shape[1]):
        raise ValueError(
            f"the weights {Filter} are for {Filter.shape[0]} channels, the data {Input} has "
            f"{Input.shape[1]}"
        )
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

"""What a convolution is: its attributes, its extents, the contraction that it makes."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from sterna.ir.types import Dim, TensorType, same_dim, show_shape
from sterna.op.checks import expect_dim, map_dims
from sterna.op.windows import SPATIAL, Padding, Windowed, positive, spatial_layout, window_result
from sterna.relay.attributes import attributes
from sterna.relay.layout import Layout
from sterna.schedule.contraction import Contraction
from sterna.schedule.products import AS_DATA
from sterna.support.dtype import DataType


@attributes
class ConvAttrs(Windowed):
    """Of all convolutions."""

    strides: tuple[int, ...] = ()
    padding: Padding = 0
    dilation: tuple[int, ...] = ()
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = ""
    kernel_layout: str = ""
    out_layout: str = ""
    out_dtype: DataType = AS_DATA
    border: int = 0
    """What lies outside of the data: of quantised data its zero point."""
    implementation: str = ""
    """The plan that weights are packed for; channels and kernel_size tell what they were."""


@attributes
class Conv1DAttrs(ConvAttrs):
    """Of nn.conv1d."""

    strides: tuple[int] = (1,)
    padding: Padding = (0,)
    dilation: tuple[int] = (1,)
    kernel_size: tuple[int] | None = None
    data_layout: str = "NCW"
    kernel_layout: str = "OIW"


@attributes
class Conv2DAttrs(ConvAttrs):
    """Of nn.conv2d."""

    strides: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    kernel_size: tuple[int, int] | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"


@attributes
class Conv3DAttrs(ConvAttrs):
    """Of nn.conv3d."""

    strides: tuple[int, int, int] = (1, 1, 1)
    padding: Padding = (0, 0, 0)
    dilation: tuple[int, int, int] = (1, 1, 1)
    kernel_size: tuple[int, int, int] | None = None
    data_layout: str = "NCDHW"
    kernel_layout: str = "OIDHW"


@dataclass(frozen=True, slots=True)
class Layouts:
    """How the operands of a convolution and its result are laid out."""

    data: Layout
    kernel: Layout
    out: Layout
    spatial: str

    @staticmethod
    def of(attrs: Any) -> "Layouts":
        """The layouts that attributes name."""
        out = attrs.out_layout or attrs.data_layout
        return _layouts(SPATIAL[len(attrs.strides)], attrs.data_layout, attrs.kernel_layout, out)


@cache
def _layouts(spatial: str, data: str, kernel: str, out: str) -> Layouts:
    return Layouts(
        spatial_layout(data, f"NC{spatial}", "data_layout"),
        spatial_layout(kernel, f"OI{spatial}", "kernel_layout"),
        spatial_layout(out, f"NC{spatial}", "out_layout"),
        spatial,
    )


@dataclass(frozen=True, slots=True)
class Sizes:
    """The extents of a convolution's axes."""

    batch: Dim
    in_channels: Dim
    out_channels: Dim
    group: Dim
    """Input channels that an output channel reads."""
    multiplied: bool
    """The weights are given per input channel."""
    window: tuple[Dim, ...]
    result: tuple[Dim, ...]


def sizes_of(attrs: Any, data: TensorType, weight: TensorType) -> Sizes:
    """The extents of a convolution, checked."""
    positive([attrs.groups], "groups")
    layouts = Layouts.of(attrs)
    extents, groups = layouts.data.dims(data.shape), attrs.groups
    channels = extents["C"]
    kernel = _packed_extents(attrs, layouts, channels) or layouts.kernel.dims(weight.shape)
    multiplied = (
        groups > 1 and type(kernel["I"]) is int and kernel["I"] != 1
        and same_dim(channels, groups) and same_dim(channels, kernel["O"])
    )
    if multiplied:
        group: Dim = 1
        out_channels = map_dims(lambda o, i: o * i, kernel["O"], kernel["I"])
    else:
        group, out_channels = kernel["I"], kernel["O"]
        if isinstance(group, int):
            expect_dim(channels, group * groups, f"the number of data's channels ({groups} "
                       f"{'group' if groups == 1 else 'groups'} of {group} in weight)")
    if isinstance(out_channels, int) and out_channels % groups:
        raise ValueError(f"{out_channels} output channels do not fall into {groups} groups")
    if attrs.channels is not None:
        expect_dim(out_channels, attrs.channels, "weight's number of output channels")
    window = tuple(kernel[axis] for axis in layouts.spatial)
    for have, want in zip(window, attrs.kernel_size or window, strict=True):
        expect_dim(have, want, f"kernel_size {attrs.kernel_size}: an extent of weight "
                   f"{show_shape(weight.shape)}")
    result = tuple(
        window_result(extents[axis], k, stride, first + last, dilation)
        for axis, k, stride, first, last, dilation in zip(
            layouts.spatial, window, attrs.strides, attrs.before, attrs.after, attrs.dilation,
            strict=True,
        )
    )
    return Sizes(extents["N"], channels, out_channels, group, multiplied, window, result)


def _packed_extents(attrs: Any, layouts: Layouts, channels: Dim) -> dict[str, Dim]:
    """The extents of weights that are packed for an implementation; none if they are not."""
    if not getattr(attrs, "implementation", ""):
        return {}
    if attrs.channels is None or attrs.kernel_size is None:
        raise ValueError("with an implementation, channels and kernel_size are needed too")
    window = dict(zip(layouts.spatial, attrs.kernel_size, strict=True))
    return {"O": attrs.channels, "I": map_dims(lambda c: c // attrs.groups, channels), **window}


def contraction_of(attrs: Any, data: TensorType, weight: TensorType) -> Contraction | None:
    """The contraction that a convolution of known extents is; None if some are unknown."""
    sizes, layouts = sizes_of(attrs, data, weight), Layouts.of(attrs)
    extents = [sizes.batch, sizes.in_channels, sizes.out_channels, *sizes.window, *sizes.result]
    if not data.is_static or not all(type(extent) is int for extent in extents):
        return None
    dims: Any = layouts.data.dims(data.shape)
    known: Any = sizes
    return Contraction(
        batch=known.batch, image=tuple(dims[axis] for axis in layouts.spatial),
        inputs=known.in_channels, result=known.result, outputs=known.out_channels,
        data=data.dtype, weight=weight.dtype, out=DataType(attrs.out_dtype or data.dtype),
        window=known.window, strides=attrs.strides, dilation=attrs.dilation, before=attrs.before,
        after=attrs.after, groups=attrs.groups, border=attrs.border,
        data_layout=attrs.data_layout, out_layout=attrs.out_layout or attrs.data_layout,
    )


def summed_axes(layouts: Layouts, sizes: Sizes) -> dict[str, Dim]:
    """The extents of a convolution's sum; a depthwise one has only the window's."""
    window = {f"r{a.lower()}": e for a, e in zip(layouts.spatial, sizes.window, strict=True)}
    alone = type(sizes.group) is int and sizes.group == 1
    return window if alone else {"rc": sizes.group, **window}

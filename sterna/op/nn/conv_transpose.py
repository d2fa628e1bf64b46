"""Transposed convolution: nn.conv1d_transpose, nn.conv2d_transpose, nn.conv3d_transpose.

Input element x and place k of the window meet in output element x*stride + k*dilation - padding. An
output element y therefore reads only every (stride / gcd)-th place of the window, beginning with
the first one that solves k*dilation = y + padding modulo stride; only those are summed.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sterna.arith import Analyzer
from sterna.ir.build import const, int_value
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import expect_dim, map_dims, not_empty, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.nn._conv_layout import conv_layout, convert_transposed
from sterna.op.nn._conv_shape import Layouts
from sterna.op.nn._narrow_floats import convolved_in_float32
from sterna.op.nn._transposed_phases import by_phases
from sterna.op.windows import (
    Padding,
    Windowed,
    axis_names,
    padded,
    positive,
    simple_index,
    whole_blocks,
)
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import attributes
from sterna.relay.expr import RelayExpr
from sterna.relay.layout import from_plain, to_plain
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, ContractionRules, OpRecord, register
from sterna.schedule.contraction import Contraction
from sterna.schedule.products import AS_DATA, narrowed, result_dtype, wide, widened
from sterna.schedule.sum_of_products import CHANNEL, TAP, describe_sum
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute, if_then_else, reduce_axis
from sterna.te import all as all_of
from sterna.te import sum as te_sum

# The classic API calls input channels O and output channels I here, but not for two axes.
_CLASSIC_LAYOUTS = {"OIW": "IOW", "OIDHW": "IODHW"}


@attributes
class ConvTransposeAttrs(Windowed):
    """Of all transposed convolutions."""

    strides: tuple[int, ...] = ()
    padding: Padding = 0
    dilation: tuple[int, ...] = ()
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = ""
    kernel_layout: str = ""
    out_layout: str = ""
    output_padding: tuple[int, ...] = ()
    out_dtype: DataType = AS_DATA

    def normalize(self) -> None:
        """Full padding; and the classic layout names of one and three axes as what they mean."""
        Windowed.normalize(self)
        self.kernel_layout = _CLASSIC_LAYOUTS.get(self.kernel_layout, self.kernel_layout)


@attributes
class Conv1DTransposeAttrs(ConvTransposeAttrs):
    """Of nn.conv1d_transpose."""

    strides: tuple[int] = (1,)
    padding: Padding = (0,)
    dilation: tuple[int] = (1,)
    kernel_size: tuple[int] | None = None
    data_layout: str = "NCW"
    kernel_layout: str = "IOW"
    output_padding: tuple[int] = (0,)


@attributes
class Conv2DTransposeAttrs(ConvTransposeAttrs):
    """Of nn.conv2d_transpose."""

    strides: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    kernel_size: tuple[int, int] | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "IOHW"
    output_padding: tuple[int, int] = (0, 0)


@attributes
class Conv3DTransposeAttrs(ConvTransposeAttrs):
    """Of nn.conv3d_transpose."""

    strides: tuple[int, int, int] = (1, 1, 1)
    padding: Padding = (0, 0, 0)
    dilation: tuple[int, int, int] = (1, 1, 1)
    kernel_size: tuple[int, int, int] | None = None
    data_layout: str = "NCDHW"
    kernel_layout: str = "IODHW"
    output_padding: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The extents of the axes."""

    batch: Dim
    in_channels: Dim
    group: Dim
    """Output channels of a group."""
    extents: tuple[Dim, ...]
    window: tuple[Dim, ...]
    result: tuple[Dim, ...]


def _sizes(attrs: ConvTransposeAttrs, data: TensorType, weight: TensorType) -> _Sizes:
    positive([attrs.groups], "groups")
    layouts = Layouts.of(attrs)
    known, kernel = layouts.data.dims(data.shape), layouts.kernel.dims(weight.shape)
    expect_dim(kernel["I"], known["C"], "weight's number of input channels")
    if isinstance(known["C"], int) and known["C"] % attrs.groups:
        raise ValueError(f"{known['C']} channels do not fall into {attrs.groups} groups")
    if attrs.channels is not None and isinstance(kernel["O"], int):
        expect_dim(kernel["O"] * attrs.groups, attrs.channels, "the number of output channels")
    window = tuple(kernel[axis] for axis in layouts.spatial)
    for have, want in zip(window, attrs.kernel_size or window, strict=True):
        expect_dim(have, want, f"kernel_size {attrs.kernel_size}: an extent of weight")
    extents = tuple(known[axis] for axis in layouts.spatial)
    result = tuple(_result(attrs, i, extents[i], window[i]) for i in range(len(window)))
    return _Sizes(known["N"], known["C"], kernel["O"], extents, window, result)


def _result(attrs: ConvTransposeAttrs, i: int, extent: Dim, window: Dim) -> Dim:
    border = attrs.before[i] + attrs.after[i]
    more = attrs.output_padding[i] - border + 1
    if isinstance(extent, int) and isinstance(window, int):
        whole = (extent - 1) * attrs.strides[i] + (window - 1) * attrs.dilation[i] + 1
        if whole + attrs.output_padding[i] < border:
            raise ValueError(f"padding takes {border} elements of {whole} away")
    return map_dims(
        lambda n, k: (n - 1) * attrs.strides[i] + (k - 1) * attrs.dilation[i] + more,
        extent, window,
    )


def _infer(attrs: ConvTransposeAttrs, data: Type, weight: Type) -> TensorType:
    layouts = Layouts.of(attrs)
    x = tensor(data, "data", len(layouts.data))
    w = tensor(weight, "weight", len(layouts.kernel))
    spatial = [layouts.kernel.index_of(axis) for axis in layouts.spatial]
    not_empty(w, "weight", spatial, "its window is")
    sizes = _sizes(attrs, x, w)
    channels = map_dims(lambda o: o * attrs.groups, sizes.group)
    whole_blocks(layouts.out, channels)
    extents = [sizes.batch, channels, *sizes.result]
    shape = layouts.out.shape(dict(zip(f"NC{layouts.spatial}", extents, strict=True)))
    return TensorType(shape, result_dtype(attrs.out_dtype, x, w, "weight"))


def _complete(attrs: ConvTransposeAttrs, data: Type | None, weight: Type | None) -> list[Any]:
    layouts = Layouts.of(attrs)
    if weight is not None or attrs.channels is None or attrs.kernel_size is None:
        return [data, weight]
    if not isinstance(data, TensorType) or data.ndim != len(layouts.data):
        return [data, weight]
    extents = dict(zip(layouts.spatial, attrs.kernel_size, strict=True))
    outer = attrs.channels // attrs.groups
    dims = {"I": layouts.data.dims(data.shape)["C"], "O": outer, **extents}
    return [data, TensorType(layouts.kernel.shape(dims), data.dtype)]


def _compute(attrs: ConvTransposeAttrs, out: TensorType, data: Tensor, weight: Tensor) -> Tensor:
    layouts = Layouts.of(attrs)
    x, w = TensorType(data.shape, data.dtype), TensorType(weight.shape, weight.dtype)
    sizes = _sizes(attrs, x, w)
    name = f"T_conv{len(attrs.strides)}d_transpose"
    axes = [_Axis(attrs, sizes, i, layouts.spatial[i]) for i in range(len(attrs.strides))]
    borders = [axis.border() for axis in axes]
    source = padded(
        data, layouts.data, layouts.spatial, [b[0] for b in borders], [b[1] for b in borders]
    )
    total_type = wide(out.dtype)
    inner_channels = sizes.in_channels // attrs.groups
    rc = reduce_axis((0, inner_channels), "rc")

    def element(*indices: Expr) -> Any:
        ranges = Analyzer()
        for index, extent in zip(indices, out.shape, strict=True):
            ranges.bind(index, 0, extent)  # type: ignore[arg-type]
        place = layouts.out.coordinates(indices)
        own: Any = place["C"]
        group = own // sizes.group if attrs.groups > 1 else 0
        channel = group * inner_channels + rc.var
        outer, inner = {"N": place["N"], "C": channel}, {"I": channel, "O": own % sizes.group}
        conditions: list[Expr] = []
        for axis, (first, _) in zip(axes, borders, strict=True):
            inner[axis.letter], outer[axis.letter], meets = axis.meeting(place[axis.letter])
            outer[axis.letter] = outer[axis.letter] + first
            conditions += meets
        one = source(*simple_index(layouts.data, outer, ranges)).astype(total_type)
        two = weight(*simple_index(layouts.kernel, inner, ranges)).astype(total_type)
        product = one * two
        if conditions:
            test = ranges.simplify(all_of(*conditions))
            product = if_then_else(test, product, const(0, total_type))
        return te_sum(product, axis=[rc, *[axis.reduce for axis in axes]])

    total: Tensor = compute(out.shape, element, name=name, varargs_names=axis_names(layouts.out))
    describe_sum(total, [CHANNEL, *[TAP] * len(axes)], _contraction(attrs, x, w))
    return narrowed(total, out.dtype, f"{name}_cast")


class _Axis:
    """One spatial axis: which places of the window an output element reads, and of what."""

    def __init__(self, attrs: ConvTransposeAttrs, sizes: _Sizes, i: int, letter: str) -> None:
        self.letter = letter
        self.stride, self.dilation = attrs.strides[i], attrs.dilation[i]
        self.before, self.after = attrs.before[i], attrs.after[i]
        self.more, self.window = attrs.output_padding[i], sizes.window[i]
        self.common = math.gcd(self.stride, self.dilation)
        self.step = self.stride // self.common
        count = (self.window + (self.step - 1)) // self.step
        self.reduce = reduce_axis((0, count), f"r{letter.lower()}")

    def meeting(self, y: Expr) -> tuple[Expr, Expr, list[Expr]]:
        """The place in the window, the input element, and the conditions under which they are."""
        reach = y + self.before
        inverse = pow(self.dilation // self.common, -1, self.step)
        first = reach // self.common * inverse % self.step
        place = self.reduce.var * self.step + first
        conditions = []
        if self.common > 1:
            conditions.append(reach % self.common == 0)
        whole = int_value(self.window)
        if whole is None or whole % self.step:
            conditions.append(place < self.window)
        if self.dilation == 1:
            return place, reach // self.stride - self.reduce.var, conditions
        return place, (reach - place * self.dilation) // self.stride, conditions

    def border(self) -> tuple[int, int]:
        """Zeros before and after the input, so that every element that is met is there."""
        if not isinstance(self.window, int):
            raise ValueError(f"weight's extent along {self.letter} must be known to compile this")
        reach = (self.window - 1) * self.dilation
        lowest = (self.before - reach) // self.stride
        above_last = (reach + self.more - self.after) // self.stride
        return max(0, -lowest), max(0, above_last)


def _reference(attrs: ConvTransposeAttrs, data: Array, weight: Array) -> Array:
    """Every place of the window adds its products where they fall; the border is cut off.

    As in other convolutions the zeros around the data are factors too: an infinite weight makes NaN
    of them.
    """
    dtype = attrs.out_dtype or str(data.dtype)
    layouts = Layouts.of(attrs)
    axes = f"NC{layouts.spatial}"
    x = widened(to_plain(data, layouts.data, axes), dtype)
    kernel = widened(to_plain(weight, layouts.kernel, f"IO{layouts.spatial}"), dtype)
    sizes = _sizes(attrs, TensorType(data.shape), TensorType(weight.shape))
    result = TensorType(sizes.result).concrete_shape
    borders = [_Axis(attrs, sizes, i, axis).border() for i, axis in enumerate(layouts.spatial)]
    x = np.pad(x, [(0, 0), (0, 0), *borders])
    begins = [
        before + zeros * stride
        for before, (zeros, _), stride in zip(attrs.before, borders, attrs.strides, strict=True)
    ]
    batch, channels, *extents = x.shape
    outer, *window = kernel.shape[1:]
    kernel = kernel.reshape(attrs.groups, channels // attrs.groups, outer, *window)
    pixels = x.reshape(batch, attrs.groups, channels // attrs.groups, math.prod(extents))
    whole = [
        max((n - 1) * s + (k - 1) * d + 1, begin + y)
        for n, s, k, d, begin, y in zip(
            extents, attrs.strides, window, attrs.dilation, begins, result, strict=True
        )
    ]
    total = np.zeros((batch, attrs.groups, outer, *whole), x.dtype)
    for place in np.ndindex(*window):
        met: list[Any] = [
            slice(r * d, r * d + (n - 1) * s + 1, s)
            for r, d, n, s in zip(place, attrs.dilation, extents, attrs.strides, strict=True)
        ]
        product = np.matmul(kernel[(..., *place)].swapaxes(-1, -2), pixels)
        total[(..., *met)] += product.reshape(*product.shape[:3], *extents)
    kept: list[Any] = [slice(a, a + n) for a, n in zip(begins, result, strict=True)]
    made = total[(..., *kept)].reshape(batch, attrs.groups * outer, *result)
    return from_plain(made.astype(numpy_dtype(dtype)), axes, layouts.out)


def _contraction(attrs: ConvTransposeAttrs, data: Type, weight: Type) -> Contraction | None:
    """The contraction that it is; None if some extents are unknown."""
    assert isinstance(data, TensorType) and isinstance(weight, TensorType)
    sizes, layouts = _sizes(attrs, data, weight), Layouts.of(attrs)
    extents = (sizes.batch, sizes.in_channels, sizes.group, *sizes.extents, *sizes.window,
               *sizes.result)
    known = [extent for extent in extents if isinstance(extent, int)]
    if len(known) < len(extents):
        return None
    (batch, inputs, group), rank = known[:3], len(attrs.strides)
    image, window, result = (tuple(known[n : n + rank]) for n in range(3, 3 + 3 * rank, rank))
    return Contraction(
        batch=batch, image=image, inputs=inputs, result=result, outputs=group * attrs.groups,
        data=data.dtype, weight=weight.dtype, out=DataType(attrs.out_dtype or data.dtype),
        window=window, strides=attrs.strides, dilation=attrs.dilation, before=attrs.before,
        after=attrs.after, groups=attrs.groups, data_layout=str(layouts.data),
        out_layout=str(layouts.out), transposed=True,
    )


def _macs(attrs: ConvTransposeAttrs, out: TensorType, data: TensorType, weight: TensorType) -> int:
    """Of products that fall on the result: what is cut off at its borders has none."""
    made = _contraction(attrs, data, weight)
    assert made is not None, "extents are known"
    places = made.batch
    axes = zip(made.image, made.window, made.strides, made.dilation, made.before, made.result,
               strict=True)
    for image, window, stride, dilation, before, result in axes:
        at = np.arange(image)[:, None] * stride + np.arange(window) * dilation - before
        places *= int(np.count_nonzero((at >= 0) & (at < result)))
    return places * made.depth * made.outputs


def _in_float32(
    rank: int, attrs: ConvTransposeAttrs, args: tuple[RelayExpr, ...], processor: Any
) -> RelayExpr | None:
    """Of float16 or bfloat16, with operands that are widened before."""
    made = _contraction(attrs, *map(tensor_type, args))
    pixels = None if made is None else made.pixels
    return convolved_in_float32(f"nn.conv{rank}d_transpose", attrs, args, processor, pixels)


def _register(rank: int, attrs: type[ConvTransposeAttrs], cases: list[Case]) -> None:
    register(OpRecord(
        f"nn.conv{rank}d_transpose",
        inputs=("data", "weight"),
        attrs=attrs,
        infer=_infer,
        complete=_complete,
        compute=_compute,
        reference=_reference,
        contraction=ContractionRules(
            describe=_contraction, widen=partial(_in_float32, rank),
            convert_layout=convert_transposed,
        ),
        macs=_macs,
        legalize=by_phases,
        layout=conv_layout,
        pattern=OUT_ELEMWISE_FUSABLE,
        mixed_precision="always",
        cases=cases,
        doc=f"Transposed convolution along {rank} {'axis' if rank == 1 else 'axes'}.",
    ))


_register(1, Conv1DTransposeAttrs, [
    Case(((1, 3, 5), (3, 4, 4)), {"strides": 2, "padding": 1}),
    Case(((1, 4, 5), (4, 2, 3)), {"strides": 3, "output_padding": 2, "groups": 2}),
    Case(((1, 2, 5), (2, 2, 3)), {"strides": 4, "dilation": 6, "padding": (1, 2)}),
])

_register(2, Conv2DTransposeAttrs, [
    Case(((1, 3, 4, 5), (3, 2, 3, 3)), {"strides": (2, 2), "padding": 1, "output_padding": 1}),
    Case(((2, 3, 4, 4), (2, 3, 3, 4)), {
        "data_layout": "NHWC", "kernel_layout": "HWOI", "strides": (1, 3), "dilation": (2, 1),
        "padding": (0, 1, 2, 0), "channels": 3,
    }),
    Case((((1, 1, 3, 3, 4), "int8"), ((4, 4, 2, 2), "int8")), {
        "data_layout": "NCHW4c", "strides": 2, "out_dtype": "int32",
    }),
    Case(((1, 2, 3, 3), (2, 3, 1, 1)), {"strides": 2, "padding": 1}),
    Case((((1, 3, 3, 3), "float16"), ((3, 2, 3, 3), "float16")), {}, 4e-3),
])

_register(3, Conv3DTransposeAttrs, [
    Case(((1, 2, 2, 3, 3), (2, 3, 2, 3, 2)), {"strides": (1, 2, 2), "padding": (0, 1, 0)}),
    Case(((1, 4, 2, 2, 2), (4, 1, 2, 2, 2)), {"groups": 4, "output_padding": (0, 0, 1),
                                              "strides": 2}),
])

"""Convolutions of quantised tensors: qnn.conv*d, qnn.conv*d_transpose; see products.py.

What lies outside of the data is 0, which a quantised tensor writes as its zero point: the border
consists of zero points before the sums are corrected.
"""

from typing import Any

import numpy as np

from sterna.op.dynamic import tensor_type
from sterna.op.nn._conv_layout import conv_layout, convert_conv, convert_transposed
from sterna.op.nn._conv_shape import Layouts, sizes_of
from sterna.op.nn.conv_transpose import (
    Conv1DTransposeAttrs,
    Conv2DTransposeAttrs,
    Conv3DTransposeAttrs,
    ConvTransposeAttrs,
)
from sterna.op.qnn.products import INPUTS, INT32, Product, case_parameters
from sterna.op.windows import Padding, Windowed
from sterna.relay.attributes import attributes
from sterna.relay.expr import RelayExpr, const
from sterna.relay.op import Case, ContractionRules, call
from sterna.support.dtype import DataType


@attributes
class QnnConvAttrs(Windowed):
    """Of convolutions."""

    kernel_size: tuple[int, ...] | None = None
    channels: int | None = None
    strides: tuple[int, ...] = ()
    padding: Padding = 0
    dilation: tuple[int, ...] = ()
    groups: int = 1
    data_layout: str = ""
    kernel_layout: str = ""
    out_layout: str = ""
    out_dtype: DataType = INT32


@attributes
class QnnConv1DAttrs(QnnConvAttrs):
    """Of qnn.conv1d."""

    kernel_size: tuple[int] | None = None
    strides: tuple[int] = (1,)
    dilation: tuple[int] = (1,)
    data_layout: str = "NCW"
    kernel_layout: str = "OIW"


@attributes
class QnnConv2DAttrs(QnnConvAttrs):
    """Of qnn.conv2d."""

    kernel_size: tuple[int, int] | None = None
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"


@attributes
class QnnConv3DAttrs(QnnConvAttrs):
    """Of qnn.conv3d."""

    kernel_size: tuple[int, int, int] | None = None
    strides: tuple[int, int, int] = (1, 1, 1)
    dilation: tuple[int, int, int] = (1, 1, 1)
    data_layout: str = "NCDHW"
    kernel_layout: str = "OIDHW"


@attributes
class QnnConv1DTransposeAttrs(Conv1DTransposeAttrs):
    """Of qnn.conv1d_transpose."""

    out_dtype: DataType = INT32


@attributes
class QnnConv2DTransposeAttrs(Conv2DTransposeAttrs):
    """Of qnn.conv2d_transpose."""

    out_dtype: DataType = INT32


@attributes
class QnnConv3DTransposeAttrs(Conv3DTransposeAttrs):
    """Of qnn.conv3d_transpose."""

    out_dtype: DataType = INT32


AnyConvAttrs = QnnConvAttrs | ConvTransposeAttrs


def _layouts(attrs: AnyConvAttrs) -> Layouts:
    found = Layouts.of(attrs)
    for layout in (found.data, found.kernel, found.out):
        if layout.is_blocked:
            raise ValueError(f"the layout {layout} has blocks; quantised operands have none")
    return found


def _columns(attrs: AnyConvAttrs, ndim: int) -> int:
    return _layouts(attrs).kernel.index_of("O")


def _summed(attrs: QnnConvAttrs, ndim: int) -> tuple[int, int] | None:
    """Input channels; in groups every one would need its own further ones."""
    layouts = _layouts(attrs)
    return (layouts.data.index_of("C"), layouts.kernel.index_of("I")) if attrs.groups == 1 else None


def _correct(
    attrs: QnnConvAttrs, data: RelayExpr, weight: RelayExpr, zero_point: RelayExpr
) -> RelayExpr:
    layouts, kind = _layouts(attrs), tensor_type(data)
    sizes = sizes_of(attrs, kind, tensor_type(weight))
    zero = call("reshape", zero_point, newshape=())
    border = [(0, 0)] * kind.ndim
    for axis, first, last in zip(layouts.spatial, attrs.before, attrs.after, strict=True):
        border[layouts.data.index_of(axis)] = (first, last)
    if any(first or last for first, last in border):
        value = call("cast", zero, dtype=kind.dtype)
        data = call("nn.pad", data, value, pad_width=tuple(border))
    product = call(f"nn.conv{len(layouts.spatial)}d", data, weight,
                   **{**dict(attrs.items()), "padding": 0})
    channels = "OI" if sizes.multiplied else "O"
    kept = [layouts.kernel.index_of(axis) for axis in channels]
    wide = call("cast", weight, dtype=attrs.out_dtype)
    sums = call("sum", wide, axis=tuple(kept), exclude=True)
    if kept != sorted(kept):
        sums = call("transpose", sums, axes=(1, 0))
    after = len(layouts.out) - 1 - layouts.out.index_of("C")
    sums = call("reshape", sums, newshape=(-1, *[1] * after))
    offset = call("multiply", call("cast", zero, dtype=attrs.out_dtype), sums)
    return call("subtract", product, offset)


def _spread(
    attrs: QnnConvAttrs, weight: RelayExpr, sums: RelayExpr, each: RelayExpr
) -> RelayExpr:
    """The sums of all channels that windows see, of data less its zero point, by output channel."""
    layouts = _layouts(attrs)
    size = list(tensor_type(weight).concrete_shape)
    for axis in "OI":
        size[layouts.kernel.index_of(axis)] = 1
    ones = const(np.ones(size, str(tensor_type(sums).dtype)))
    one = {**dict(attrs.items()), "channels": 1}
    seen = call(f"nn.conv{len(layouts.spatial)}d", sums, ones, **one)
    after = len(layouts.out) - 1 - layouts.out.index_of("C")
    return call("multiply", seen, call("reshape", each, newshape=(-1, *[1] * after)))


def _register(
    rank: int, attrs: Any, transposed: Any, cases: list[Case], others: list[Case]
) -> None:
    names = ("data", "kernel", *INPUTS[2:])
    Product(
        f"nn.conv{rank}d", lambda attrs, ndim: None, _columns, _correct, _summed, _spread, names
    ).register(
        attrs, cases, f"nn.conv{rank}d of quantised data and weights; the scale of its sums is "
        "input_scale * kernel_scale.",
        layout=conv_layout, contraction=ContractionRules(convert_layout=convert_conv),
    )
    Product(f"nn.conv{rank}d_transpose", lambda attrs, ndim: None, _columns).register(
        transposed, others, f"nn.conv{rank}d_transpose of quantised data and weights; the scale "
        "of its sums is input_scale * kernel_scale.",
        layout=conv_layout, contraction=ContractionRules(convert_layout=convert_transposed),
    )


_PARAMETERS = case_parameters(7, -2)

_register(1, QnnConv1DAttrs, QnnConv1DTransposeAttrs, [
    Case((((1, 4, 6), "uint8"), ((2, 2, 3), "int8"), *_PARAMETERS), {"groups": 2, "padding": 1}),
], [
    Case((((1, 2, 4), "int8"), ((2, 3, 3), "int8"), *_PARAMETERS), {"strides": 2, "padding": 1}),
])

_register(2, QnnConv2DAttrs, QnnConv2DTransposeAttrs, [
    Case((((1, 3, 5, 6), "uint8"), ((4, 3, 3, 2), "int8"), *case_parameters(128, [0, 1, -2, 3])), {
        "kernel_size": (3, 2), "channels": 4, "padding": (1, 0, 2, 1), "strides": (2, 1),
    }),
    Case((((1, 4, 4, 2), "int8"), ((3, 3, 2, 3), "int8"), *_PARAMETERS), {
        "data_layout": "NHWC", "kernel_layout": "HWOI", "groups": 2, "padding": 1,
    }),
    Case((((1, 4, 4, 3), "int8"), ((2, 2, 3, 4), "uint8"), *_PARAMETERS), {
        "data_layout": "NHWC", "kernel_layout": "HWIO", "dilation": (1, 2), "out_dtype": "int64",
    }),
], [
    Case((((1, 2, 3, 4), "uint8"), ((2, 3, 3, 3), "int8"), *case_parameters(128, [4, 0, -5])), {
        "strides": (2, 1), "padding": (1, 0), "output_padding": (1, 0),
    }),
])

_register(3, QnnConv3DAttrs, QnnConv3DTransposeAttrs, [
    Case((((1, 2, 3, 4, 3), "uint8"), ((2, 2, 2, 2, 2), "int8"), *_PARAMETERS), {"padding": 1}),
], [
    Case((((1, 2, 2, 2, 3), "int8"), ((2, 2, 2, 2, 2), "int8"), *_PARAMETERS)),
])

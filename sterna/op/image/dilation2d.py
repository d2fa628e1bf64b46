"""Morphological dilation, image.dilation2d: the largest sum of pixels and a window's weights."""

from typing import Any

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim, same_dtype, tensor
from sterna.op.largest import largest, lowest
from sterna.op.windows import (
    Padding,
    Windowed,
    axis_names,
    pad_array,
    padded,
    spatial_layout,
    window_result,
)
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import attributes
from sterna.relay.layout import Layout, from_plain, to_plain
from sterna.relay.op import OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.schedule.products import AS_DATA, narrowed
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute, reduce_axis


@attributes
class Dilation2DAttrs(Windowed):
    """Of image.dilation2d."""

    strides: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0)
    dilations: tuple[int, int] = (1, 1)
    data_layout: str = "NCHW"
    kernel_layout: str = "IHW"
    out_dtype: DataType = AS_DATA

    @property
    def dilation(self) -> tuple[int, int]:  # type: ignore[override]
        """As other windows call it."""
        return self.dilations


def _layouts(attrs: Dilation2DAttrs) -> tuple[Layout, Layout]:
    return (spatial_layout(attrs.data_layout, "NCHW", "data_layout"),
            spatial_layout(attrs.kernel_layout, "IHW", "kernel_layout"))


def _infer(attrs: Dilation2DAttrs, data: Type, weight: Type) -> TensorType:
    outer, inner = _layouts(attrs)
    x, w = tensor(data, "data", len(outer)), tensor(weight, "weight", 3)
    same_dtype([x, w], ["data", "weight"])
    extents, window = outer.dims(x.shape), inner.dims(w.shape)
    expect_dim(window["I"], extents["C"], "weight's number of channels")
    for place, axis in enumerate("HW"):
        extents[axis] = window_result(
            extents[axis], window[axis], attrs.strides[place],
            attrs.before[place] + attrs.after[place], attrs.dilations[place],
        )
    return TensorType(outer.shape(extents), DataType(attrs.out_dtype or x.dtype))


def _compute(attrs: Dilation2DAttrs, out: TensorType, data: Tensor, weight: Tensor) -> Tensor:
    outer, inner = _layouts(attrs)
    window = inner.dims(TensorType(weight.shape).shape)
    source = padded(data, outer, "HW", attrs.before, attrs.after, lowest(data.dtype))
    ranges = {axis: reduce_axis((0, window[axis]), f"r{axis.lower()}") for axis in "HW"}

    def element(*i: Expr) -> Any:
        place = outer.coordinates(i)
        read = {"N": place["N"], "C": place["C"]}
        for number, (axis, r) in enumerate(ranges.items()):
            read[axis] = place[axis] * attrs.strides[number] + r.var * attrs.dilations[number]
        at = {"I": place["C"], "H": ranges["H"].var, "W": ranges["W"].var}
        total = source(*outer.index(read)) + weight(*inner.index(at))
        return largest(total, axis=list(ranges.values()))

    made: Tensor = compute(out.shape, element, name="T_dilation2d", varargs_names=axis_names(outer))
    return narrowed(made, out.dtype, "T_dilation2d_cast")


def _reference(attrs: Dilation2DAttrs, data: Array, weight: Array) -> Array:
    outer, inner = _layouts(attrs)
    w = to_plain(weight, inner, "IHW")
    least = -np.inf if DataType(str(data.dtype)).is_float else np.iinfo(data.dtype).min
    x = pad_array(to_plain(data, outer, "NCHW"), attrs.before, attrs.after, least)
    rows, columns = (
        (size - (k - 1) * dilation - 1) // stride + 1
        for size, k, stride, dilation in zip(
            x.shape[2:], w.shape[1:], attrs.strides, attrs.dilations, strict=True
        )
    )
    made = np.full((*x.shape[:2], rows, columns), least, x.dtype)
    for r, s in np.ndindex(*w.shape[1:]):
        top, left = r * attrs.dilations[0], s * attrs.dilations[1]
        seen = x[:, :, top : top + (rows - 1) * attrs.strides[0] + 1 : attrs.strides[0],
                 left : left + (columns - 1) * attrs.strides[1] + 1 : attrs.strides[1]]
        made = np.maximum(made, seen + w[:, r, s, None, None])
    dtype = attrs.out_dtype or str(data.dtype)
    return from_plain(made.astype(numpy_dtype(dtype)), "NCHW", outer)


register(OpRecord(
    "image.dilation2d",
    inputs=("data", "weight"),
    attrs=Dilation2DAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=OUT_ELEMWISE_FUSABLE,
    cases=[
        Case(((1, 2, 5, 6), (2, 3, 2)), {"padding": (1, 0), "strides": (2, 1)}),
        Case(((2, 6, 5, 3), (2, 2, 3)), {"data_layout": "NHWC", "kernel_layout": "HWI",
                                         "dilations": (2, 1), "padding": (0, 1, 2, 1)}),
        Case(((1, 2, 4, 4), (2, 2, 2)), {"out_dtype": "float16"}, 2e-3),
    ],
    doc="The dilation of images: the largest of data + weight in a window at every place.",
))

"""nn.upsampling and nn.upsampling3d: images stretched by factors."""

import math
from collections.abc import Mapping

from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import tensor
from sterna.op.interpolation import (
    Scaling,
    coordinates_of,
    method_of,
    stretched,
    stretched_array,
)
from sterna.op.windows import axis_names, spatial_layout
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.layout import Layout
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor


@attributes
class UpSamplingAttrs(Attrs):
    """Of nn.upsampling."""

    scale_h: float = 1
    scale_w: float = 1
    layout: str = "NCHW"
    method: str = "nearest_neighbor"
    align_corners: bool = False


@attributes
class UpSampling3DAttrs(Attrs):
    """Of nn.upsampling3d."""

    scale_d: float = 1
    scale_h: float = 1
    scale_w: float = 1
    layout: str = "NCDHW"
    method: str = "nearest_neighbor"
    coordinate_transformation_mode: str = "half_pixel"


_AnyUpSampling = UpSamplingAttrs | UpSampling3DAttrs


def _scales(attrs: _AnyUpSampling) -> dict[str, float]:
    """The factor of every axis that is stretched."""
    scales = {"H": attrs.scale_h, "W": attrs.scale_w}
    return {"D": attrs.scale_d, **scales} if isinstance(attrs, UpSampling3DAttrs) else scales


def _layout(attrs: _AnyUpSampling) -> Layout:
    return spatial_layout(attrs.layout, f"NC{''.join(_scales(attrs))}", "layout")


def _scaled(extent: Dim, scale: float) -> Dim:
    if isinstance(extent, int):
        return math.floor(extent * scale + 0.5)
    return extent * int(scale) if scale.is_integer() and not _unknown(extent) else AnyDim()


def _unknown(extent: Dim) -> bool:
    return isinstance(extent, AnyDim)


def _infer(attrs: _AnyUpSampling, data: Type) -> TensorType:
    layout = _layout(attrs)
    kind = tensor(data, "data", len(layout))
    _method(attrs)
    extents = layout.dims(kind.shape)
    for axis, scale in _scales(attrs).items():
        if scale <= 0:
            raise ValueError(f"scale_{axis.lower()} is more than 0, not {scale}")
        extents[axis] = _scaled(extents[axis], scale)
    return TensorType(layout.shape(extents), kind.dtype)


def _scalings(
    attrs: _AnyUpSampling, have: Mapping[str, Dim], want: Mapping[str, Dim]
) -> dict[int, Scaling]:
    layout, (method, mode) = _layout(attrs), _method(attrs)
    return {
        layout.index_of(axis): Scaling(have[axis], want[axis], method, mode)
        for axis in _scales(attrs)
    }


def _method(attrs: _AnyUpSampling) -> tuple[str, str]:
    method = method_of(attrs.method)
    if isinstance(attrs, UpSamplingAttrs):
        return method, "align_corners" if attrs.align_corners else "asymmetric"
    return method, coordinates_of(attrs.coordinate_transformation_mode)


def _compute(attrs: _AnyUpSampling, out: TensorType, data: Tensor) -> Tensor:
    layout = _layout(attrs)
    have, want = layout.dims(TensorType(data.shape).shape), layout.dims(out.shape)
    return stretched(data, out, _scalings(attrs, have, want), "T_upsampling", axis_names(layout))


def _reference(attrs: _AnyUpSampling, data: Array) -> Array:
    layout = _layout(attrs)
    kind = TensorType(data.shape, DataType(str(data.dtype)))
    have, want = layout.dims(kind.shape), layout.dims(_infer(attrs, kind).shape)
    return stretched_array(data, _scalings(attrs, have, want), kind.dtype)


register(OpRecord(
    "nn.upsampling",
    inputs=("data",),
    attrs=UpSamplingAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=INJECTIVE,
    cases=[
        Case(((1, 2, 3, 4),), {"scale_h": 2, "scale_w": 3}),
        Case(((1, 3, 4, 2),), {"scale_h": 1.5, "scale_w": 2, "layout": "NHWC",
                               "method": "bilinear"}),
        Case(((1, 1, 3, 4, 4),), {"scale_h": 2, "scale_w": 2, "layout": "NCHW4c",
                                  "method": "bilinear", "align_corners": True}),
        Case(((1, 2, 5, 4),), {"scale_h": 2, "scale_w": 2, "method": "bicubic"}),
        Case((((1, 2, 3, 4), "uint8"),), {"scale_h": 2, "scale_w": 0.5, "align_corners": True}),
        Case((((1, 2, 3, 4), "int8"),), {"scale_h": 2, "scale_w": 2, "method": "bilinear"}),
    ],
    doc="Images stretched by two factors; the nearest elements, or between them.",
))

register(OpRecord(
    "nn.upsampling3d",
    inputs=("data",),
    attrs=UpSampling3DAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=INJECTIVE,
    cases=[
        Case(((1, 2, 2, 3, 2),), {"scale_d": 2, "scale_h": 1.5, "scale_w": 3}),
        Case(((1, 2, 3, 2, 2),), {
            "scale_d": 2, "scale_h": 2, "scale_w": 1, "layout": "NDHWC", "method": "trilinear",
        }),
        Case(((1, 1, 2, 3, 2),), {
            "scale_d": 2, "scale_h": 2, "scale_w": 2, "method": "trilinear",
            "coordinate_transformation_mode": "align_corners",
        }),
    ],
    doc="Volumes stretched by three factors; the nearest elements, or between them.",
))

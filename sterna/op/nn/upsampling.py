"""nn.upsampling and nn.upsampling3d: images stretched by factors."""

import math
from typing import Any

import numpy as np

from sterna.ir.build import const
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import tensor
from sterna.op.interpolation import COORDINATES, METHODS, Scaling
from sterna.op.products import FLOAT32, wide
from sterna.op.windows import axis_names, spatial_layout
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.layout import Layout
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute, round

# Names for a method by the number of axes.
_ALIASES = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


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


def _scales(attrs: Any) -> dict[str, float]:
    """The factor of every axis that is stretched."""
    scales = {"H": attrs.scale_h, "W": attrs.scale_w}
    return {"D": attrs.scale_d, **scales} if isinstance(attrs, UpSampling3DAttrs) else scales


def _layout(attrs: Any) -> Layout:
    return spatial_layout(attrs.layout, f"NC{''.join(_scales(attrs))}", "layout")


def _scaled(extent: Dim, scale: float) -> Dim:
    if isinstance(extent, int):
        return math.floor(extent * scale + 0.5)
    return extent * int(scale) if scale.is_integer() and not _unknown(extent) else AnyDim()


def _unknown(extent: Dim) -> bool:
    return isinstance(extent, AnyDim)


def _infer(attrs: Any, data: Type) -> TensorType:
    layout = _layout(attrs)
    kind = tensor(data, "data", len(layout))
    _method(attrs)
    extents = layout.dims(kind.shape)
    for axis, scale in _scales(attrs).items():
        if scale <= 0:
            raise ValueError(f"scale_{axis.lower()} is more than 0, not {scale}")
        extents[axis] = _scaled(extents[axis], scale)
    return TensorType(layout.shape(extents), kind.dtype)


def _method(attrs: Any) -> tuple[str, str]:
    method = _ALIASES.get(attrs.method, attrs.method)
    if method not in METHODS:
        known = ", ".join([*METHODS, *_ALIASES])
        raise ValueError(f"method is one of {known}, not {attrs.method!r}")
    if isinstance(attrs, UpSamplingAttrs):
        return method, "align_corners" if attrs.align_corners else "asymmetric"
    mode = attrs.coordinate_transformation_mode
    if mode not in COORDINATES:
        raise ValueError(
            f"coordinate_transformation_mode is one of {', '.join(COORDINATES)}, not {mode!r}"
        )
    return method, mode


def _compute(attrs: Any, out: TensorType, data: Tensor) -> Tensor:
    layout, (method, mode) = _layout(attrs), _method(attrs)
    have, want = layout.dims(TensorType(data.shape).shape), layout.dims(out.shape)
    dtype = wide(data.dtype) if data.dtype.is_float else FLOAT32
    axes = {axis: layout.index_of(axis) for axis in _scales(attrs)}

    def element(*indices: Expr) -> Any:
        reads: list[tuple[list[Any], Any]] = [(list(indices), None)]
        for axis, place in axes.items():
            scaling = Scaling(have[axis], want[axis], method, mode)
            found = scaling.reads(indices[place], dtype)
            reads = [
                ([*where[:place], index, *where[place + 1 :]], _times(weight, share))
                for where, weight in reads
                for index, share in found
            ]
        if method == "nearest_neighbor":
            return data(*reads[0][0])
        total: Any = const(0, dtype)
        for where, weight in reads:
            total = total + data(*where).astype(dtype) * weight
        return (total if out.dtype.is_float else round(total)).astype(out.dtype)

    made: Tensor = compute(
        out.shape, element, name="T_upsampling", varargs_names=axis_names(layout)
    )
    return made


def _times(weight: Any, share: Any) -> Any:
    return share if weight is None else weight * share


def _reference(attrs: Any, data: Array) -> Array:
    layout, (method, mode) = _layout(attrs), _method(attrs)
    kind = TensorType(data.shape, DataType(str(data.dtype)))
    have, want = layout.dims(kind.shape), layout.dims(_infer(attrs, kind).shape)
    made: Array = data.astype("float64")
    for axis in _scales(attrs):
        matrix = Scaling(have[axis], want[axis], method, mode).matrix()
        place = layout.index_of(axis)
        made = np.moveaxis(np.tensordot(made, matrix, ([place], [1])), -1, place)
    if not kind.dtype.is_float:
        made = np.trunc(made + np.copysign(0.5, made))
    return made.astype(data.dtype)


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
))  # fmt: skip

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
))  # fmt: skip

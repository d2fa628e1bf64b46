"""Images of another size: image.resize1d, image.resize2d, image.resize3d, and of computed sizes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import expect_dim, tensor
from sterna.op.dynamic import (
    DimsLike,
    by_extents,
    length_of,
    open_dims,
    to_static,
    unknown_shape,
)
from sterna.op.integer_rules import carried
from sterna.op.interpolation import (
    ROUNDINGS,
    Scaling,
    coordinates_of,
    method_of,
    stretched,
    stretched_array,
)
from sterna.op.windows import SPATIAL, axis_names, spatial_layout
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import Constant, RelayExprLike
from sterna.relay.layout import Layout
from sterna.relay.layout_rules import with_layout
from sterna.relay.op import INJECTIVE, OPAQUE, Case, OpRecord, register
from sterna.relay.quantized import QuantizedLike, QuantizedResult
from sterna.schedule.products import AS_DATA
from sterna.support.dtype import DataType
from sterna.te import Tensor


@attributes
class _How(Attrs):
    """How places are read: of all resizes."""

    roi: tuple[float, ...] = ()
    layout: str = ""
    method: str = "linear"
    coordinate_transformation_mode: str = "half_pixel"
    rounding_method: str = ""
    cubic_alpha: float = -0.5
    cubic_exclude: bool = False
    extrapolation_value: float = 0.0
    out_dtype: DataType = AS_DATA
    scales: tuple[float, ...] = ()

    def normalize(self) -> None:
        method_of(self.method)
        coordinates_of(self.coordinate_transformation_mode)
        if self.rounding_method and self.rounding_method not in ROUNDINGS:
            raise ValueError(
                f"rounding_method is one of {', '.join(ROUNDINGS)}, not {self.rounding_method!r}"
            )


@attributes
class ResizeAttrs(_How):
    """Of image.resize1d, image.resize2d and image.resize3d."""

    size: tuple[Dim, ...] = ()


@attributes
class DynResizeAttrs(_How):
    """Of resizes to a computed size."""


def _axes(attrs: _How, rank: int) -> tuple[Layout, str]:
    return spatial_layout(attrs.layout, f"NC{SPATIAL[rank]}", "layout"), SPATIAL[rank]


def _rank(attrs: _How) -> int:
    return sum(axis in "DHW" for axis in attrs.layout)


def _checked(attrs: _How, data: Type, size: Sequence[Dim]) -> TensorType:
    rank = _rank(attrs)
    layout, spatial = _axes(attrs, rank)
    kind = tensor(data, "data", len(layout))
    if attrs.coordinate_transformation_mode == "tf_crop_and_resize" or attrs.roi:
        expect_dim(len(attrs.roi), 2 * rank, "the number of parts of roi")
    if attrs.scales:
        expect_dim(len(attrs.scales), rank, "the number of scales")
        if any(scale <= 0 for scale in attrs.scales):
            raise ValueError(f"scales are more than 0, not {attrs.scales}")
    extents = layout.dims(kind.shape)
    for axis, extent in zip(spatial, size, strict=True):
        if not (isinstance(extent, int) and extent == 0) and extents[axis] == 0:
            raise ValueError(f"data has no elements along {axis}; there is nothing to stretch")
        extents[axis] = extent
    return TensorType(layout.shape(extents), DataType(attrs.out_dtype or kind.dtype))


def _infer(attrs: ResizeAttrs, data: Type) -> TensorType:
    rank = _rank(attrs)
    if len(attrs.size) != rank or any(isinstance(e, int) and e < 0 for e in attrs.size):
        raise ValueError(f"size is {rank} extents, not {attrs.size}")
    return _checked(attrs, data, attrs.size)


def _infer_dynamic(attrs: DynResizeAttrs, data: Type, size: Type) -> TensorType:
    rank = _rank(attrs)
    expect_dim(length_of(size, "size"), rank, "the length of size")
    return _checked(attrs, data, unknown_shape(rank))


def _scalings(attrs: _How, have: Mapping[str, Dim], want: Mapping[str, Dim]) -> dict[int, Scaling]:
    rank = _rank(attrs)
    layout, spatial = _axes(attrs, rank)
    made = {}
    for place, axis in enumerate(spatial):
        region = (attrs.roi[place], attrs.roi[rank + place]) if attrs.roi else (0.0, 1.0)
        made[layout.index_of(axis)] = Scaling(
            have[axis], want[axis], method_of(attrs.method), attrs.coordinate_transformation_mode,
            _rounding(attrs), attrs.cubic_alpha, attrs.cubic_exclude, region,
            attrs.scales[place] if attrs.scales else None,
        )
    return made


def _rounding(attrs: _How) -> str:
    """The classic choice where none is named."""
    named: str = attrs.rounding_method
    if named:
        return named
    return "floor" if attrs.coordinate_transformation_mode == "asymmetric" else "round"


def _compute(attrs: _How, out: TensorType, data: Tensor, *size: Tensor) -> Tensor:
    layout, _ = _axes(attrs, _rank(attrs))
    have, want = layout.dims(TensorType(data.shape).shape), layout.dims(out.shape)
    return stretched(data, out, _scalings(attrs, have, want), "T_resize", axis_names(layout),
                     attrs.extrapolation_value)


def _reference(attrs: _How, data: Array, *size: Array) -> Array:
    layout, spatial = _axes(attrs, _rank(attrs))
    have = layout.dims(TensorType(data.shape).shape)
    extents = attrs.size if isinstance(attrs, ResizeAttrs) else size[0].tolist()
    want = {**have, **dict(zip(spatial, extents, strict=True))}
    dtype = DataType(attrs.out_dtype or str(data.dtype))
    return stretched_array(data, _scalings(attrs, have, want), dtype, attrs.extrapolation_value)


def _nearest_integers(name: str) -> Any:
    """The nearest elements are those of integers as well, if none lies outside of the image."""
    moved = carried(name)

    def rule(attrs: ResizeAttrs, operands: Sequence[QuantizedLike]) -> QuantizedResult:
        inside = attrs.coordinate_transformation_mode != "tf_crop_and_resize"
        if not inside or attrs.out_dtype or method_of(attrs.method) != "nearest_neighbor":
            return None
        return moved(attrs, operands)

    return rule


def _register(rank: int, layout: str, cases: list[Case]) -> None:
    name = f"image.resize{rank}d"

    def resize(
        data: RelayExprLike, size: DimsLike, roi: Constant | Sequence[float] | None = None,
        layout: str = layout, method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "",
        cubic_alpha: float = -0.5, cubic_exclude: int = 0, extrapolation_value: float = 0.0,
        out_dtype: str | None = None, scales: Sequence[float] | None = None,
    ) -> Any:
        """An image of another size: the nearest elements, or between them.

        The places of the result lie among the elements as coordinate_transformation_mode says; roi
        (the starts along all axes, then the ends) is the part that tf_crop_and_resize shows.
        scales, where given, take the place of the ratio of sizes.
        """
        region = to_numpy(roi.data).tolist() if isinstance(roi, Constant) else roi
        options = {
            "roi": tuple(region) if region is not None else (), "layout": layout, "method": method,
            "coordinate_transformation_mode": coordinate_transformation_mode,
            "rounding_method": rounding_method, "cubic_alpha": cubic_alpha,
            "cubic_exclude": bool(cubic_exclude), "extrapolation_value": extrapolation_value,
            "out_dtype": out_dtype or "", "scales": tuple(scales) if scales is not None else (),
        }
        extents = open_dims(size)
        if extents is None:
            return make(f"dyn.{name}", data, size, **options)
        return make(name, data, size=extents * rank if len(extents) == 1 else extents, **options)

    resize.__name__ = resize.__qualname__ = f"resize{rank}d"
    register(OpRecord(
        name,
        inputs=("data",),
        attrs=ResizeAttrs,
        infer=_infer,
        compute=_compute,
        reference=_reference,
        builder=resize,
        pattern=INJECTIVE,
        layout=with_layout,
        integer=_nearest_integers(name),
        cases=cases,
        doc=resize.__doc__ or "",
    ))
    register(OpRecord(
        f"dyn.{name}",
        inputs=("data", "size"),
        attrs=DynResizeAttrs,
        infer=_infer_dynamic,
        compute=_compute,
        reference=_reference,
        to_static=to_static(name, "size", open_dims),
        measured=by_extents(f"dyn.{name}"),
        pattern=OPAQUE,
        cases=[Case((cases[0].inputs[0], np.arange(4, 4 + rank)), {"layout": layout})],
        doc=f"{name} to a size that is computed.",
    ))


_register(1, "NCW", [
    Case(((1, 2, 5),), {"size": (9,), "layout": "NCW", "method": "cubic"}),
    Case(((1, 7, 2),), {"size": (4,), "layout": "NWC", "coordinate_transformation_mode":
                        "half_pixel_symmetric", "scales": (0.6,)}),
])

_register(2, "NCHW", [
    Case(((1, 2, 4, 5),), {"size": (7, 3), "layout": "NCHW"}),
    Case(((1, 4, 5, 2),), {"size": (8, 5), "layout": "NHWC", "method": "nearest_neighbor",
                           "coordinate_transformation_mode": "asymmetric"}),
    Case(((1, 1, 4, 5, 4),), {"size": (2, 11), "layout": "NCHW4c", "method": "nearest_neighbor",
                              "rounding_method": "round_prefer_ceil"}),
    Case(((1, 2, 6, 5),), {"size": (9, 4), "layout": "NCHW", "method": "cubic",
                           "cubic_alpha": -0.75, "cubic_exclude": True}),
    Case(((1, 1, 4, 4),), {
        "size": (3, 1), "layout": "NCHW", "roi": (0.4, -0.3, 1.2, 0.8),
        "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0,
    }),
    Case((((1, 2, 4, 5), "uint8"),), {"size": (8, 8), "layout": "NCHW", "method": "cubic",
                                      "coordinate_transformation_mode": "align_corners"}),
    Case((((1, 1, 3, 3), "float16"),), {"size": (1, 5), "layout": "NCHW", "out_dtype": "float32",
                                        "coordinate_transformation_mode": "pytorch_half_pixel"},
         1e-3),
])

_register(3, "NCDHW", [
    Case(((1, 2, 2, 3, 4),), {"size": (3, 5, 2), "layout": "NCDHW"}),
    Case(((1, 2, 3, 4, 1),), {
        "size": (4, 2, 6), "layout": "NDHWC", "method": "nearest_neighbor",
        "rounding_method": "ceil", "coordinate_transformation_mode": "align_corners",
    }),
])

"""Antialiased resizing: images of another size without aliases, image.smooth_resize.

Where an axis shrinks, the kernel that weighs the elements around a place grows with it, so that
every element counts. One axis is resized after the other, each as a sum over the kernel; of a short
kernel all terms are written out.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna.ir.build import as_expr, cast, const, logical_or, maximum, minimum, select
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import axis_of, expect_dim, tensor
from sterna.op.elementwise import Numbers
from sterna.op.indexing import dims_of
from sterna.op.interpolation import (
    FLOAT64,
    INT32,
    Scaling,
    Tap,
    coordinates_of,
    cubic,
    method_of,
    mixed,
)
from sterna.op.tensor.convert import convert, converted
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.schedule.kernel import ROWS, TABLE
from sterna.schedule.products import AS_DATA, FLOAT32, wide
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute, floor, if_then_else, reduce_axis, round
from sterna.te import sum as te_sum

RADIUS = {"linear": 1, "cubic": 2}
# The terms of a sum that need no loop.
MOST_WRITTEN_OUT = 8


@attributes
class SmoothResizeAttrs(Attrs):
    """Of image.smooth_resize."""

    size: tuple[int, ...]
    axes: tuple[int, ...] = (2, 3)
    method: str = "linear"
    coordinate_transformation_mode: str = "half_pixel"
    cubic_alpha: float = -0.5
    exclude_outside: bool = False
    roi: tuple[float, ...] = ()
    extrapolation_value: float = 0.0
    scales: tuple[float, ...] = ()
    out_dtype: DataType = AS_DATA

    def normalize(self) -> None:
        coordinates_of(self.coordinate_transformation_mode)
        if method_of(self.method) not in RADIUS:
            raise ValueError(f"method is one of {', '.join(RADIUS)}, not {self.method!r}")
        count = len(self.axes)
        expect_dim(len(self.size), count, "the number of sizes")
        if self.scales:
            expect_dim(len(self.scales), count, "the number of scales")
        if self.roi or self.coordinate_transformation_mode == "tf_crop_and_resize":
            expect_dim(len(self.roi), 2 * count, "the number of parts of roi")
        if any(scale <= 0 for scale in self.scales):
            raise ValueError(f"scales are more than 0, not {self.scales}")


def _infer(attrs: SmoothResizeAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    shape = list(kind.shape)
    for axis, extent in zip(attrs.axes, attrs.size, strict=True):
        place = axis_of(axis, kind.ndim)
        have = shape[place]
        if type(have) is not int:
            raise ValueError(f"the kernel needs data's extent, but axis {axis} is not known")
        if extent < 0 or (have == 0 and extent > 0):
            raise ValueError(f"axis {axis} of {have} elements cannot be resized to {extent}")
        shape[place] = extent
    return TensorType(tuple(shape), DataType(attrs.out_dtype or kind.dtype))


def _scalings(attrs: SmoothResizeAttrs, shape: Sequence[Dim]) -> dict[int, Scaling]:
    count = len(attrs.axes)
    made = {}
    for place, axis in enumerate(attrs.axes):
        own = axis_of(axis, len(shape))
        extent = shape[own]
        assert isinstance(extent, int)
        made[own] = Scaling(
            extent, attrs.size[place], method_of(attrs.method),
            attrs.coordinate_transformation_mode, alpha=attrs.cubic_alpha,
            exclude=attrs.exclude_outside,
            region=(attrs.roi[place], attrs.roi[count + place]) if attrs.roi else (0.0, 1.0),
            factor=attrs.scales[place] if attrs.scales else None,
        )
    return made


class _Kernel:
    """The weights along one axis: how many elements around a place have one, and which."""

    def __init__(self, scaling: Scaling) -> None:
        self.scaling = scaling
        ratio = scaling.factor or scaling.result / scaling.size
        self.shrink = min(ratio, 1.0)
        self.first = math.floor(-RADIUS[scaling.method] / self.shrink) + 1
        self.count = 2 - 2 * self.first

    def taps(self) -> list[Tap]:
        """Per weight the elements that all places of the result read with it."""
        scaling = self.scaling
        at = np.array([scaling.source(place, float) for place in range(scaling.result)])
        near = (np.floor(at).astype("int64") + self.first)[:, None] + np.arange(self.count)
        weights = _weight(scaling, (near - at[:, None]) * self.shrink, np.where, abs)
        if scaling.exclude:
            weights = np.where((near < 0) | (near >= scaling.size), 0, weights)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
        held = np.clip(near, 0, scaling.size - 1)
        return list(zip(held.T, weights.T, strict=True))

    def stages(self, dtype: DataType, name: str) -> tuple[Tensor, Tensor]:
        """Per place the first element that has a weight, and all weights, each for all places."""
        scaling, count = self.scaling, self.count

        def number(value: float | Expr) -> Expr:
            return const(value, FLOAT64) if isinstance(value, float) else cast(FLOAT64, value)

        first: Tensor = compute(
            (scaling.result,),
            lambda i: floor(scaling.source(i, number)).astype(INT32) + self.first,
            name=f"{name}_first", tag=TABLE,
        )

        def weight(i: Expr, k: Expr) -> Any:
            distance = number(first(i) + k) - scaling.source(i, number)
            made = _weight(scaling, distance * number(self.shrink), select, _size)
            if scaling.exclude:
                index = first(i) + k
                beyond = logical_or(index < 0, index >= scaling.size)
                made = select(beyond, number(0.0), made)
            return made

        raw: Tensor = compute((scaling.result, count), weight, name=f"{name}_share", tag=TABLE)
        k = reduce_axis((0, count), name="k")
        total: Tensor = compute(
            (scaling.result,), lambda i: te_sum(raw(i, k), axis=k), name=f"{name}_total"
        )
        weights: Tensor = compute(
            (count, scaling.result),
            lambda k, i: (
                raw(i, k) / select(total(i).equal(number(0.0)), number(1.0), total(i))
            ).astype(dtype),
            name=f"{name}_weight", tag=TABLE,
        )
        return first, weights


def _size(x: Expr) -> Expr:
    return maximum(x, const(0.0, FLOAT64) - x)


def _weight(
    scaling: Scaling, x: Numbers, choose: Callable[[Numbers, Numbers, Numbers], Numbers],
    size: Callable[[Numbers], Numbers],
) -> Numbers:
    """The kernel's value at a distance; expressions and arrays choose in their own ways."""
    far = size(x)
    zero = far * 0.0
    if scaling.method == "linear":
        return choose(far < 1.0, 1.0 - far, zero)
    inner, outer = cubic(scaling.alpha, far)
    return choose(far <= 1.0, inner, choose(far < 2.0, outer, zero))


def _compute(attrs: SmoothResizeAttrs, out: TensorType, data: Tensor) -> Tensor:
    dtype = wide(data.dtype) if data.dtype.is_float else FLOAT32
    scalings = _scalings(attrs, dims_of(data))
    made, last = data, data.ndim - 1
    for place, (axis, scaling) in enumerate(scalings.items()):
        rows = [*scalings][place + 1 :] == [last]
        made = _along(made, axis, scaling, dtype, ROWS if rows else TABLE)

    def element(*indices: Expr) -> Any:
        value: Any = made(*indices)
        value = convert(value if out.dtype.is_float else round(value), out.dtype)
        for axis, scaling in scalings.items():
            if scaling.coordinates == "tf_crop_and_resize":
                other = convert(const(attrs.extrapolation_value, FLOAT32), out.dtype)
                value = if_then_else(scaling.is_outside(indices[axis]), other, value)
        return value

    result: Tensor = compute(out.shape, element, name="T_smooth")
    return result


def _along(data: Tensor, axis: int, scaling: Scaling, dtype: DataType, tag: str) -> Tensor:
    name = f"T_smooth{axis}"
    kernel = _Kernel(scaling)
    first, weights = kernel.stages(dtype, name)
    shape = [*data.shape[:axis], scaling.result, *data.shape[axis + 1 :]]
    is_last = axis == data.ndim - 1

    def term(indices: tuple[Expr, ...], k: Any) -> Any:
        own = indices[axis]
        index = minimum(maximum(first(own) + k, 0), as_expr(scaling.size) - 1)
        value = data(*indices[:axis], index, *indices[axis + 1 :])
        return value.astype(dtype) * weights(k, own)

    def written_out(*indices: Expr) -> Any:
        value: Any = const(0, dtype)
        for k in range(kernel.count):
            value = value + term(indices, k)
        return value

    if kernel.count <= MOST_WRITTEN_OUT:
        short: Tensor = compute(shape, written_out, name=name, tag="" if is_last else tag)
        return short
    k = reduce_axis((0, kernel.count), name="k")
    made: Tensor = compute(
        shape, lambda *indices: te_sum(term(indices, k.var), axis=k), name=name
    )
    return made


def _reference(attrs: SmoothResizeAttrs, data: Array) -> Array:
    made: Array = data.astype("float64")
    scalings = _scalings(attrs, data.shape)
    for axis, scaling in scalings.items():
        made = mixed(made, axis, _Kernel(scaling).taps())
    dtype = DataType(attrs.out_dtype or str(data.dtype))
    if not dtype.is_float:
        made = np.trunc(made + np.copysign(0.5, made))
    for axis, scaling in scalings.items():
        if scaling.coordinates == "tf_crop_and_resize":
            shape = [-1 if place == axis else 1 for place in range(made.ndim)]
            made = np.where(scaling.outside().reshape(shape), attrs.extrapolation_value, made)
    return converted(made, dtype)


register(OpRecord(
    "image.smooth_resize",
    inputs=("data",),
    attrs=SmoothResizeAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=OPAQUE,
    cases=[
        Case(((1, 2, 7, 9),), {"size": (3, 4)}),
        Case(((1, 2, 7, 5),), {"size": (3, 8), "method": "cubic", "cubic_alpha": -0.75,
                               "exclude_outside": True}),
        Case(((2, 9, 3),), {"size": (2,), "axes": (-2,), "scales": (0.3,), "method": "cubic",
                            "coordinate_transformation_mode": "half_pixel_symmetric"}),
        Case(((1, 1, 8, 8),), {
            "size": (3, 2), "roi": (0.4, -0.3, 1.2, 0.8), "extrapolation_value": 10.0,
            "coordinate_transformation_mode": "tf_crop_and_resize",
        }),
        Case((((1, 8, 6, 1), "uint8"),), {"size": (5, 2), "axes": (1, 2)}),
        Case((((1, 1, 6, 6), "float16"),), {"size": (2, 2), "out_dtype": "float32",
                                            "coordinate_transformation_mode": "align_corners"},
             1e-3),
    ],
    doc="Data resized along axes; where an axis shrinks, each element counts with a weight.\n"
        "method is linear or cubic, places lie as coordinate_transformation_mode says. What is "
        "outside is the element at the edge, or has no weight as exclude_outside says. scales, "
        "where given, take the place of the ratio of sizes.",
))

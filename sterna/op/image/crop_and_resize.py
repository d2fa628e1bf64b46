"""image.crop_and_resize: parts of images, all of one size."""

from typing import Any

import numpy as np

from sterna.ir.build import as_expr, const, logical_or, maximum, minimum
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim, not_empty, of_kind, tensor
from sterna.op.elementwise import Numbers
from sterna.op.indexing import as_index, within
from sterna.op.interpolation import method_of
from sterna.op.tensor.convert import convert, converted
from sterna.op.windows import spatial_layout
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.layout import Layout
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.schedule.products import AS_DATA, FLOAT32
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute, floor, if_then_else, round

INT64 = DataType("int64")


@attributes
class CropAndResizeAttrs(Attrs):
    """Of image.crop_and_resize."""

    crop_size: tuple[int, int]
    layout: str = "NHWC"
    method: str = "bilinear"
    extrapolation_value: float = 0.0
    out_dtype: DataType = AS_DATA

    def normalize(self) -> None:
        method = method_of(self.method)
        if method == "cubic":
            raise ValueError("method is 'bilinear' or 'nearest_neighbor', not 'cubic'")
        self.method = method
        if any(extent < 1 for extent in self.crop_size):
            raise ValueError(f"crop_size is at least 1, not {self.crop_size}")


def _layout(attrs: CropAndResizeAttrs) -> Layout:
    found = spatial_layout(attrs.layout, "NCHW", "layout")
    if found.is_blocked:
        raise ValueError(f"layout '{attrs.layout}' has blocks; transform it first")
    return found


def _infer(attrs: CropAndResizeAttrs, data: Type, boxes: Type, indices: Type) -> TensorType:
    layout = _layout(attrs)
    kind = tensor(data, "data", 4)
    parts = of_kind(tensor(boxes, "boxes", 2), "boxes", "float")
    images = of_kind(tensor(indices, "box_indices", 1), "box_indices", "int", "uint")
    expect_dim(parts.shape[1], 4, "the length of a box")
    expect_dim(images.shape[0], parts.shape[0], "the number of box_indices")
    extents = {**layout.dims(kind.shape), "N": parts.shape[0]}
    extents.update(zip("HW", attrs.crop_size, strict=True))
    read = [layout.index_of(axis) for axis in "NHW"]
    if parts.shape[0] != 0:
        not_empty(kind, "data", read, "boxes read it")
    return TensorType(layout.shape(extents), DataType(attrs.out_dtype or kind.dtype))


def _places(
    first: Numbers, last: Numbers, place: Numbers, count: int, end: Numbers, half: Numbers | float
) -> Numbers:
    """Where a place of a crop lies, of a box from first to last in parts of the image."""
    if count == 1:
        return (first + last) * half * end
    return first * end + place * ((last - first) * end / (count - 1))


def _compute(
    attrs: CropAndResizeAttrs, out: TensorType, data: Tensor, boxes: Tensor, indices: Tensor
) -> Tensor:
    layout = _layout(attrs)
    sizes = layout.dims(TensorType(data.shape).shape)
    zero, half = const(0, FLOAT32), const(0.5, FLOAT32)

    def position(axis: int) -> Tensor:
        end = as_expr(sizes["HW"[axis]]).astype(FLOAT32) - 1.0

        def element(n: Expr, i: Expr) -> Any:
            first, last = (boxes(n, axis + 2 * side).astype(FLOAT32) for side in (0, 1))
            return _places(first, last, i.astype(FLOAT32), attrs.crop_size[axis], end, half)

        made: Tensor = compute((boxes.shape[0], attrs.crop_size[axis]), element,
                               name=f"T_crop_{'yx'[axis]}")
        return made

    rows, columns = position(0), position(1)

    def element(*i: Expr) -> Any:
        place = layout.coordinates(i)
        image = within(as_index(indices(place["N"])), sizes["N"])
        at = {"H": rows(place["N"], place["H"]), "W": columns(place["N"], place["W"])}

        def pixel(y: Expr, x: Expr) -> Expr:
            def held(where: Expr, axis: str) -> Expr:
                last = as_expr(sizes[axis]).astype(FLOAT32) - 1.0
                return minimum(maximum(where, zero), last).astype("int32")

            read = {"N": image, "C": place["C"], "H": held(y, "H"), "W": held(x, "W")}
            return data(*layout.index(read)).astype(FLOAT32)

        if attrs.method == "nearest_neighbor":
            value = pixel(round(at["H"]), round(at["W"]))
        else:
            top, left = floor(at["H"]), floor(at["W"])
            y, x = at["H"] - top, at["W"] - left
            upper = pixel(top, left) * (1.0 - x) + pixel(top, left + 1.0) * x
            lower = pixel(top + 1.0, left) * (1.0 - x) + pixel(top + 1.0, left + 1.0) * x
            value = upper * (1.0 - y) + lower * y
        for axis, where in at.items():
            last = as_expr(sizes[axis]).astype(FLOAT32) - 1.0
            outside = logical_or(where < zero, where > last)
            value = if_then_else(outside, const(attrs.extrapolation_value, FLOAT32), value)
        return convert(value if out.dtype.is_float else round(value), out.dtype)

    made: Tensor = compute(out.shape, element, name="T_crop_and_resize")
    return made


def _reference(attrs: CropAndResizeAttrs, data: Array, boxes: Array, indices: Array) -> Array:
    layout = _layout(attrs)
    order = [layout.index_of(axis) for axis in "NHWC"]
    images = data.transpose(order).astype("float32")
    sizes = images.shape[1:3]
    made = np.empty((len(boxes), *attrs.crop_size, images.shape[3]), "float32")
    for n, box in enumerate(boxes.astype("float32")):
        image = images[int(indices[n])]
        at = [
            np.broadcast_to(_places(box[axis], box[axis + 2],
                                    np.arange(attrs.crop_size[axis], dtype="float32"),
                                    attrs.crop_size[axis], np.float32(sizes[axis] - 1),
                                    np.float32(0.5)), attrs.crop_size[axis])
            for axis in (0, 1)
        ]
        line = [np.clip(where, 0, size - 1) for where, size in zip(at, sizes, strict=True)]
        if attrs.method == "nearest_neighbor":
            y, x = (converted(np.floor(where + 0.5), INT64) for where in line)
            made[n] = image[y][:, x]
        else:
            low = [converted(np.floor(where), INT64) for where in line]
            high = [np.minimum(first + 1, size - 1) for first, size in zip(low, sizes, strict=True)]
            y, x = line[0] - low[0], line[1] - low[1]
            upper = image[low[0]][:, low[1]] * (1 - x)[:, None]
            upper = upper + image[low[0]][:, high[1]] * x[:, None]
            lower = image[high[0]][:, low[1]] * (1 - x)[:, None]
            lower = lower + image[high[0]][:, high[1]] * x[:, None]
            made[n] = upper * (1 - y)[:, None, None] + lower * y[:, None, None]
        outside = [(where < 0) | (where > size - 1) for where, size in zip(at, sizes, strict=True)]
        made[n][outside[0][:, None] | outside[1][None]] = attrs.extrapolation_value
    dtype = DataType(attrs.out_dtype or str(data.dtype))
    whole = made if dtype.is_float else np.trunc(made + np.copysign(0.5, made))
    return converted(whole, dtype).transpose(np.argsort(order))


_BOXES = np.array([[0, 0, 1, 1], [0.1, 0.8, 0.7, 0.2], [-0.2, 0.3, 1.3, 0.9]], "float32")
_INDICES = np.array([1, 0, 1], "int32")

register(OpRecord(
    "image.crop_and_resize",
    inputs=("data", "boxes", "box_indices"),
    attrs=CropAndResizeAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=INJECTIVE,
    mixed_precision="never",
    cases=[
        Case(((2, 5, 6, 3), _BOXES, _INDICES), {"crop_size": (3, 4)}),
        Case(((2, 3, 5, 6), _BOXES, _INDICES), {
            "crop_size": (7, 1), "layout": "NCHW", "method": "nearest_neighbor",
            "extrapolation_value": 9.0,
        }),
        Case((((2, 5, 6, 1), "uint8"), _BOXES, _INDICES), {"crop_size": (1, 3),
                                                           "out_dtype": "float32"}),
    ],
    doc="Boxes (y1, x1, y2, x2, in parts of an image) of the images that box_indices name, all "
        "read at crop_size places; outside of the image lies extrapolation_value.",
))

"""Regions of images as tensors of one size: vision.roi_align, vision.roi_pool.

A region is (image, x1, y1, x2, y2), in pixels of an image that is spatial_scale times the data.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import expect_dim, not_empty, of_kind, same_dtype, tensor
from sterna.op.indexing import INT32, within
from sterna.op.statements import Variable, filled, loops, variable
from sterna.op.tensor.convert import convert
from sterna.op.windows import spatial_layout
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.layout import Layout
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.schedule.products import FLOAT32
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Edges of regions beyond this are held here, so that arithmetic on them does not overflow.
FAR = 1 << 24

# Channels that are read at a place between pixels before the next place is looked for.
TOGETHER = 8

MODES = ("avg", "max", "max_of_shares")


@attributes
class RoiAlignAttrs(Attrs):
    """Of vision.roi_align."""

    pooled_size: tuple[int, int]
    spatial_scale: float
    sample_ratio: int = -1
    layout: str = "NCHW"
    mode: str = "avg"
    aligned: bool = False

    def normalize(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode is one of {', '.join(MODES)}, not {self.mode!r}")


@attributes
class RoiPoolAttrs(Attrs):
    """Of vision.roi_pool."""

    pooled_size: tuple[int, int]
    spatial_scale: float
    layout: str = "NCHW"


def _layout(attrs: RoiAlignAttrs | RoiPoolAttrs) -> Layout:
    found = spatial_layout(attrs.layout, "NCHW", "layout")
    if found.is_blocked:
        raise ValueError(f"layout '{attrs.layout}' has blocks; transform it first")
    return found


def _infer(attrs: RoiAlignAttrs | RoiPoolAttrs, data: Type, rois: Type) -> TensorType:
    layout = _layout(attrs)
    kind = of_kind(tensor(data, "data", 4), "data", "float")
    regions = tensor(rois, "rois", 2)
    same_dtype([kind, regions], ["data", "rois"])
    expect_dim(regions.shape[1], 5, "the length of a region")
    if any(extent < 1 for extent in attrs.pooled_size):
        raise ValueError(f"pooled_size is at least 1, not {attrs.pooled_size}")
    extents = {**layout.dims(kind.shape), "N": regions.shape[0]}
    extents.update(zip("HW", attrs.pooled_size, strict=True))
    if regions.shape[0] != 0:
        read = [layout.index_of(axis) for axis in "NHW"]
        not_empty(kind, "data", read, "regions lie in it")
    return TensorType(layout.shape(extents), kind.dtype)


class _Region:
    """What statements know about one region: along y and x its start, and the size of its bins."""

    def __init__(self, ib: IRBuilder, rois: BufferVar, r: Expr, data: BufferVar, layout: Layout):
        self.ib, self.rois, self.r, self.data, self.layout = ib, rois, r, data, layout
        self.sizes = {axis: data.shape[layout.index_of(axis)] for axis in "NHW"}
        number = convert(rois[r, 0], INT32)
        self.image = ib.let("image", within(number, self.sizes["N"]))

    def end(self, axis: int, side: int) -> Any:
        """An edge of the region as it is given."""
        return build.cast(FLOAT32, self.rois[self.r, 2 - axis + 2 * side])

    def pixel(self, c: Expr, y: Expr, x: Expr) -> Expr:
        """An element of the region's image."""
        at = self.layout.index({"N": self.image, "C": c, "H": y, "W": x})
        return build.cast(FLOAT32, self.data[tuple(at)])


# ---- align ----


def _compute_align(attrs: RoiAlignAttrs, out: TensorType, data: Tensor, rois: Tensor) -> Tensor:
    layout = _layout(attrs)
    channels = data.shape[layout.index_of("C")]
    scale, zero, one = (build.const(v, FLOAT32) for v in (attrs.spatial_scale, 0.0, 1.0))
    offset = build.const(0.5 if attrs.aligned else 0.0, FLOAT32)

    width = math.gcd(build.int_value(channels) or 1, TOGETHER)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        with ib.for_range(0, rois.shape[0], name="r", kind="parallel") as r:
            region = _Region(ib, ins[1], r, ins[0], layout)
            starts, bins, counts = [], [], []
            for axis in (0, 1):
                name, count = "yx"[axis], attrs.pooled_size[axis]
                start = ib.let(f"start_{name}", region.end(axis, 0) * scale - offset)
                length = region.end(axis, 1) * scale - offset - start
                length = length if attrs.aligned else build.maximum(length, one)
                size = ib.let(f"bin_{name}", length / float(count))
                many: Any = build.const(attrs.sample_ratio)
                if attrs.sample_ratio <= 0:
                    many = build.maximum(convert(t.ceil(size), INT32), 0)
                starts.append(start)
                bins.append(size)
                counts.append(ib.let(f"samples_{name}", many))
            samples = ib.let("samples", build.maximum(counts[0] * counts[1], 1))
            held = ib.allocate(FLOAT32, (width,), name="totals", scope="local")
            totals = [Variable(held, n) for n in range(width)]
            with loops(ib, [channels // width, *attrs.pooled_size], "o") as (block, py, px):
                empty = build.less(counts[0] * counts[1], 1)
                lowest = build.const(float("-inf"), FLOAT32)
                for total in totals:
                    total.set(zero if attrs.mode == "avg" else build.select(empty, zero, lowest))
                with loops(ib, counts, "s") as steps:
                    at = [
                        ib.let("yx"[axis], starts[axis]
                               + build.cast(FLOAT32, (py, px)[axis]) * bins[axis]
                               + (build.cast(FLOAT32, steps[axis]) + 0.5) * bins[axis]
                               / build.cast(FLOAT32, counts[axis]))
                        for axis in (0, 1)
                    ]
                    place = _Place(ib, region, at)
                    for n, total in enumerate(totals):
                        _add_sample(attrs.mode, total, place, block * width + n)
                for n, total in enumerate(totals):
                    index = {"N": r, "C": block * width + n, "H": py, "W": px}
                    made = total.get()
                    made = made / build.cast(FLOAT32, samples) if attrs.mode == "avg" else made
                    result[tuple(layout.index(index))] = build.cast(out.dtype, made)

    return filled(out, [data, rois], fill, "T_roi_align")


def _add_sample(mode: str, total: Variable, place: "_Place", c: Expr) -> None:
    pixels: list[Any] = place.weighted_pixels(c)
    if mode == "max_of_shares":
        value = build.maximum(build.maximum(*pixels[:2]), build.maximum(*pixels[2:]))
    else:
        value = pixels[0] + pixels[1] + pixels[2] + pixels[3]
    value = build.select(place.inside, value, build.const(0, FLOAT32))
    total.set(total.get() + value if mode == "avg" else build.maximum(total.get(), value))


class _Place:
    """A place between four pixels of a region's image, the same in all of its channels.

    Nothing counts beyond a pixel outside.
    """

    def __init__(self, ib: IRBuilder, region: _Region, at: Sequence[Expr]) -> None:
        self.region = region
        low, high, rest = [], [], []
        inside: Any = build.const(True)
        for axis, where in enumerate(at):
            size = build.as_expr(region.sizes["HW"[axis]])
            extent = build.cast(FLOAT32, size)
            # NaN is neither above nor below, and so not inside
            inside = build.logical_and(inside, t.all(where >= -1.0, where <= extent))
            safe = build.minimum(build.maximum(where, build.const(0, FLOAT32)), extent - 1.0)
            first = ib.let(f"low{axis}", build.cast("int32", t.floor(safe)))
            low.append(first)
            high.append(ib.let(f"high{axis}", build.minimum(first + 1, size - 1)))
            rest.append(ib.let(f"rest{axis}", safe - build.cast(FLOAT32, first)))
        self.inside = ib.let("inside", inside)
        self.pixels = [
            (row, column, ib.let("weight", weight * other))
            for row, weight in ((low[0], 1.0 - rest[0]), (high[0], rest[0]))
            for column, other in ((low[1], 1.0 - rest[1]), (high[1], rest[1]))
        ]

    def weighted_pixels(self, c: Expr) -> list[Expr]:
        """The four pixels of a channel, each times its weight."""
        return [
            build.mul(self.region.pixel(c, row, column), weight)
            for row, column, weight in self.pixels
        ]


def _reference_align(attrs: RoiAlignAttrs, data: Array, rois: Array) -> Array:
    order = [_layout(attrs).index_of(axis) for axis in "NCHW"]
    images = data.transpose(order).astype("float64")
    made = np.zeros((len(rois), images.shape[1], *attrs.pooled_size))
    offset = 0.5 if attrs.aligned else 0.0
    for r, roi in enumerate(rois.astype("float64")):
        image = images[int(roi[0])]
        starts = roi[[2, 1]] * attrs.spatial_scale - offset
        length = roi[[4, 3]] * attrs.spatial_scale - offset - starts
        bins = (length if attrs.aligned else np.maximum(length, 1)) / attrs.pooled_size
        counts = [attrs.sample_ratio if attrs.sample_ratio > 0 else max(math.ceil(size), 0)
                  for size in bins]
        for place in np.ndindex(*attrs.pooled_size):
            steps = ((np.array(step) + 0.5) / counts for step in np.ndindex(*counts))
            points = [starts + (np.array(place) + step) * bins for step in steps]
            pixels = [_weighted_pixels_at(image, *point) for point in points]
            if not pixels:
                continue
            found = np.array(pixels)
            if attrs.mode == "avg":
                made[(r, slice(None), *place)] = found.sum(1).mean(0)
            else:
                each = found.sum(1) if attrs.mode == "max" else found.max(1)
                made[(r, slice(None), *place)] = each.max(0)
    return made.astype(data.dtype).transpose(np.argsort(order))


def _weighted_pixels_at(image: Array, y: float, x: float) -> Array:
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros((4, image.shape[0]))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    y, x = y - top, x - left
    return np.array([
        image[:, top, left] * (1 - y) * (1 - x), image[:, top, right] * (1 - y) * x,
        image[:, bottom, left] * y * (1 - x), image[:, bottom, right] * y * x,
    ])


_ROIS = np.array(
    [[0, 0.3, 1.1, 9.7, 6.2], [1, 4.0, -3.0, 17.9, 12.1], [1, 5.0, 5.0, 5.2, 5.1]], "float32"
)

register(OpRecord(
    "vision.roi_align",
    inputs=("data", "rois"),
    attrs=RoiAlignAttrs,
    infer=_infer,
    compute=_compute_align,
    reference=_reference_align,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case(((2, 3, 7, 9), _ROIS), {"pooled_size": (3, 2), "spatial_scale": 0.5}, 1e-4),
        Case(((2, 7, 9, 2), _ROIS), {"pooled_size": 2, "spatial_scale": 0.6, "sample_ratio": 2,
                                     "layout": "NHWC", "aligned": True}, 1e-4),
        Case(((2, 16, 7, 9), _ROIS), {"pooled_size": (2, 3), "spatial_scale": 0.5,
                                      "mode": "max"}, 1e-4),
        Case(((2, 1, 7, 9), _ROIS), {"pooled_size": 2, "spatial_scale": 0.5, "sample_ratio": 3,
                                     "mode": "max_of_shares", "aligned": True}, 1e-4),
    ],
    doc="Regions in pooled_size parts, each the average (avg) or the largest (max) of places read "
        "between pixels: sample_ratio of them per axis, or as many as a part has pixels. "
        "max_of_shares takes the largest of pixels times their weights. aligned counts pixels from "
        "their centres, and leaves regions smaller than a pixel as they are.",
))


# ---- pool ----


def _compute_pool(attrs: RoiPoolAttrs, out: TensorType, data: Tensor, rois: Tensor) -> Tensor:
    layout = _layout(attrs)
    channels = data.shape[layout.index_of("C")]
    scale = build.const(attrs.spatial_scale, FLOAT32)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        most = variable(ib, FLOAT32, "most", 0.0)
        with ib.for_range(0, rois.shape[0], name="r") as r:
            region = _Region(ib, ins[1], r, ins[0], layout)
            starts, bins = [], []
            for axis in (0, 1):
                first, last = (
                    build.minimum(build.maximum(convert(t.round(region.end(axis, side) * scale),
                                                        INT32), -FAR), FAR)
                    for side in (0, 1)
                )
                start = ib.let(f"start{axis}", first)
                length = build.maximum(last - start + 1, 1)
                starts.append(start)
                bins.append(ib.let(f"bin{axis}", build.cast(FLOAT32, length)
                                   / float(attrs.pooled_size[axis])))
            with loops(ib, [channels, *attrs.pooled_size], "o") as (c, *place):
                begins, ends = [], []
                for axis in (0, 1):
                    size = build.as_expr(region.sizes["HW"[axis]])
                    step = build.cast(FLOAT32, place[axis])
                    near = build.cast("int32", t.floor(step * bins[axis])) + starts[axis]
                    far = build.cast("int32", t.ceil((step + 1.0) * bins[axis])) + starts[axis]
                    begins.append(ib.let(f"begin{axis}", build.minimum(build.maximum(near, 0),
                                                                       size)))
                    ends.append(ib.let(f"end{axis}", build.minimum(build.maximum(far, 0), size)))
                empty = build.logical_or(ends[0] <= begins[0], ends[1] <= begins[1])
                most.set(build.select(empty, build.const(0.0, FLOAT32),
                                      build.const(float("-inf"), FLOAT32)))
                with ib.for_range(begins[0], build.maximum(ends[0], begins[0]), name="y") as y, \
                     ib.for_range(begins[1], build.maximum(ends[1], begins[1]), name="x") as x:
                    most.set(build.maximum(most.get(), region.pixel(c, y, x)))
                at = tuple(layout.index({"N": r, "C": c, "H": place[0], "W": place[1]}))
                result[at] = build.cast(out.dtype, most.get())

    return filled(out, [data, rois], fill, "T_roi_pool")


def _reference_pool(attrs: RoiPoolAttrs, data: Array, rois: Array) -> Array:
    order = [_layout(attrs).index_of(axis) for axis in "NCHW"]
    images = data.transpose(order)
    made = np.zeros((len(rois), images.shape[1], *attrs.pooled_size), data.dtype)
    scale = np.float32(attrs.spatial_scale)
    for r, roi in enumerate(rois.astype("float32")):
        image = images[int(roi[0])]
        edges = roi[[2, 1, 4, 3]] * scale
        whole = np.trunc(edges + np.copysign(np.float32(0.5), edges)).astype("int64")
        bins = np.maximum(whole[2:] - whole[:2] + 1, 1).astype("float32")
        bins = bins / np.array(attrs.pooled_size, "float32")
        for place in np.ndindex(*attrs.pooled_size):
            step = np.array(place, "float32")
            near = np.floor(step * bins).astype("int64") + whole[:2]
            far = np.ceil((step + 1) * bins).astype("int64") + whole[:2]
            (top, left), (bottom, right) = (np.clip(e, 0, image.shape[1:]) for e in (near, far))
            if top < bottom and left < right:
                seen = image[:, top:bottom, left:right]
                made[(r, slice(None), *place)] = seen.max((1, 2))
    return made.transpose(np.argsort(order))


register(OpRecord(
    "vision.roi_pool",
    inputs=("data", "rois"),
    attrs=RoiPoolAttrs,
    infer=_infer,
    compute=_compute_pool,
    reference=_reference_pool,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case(((2, 3, 7, 9), _ROIS), {"pooled_size": (3, 2), "spatial_scale": 0.5}),
        Case(((2, 7, 9, 2), _ROIS), {"pooled_size": 2, "spatial_scale": 1.0, "layout": "NHWC"}),
    ],
    doc="Regions in pooled_size parts, each the largest of its pixels; 0 if it has none.",
))

"""Images of another size, and images read at places of a grid."""

import math
from typing import Any

from sterna.frontend.onnx.node import (
    Node,
    axes_below,
    call,
    converter,
    dtype_of,
    rank_of,
    reshape,
)
from sterna.frontend.onnx.windows import LAYOUT
from sterna.relay.expr import RelayExpr

_METHOD = {"nearest": "nearest_neighbor", "linear": "linear", "bilinear": "linear",
           "cubic": "cubic"}  # fmt: skip


@converter("Resize", since=10, until=10)
@converter("Upsample")
def upsample(node: Node) -> RelayExpr:
    """Each element of the result reads the place of its index over the scale."""
    scales = node.attr("scales") if node.opset < 9 else node.array(1, "scales").tolist()
    if scales is None:
        scales = [1.0, 1.0, node.attr("height_scale"), node.attr("width_scale")]
    extents = [math.floor(e * s) for e, s in zip(node.shape(), scales, strict=True)]
    attrs = {"method": _METHOD[node.attr("mode", "nearest")], "rounding_method": "floor",
             "coordinate_transformation_mode": "asymmetric"}  # fmt: skip
    return _resized(node, extents, list(scales), [], attrs)


@converter("Resize", since=11)
def resize(node: Node) -> RelayExpr:
    shape = node.shape()
    axes = axes_below(node.attr("axes"), len(shape))
    roi: list[float] = []
    if node.attr("antialias", 0):
        raise ValueError("antialias is not supported; resize by steps instead")
    mode = node.attr("coordinate_transformation_mode", "half_pixel")
    if mode == "tf_crop_and_resize":
        given = [float(v) for v in node.array(1, "roi").reshape(-1)]
        starts, ends = [0.0] * len(shape), [1.0] * len(shape)
        for place, axis in enumerate(axes):
            starts[axis], ends[axis] = given[place], given[len(axes) + place]
        roi = [*starts, *ends]
    extents, scales = list(shape), [1.0] * len(shape)
    if node.has(2) and node.shape(2) != (0,):
        for axis, scale in zip(axes, node.array(2, "scales").reshape(-1), strict=True):
            scales[axis] = float(scale)
            extents[axis] = math.floor(shape[axis] * float(scale))
    else:
        wanted = _wanted(node, [shape[axis] for axis in axes], node.ints(3, "sizes"))
        for axis, (extent, scale) in zip(axes, wanted, strict=True):
            extents[axis], scales[axis] = extent, scale
    attrs = {
        "method": _METHOD[node.attr("mode", "nearest")],
        "coordinate_transformation_mode": mode,
        "rounding_method": node.attr("nearest_mode", "round_prefer_floor"),
        "cubic_alpha": node.attr("cubic_coeff_a", -0.75),
        "cubic_exclude": bool(node.attr("exclude_outside", 0)),
        "extrapolation_value": node.attr("extrapolation_value", 0.0),
    }
    return _resized(node, extents, scales, roi, attrs)


def _wanted(node: Node, have: list[int], sizes: list[int]) -> list[tuple[int, float]]:
    """The extents to reach and the scales they mean, by the policy for the aspect ratio."""
    scales = [size / extent for size, extent in zip(sizes, have, strict=True)]
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return list(zip(sizes, scales, strict=True))
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [(math.floor(scale * extent + 0.5), scale) for extent in have]


def _resized(
    node: Node, extents: list[int], scales: list[float], roi: list[float], attrs: dict[str, Any]
) -> RelayExpr:
    """The last axes resized; those in front, up to two, must stay."""
    data, shape = node[0], node.shape()
    rank = len(shape)
    moved = [axis for axis in range(rank) if extents[axis] != shape[axis] or scales[axis] != 1]
    if attrs["coordinate_transformation_mode"] == "tf_crop_and_resize":
        moved = [a for a in range(rank) if a in moved or (roi[a], roi[rank + a]) != (0.0, 1.0)]
    if not moved:
        return data
    first = min(moved)
    if rank - first > 3:
        raise ValueError(f"axes {moved} of {rank} are resized; at most the last three can be")
    spatial = rank - first
    if attrs["method"] != "nearest_neighbor" and dtype_of(data) not in ("float32", "float64"):
        data = call("cast", data, "float32")
    flat = reshape(data, (1, math.prod(shape[:first]), *shape[first:]))
    starts_ends = (*roi[first:rank], *roi[rank + first :]) if roi else None
    made = call(
        f"image.resize{spatial}d", flat, tuple(extents[first:]), roi=starts_ends,
        layout=LAYOUT[spatial], scales=tuple(scales[first:]), **attrs,
    )  # fmt: skip
    made = reshape(made, extents)
    return made if dtype_of(made) == dtype_of(node[0]) else call("cast", made, dtype_of(node[0]))


@converter("GridSample")
def grid_sample(node: Node) -> RelayExpr:
    rank = rank_of(node[0]) - 2
    grid = call("transpose", node[1], (0, rank + 1, *range(1, rank + 1)))
    method = {"linear": "bilinear", "cubic": "bicubic"}.get(
        node.attr("mode", "bilinear"), node.attr("mode", "bilinear")
    )
    return call(
        "image.grid_sample", node[0], grid, method=method, layout=LAYOUT[rank],
        padding_mode=node.attr("padding_mode", "zeros"),
        align_corners=bool(node.attr("align_corners", 0)),
    )  # fmt: skip


@converter("AffineGrid")
def affine_grid(node: Node) -> RelayExpr:
    size = tuple(node.ints(1, "size")[2:])
    corners = bool(node.attr("align_corners", 0))
    made = call("image.affine_grid", node[0], target_shape=size, align_corners=corners)
    rank = len(size)
    return call("transpose", made, (0, *range(2, rank + 2), 1))

"""Regions of images: which of them to keep, and what is in them."""

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of, parts, rank_of, reshape
from sterna.frontend.onnx.checks import on_axis
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr
from sterna.relay.steps import Trim

# The largest pixel times its weight, rather than the largest value between pixels.
_ROI_MODE = {"avg": "avg", "max": "max_of_shares"}


@converter("RoiAlign", since=10)
def roi_align(node: Node) -> RelayExpr:
    mode = node.attr("mode", "avg")
    if mode not in _ROI_MODE:
        raise ValueError(f"mode is avg or max, not {mode}")
    own = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    places = node.attr("coordinate_transformation_mode", own)
    numbers = reshape(cast(on_axis(node, 2, 0, from_end=False), "float32"), (-1, 1))
    regions = call("concatenate", [numbers, cast(node[1], "float32")], axis=1)
    made = call(
        "vision.roi_align", cast(node[0], "float32"), regions,
        pooled_size=(node.attr("output_height", 1), node.attr("output_width", 1)),
        spatial_scale=node.attr("spatial_scale", 1.0),
        sample_ratio=node.attr("sampling_ratio", 0), mode=_ROI_MODE[mode],
        aligned=places == "half_pixel",
    )
    return cast(made, dtype_of(node[0]))


@converter("MaxRoiPool")
def max_roi_pool(node: Node) -> RelayExpr:
    made = call(
        "vision.roi_pool", cast(node[0], "float32"), cast(node[1], "float32"),
        pooled_size=tuple(node.attr("pooled_shape")),
        spatial_scale=node.attr("spatial_scale", 1.0),
    )
    return cast(made, dtype_of(node[0]))


@converter("NonMaxSuppression", since=10)
def non_max_suppression(node: Node) -> RelayExpr:
    """Rows (image, class, box); how many there are is known when the model has run."""
    if not node.has(2):
        return constant(np.zeros((0, 3), "int64"))
    most = node[2]
    overlap = node[3] if node.has(3) else constant(0.0, "float32")
    least = node[4] if node.has(4) else constant(-np.inf, "float32")
    known = node.decided(2)
    rows, count = parts(
        call(
            "vision.all_class_non_max_suppression", node[0], node[1], most, overlap, least,
            center_point_box=bool(node.attr("center_point_box", 0)),
            room_per_class=-1 if known is None else int(known.item()),
        ), 2,
    )
    return first_of(node, rows, count, 0)


def first_of(node: Node, data: RelayExpr, count: RelayExpr, axis: int) -> RelayExpr:
    """So many of the first slices along an axis, as a number says that is computed."""
    known = node.feeds.value_of(count)
    if known is not None:
        return call("strided_slice", data, (0,), (int(known.item()),), axes=(axis,))
    if not node.feeds.values:
        return Trim(data, count, axis % rank_of(data))
    zero, one = constant(np.zeros(1, "int64")), constant(np.ones(1, "int64"))
    return call("strided_slice", data, zero, cast(count, "int64"), one, axes=(axis,))


@converter("Unique", since=11)
def unique(node: Node) -> list[RelayExpr]:
    """How many different elements there are is known when the model has run."""
    data, axis = node[0], node.attr("axis")
    made = call(
        "unique", reshape(data, (-1,)) if axis is None else data, axis=axis,
        is_sorted=bool(node.attr("sorted", 1)), return_counts=True, dtype="int64",
    )
    values, places, inverse, count, counts = parts(made, 5)
    return [
        first_of(node, values, count, axis or 0), first_of(node, places, count, 0), inverse,
        first_of(node, counts, count, 0),
    ]

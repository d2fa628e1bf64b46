"""Images of another size."""

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of
from sterna.frontend.tflite.node import Node, converter
from sterna.frontend.tflite.resize import bilinear_of_whole_numbers
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr


def _mode(node: Node) -> str:
    if node.attr("align_corners"):
        return "align_corners"
    return "half_pixel" if node.attr("half_pixel_centers") else "asymmetric"


@converter("RESIZE_BILINEAR")
def resize_bilinear(node: Node) -> RelayExpr:
    """Bytes without a sign and without a scale are interpolated as floats."""
    size = tuple(node.ints(1, "the size"))
    if dtype_of(node[0]) in ("int8", "int16") or node.is_quantized():
        return bilinear_of_whole_numbers(node, size)
    is_whole = dtype_of(node[0]) == "uint8"
    data = cast(node[0], "float32") if is_whole else node[0]
    made = call("image.resize2d", data, size, layout="NHWC", method="linear",
                coordinate_transformation_mode=_mode(node))
    if not is_whole:
        return made
    return cast(call("floor", call("add", made, constant(0.5, "float32"))), "uint8")


@converter("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(node: Node) -> RelayExpr:
    """Rows, then columns, each by the places that they read."""
    size = node.ints(1, "the size")
    made = node[0]
    for axis, (extent, wanted) in enumerate(zip(node.shape()[1:3], size, strict=True), 1):
        places = _nearest(extent, wanted, node)
        if not np.array_equal(places, np.arange(extent)):
            made = call("take", made, constant(places.astype(np.int32)), axis=axis)
    return made


def _nearest(extent: int, wanted: int, node: Node) -> Array:
    """The place that every index of the result reads."""
    aligned = bool(node.attr("align_corners")) and wanted > 1
    ratio = np.float32(extent - 1) / np.float32(wanted - 1) if aligned else (
        np.float32(extent) / np.float32(wanted)
    )
    offset = np.float32(0.5 if node.attr("half_pixel_centers") else 0)
    places = (np.arange(wanted, dtype=np.float32) + offset) * ratio
    whole = np.floor(places + np.float32(0.5)) if node.attr("align_corners") else np.floor(places)
    return np.asarray(np.clip(whole.astype(np.int64), 0, extent - 1))

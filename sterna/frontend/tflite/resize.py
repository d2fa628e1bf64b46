"""Bilinear interpolation of whole numbers, as processors' and as reference kernels do."""

import numpy as np

from sterna.frontend.calls import call, cast, constant, dtype_of
from sterna.frontend.tflite.node import TFLM, Node
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr

# The bits of fraction that a place between two pixels has.
REFERENCE_BITS, PROCESSOR_BITS = 10, 11


def bilinear_of_whole_numbers(node: Node, size: tuple[int, ...]) -> RelayExpr:
    """Rows first: each pixel from two above each other, then from two beside each other."""
    bits = REFERENCE_BITS if _is_reference(node) else PROCESSOR_BITS
    data = cast(node[0], _sum_type(node))
    for axis, (extent, wanted) in enumerate(zip(node.shape()[1:3], size, strict=True), 1):
        low, high, part = _places(node, extent, wanted, bits)
        shape = (1, wanted, 1, 1) if axis == 1 else (1, 1, wanted, 1)
        first, second = (
            call("take", data, constant(places.astype(np.int32)), axis=axis)
            for places in (low, high)
        )
        near, far = (
            constant(parts.reshape(shape), _sum_type(node)) for parts in ((1 << bits) - part, part)
        )
        data = call("add", call("multiply", first, near), call("multiply", second, far))
    return cast(_rounded(node, data, 2 * bits), dtype_of(node[0]))


def _is_reference(node: Node) -> bool:
    """Microcontrollers have kernels for bytes with a sign alone, and processors' are for bytes that
    have a scale.
    """
    if node.dtype() == "int8":
        return node.rounding == TFLM or not node.is_quantized()
    return node.dtype() == "int16"


def _sum_type(node: Node) -> str:
    return "int64" if node.dtype() == "int16" else "int32"


def _rounded(node: Node, total: RelayExpr, bits: int) -> RelayExpr:
    """Halves away from zero in reference kernels, upward on processors."""
    wide = _sum_type(node)
    moved = call("add", total, constant(1 << (bits - 1), wide))
    if _is_reference(node):
        below = cast(call("less", total, constant(0, wide)), wide)
        moved = call("subtract", moved, below)
    return call("right_shift", moved, constant(bits, wide))


def _places(node: Node, extent: int, wanted: int, bits: int) -> tuple[Array, Array, Array]:
    """The pixels before and behind every place, and how far it is from the first."""
    half, aligned = bool(node.attr("half_pixel_centers")), bool(node.attr("align_corners"))
    steps = np.arange(wanted)
    one = 1 << bits
    if _is_reference(node):
        ratio = (one * extent + wanted // 2) // wanted
        if aligned and wanted > 1:
            ratio = (one * (extent - 1) + (wanted - 1) // 2) // (wanted - 1)
        places = steps * ratio + (ratio // 2 - one // 2 if half else 0)
        low = np.clip(places >> bits, 0, extent - 1)
        high = np.minimum((places + one - 1) >> bits, extent - 1).clip(0)
        return low, high, places - low * one
    scale = np.float32(extent) / np.float32(wanted)
    if aligned and wanted > 1:
        scale = np.float32(extent - 1) / np.float32(wanted - 1)
    at = steps.astype(np.float32) * scale
    if half:
        offset = np.float32(0.5) * scale - np.float32(0.5)
        at = np.clip(at + offset, 0, np.float32(extent - 1)).astype(np.float32)
    low = at.astype(np.int64)
    high = np.minimum(low + 1, extent - 1)
    part = np.rint((at - low.astype(np.float32)) * np.float32(one)).astype(np.int64)
    return low, high, part

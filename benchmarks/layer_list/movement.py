"""Data movement: transposes, concatenation, slices, padding, resizing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from layer_list.elements import shape_name
from layer_list.layer import Graph, Layer, Make, layers_of
from layer_list.operators import told

LAYERS: list[Layer] = []


def _add(kind: str, name: str, make: Make, variants: str = "") -> None:
    LAYERS.extend(layers_of(kind, name, make, variants))


def transposed(shape: Sequence[int], order: Sequence[int]) -> Make:
    """Axes in another order."""
    return lambda graph: graph.node("Transpose", graph.data(*shape), perm=order)


for _name, _shape, _order in (
    ("channels_last", (1, 64, 112, 112), (0, 2, 3, 1)),
    ("channels_last", (1, 3, 640, 640), (0, 2, 3, 1)),
    ("channels_first", (1, 224, 224, 3), (0, 3, 1, 2)),
    ("channels_first", (1, 28, 28, 256), (0, 3, 1, 2)),
    ("heads", (1, 128, 12, 64), (0, 2, 1, 3)), ("heads", (1, 1500, 6, 64), (0, 2, 1, 3)),
    ("heads_last", (1, 128, 12, 64), (0, 2, 3, 1)), ("matrix", (1000, 1000), (1, 0)),
    ("matrix", (768, 3072), (1, 0)),
    ("matrix", (4096, 64), (1, 0)), ("matrix", (37, 1013), (1, 0)),
    ("boxes", (1, 84, 8400), (0, 2, 1)),
    ("windows", (1, 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5)),
    ("yolo", (1, 3, 85, 40, 40), (0, 1, 3, 4, 2)),
    ("shuffle", (1, 4, 68, 28, 28), (0, 2, 1, 3, 4)), ("time_first", (8, 100, 80), (1, 0, 2)),
    ("video", (1, 3, 8, 112, 112), (0, 2, 3, 4, 1)),
    ("pixel_shuffle", (1, 3, 2, 2, 128, 128), (0, 1, 4, 2, 5, 3)),
):
    _add("transpose", f"{_name}_{shape_name(_shape)}", transposed(_shape, _order))


def concatenated(axis: int, *shapes: Sequence[int]) -> Make:
    """Several inputs along an axis."""
    def make(graph: Graph) -> str:
        made = graph.node("Concat", *(graph.data(*shape) for shape in shapes), axis=axis)
        return graph.result(made)

    return make


for _name, _axis, _shapes, _more in (
    ("densenet", 1, ((1, 256, 28, 28), (1, 32, 28, 28)), "q"),
    ("fire", 1, ((1, 64, 55, 55), (1, 64, 55, 55)), "q"),
    ("inception", 1, ((1, 64, 35, 35), (1, 64, 35, 35), (1, 96, 35, 35), (1, 32, 35, 35)), ""),
    ("unet", 1, ((1, 64, 256, 256), (1, 64, 256, 256)), ""),
    ("yolo", 1, ((1, 256, 20, 20), (1, 256, 20, 20)), ""),
    ("anchors", 1, ((1, 19200, 85), (1, 4800, 85), (1, 1200, 85)), ""),
    ("cache", 2, ((1, 12, 255, 64), (1, 12, 1, 64)), ""),
    ("last", -1, ((1000, 64), (1000, 64)), ""),
    ("last_odd", -1, ((1000, 3), (1000, 5), (1000, 7)), ""),
    ("features", 1, tuple((128, 64) for _ in range(27)), ""),
    ("token", 1, ((1, 1, 768), (1, 196, 768)), ""),
):
    _add("concat", f"{_name}_{len(_shapes)}x{shape_name(_shapes[0])}",
         concatenated(_axis, *_shapes), _more)


def split(shape: Sequence[int], axis: int, parts: int) -> Make:
    """Equal parts."""
    return lambda graph: graph.nodes_with(
        parts, "Split", graph.data(*shape), axis=axis, num_outputs=parts
    )


def sliced(
    shape: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
) -> Make:
    """A part of each axis."""
    return lambda graph: graph.node("Slice", graph.data(*shape), *(
        graph.constant(numbers, "int64")
        for numbers in (starts, ends, range(len(shape)), steps)
    ))


for _shape, _axis, _parts in (
    ((1, 116, 28, 28), 1, 2), ((1, 128, 2304), 2, 3), ((1, 64, 80, 80), 1, 2), ((64, 512), 1, 4),
):
    _add("slice", f"split{_parts}_{shape_name(_shape)}", split(_shape, _axis, _parts))
for _name, _shape, _starts, _ends, _steps in (
    ("crop", (1, 64, 112, 112), (0, 0, 8, 8), (1, 64, 104, 104), (1, 1, 1, 1)),
    ("every_second", (1, 3, 640, 640), (0, 0, 0, 0), (1, 3, 640, 640), (1, 1, 2, 2)),
    ("channels", (1, 256, 56, 56), (0, 64, 0, 0), (1, 192, 56, 56), (1, 1, 1, 1)),
    ("first_token", (8, 197, 768), (0, 0, 0), (8, 1, 768), (1, 1, 1)),
    ("boxes", (1, 25200, 85), (0, 0, 0), (1, 25200, 4), (1, 1, 1)),
    ("reversed", (1000, 1000), (0, 999), (1000, -1001), (1, -1)),
):
    _add("slice", f"{_name}_{shape_name(_shape)}", sliced(_shape, _starts, _ends, _steps))


def _focus(graph: Graph) -> str:
    """Every second pixel of four kinds, side by side."""
    x = graph.data(1, 3, 320, 320)
    axes, steps = graph.constant([2, 3], "int64"), graph.constant([2, 2], "int64")
    ends = graph.constant([320, 320], "int64")
    parts = [graph.node("Slice", x, graph.constant([row, column], "int64"), ends, axes, steps)
             for column in (0, 1) for row in (0, 1)]
    return graph.node("Concat", *parts, axis=1)


def _rolled(graph: Graph) -> str:
    """The shift of windows in Swin."""
    x = graph.data(1, 56, 56, 96)
    for axis in (1, 2):
        low, high = (
            graph.node("Slice", x, *(graph.constant([n], "int64") for n in (start, end, axis)))
            for start, end in ((3, 56), (0, 3))
        )
        x = graph.node("Concat", low, high, axis=axis)
    return x


_add("slice", "focus_1x3x320x320", _focus)
_add("slice", "roll_1x56x56x96", _rolled)


def padded(shape: Sequence[int], amounts: Sequence[int], mode: str) -> Make:
    """More on both sides of each axis."""
    return lambda graph: graph.node(
        "Pad", graph.data(*shape), graph.constant([*amounts, *amounts], "int64"), mode=mode
    )


for _shape, _amounts, _mode in (
    ((1, 64, 112, 112), (0, 0, 1, 1), "constant"), ((1, 3, 256, 256), (0, 0, 4, 4), "reflect"),
    ((1, 64, 64, 64), (0, 0, 1, 1), "reflect"), ((1, 64, 64, 64), (0, 0, 1, 1), "edge"),
    ((1, 80, 3000), (0, 0, 1), "constant"),
):
    _add("pad", f"{_mode}_{shape_name(_shape)}", padded(_shape, _amounts, _mode))


def repeated(op: str, shape: Sequence[int], by: Sequence[int]) -> Make:
    """Tile or Expand."""
    return lambda graph: graph.node(op, graph.data(*shape), graph.constant(by, "int64"))


for _op, _shape, _by in (
    ("Tile", (1, 64, 56, 56), (2, 1, 1, 1)), ("Tile", (1, 128, 1), (1, 1, 64)),
    ("Expand", (1, 512, 1, 1), (1, 512, 32, 32)),
    ("Expand", (4, 1, 256, 64), (4, 8, 256, 64)), ("Tile", (100, 4), (1, 80)),
):
    _add("pad", f"{_op}_{shape_name(_shape)}", repeated(_op, _shape, _by))


def blocks(op: str, shape: Sequence[int], **attributes: Any) -> Make:
    """DepthToSpace or SpaceToDepth."""
    return lambda graph: graph.node(op, graph.data(*shape), blocksize=2, **attributes)


_add("transpose", "DepthToSpace_1x64x128x128",
     blocks("DepthToSpace", (1, 64, 128, 128), mode="CRD"))
_add("transpose", "DepthToSpace_DCR_1x48x64x64", blocks("DepthToSpace", (1, 48, 64, 64)))
_add("transpose", "SpaceToDepth_1x3x320x320", blocks("SpaceToDepth", (1, 3, 320, 320)))


# ---- resizing ----


def resized(shape: Sequence[int], scales: Sequence[float], **attributes: Any) -> Make:
    """An image at another size."""
    return lambda graph: graph.node(
        "Resize", graph.data(shape[0] * graph.variant.batch, *shape[1:]), "",
        graph.constant(np.asarray(scales)), **attributes,
    )


_PYTORCH = {"coordinate_transformation_mode": "half_pixel"}
for _name, _shape, _scale, _attributes, _more in (
    ("nearest", (1, 256, 20, 20), 2,
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
                                      "nearest_mode": "floor"}, "8"),
    ("nearest", (1, 128, 80, 80), 2,
     {"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
                                      "nearest_mode": "floor"}, ""),
    ("linear", (1, 21, 65, 65), 8, {"mode": "linear", **_PYTORCH}, ""),
    ("linear", (1, 64, 64, 64), 2, {"mode": "linear", **_PYTORCH}, "8"),
    ("linear_corners", (1, 64, 32, 32), 2,
     {"mode": "linear", "coordinate_transformation_mode": "align_corners"}, ""),
    ("linear_down", (1, 3, 640, 640), 0.375, {"mode": "linear", **_PYTORCH}, ""),
    ("cubic", (1, 3, 128, 128), 2, {"mode": "cubic", "cubic_coeff_a": -0.75, **_PYTORCH}, ""),
    ("nearest_half", (1, 64, 64, 64), 0.5, {"mode": "nearest", **_PYTORCH}, ""),
):
    _add("resize", f"{_name}_{shape_name(_shape)}_by{told(int(_scale * 100))}",
         resized(_shape, (1, 1, _scale, _scale), **_attributes), _more)


def sampled(shape: Sequence[int], out: tuple[int, int]) -> Make:
    """Pixels at given places, between those that there are."""
    def make(graph: Graph) -> str:
        places = graph.feed(graph.rng.random((shape[0], *out, 2), dtype="float32") * 2.2 - 1.1)
        return graph.node("GridSample", graph.data(*shape), places, mode="linear",
                          padding_mode="zeros", align_corners=0)

    return make


_add("resize", "GridSample_1x64x56x56", sampled((1, 64, 56, 56), (56, 56)))
_add("resize", "GridSample_1x3x224x224", sampled((1, 3, 224, 224), (224, 224)))

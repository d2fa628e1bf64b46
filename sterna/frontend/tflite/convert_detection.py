"""Boxes of detectors: TFLite_Detection_PostProcess, and suppression of those that overlap."""

import struct

import numpy as np

from sterna.frontend.calls import call, cast, constant, parts, reshape
from sterna.frontend.tflite.node import CUSTOM, Node, converter
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

_DETECTION = "TFLite_Detection_PostProcess"


def read_flexbuffer(data: bytes) -> dict[str, int | float | bool]:
    """The numbers of a map in the encoding of flexbuffers, in which custom operators have options.

    The map ends with its type and the width of its root; keys are a vector beside the values.
    """
    if len(data) < 3:
        raise ValueError("its options are no flexbuffer")
    width, kind = data[-1], data[-2]
    at = _behind(data, len(data) - 2 - width, width)
    if kind >> 2 != 9:
        raise ValueError("its options are no map")
    width = 1 << (kind & 3)
    count = _unsigned(data, at - width, width)
    keys = _behind(data, at - 3 * width, width)
    key_width = _unsigned(data, at - 2 * width, width)
    if count > len(data) or key_width not in (1, 2, 4, 8):
        raise ValueError("its options are broken")
    made: dict[str, int | float | bool] = {}
    for index in range(count):
        start = _behind(data, keys + index * key_width, key_width)
        end = data.find(b"\0", start)
        if end < 0:
            raise ValueError("a name among its options has no end")
        own = _unsigned(data, at + count * width + index, 1) >> 2
        made[data[start:end].decode("utf-8", "replace")] = _number(
            data, at + index * width, width, own
        )
    return made


def _unsigned(data: bytes, at: int, width: int) -> int:
    if not 0 <= at <= len(data) - width:
        raise ValueError(f"its options point to byte {at} of {len(data)}")
    return int.from_bytes(data[at : at + width], "little")


def _behind(data: bytes, at: int, width: int) -> int:
    """The place to which the offset at a place leads, backwards."""
    return at - _unsigned(data, at, width)


def _number(data: bytes, at: int, width: int, kind: int) -> int | float | bool:
    whole = _unsigned(data, at, width)
    if kind == 3:
        if width not in (4, 8):
            raise ValueError("a float among its options has no 4 or 8 bytes")
        number: float = struct.unpack("<f" if width == 4 else "<d", data[at : at + width])[0]
        return number
    if kind == 1:
        return whole - (1 << 8 * width) if whole >> (8 * width - 1) else whole
    return bool(whole) if kind == 26 else whole


@converter(_DETECTION, domain=CUSTOM)
def detection_post_process(node: Node) -> list[RelayExpr]:
    """Boxes from what a network says about anchors, the best of them, and their classes.

    The scores of a box are those of its best class; boxes that overlap a better one go.
    """
    options = read_flexbuffer(node.custom_options)
    if options.get("use_regular_nms"):
        raise OpNotImplemented("suppression class by class")
    if int(options.get("max_classes_per_detection", 1)) != 1:
        raise OpNotImplemented("several classes for a box")
    if node.shape()[0] != 1:
        raise OpNotImplemented("several images")
    most = int(options["max_detections"])
    anchors = node.array(2, "its anchors")
    count, classes = int(anchors.shape[0]), int(options["num_classes"])
    boxes = _boxes(node, anchors, options)
    offset = node.shape(1)[2] - classes
    scores = call("strided_slice", reshape(node[1], (count, classes + offset)), (0, offset),
                  (count, classes + offset))
    best, label = call("max", scores, axis=1), call("argmax", scores, axis=1)
    rows = call("concatenate", [
        reshape(cast(call("zeros_like", label), "float32"), (count, 1)), reshape(best, (count, 1)),
        boxes,
    ], axis=1)
    threshold = float(options["nms_score_threshold"])
    valid = parts(call("vision.get_valid_counts", reshape(rows, (1, count, 6)), threshold), 3)
    kept = parts(call(
        "vision.non_max_suppression", valid[1], valid[0], valid[2], most,
        float(options["nms_iou_threshold"]), force_suppress=True, top_k=-1, return_indices=True,
    ), 2)
    return _answers(kept, boxes, best, label, (count, most))


def _boxes(node: Node, anchors: Array, options: dict[str, int | float | bool]) -> RelayExpr:
    """Top, left, bottom and right of every box."""
    count = anchors.shape[0]
    given = reshape(node[0], (count, node.shape()[2]))
    y, x, h, w = (call("strided_slice", given, (0, i), (count, i + 1)) for i in range(4))
    middle_y, middle_x, height, width = (
        constant(anchors[:, i : i + 1].astype(np.float32)) for i in range(4)
    )

    def place(offset: RelayExpr, scale: str, size: RelayExpr, middle: RelayExpr) -> RelayExpr:
        part = call("divide", offset, constant(float(options[scale]), "float32"))
        return call("add", call("multiply", part, size), middle)

    def half(stretch: RelayExpr, scale: str, size: RelayExpr) -> RelayExpr:
        factor = call("exp", call("divide", stretch, constant(float(options[scale]), "float32")))
        return call("multiply", constant(0.5, "float32"), call("multiply", factor, size))

    at_y, at_x = place(y, "y_scale", height, middle_y), place(x, "x_scale", width, middle_x)
    tall, wide = half(h, "h_scale", height), half(w, "w_scale", width)
    ends = (call("subtract", at_y, tall), call("subtract", at_x, wide), call("add", at_y, tall),
            call("add", at_x, wide))
    return call("concatenate", list(ends), axis=1)


def _answers(
    kept: list[RelayExpr], boxes: RelayExpr, best: RelayExpr, label: RelayExpr,
    size: tuple[int, int],
) -> list[RelayExpr]:
    """Boxes, classes, scores and their number; zeros behind the last."""
    count, most = size
    taken = min(count, most)
    index = call("strided_slice", reshape(kept[0], (count,)), (0,), (taken,))
    there = call("greater_equal", index, constant(0, "int32"))
    place = call("maximum", index, constant(0, "int32"))
    none = constant(0, "float32")
    flags = reshape(there, (taken, 1))
    made = [
        call("where", flags, call("take", boxes, place, axis=0), none),
        call("where", there, cast(call("take", label, place, axis=0), "float32"), none),
        call("where", there, call("take", best, place, axis=0), none),
    ]
    if taken < most:
        made = [
            call("nn.pad", one, ((0, most - taken), *[(0, 0)] * (rank - 1)), none)
            for one, rank in zip(made, (2, 1, 1), strict=True)
        ]
    number = call("sum", cast(there, "float32"), axis=(0,), keepdims=True)
    return [reshape(made[0], (1, most, 4)), *(reshape(one, (1, most)) for one in made[1:]), number]


@converter("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(node: Node) -> list[RelayExpr]:
    """The places of boxes that overlap no better one, with zeros behind the last; the fifth form
    gives their scores, too; and how many there are."""
    has_scores = node.kind.endswith("5")
    if has_scores and node.number(5, "the deviation of soft suppression"):
        raise OpNotImplemented("soft suppression")
    count, most = node.shape()[0], int(node.number(2, "the number of boxes"))
    corners = [call("strided_slice", node[0], (0, i), (count, i + 1)) for i in range(4)]
    ends = [call(name, corners[i], corners[i + 2])  # corners may be any two
            for name in ("minimum", "maximum") for i in range(2)]
    scores = reshape(node[1], (count, 1))
    rows = call("concatenate", [call("zeros_like", scores), scores, *ends], axis=1)
    valid = parts(call("vision.get_valid_counts", reshape(rows, (1, count, 6)),
                       float(node.number(4, "the least score"))), 3)
    kept = parts(call(
        "vision.non_max_suppression", valid[1], valid[0], valid[2], most,
        float(node.number(3, "the most overlap")), force_suppress=True, top_k=-1,
        return_indices=True), 2)
    taken = min(count, most)
    index = call("strided_slice", reshape(kept[0], (count,)), (0,), (taken,))
    there, place = call("greater_equal", index, constant(0, "int32")), call(
        "maximum", index, constant(0, "int32"))
    made = [place]
    if has_scores:
        best = call("take", node[1], place, axis=0)
        made.append(call("where", there, best, constant(0, "float32")))
    if taken < most:
        made = [call("nn.pad", one, ((0, most - taken),), constant(0, kind))
                for one, kind in zip(made, ("int32", "float32"), strict=False)]
    return [*made, call("sum", cast(there, "int32"), axis=(0,))]

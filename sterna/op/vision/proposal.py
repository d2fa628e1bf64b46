"""vision.proposal: the regions that a region proposal network (RPN) finds in images.

At every place of the feature map lie anchors, boxes of some sizes and shapes. The network moves
each of them and scores it; of the best, those stay that overlap no better one by much.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.axis_rows import index_type
from sterna.op.checks import expect_dim, map_dims, not_empty, of_kind, same_dtype, tensor
from sterna.op.elementwise import Numbers, quiet
from sterna.op.indexing import INT32, dims_of
from sterna.op.ordering import order_along
from sterna.op.radix_sort import KeyedPlaces, order_key, order_key_type
from sterna.op.statements import filled, loops, variable
from sterna.op.tensor.convert import convert
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.schedule.products import FLOAT32
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class ProposalAttrs(Attrs):
    """Of vision.proposal."""

    scales: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0)
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    feature_stride: int = 16
    threshold: float = 0.7
    rpn_pre_nms_top_n: int = 6000
    rpn_post_nms_top_n: int = 300
    rpn_min_size: int = 16
    iou_loss: bool = False

    def anchors(self) -> list[tuple[float, float, float, float]]:
        """Left, top, right and bottom of the boxes at the first place: per ratio, per scale."""
        size = float(self.feature_stride)
        centre = 0.5 * (size - 1)
        made = []
        for ratio in self.ratios:
            width = math.floor(math.sqrt(math.floor(size * size / ratio)) + 0.5)
            height = math.floor(width * ratio + 0.5)
            for scale in self.scales:
                x, y = 0.5 * (width * scale - 1), 0.5 * (height * scale - 1)
                made.append((centre - x, centre - y, centre + x, centre + y))
        return made


def _infer(attrs: ProposalAttrs, cls_prob: Type, bbox_pred: Type, im_info: Type) -> TensorType:
    scores = of_kind(tensor(cls_prob, "cls_prob", 4), "cls_prob", "float")
    moves, images = tensor(bbox_pred, "bbox_pred", 4), tensor(im_info, "im_info", 2)
    same_dtype([scores, moves, images], ["cls_prob", "bbox_pred", "im_info"])
    count = len(attrs.scales) * len(attrs.ratios)
    batch = scores.shape[0]
    expect_dim(scores.shape[1], 2 * count, "the number of cls_prob's channels, 2 for each anchor,")
    expect_dim(moves.shape[1], 4 * count, "the number of bbox_pred's channels, 4 for each anchor,")
    for place, what in ((0, "batch"), (2, "height"), (3, "width")):
        expect_dim(moves.shape[place], scores.shape[place], f"the {what} of bbox_pred")
    expect_dim(images.shape[0], batch, "the number of images in im_info")
    expect_dim(images.shape[1], 3, "the length of an image's row: height, width and scale")
    if attrs.rpn_post_nms_top_n < 1:
        raise ValueError(f"rpn_post_nms_top_n is at least 1, not {attrs.rpn_post_nms_top_n}")
    not_empty(scores, "cls_prob", (2, 3), "places are chosen from")
    rows = map_dims(lambda images: images * attrs.rpn_post_nms_top_n, batch)
    return TensorType((rows, 5), scores.dtype)


def _moved(
    attrs: ProposalAttrs, box: list[Numbers], move: list[Numbers], exp: Callable[[Numbers], Numbers]
) -> list[Numbers]:
    """A box as the network moves it."""
    if attrs.iou_loss:
        return [edge + step for edge, step in zip(box, move, strict=True)]
    made: list[Any] = [None] * 4
    for axis in (0, 1):
        size = box[axis + 2] - box[axis] + 1.0
        centre = move[axis] * size + (box[axis] + 0.5 * (size - 1.0))
        reach = 0.5 * (exp(move[axis + 2]) * size - 1.0)
        made[axis], made[axis + 2] = centre - reach, centre + reach
    return made


def _compute(attrs: ProposalAttrs, out: TensorType, *inputs: Tensor) -> Tensor:
    batch, _, height, width = dims_of(inputs[0])
    anchors = attrs.anchors()
    count: Any = height * width * len(anchors)
    kind = index_type(count)
    most = attrs.rpn_pre_nms_top_n
    limit = count if most <= 0 else build.minimum(build.as_expr(count), most)
    zero, one = build.const(0.0, FLOAT32), build.const(1.0, FLOAT32)
    stride = float(attrs.feature_stride)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        scores, moves, images = ins
        order = KeyedPlaces(ib, order_key_type(FLOAT32), count, "score")
        boxes = ib.allocate(FLOAT32, (count, 4), name="boxes")
        kept = ib.allocate(kind, (attrs.rpn_post_nms_top_n,), name="kept")
        number = variable(ib, kind, "number", 0)
        free = variable(ib, INT32, "free", 1)

        def predict(b: Expr) -> None:
            edge = [ib.let(name, build.cast(FLOAT32, images[b, i]))
                    for i, name in enumerate(("image_height", "image_width", "image_scale"))]
            ends = [edge[1] - one, edge[0] - one] * 2
            least = ib.let("least", edge[2] * float(attrs.rpn_min_size))
            real = [ib.let(f"real{i}", convert(edge[i] / stride, INT32)) for i in (0, 1)]
            with loops(ib, [height, width], "y") as (y, x):
                place = ib.let("place", (y * width + x) * len(anchors))
                shift = [build.cast(FLOAT32, at) * stride for at in (x, y)] * 2
                for k, anchor in enumerate(anchors):
                    own = [shift[i] + anchor[i] for i in range(4)]
                    move = [build.cast(FLOAT32, moves[b, k * 4 + i, y, x]) for i in range(4)]
                    box = [
                        ib.let(f"edge{i}", build.maximum(build.minimum(each, ends[i]), zero))
                        for i, each in enumerate(_moved(attrs, own, move, t.exp))
                    ]
                    small = build.logical_or(
                        box[2] - box[0] + one < least, box[3] - box[1] + one < least
                    )
                    margin = build.select(small, least * 0.5, zero)
                    for i in range(4):
                        boxes[place + k, i] = box[i] - margin if i < 2 else box[i] + margin
                    beyond = build.logical_or(y >= real[0], x >= real[1])
                    score = build.cast(FLOAT32, scores[b, len(anchors) + k, y, x])
                    score = build.select(build.logical_or(small, beyond), zero - one, score)
                    order.put(place + k, order_key(score, ascending=False), place + k)

        def overlaps(mine: Expr, other: Expr) -> Expr:
            sides, areas = [], [one, one]
            for axis in (0, 1):
                low = build.maximum(boxes[mine, axis], boxes[other, axis])
                high = build.minimum(boxes[mine, axis + 2], boxes[other, axis + 2])
                sides.append(build.maximum(high - low + one, zero))
                for i, box in enumerate((mine, other)):
                    areas[i] = areas[i] * (boxes[box, axis + 2] - boxes[box, axis] + one)
            shared = ib.let("shared", sides[0] * sides[1])
            union = areas[0] + areas[1] - shared
            return shared / union > build.const(attrs.threshold, FLOAT32)

        with ib.for_range(0, batch, name="b") as b:
            predict(b)
            begin = ib.let("begin", order.sort(count))
            number.set(0)
            with ib.for_range(0, limit, name="k") as k, ib.if_scope(
                number.get() < attrs.rpn_post_nms_top_n
            ):
                own = ib.let("own", order.places[begin + k])
                free.set(1)
                with ib.for_range(0, number.get(), name="j") as j, ib.if_scope(
                    overlaps(own, kept[j])
                ):
                    free.set(0)
                with ib.if_scope(free.get() > 0):
                    kept[number.get()] = own
                    number.set(number.get() + 1)
            with ib.for_range(0, attrs.rpn_post_nms_top_n, name="r") as r:
                row = ib.let("row", b * attrs.rpn_post_nms_top_n + r)
                result[row, 0] = build.cast(out.dtype, b)
                some = ib.let("some", kept[r % build.maximum(number.get(), 1)])
                for i in range(4):
                    result[row, i + 1] = build.cast(out.dtype, boxes[some, i])

    return filled(out, list(inputs), fill, "T_proposal")


def _reference(attrs: ProposalAttrs, cls_prob: Array, bbox_pred: Array, im_info: Array) -> Array:
    anchors = attrs.anchors()
    batch, _, height, width = cls_prob.shape
    made = []
    for b in range(batch):
        tall, broad, scale = im_info[b].astype("float32")
        least = scale * np.float32(attrs.rpn_min_size)
        real = [int(np.float32(edge) / attrs.feature_stride) for edge in (tall, broad)]
        boxes, scores = [], []
        for y, x, k in np.ndindex(height, width, len(anchors)):
            shift = np.array([x, y, x, y], "float32") * attrs.feature_stride
            own = list(shift + np.array(anchors[k], "float32"))
            move = list(bbox_pred[b, k * 4 : k * 4 + 4, y, x].astype("float32"))
            ends = np.array([broad, tall, broad, tall], "float32") - 1
            box = np.maximum(np.minimum(np.array(_moved(attrs, own, move, np.exp)), ends), 0)
            small = (box[2:] - box[:2] + 1 < least).any()
            if small:
                box = box + np.array([-1, -1, 1, 1], "float32") * (least / 2)
            score = cls_prob[b, len(anchors) + k, y, x].astype("float32")
            boxes.append(box)
            scores.append(-1 if small or y >= real[0] or x >= real[1] else score)
        order = order_along(np.array(scores, "float32"), 0, ascending=False)
        kept = _kept(attrs, [boxes[place] for place in order])
        for r in range(attrs.rpn_post_nms_top_n):
            made.append([b, *kept[r % len(kept)]])
    return np.array(made).reshape(-1, 5).astype(cls_prob.dtype)


def _kept(attrs: ProposalAttrs, boxes: list[Array]) -> list[Array]:
    """The boxes, of which the best come first, that overlap no better one by much."""
    limit = attrs.rpn_pre_nms_top_n if attrs.rpn_pre_nms_top_n > 0 else len(boxes)
    kept: list[Array] = []
    for box in boxes[:limit]:
        ratios = []
        for other in kept:
            sides = np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2]) + 1
            shared = np.prod(np.maximum(sides, 0))
            areas = [np.prod(each[2:] - each[:2] + 1) for each in (box, other)]
            ratios.append(shared / (sum(areas) - shared))
        if all(not ratio > attrs.threshold for ratio in ratios):
            kept.append(box)
    return kept[: attrs.rpn_post_nms_top_n]


_SIZES = np.array([[60, 70, 1.0], [50, 64, 0.5]], "float32")

register(OpRecord(
    "vision.proposal",
    inputs=("cls_prob", "bbox_pred", "im_info"),
    attrs=ProposalAttrs,
    infer=_infer,
    compute=_compute,
    reference=quiet(_reference),
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case(((2, 12, 4, 5), (2, 24, 4, 5), _SIZES),
             {"scales": (1, 2), "rpn_pre_nms_top_n": 60, "rpn_post_nms_top_n": 12,
              "rpn_min_size": 8}, 1e-3),
        Case(((1, 4, 3, 4), (1, 8, 3, 4), _SIZES[:1]),
             {"scales": (2,), "ratios": (0.5, 2), "threshold": 0.3, "rpn_pre_nms_top_n": -1,
              "rpn_post_nms_top_n": 20, "iou_loss": True}, 1e-3),
    ],
    doc="Rows (image, left, top, right, bottom) of the best regions, rpn_post_nms_top_n per image; "
        "fewer are repeated.\nAt every feature_stride-th pixel lie boxes of scales and ratios. "
        "bbox_pred moves each (its centre and the logarithms of its size, or its edges as iou_loss "
        "says), and the second half of cls_prob scores it. im_info has per image the height, the "
        "width and the scale, by which rpn_min_size is multiplied: smaller regions come last. Of "
        "the best rpn_pre_nms_top_n, those stay that overlap no better one by more than threshold.",
))

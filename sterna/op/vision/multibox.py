"""Anchors of detectors: vision.multibox_prior, and vision.multibox_transform_loc to move them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.checks import expect_dim, map_dims, of_kind, same_dtype, tensor
from sterna.op.elementwise import Numbers
from sterna.op.indexing import INT32, dims_of
from sterna.op.statements import statements, variable
from sterna.op.thread_sort import Positions, each
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import INJECTIVE, OPAQUE, Case, OpRecord, register
from sterna.schedule.products import FLOAT32
from sterna.te import Tensor, compute
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class MultiboxPriorAttrs(Attrs):
    """Of vision.multibox_prior."""

    sizes: tuple[float, ...] = (1.0,)
    ratios: tuple[float, ...] = (1.0,)
    steps: tuple[float, float] = (-1.0, -1.0)
    offsets: tuple[float, float] = (0.5, 0.5)
    clip: bool = False


def _anchors(attrs: MultiboxPriorAttrs) -> list[tuple[float, float]]:
    """Size and ratio of each anchor of a pixel: all sizes with the first ratio, then the ratios."""
    first = [(size, attrs.ratios[0]) for size in attrs.sizes]
    return [*first, *[(attrs.sizes[0], ratio) for ratio in attrs.ratios[1:]]]


def _infer_prior(attrs: MultiboxPriorAttrs, data: Type) -> TensorType:
    kind = of_kind(tensor(data, "data", 4), "data", "float")
    if not attrs.sizes or not attrs.ratios:
        raise ValueError("sizes and ratios hold a number at least")
    count = len(_anchors(attrs))
    pixels: Dim = map_dims(lambda h, w: h * w * count, *kind.shape[2:])
    return TensorType((1, pixels, 4), kind.dtype)


def _compute_prior(attrs: MultiboxPriorAttrs, out: TensorType, data: Tensor) -> Tensor:
    height, width = (build.as_expr(extent) for extent in data.shape[2:])
    anchors = _anchors(attrs)
    count = len(anchors)

    def centre(place: Expr, axis: int, size: Expr) -> Expr:
        step = build.const(1.0, FLOAT32) / build.cast(FLOAT32, size)
        if attrs.steps[axis] > 0:
            step = build.const(attrs.steps[axis], FLOAT32)
        return (build.cast(FLOAT32, place) + attrs.offsets[axis]) * step

    def element(n: Expr, k: Expr, side: Expr) -> Any:
        pixel, own = k // count, k % count
        y, x = centre(pixel // width, 0, height), centre(pixel % width, 1, width)
        shape = build.cast(FLOAT32, height) / build.cast(FLOAT32, width)
        half_w, half_h = build.const(0.0, FLOAT32), build.const(0.0, FLOAT32)
        for number, (size, ratio) in enumerate(anchors):
            mine = own.equal(number)
            root = math.sqrt(ratio)
            half_w = build.select(mine, shape * (size * root / 2), half_w)
            half_h = build.select(mine, build.const(size / root / 2, FLOAT32), half_h)
        horizontal = build.equal(side % 2, 0)
        middle, half = build.select(horizontal, x, y), build.select(horizontal, half_w, half_h)
        value = build.select(side < 2, middle - half, middle + half)
        if attrs.clip:
            low, high = build.const(0.0, FLOAT32), build.const(1.0, FLOAT32)
            value = build.minimum(build.maximum(value, low), high)
        return build.cast(out.dtype, value)

    made: Tensor = compute(out.shape, element, name="T_multibox_prior")
    return made


def _reference_prior(attrs: MultiboxPriorAttrs, data: Array) -> Array:
    height, width = data.shape[2:]
    steps = [given if given > 0 else 1 / size
             for given, size in zip(attrs.steps, (height, width), strict=True)]
    rows = []
    for i, j in np.ndindex(height, width):
        y, x = (i + attrs.offsets[0]) * steps[0], (j + attrs.offsets[1]) * steps[1]
        for size, ratio in _anchors(attrs):
            w, h = size * height / width * math.sqrt(ratio) / 2, size / math.sqrt(ratio) / 2
            rows.append([x - w, y - h, x + w, y + h])
    made = np.array(rows).reshape(1, -1, 4)
    return (np.clip(made, 0, 1) if attrs.clip else made).astype(data.dtype)


register(OpRecord(
    "vision.multibox_prior",
    inputs=("data",),
    attrs=MultiboxPriorAttrs,
    infer=_infer_prior,
    compute=_compute_prior,
    reference=_reference_prior,
    pattern=INJECTIVE,
    mixed_precision="never",
    cases=[
        Case(((1, 2, 3, 4),), {"sizes": (0.5, 0.25), "ratios": (1.0, 2.0, 0.5)}),
        Case(((1, 1, 2, 2),), {"steps": (0.3, 0.6), "offsets": (0.1, 0.9), "clip": True}),
    ],
    doc="Anchors (x1, y1, x2, y2) around every pixel, in parts of the image: one for each of sizes "
        "with the first of ratios, one for each other of ratios with the first of sizes.",
))


# ---- transform_loc ----


@attributes
class MultiboxTransformLocAttrs(Attrs):
    """Of vision.multibox_transform_loc."""

    clip: bool = True
    threshold: float = 0.01
    variances: tuple[float, float, float, float] = (0.1, 0.1, 0.2, 0.2)
    keep_background: bool = False

    def normalize(self) -> None:
        if not self.threshold >= 0:
            raise ValueError(f"threshold is a probability, not {self.threshold}")


def _infer_loc(
    attrs: MultiboxTransformLocAttrs, cls_prob: Type, loc_pred: Type, anchor: Type
) -> TupleType:
    scores, moves = tensor(cls_prob, "cls_prob", 3), tensor(loc_pred, "loc_pred", 2)
    anchors = tensor(anchor, "anchor", 3)
    same_dtype([scores, moves, anchors], ["cls_prob", "loc_pred", "anchor"])
    if scores.dtype != FLOAT32:
        raise ValueError(f"cls_prob has elements of type float32, not {scores.dtype}; cast it")
    images, _, count = scores.shape
    expect_dim(moves.shape[0], images, "the number of images in loc_pred")
    expect_dim(moves.shape[1], map_dims(lambda k: k * 4, count), "the length of loc_pred")
    for place, want in enumerate((1, count, 4)):
        expect_dim(anchors.shape[place], want, f"dimension {place} of anchor")
    return TupleType((TensorType((images, count, 6), FLOAT32), TensorType((images,), INT32)))


def _moved(
    anchor: Sequence[Numbers], move: Sequence[Numbers], variances: Sequence[Numbers | float],
    exp: Callable[[Numbers], Numbers], half: Numbers | float,
) -> list[Numbers]:
    """An anchor moved and stretched as a network says, as (x1, y1, x2, y2)."""
    made = []
    for axis in (0, 1):
        extent = anchor[2 + axis] - anchor[axis]
        middle = (anchor[axis] + anchor[2 + axis]) * half
        centre = move[axis] * variances[axis] * extent + middle
        reach = exp(move[2 + axis] * variances[2 + axis]) * extent * half
        made.append((centre - reach, centre + reach))
    return [made[0][0], made[1][0], made[0][1], made[1][1]]


class _Boxes:
    """The statements that say which class an anchor has, and where it is moved."""

    def __init__(
        self, attrs: MultiboxTransformLocAttrs, ib: IRBuilder, ins: list[BufferVar], classes: Dim
    ) -> None:
        self.attrs, self.ib, self.classes = attrs, ib, classes
        self.scores, self.moves, self.anchors = ins
        self.start = 0 if attrs.keep_background else 1
        self.best = variable(ib, FLOAT32, "best", -1.0)
        self.label = variable(ib, INT32, "label", 0)

    def find(self, n: Expr, k: Expr) -> Expr:
        """Look for the best class of an anchor; gives whether it counts."""
        ib, best, label = self.ib, self.best, self.label
        best.set(-1.0)
        label.set(0)
        with ib.for_range(self.start, self.classes, name="c") as c, ib.if_scope(
            self.scores[n, c, k] > best.get()
        ):
            best.set(self.scores[n, c, k])
            label.set(c)
        found = best.get() >= build.const(self.attrs.threshold, FLOAT32)
        return found if self.attrs.keep_background else build.logical_and(label.get() > 0, found)

    def row(self, n: Expr, k: Expr) -> list[Expr]:
        """The row of the anchor that was looked at last."""
        half, zero, one = (build.const(v, FLOAT32) for v in (0.5, 0.0, 1.0))
        variances = [build.const(v, FLOAT32) for v in self.attrs.variances]
        anchor = [self.anchors[0, k, i] for i in range(4)]
        move = [self.moves[n, k * 4 + i] for i in range(4)]
        box = _moved(anchor, move, variances, t.exp, half)
        if self.attrs.clip:
            box = [build.minimum(build.maximum(edge, zero), one) for edge in box]
        return [build.cast(FLOAT32, self.label.get() - self.start), self.best.get(), *box]


def _compute_loc(
    attrs: MultiboxTransformLocAttrs, out: TupleType, scores: Tensor, moves: Tensor, anchors: Tensor
) -> list[Tensor]:
    images, classes, count = dims_of(scores)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        boxes = _Boxes(attrs, ib, ins, classes)
        number = variable(ib, INT32, "number", 0)
        with ib.for_range(0, images, name="n") as n:
            number.set(0)
            with ib.for_range(0, count, name="k") as k, ib.if_scope(boxes.find(n, k)):
                for column, value in enumerate(boxes.row(n, k)):
                    outs[0][n, number.get(), column] = value
                number.set(number.get() + 1)
            outs[1][n] = number.get()
            with ib.for_range(number.get(), count, name="k") as k:
                for column in range(6):
                    outs[0][n, k, column] = build.const(-1.0, FLOAT32)

    return statements(out, [scores, moves, anchors], fill, "T_multibox_transform_loc")


def _loc_by_threads(
    attrs: MultiboxTransformLocAttrs, out: TupleType, scores: Tensor, moves: Tensor, anchors: Tensor
) -> list[Tensor] | None:
    """The same by threads: prefix sums of all images say where the row of an anchor goes."""
    images, classes, count = dims_of(scores)
    if not isinstance(images, int) or not isinstance(count, int) or not images * count:
        return None

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        places = Positions(ib, images * count)
        kind = places.kind
        with each(ib, images * count, kind) as number:
            boxes = _Boxes(attrs, ib, ins, classes)
            found = boxes.find(number // count, number % count)
            places.sums[number] = build.cast(kind, found)
        places.add_up()
        with each(ib, images, kind) as n:
            total = places[(n + 1) * count] - places[n * count]
            outs[1][n] = build.cast(INT32, total)
        with each(ib, images * count, kind) as number:
            n, k = ib.let("n", number // count), ib.let("k", number % count)
            boxes = _Boxes(attrs, ib, ins, classes)
            first = ib.let("first", places[n * count])
            with ib.if_scope(boxes.find(n, k)):
                for column, value in enumerate(boxes.row(n, k)):
                    outs[0][n, places[number] - first, column] = value
            with ib.if_scope(k >= places[(n + 1) * count] - first):
                for column in range(6):
                    outs[0][n, k, column] = build.const(-1.0, FLOAT32)

    return statements(out, [scores, moves, anchors], fill, "T_multibox_transform_loc")


def _reference_loc(
    attrs: MultiboxTransformLocAttrs, scores: Array, moves: Array, anchors: Array
) -> list[Array]:
    images, _, count = scores.shape
    start = 0 if attrs.keep_background else 1
    rows, numbers = np.full((images, count, 6), -1, "float32"), np.zeros(images, "int32")
    for n, k in np.ndindex(images, count):
        line = scores[n, start:, k]
        label = int(np.argmax(line)) if len(line) else 0
        if not len(line) or not line[label] >= np.float32(attrs.threshold):
            continue
        move = moves[n].reshape(-1, 4)[k].astype("float64")
        box = _moved([*anchors[0, k].astype("float64")], [*move], attrs.variances, np.exp, 0.5)
        held = np.clip(box, 0, 1) if attrs.clip else np.array(box)
        rows[n, numbers[n]] = [label, line[label], *held]
        numbers[n] += 1
    return [rows, numbers]


_SCORES = np.array([[[0.1, 0.9, 0.3, 0.2], [0.7, 0.05, 0.3, 0.3], [0.2, 0.05, 0.4, 0.5]]],
                   "float32")
_ANCHORS = np.array([[[0.1, 0.1, 0.4, 0.5], [0.2, 0.3, 0.4, 0.5], [0.5, 0.4, 0.9, 0.8],
                      [0.6, 0.6, 1.1, 1.2]]], "float32")

register(OpRecord(
    "vision.multibox_transform_loc",
    inputs=("cls_prob", "loc_pred", "anchor"),
    attrs=MultiboxTransformLocAttrs,
    infer=_infer_loc,
    compute=_compute_loc,
    compute_by_threads=_loc_by_threads,
    reference=_reference_loc,
    num_outputs=2,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((_SCORES, (1, 16), _ANCHORS), {"threshold": 0.1}),
        Case((_SCORES, (1, 16), _ANCHORS), {"threshold": 0.45, "clip": False,
                                            "keep_background": True}),
    ],
    doc="Anchors moved as loc_pred says, with their best class and its score if that is at least "
        "threshold: rows (class, score, x1, y1, x2, y2) and their number. The class 0, which is "
        "none, counts only with keep_background.",
))

"""Non-maximum suppression of boxes by class: vision.all_class_non_max_suppression and its kin."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.axis_rows import index_type, product
from sterna.op.checks import expect_dim, of_kind, same_dtype, size_of, tensor
from sterna.op.elementwise import Numbers
from sterna.op.indexing import dims_of, divisor
from sterna.op.ordering import order_along
from sterna.op.quantization import is_single
from sterna.op.radix_sort import KeyedPlaces, order_key, order_key_type
from sterna.op.statements import statements, variable
from sterna.op.thread_sort import KeyedLines, Positions, each
from sterna.op.vision.boxes import KeptBoxes, box_area, shared_part
from sterna.op.vision.thread_suppression import KeptByThreads, Suppression
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, TupleWrapper, const
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.schedule.products import FLOAT32
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder

INT64 = DataType("int64")
LIMITS = ("max_output_boxes_per_class", "iou_threshold", "score_threshold")


@attributes
class AllClassNmsAttrs(Attrs):
    """Of vision.all_class_non_max_suppression."""

    center_point_box: bool = False
    dtype: DataType = INT64
    room_per_class: int = -1

    def rows_per_class(self, count: Dim) -> Any:
        """How many boxes of a class the result has room for."""
        if self.room_per_class < 0:
            return count
        if isinstance(count, int):
            return min(count, self.room_per_class)
        return self.room_per_class


def _infer(attrs: AllClassNmsAttrs, boxes: Type, scores: Type, *limits: Type) -> TupleType:
    places = of_kind(tensor(boxes, "boxes", 3), "boxes", "float")
    known = tensor(scores, "scores", 3)
    same_dtype([places, known], ["boxes", "scores"])
    expect_dim(places.shape[2], 4, "the length of a box")
    expect_dim(known.shape[0], places.shape[0], "the number of images in scores")
    expect_dim(known.shape[2], places.shape[1], "the number of boxes in scores")
    for name, kind, wanted in zip(LIMITS, limits, ("int", "float", "float"), strict=True):
        if not is_single(of_kind(tensor(kind, name), name, wanted).shape):
            raise ValueError(f"{name} is a single number, not {kind!r}")
    images, classes, count = known.shape
    rows = TensorType((size_of((images, classes, attrs.rows_per_class(count))), 3), attrs.dtype)
    return TupleType((rows, TensorType((1,), attrs.dtype)))


def _corners(
    attrs: AllClassNmsAttrs, box: Sequence[Numbers], low: Callable[[Numbers, Numbers], Numbers],
    high: Callable[[Numbers, Numbers], Numbers],
) -> list[Numbers]:
    """The edges of a box in order: first both starts, then both ends."""
    if attrs.center_point_box:
        x, y, width, height = box
        return [y - height / 2, x - width / 2, y + height / 2, x + width / 2]
    ends = [(low(box[i], box[i + 2]), high(box[i], box[i + 2])) for i in (0, 1)]
    return [ends[0][0], ends[1][0], ends[0][1], ends[1][1]]


def _compute(
    attrs: AllClassNmsAttrs, out: TupleType, boxes: Tensor, scores: Tensor, *limits: Tensor
) -> list[Tensor]:
    """Every class finds its rows where its own room in the result begins; then they move up."""
    images, classes, count = dims_of(scores)
    lists = product([images, classes])
    rows_per_class = attrs.rows_per_class(count)
    kind = index_type(product([lists, count]))
    sort_type = order_key_type(FLOAT32)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        places, known = ins[:2]
        rows, total_rows = outs
        most, overlap, least = (
            ib.let(name, limit[tuple([0] * len(limit.shape))])
            for name, limit in zip(LIMITS, ins[2:], strict=True)
        )
        held = build.cast(INT64, build.as_expr(rows_per_class))
        room = ib.let("room", build.select(
            most < 0, held, build.minimum(build.cast(INT64, most), held)
        ))
        numbers = ib.allocate(kind, (lists,), name="numbers")

        def corners(image: Expr, place: Expr) -> list[Expr]:
            read = [build.cast(FLOAT32, places[image, place, i]) for i in range(4)]
            edges = _corners(attrs, read, build.minimum, build.maximum)
            box = [ib.let(f"mine{i}", edge) for i, edge in enumerate(edges)]
            return [*box, ib.let("area", box_area(box))]

        with ib.for_range(0, lists, name="list", dtype=kind, kind="parallel") as one:
            each = divisor(classes)
            image, label = ib.let("image", one // each), ib.let("label", one % each)
            good = KeyedPlaces(ib, sort_type, count, "score")
            found = variable(ib, good.kind, "found", 0)
            with ib.for_range(0, count, name="k", dtype=kind) as k:
                score = ib.let("score", build.cast(FLOAT32, known[image, label, k]))
                good.put(found.get(), order_key(score, ascending=False), k)
                found.set(found.get()
                          + build.select(score > build.cast(FLOAT32, least), 1, 0))
            size = ib.let("size", found.get())
            begin = ib.let("begin", good.sort(size))
            kept = KeptBoxes(ib, rows_per_class, 5)
            with ib.for_range(0, size, name="k") as k, ib.if_scope(
                build.cast(INT64, kept.number.get()) < room
            ):
                own = ib.let("own", good.places[begin + k])
                mine = corners(image, own)
                with ib.if_scope(kept.none_drops(
                    lambda other: shared_part(ib, mine, other) > build.cast(FLOAT32, overlap)
                )):
                    row = ib.let("row", one * rows_per_class + kept.number.get())
                    for column, value in enumerate((image, label, own)):
                        rows[row, column] = build.cast(attrs.dtype, value)
                    kept.add(mine)
            numbers[one] = kept.number.get()
        total = variable(ib, kind, "total", 0)
        with ib.for_range(0, lists, name="list", dtype=kind) as one:
            with ib.for_range(0, numbers[one], name="k") as k:
                for column in range(3):
                    rows[total.get() + k, column] = rows[one * rows_per_class + k, column]
            total.set(total.get() + numbers[one])
        total_rows[0] = build.cast(attrs.dtype, total.get())
        with ib.for_range(total.get(), build.cast(kind, rows.shape[0]), name="k") as k:
            for column in range(3):
                rows[k, column] = build.const(0, attrs.dtype)

    return statements(out, [boxes, scores, *limits], fill, "T_nms")


def _by_threads(
    attrs: AllClassNmsAttrs, out: TupleType, boxes: Tensor, scores: Tensor, *limits: Tensor
) -> list[Tensor] | None:
    """The same by threads: all lists are sorted together, and a block goes through each."""
    images, classes, count = (build.int_value(dim) for dim in dims_of(scores))
    if not images or not classes or not count:
        return None
    lists, room = images * classes, attrs.rows_per_class(count)
    if not room:
        return None
    key = order_key_type(FLOAT32)
    last = build.const((1 << FLOAT32.bits) - 1, key)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        places, known = ins[:2]
        rows, total_rows = outs
        most, overlap, least = (limit[tuple([0] * len(limit.shape))] for limit in ins[2:])
        lines = KeyedLines(ib, key, lists, count)
        counts = Positions(ib, lists * count)

        def score(number: Expr) -> Expr:
            one, k = number // count, number % count
            return build.cast(FLOAT32, known[one // classes, one % classes, k])

        def is_good(number: Expr) -> Expr:
            return score(number) > build.cast(FLOAT32, least)

        counts.mark(is_good)
        lines.fill(lambda one, k: build.select(
            is_good(one * count + k), order_key(score(one * count + k), ascending=False), last))
        begin = lines.sort()

        def box_at(one: Expr, k: Expr) -> list[Expr]:
            place = ib.let("place", lines.places[begin + one * count + k])
            read = [build.cast(FLOAT32, places[one // classes, place, i]) for i in range(4)]
            edges = _corners(attrs, read, build.minimum, build.maximum)
            box = [ib.let(f"edge{i}", edge) for i, edge in enumerate(edges)]
            return [*box, ib.let("area", box_area(box))]

        kept = KeptByThreads(ib, Suppression(
            lists, room, 5, lambda one: counts[(one + 1) * count] - counts[one * count], box_at,
            lambda one, k, number: build.logical_or(
                most < 0, build.cast(INT64, number) < build.cast(INT64, most)),
            lambda mine, other: shared_part(ib, mine, other) > build.cast(FLOAT32, overlap),
        ))
        starts = Positions(ib, lists)
        with each(ib, lists, starts.kind) as one:
            starts.sums[one] = build.cast(starts.kind, kept.numbers[one])
        starts.add_up()
        with each(ib, lists * room, kept.kind) as number:
            one, k = ib.let("list", number // room), ib.let("k", number % room)
            with ib.if_scope(number >= starts.total):
                for column in range(3):
                    rows[number, column] = build.const(0, attrs.dtype)
            with ib.if_scope(k < kept.numbers[one]):
                row = ib.let("row", starts[one] + k)
                place = lines.places[begin + one * count + kept.ranks[number]]
                for column, value in enumerate((one // classes, one % classes, place)):
                    rows[row, column] = build.cast(attrs.dtype, value)
        with each(ib, 1, kept.kind) as first:
            total_rows[first] = build.cast(attrs.dtype, starts.total)

    return statements(out, [boxes, scores, *limits], fill, "T_nms")


def _reference(
    attrs: AllClassNmsAttrs, boxes: Array, scores: Array, most: Array, *thresholds: Array
) -> list[Array]:
    most_alike, least = (np.float32(threshold.item()) for threshold in thresholds)
    room = attrs.rows_per_class(scores.shape[2])
    limit = min(int(most.item()), room) if most.item() >= 0 else room
    found: list[tuple[int, int, int]] = []
    for image, label in np.ndindex(*scores.shape[:2]):
        line = scores[image, label].astype("float32")
        kept: list[Array] = []
        for place in order_along(line, 0, ascending=False):
            if not line[place] > least or len(kept) >= limit:
                continue
            edges = _corners(attrs, boxes[image, place].astype("float32"), min, max)
            mine = np.array(edges, "float32")
            if all(overlap(mine, other) <= most_alike for other in kept):
                kept.append(mine)
                found.append((image, label, int(place)))
    made = np.zeros((scores.shape[0] * scores.shape[1] * room, 3), numpy_dtype(attrs.dtype))
    made[: len(found)] = np.array(found).reshape(-1, 3)
    return [made, np.array([len(found)], made.dtype)]


def overlap(a: Array, b: Array) -> Any:
    """The part of two boxes' union that they share; boxes are both starts, then both ends."""
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    shared = sides[0] * sides[1]
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared
    return shared / union if union > 0 else np.float32(0)


def _all_class_nms(
    boxes: RelayExprLike, scores: RelayExprLike, max_output_boxes_per_class: RelayExprLike = -1,
    iou_threshold: RelayExprLike = -1.0, score_threshold: RelayExprLike = -1.0,
    output_format: str = "onnx", center_point_box: bool = False, dtype: str = "int64",
    room_per_class: int = -1,
) -> Any:
    """The boxes of every class that overlap no better one by more than iou_threshold.

    boxes are (images, boxes, 4), two opposite corners y, x, y, x or, as center_point_box, the
    centre x, y and the extents; scores are (images, classes, boxes). Rows (image, class, box), of
    each class the best first, fill the beginning of the first result; the second is their number.
    Boxes count whose score is above score_threshold, at most max_output_boxes_per_class, all if
    that is below 0. The result has room for all boxes of every class, or for room_per_class of
    them, and no more are found.
    """
    if output_format != "onnx":
        raise ValueError(f"output_format is 'onnx', not {output_format!r}")
    given = (max_output_boxes_per_class, iou_threshold, score_threshold)
    limits = [
        value if isinstance(value, RelayExpr) else const(np.asarray(value).astype(kind))
        for value, kind in zip(given, ("int64", "float32", "float32"), strict=True)
    ]
    made: TupleWrapper = make("vision.all_class_non_max_suppression", boxes, scores, *limits,
                              center_point_box=center_point_box, dtype=dtype,
                              room_per_class=room_per_class)
    return made


_BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 0.9, 1, -0.1], [0, 10, 1, 11],
                    [0, 10.1, 1, 11.1], [0, 100, 1, 101]]], "float32")
_SCORES = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3], [0.1, 0.2, 0.9, 0.2, 0.9, np.nan]]],
                   "float32")


def _limits(most: int, overlap: float, least: float) -> tuple[Any, ...]:
    return np.array([most]), np.array([overlap], "float32"), np.array(least, "float32")


register(OpRecord(
    "vision.all_class_non_max_suppression",
    inputs=("boxes", "scores", *LIMITS),
    attrs=AllClassNmsAttrs,
    infer=_infer,
    compute=_compute,
    compute_by_threads=_by_threads,
    reference=_reference,
    builder=_all_class_nms,
    num_outputs=2,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((_BOXES, _SCORES, *_limits(3, 0.5, 0.0))),
        Case((_BOXES, _SCORES, *_limits(-1, 0.5, 0.4)), {"dtype": "int32"}),
        Case((_BOXES, _SCORES, *_limits(0, 0.5, 0.0))),
        Case((_BOXES, _SCORES, *_limits(9, 0.5, 0.0)), {"room_per_class": 2}),
        Case((np.abs(np.random.default_rng(5).standard_normal((2, 9, 4))).astype("float32"),
              (2, 3, 9), *_limits(4, 0.3, -0.5)), {"center_point_box": True}),
    ],
    doc=_all_class_nms.__doc__ or "",
))

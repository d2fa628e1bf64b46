"""Non-maximum suppression of rows: vision.get_valid_counts, vision.non_max_suppression.

A row holds a score, a box (x1, y1, x2, y2 from coord_start on) and, if id_index is not negative, a
class. Rows without a detection are filled with -1.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.axis_rows import index_type
from sterna.op.checks import expect_dim, of_kind, tensor
from sterna.op.indexing import INT32, as_index, dims_of, within
from sterna.op.ordering import order_along
from sterna.op.radix_sort import KeyedPlaces, order_key, order_key_type
from sterna.op.statements import statements, variable
from sterna.op.thread_sort import SHORTEST_BY_THREADS, KeyedLines, Positions, each
from sterna.op.vision.boxes import KeptBoxes, box_area, shared_part
from sterna.op.vision.nms import overlap
from sterna.op.vision.thread_suppression import KeptByThreads, Suppression
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExprLike, TupleWrapper
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.schedule.products import FLOAT32
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class ValidCountsAttrs(Attrs):
    """Of vision.get_valid_counts."""

    score_threshold: float
    id_index: int = 0
    score_index: int = 1


def _rows(data: Type, *columns: tuple[str, int]) -> TensorType:
    kind = tensor(data, "data", 3)
    if kind.dtype != "float32":
        raise ValueError(f"data has elements of type float32, not {kind.dtype}; cast it")
    width = kind.shape[2]
    for name, column in columns:
        if isinstance(width, int) and not column < width:
            raise ValueError(f"{name} {column} is not one of the {width} columns of data")
    return kind


def _infer_counts(attrs: ValidCountsAttrs, data: Type) -> TupleType:
    kind = _rows(data, ("id_index", attrs.id_index), ("score_index", attrs.score_index))
    if attrs.score_index < 0:
        raise ValueError(f"score_index is a column of data, not {attrs.score_index}")
    images, count, _ = kind.shape
    return TupleType((TensorType((images,), INT32), kind, TensorType((images, count), INT32)))


def _compute_counts(attrs: ValidCountsAttrs, out: TupleType, data: Tensor) -> list[Tensor]:
    images, count, width = dims_of(data)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        source, (counts, rows, places) = ins[0], outs
        number = variable(ib, INT32, "number", 0)
        threshold = build.const(attrs.score_threshold, "float32")
        with ib.for_range(0, images, name="n") as n:
            number.set(0)
            with ib.for_range(0, count, name="k") as k:
                good = source[n, k, attrs.score_index] > threshold
                if attrs.id_index >= 0:
                    good = build.logical_and(good, source[n, k, attrs.id_index] >= 0.0)
                with ib.if_scope(good):
                    with ib.for_range(0, width, name="e") as e:
                        rows[n, number.get(), e] = source[n, k, e]
                    places[n, number.get()] = k
                    number.set(number.get() + 1)
            counts[n] = number.get()
            with ib.for_range(number.get(), count, name="k") as k:
                with ib.for_range(0, width, name="e") as e:
                    rows[n, k, e] = build.const(-1.0, "float32")
                places[n, k] = build.const(-1)

    return statements(out, [data], fill, "T_valid_counts")


def _counts_by_threads(
    attrs: ValidCountsAttrs, out: TupleType, data: Tensor
) -> list[Tensor] | None:
    """The same by a prefix sum over the rows of all images."""
    shape = dims_of(data)
    images, count, width = (build.int_value(dim) for dim in shape)
    if images is None or count is None or width is None:
        return None
    if images * count < SHORTEST_BY_THREADS or not width:
        return None

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        source, (counts, rows, places) = ins[0], outs
        before = Positions(ib, images * count)

        def is_good(n: Expr, k: Expr) -> Expr:
            good = source[n, k, attrs.score_index] > build.const(attrs.score_threshold, FLOAT32)
            if attrs.id_index < 0:
                return good
            return build.logical_and(good, source[n, k, attrs.id_index] >= 0.0)

        before.mark(lambda place: is_good(place // count, place % count))
        with each(ib, images, before.kind, "n") as n:
            counts[n] = build.cast(INT32, before[(n + 1) * count] - before[n * count])
        with each(ib, images * count * width, index_type(images * count * width)) as number:
            n = ib.let("n", number // (count * width))
            k, e = ib.let("k", number // width % count), ib.let("e", number % width)
            first = ib.let("first", before[n * count])
            with ib.if_scope(is_good(n, k)):
                to = ib.let("to", before[n * count + k] - first)
                rows[n, to, e] = source[n, k, e]
                with ib.if_scope(e.equal(0)):
                    places[n, to] = build.cast(INT32, k)
            with ib.if_scope(k >= before[(n + 1) * count] - first):
                rows[n, k, e] = build.const(-1.0, FLOAT32)
                with ib.if_scope(e.equal(0)):
                    places[n, k] = build.const(-1)

    return statements(out, [data], fill, "T_valid_counts")


def _reference_counts(attrs: ValidCountsAttrs, data: Array) -> list[Array]:
    rows, places = np.full_like(data, -1), np.full(data.shape[:2], -1, "int32")
    counts = np.zeros(len(data), "int32")
    for n, image in enumerate(data):
        good = image[:, attrs.score_index] > np.float32(attrs.score_threshold)
        if attrs.id_index >= 0:
            good &= image[:, attrs.id_index] >= 0
        (found,) = np.nonzero(good)
        counts[n] = len(found)
        rows[n, : len(found)] = image[found]
        places[n, : len(found)] = found
    return [counts, rows, places]


_ROWS = np.array([[
    [0, 0.8, 1, 20, 25, 45], [1, 0.7, 30, 60, 50, 80], [0, 0.4, 4, 21, 19, 40],
    [2, 0.9, 35, 61, 52, 79], [1, 0.5, 100, 60, 70, 110], [-1, 0.95, 1, 1, 2, 2],
    [0, 0.75, 2, 20, 25, 46],
]], "float32")

register(OpRecord(
    "vision.get_valid_counts",
    inputs=("data",),
    attrs=ValidCountsAttrs,
    infer=_infer_counts,
    compute=_compute_counts,
    compute_by_threads=_counts_by_threads,
    reference=_reference_counts,
    num_outputs=3,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((_ROWS,), {"score_threshold": 0.45}),
        Case(((2, 5, 5),), {"score_threshold": 0.0, "id_index": -1, "score_index": 0}),
        Case(((2, 40, 5),), {"score_threshold": 0.0}),
    ],
    doc="The rows whose score is above score_threshold, and whose class is not negative, in front: "
        "their number in each image, the rows, and where they stood.",
))


# ---- non_max_suppression ----


@attributes
class NmsAttrs(Attrs):
    """Of vision.non_max_suppression."""

    max_output_size: int = -1
    iou_threshold: float = 0.5
    force_suppress: bool = False
    top_k: int = -1
    coord_start: int = 2
    score_index: int = 1
    id_index: int = 0
    return_indices: bool = True
    invalid_to_bottom: bool = False


def _infer_nms(attrs: NmsAttrs, data: Type, valid_count: Type, indices: Type) -> Type:
    kind = _rows(data, ("id_index", attrs.id_index), ("score_index", attrs.score_index),
                 ("the end of coord_start", attrs.coord_start + 3))
    images, count, _ = kind.shape
    numbers = of_kind(tensor(valid_count, "valid_count", 1), "valid_count", "int")
    places = of_kind(tensor(indices, "indices", 2), "indices", "int")
    expect_dim(numbers.shape[0], images, "the length of valid_count")
    expect_dim(places.shape[0], images, "the number of images in indices")
    expect_dim(places.shape[1], count, "the number of rows in indices")
    if not attrs.return_indices:
        return kind
    return TupleType((TensorType((images, count), INT32), TensorType((images, 1), INT32)))


def _compute_nms(
    attrs: NmsAttrs, out: Type, data: Tensor, valid_count: Tensor, indices: Tensor
) -> Any:
    images, count, width = dims_of(data)
    kind = index_type(count)
    by_class = attrs.id_index >= 0 and not attrs.force_suppress

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        source, numbers, _ = ins
        good = KeyedPlaces(ib, order_key_type(FLOAT32), count, "score")
        kept = KeptBoxes(ib, count, 6 if by_class else 5)

        with ib.for_range(0, images, name="n") as n:
            valid = build.cast(kind, within(as_index(numbers[n]), build.as_expr(count) + 1))
            valid = ib.let("valid", valid)
            with ib.for_range(0, valid, name="k") as k:
                good.put(k, order_key(source[n, k, attrs.score_index], ascending=False), k)
            begin = ib.let("begin", good.sort(valid))
            looked = valid if attrs.top_k < 0 else build.minimum(valid, attrs.top_k)
            kept.clear()
            _clear(ib, outs, n, count, width, attrs)
            with ib.for_range(0, looked, name="k") as k:
                own = ib.let("own", good.places[begin + k])
                mine = _box(ib, attrs, source, n, own)
                wanted = build.const(True)
                if attrs.id_index >= 0:
                    wanted = source[n, own, attrs.id_index] >= 0.0
                if attrs.max_output_size > 0:
                    wanted = build.logical_and(wanted, kept.number.get() < attrs.max_output_size)
                with (
                    ib.if_scope(wanted),
                    ib.if_scope(kept.none_drops(lambda other: _drops(ib, attrs, mine, other))),
                ):
                    packed = attrs.return_indices or attrs.invalid_to_bottom
                    at = ib.let("at", kept.number.get() if packed else build.cast(kind, k))
                    kept.add(mine)
                    _store_row(ib, ins, outs, n, own, at, width, attrs)
            if attrs.return_indices:
                outs[1][n, 0] = build.cast(INT32, kept.number.get())

    made = statements(out, [data, valid_count, indices], fill, "T_nms")
    return made if attrs.return_indices else made[0]


def _nms_by_threads(
    attrs: NmsAttrs, out: Type, data: Tensor, valid_count: Tensor, indices: Tensor
) -> Any:
    """The same by threads: the rows of all images are sorted, and a block goes through each."""
    images, count, width = (build.int_value(dim) for dim in dims_of(data))
    if not images or not count or width is None:
        return None
    by_class = attrs.id_index >= 0 and not attrs.force_suppress
    last = build.const((1 << FLOAT32.bits) - 1, order_key_type(FLOAT32))

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        source, numbers, _ = ins
        lines = KeyedLines(ib, order_key_type(FLOAT32), images, count)

        def valid(n: Expr) -> Expr:
            return build.cast(lines.kind, within(as_index(numbers[n]), count + 1))

        lines.fill(lambda n, k: build.select(
            k < valid(n), order_key(source[n, k, attrs.score_index], ascending=False), last))
        begin = lines.sort()

        def row_at(n: Expr, k: Expr) -> Expr:
            return lines.places[begin + n * count + k]

        def looked(n: Expr) -> Expr:
            return valid(n) if attrs.top_k < 0 else build.minimum(valid(n), attrs.top_k)

        def is_wanted(n: Expr, k: Expr, kept: Expr) -> Expr:
            wanted = build.const(True)
            if attrs.id_index >= 0:
                row = row_at(n, build.minimum(k, count - 1))
                wanted = source[n, row, attrs.id_index] >= 0.0
            return wanted if attrs.max_output_size <= 0 else build.logical_and(
                wanted, kept < attrs.max_output_size)

        kept = KeptByThreads(ib, Suppression(
            images, count, 6 if by_class else 5, looked,
            lambda n, k: _box(ib, attrs, source, n, ib.let("row", row_at(n, k))),
            is_wanted, partial(_drops, ib, attrs),
        ))
        packed = attrs.return_indices or attrs.invalid_to_bottom
        with each(ib, images * count, lines.kind) as number:
            n, k = ib.let("n", number // count), ib.let("k", number % count)
            _clear_row(ib, outs, n, k, width, attrs)
        with each(ib, images * count, lines.kind) as number:
            n, k = ib.let("n", number // count), ib.let("k", number % count)
            with ib.if_scope(k < kept.numbers[n]):
                rank = ib.let("rank", kept.ranks[number])
                row = ib.let("row", row_at(n, rank))
                _store_row(ib, ins, outs, n, row, k if packed else rank, width, attrs)
        if attrs.return_indices:
            with each(ib, images, lines.kind) as n:
                outs[1][n, 0] = build.cast(INT32, kept.numbers[n])

    made = statements(out, [data, valid_count, indices], fill, "T_nms")
    return made if attrs.return_indices else made[0]


def _box(
    ib: IRBuilder, attrs: NmsAttrs, source: BufferVar, n: Expr, row: Expr
) -> list[Expr]:
    """Both starts and both ends of a row's box, its area and, if classes count, its class."""
    read = [source[n, row, attrs.coord_start + i] for i in range(4)]
    ends = [build.minimum(read[0], read[2]), build.minimum(read[1], read[3]),
            build.maximum(read[0], read[2]), build.maximum(read[1], read[3])]
    edges = [ib.let(f"mine{i}", end) for i, end in enumerate(ends)]
    by_class = attrs.id_index >= 0 and not attrs.force_suppress
    label = [ib.let("label", source[n, row, attrs.id_index])] if by_class else []
    return [*edges, ib.let("area", box_area(edges)), *label]


def _drops(ib: IRBuilder, attrs: NmsAttrs, mine: Sequence[Expr], other: Sequence[Expr]) -> Expr:
    """Whether a box is dropped for a better one."""
    too_much = shared_part(ib, mine, other) >= build.const(attrs.iou_threshold, FLOAT32)
    by_class = attrs.id_index >= 0 and not attrs.force_suppress
    return build.logical_and(too_much, mine[5].equal(other[5])) if by_class else too_much


def _clear(
    ib: IRBuilder, outs: list[BufferVar], n: Expr, count: Dim, width: Dim, attrs: NmsAttrs
) -> None:
    with ib.for_range(0, count, name="k") as k:
        _clear_row(ib, outs, n, k, width, attrs)


def _clear_row(
    ib: IRBuilder, outs: list[BufferVar], n: Expr, k: Expr, width: Dim, attrs: NmsAttrs
) -> None:
    if attrs.return_indices:
        outs[0][n, k] = build.const(-1)
        return
    with ib.for_range(0, width, name="e") as e:
        outs[0][n, k, e] = build.const(-1.0, FLOAT32)


def _store_row(
    ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar], n: Expr, row: Expr, at: Expr,
    width: Dim, attrs: NmsAttrs,
) -> None:
    """A row of an image that is kept, or its number, at its place in the result."""
    source, _, places = ins
    if attrs.return_indices:
        outs[0][n, at] = build.cast(INT32, places[n, row])
        return
    with ib.for_range(0, width, name="e") as e:
        outs[0][n, at, e] = source[n, row, e]


def _reference_nms(attrs: NmsAttrs, data: Array, valid_count: Array, indices: Array) -> Any:
    images, count, _ = data.shape
    rows, found = np.full_like(data, -1), np.full((images, count), -1, "int32")
    numbers = np.zeros((images, 1), "int32")
    for n, image in enumerate(data):
        valid = image[: min(max(int(valid_count[n]), 0), count)]
        corners = valid[:, attrs.coord_start : attrs.coord_start + 4]
        boxes = np.concatenate([np.minimum(corners[:, :2], corners[:, 2:]),
                                np.maximum(corners[:, :2], corners[:, 2:])], 1)
        order = order_along(valid[:, attrs.score_index], 0, ascending=False)
        kept: list[int] = []
        for place, own in enumerate(order if attrs.top_k < 0 else order[: attrs.top_k]):
            label = valid[own, attrs.id_index] if attrs.id_index >= 0 else 0
            if label < 0 or 0 < attrs.max_output_size <= len(kept):
                continue
            rivals = [
                other for other in kept
                if attrs.force_suppress or attrs.id_index < 0
                or valid[other, attrs.id_index] == label
            ]
            limit = np.float32(attrs.iou_threshold)
            if any(overlap(boxes[own], boxes[other]) >= limit for other in rivals):
                continue
            rows[n, len(kept) if attrs.invalid_to_bottom else place] = valid[own]
            found[n, len(kept)] = indices[n, own]
            kept.append(int(own))
        numbers[n] = len(kept)
    return [found, numbers] if attrs.return_indices else rows


def _non_max_suppression(
    data: RelayExprLike, valid_count: RelayExprLike, indices: RelayExprLike,
    max_output_size: int = -1, iou_threshold: float = 0.5, force_suppress: bool = False,
    top_k: int = -1, coord_start: int = 2, score_index: int = 1, id_index: int = 0,
    return_indices: bool = True, invalid_to_bottom: bool = False,
) -> Any:
    """The rows that overlap no better one of their class by iou_threshold or more.

    With force_suppress of any class. The best top_k rows are looked at, and at most max_output_size
    remain, all if these are below 0. The result is their indices and their number or, without
    return_indices, the rows by their score, those that remain in front if invalid_to_bottom.
    """
    made = make(
        "vision.non_max_suppression", data, valid_count, indices, max_output_size=max_output_size,
        iou_threshold=iou_threshold, force_suppress=force_suppress, top_k=top_k,
        coord_start=coord_start, score_index=score_index, id_index=id_index,
        return_indices=return_indices, invalid_to_bottom=invalid_to_bottom,
    )
    return TupleWrapper(made, 2) if return_indices else made


_COUNT, _PLACES = np.array([7], "int32"), np.arange(7, dtype="int32")[None, ::-1].copy()

register(OpRecord(
    "vision.non_max_suppression",
    inputs=("data", "valid_count", "indices"),
    attrs=NmsAttrs,
    infer=_infer_nms,
    compute=_compute_nms,
    compute_by_threads=_nms_by_threads,
    reference=_reference_nms,
    builder=_non_max_suppression,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        Case((_ROWS, _COUNT, _PLACES)),
        Case((_ROWS, _COUNT, _PLACES), {"force_suppress": True, "max_output_size": 2,
                                        "top_k": 4}),
        Case((_ROWS, _COUNT - 2, _PLACES), {"return_indices": False, "iou_threshold": 0.1}),
        Case(((2, 8, 5), np.array([8, 3], "int32"), ((2, 8), "int32")), {
            "return_indices": False, "invalid_to_bottom": True, "coord_start": 1, "score_index": 0,
            "id_index": -1, "iou_threshold": 0.2,
        }),
    ],
    doc=_non_max_suppression.__doc__ or "",
))

"""segment_sum: the sums of slices that belong together."""

from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.checks import at_least, expect_dim, of_kind, tensor
from sterna.op.indexing import as_index, dims_of
from sterna.op.statements import filled, loops
from sterna.relay.arrays import Array, to_numpy
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import Constant, RelayExprLike
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.schedule.products import narrowed, wide, widened
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class SegmentSumAttrs(Attrs):
    """Of segment_sum."""

    num_segments: int


def _infer(attrs: SegmentSumAttrs, data: Type, segment_ids: Type) -> TensorType:
    kind = of_kind(at_least(data, "data", 1), "data", "float", "int", "uint")
    ids = of_kind(tensor(segment_ids, "segment_ids", 1), "segment_ids", "int", "uint")
    expect_dim(ids.shape[0], kind.shape[0], "the length of segment_ids")
    if attrs.num_segments < 0:
        raise ValueError(f"num_segments is not negative: {attrs.num_segments}")
    return TensorType((attrs.num_segments, *kind.shape[1:]), kind.dtype)


def _compute(attrs: SegmentSumAttrs, out: TensorType, data: Tensor, ids: Tensor) -> Tensor:
    dtype = wide(out.dtype)
    count, *rest = dims_of(data)

    def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
        source, segments = ins
        with loops(ib, result.shape, "z") as place:
            result[tuple(place)] = build.const(0, dtype)
        with ib.for_range(0, count, name="row") as row:
            own = ib.let("own", as_index(segments[row]))
            inside = build.logical_and(own >= 0, own < attrs.num_segments)
            with ib.if_scope(inside), loops(ib, rest, "i") as inner:
                added = build.cast(dtype, source[(row, *inner)])
                result[(own, *inner)] = result[(own, *inner)] + added

    made = filled(TensorType(out.shape, dtype), [data, ids], fill, "T_segment_sum")
    return narrowed(made, out.dtype, "T_narrow")


def _reference(attrs: SegmentSumAttrs, data: Array, segment_ids: Array) -> Array:
    x = widened(data, str(data.dtype))
    made = np.zeros((attrs.num_segments, *data.shape[1:]), x.dtype)
    inside = (segment_ids >= 0) & (segment_ids < attrs.num_segments)
    np.add.at(made, segment_ids[inside], x[inside])
    return made.astype(data.dtype)


def _segment_sum(
    data: RelayExprLike, segment_ids: RelayExprLike, num_segments: int | None = None
) -> Any:
    """The sums of data's slices along its first axis whose segment_ids are equal.

    Ids from num_segments on, and negative ones, count for nothing. Where num_segments is not given
    it is one more than the largest id, which must be known.
    """
    if num_segments is None:
        if not isinstance(segment_ids, Constant):
            raise ValueError("segment_sum needs num_segments: segment_ids are not known")
        num_segments = int(to_numpy(segment_ids.data).max(initial=-1)) + 1
    return make("segment_sum", data, segment_ids, num_segments=num_segments)


_IDS = np.array([0, 2, 0, 5, -1, 2], "int32")

register(OpRecord(
    "segment_sum",
    inputs=("data", "segment_ids"),
    attrs=SegmentSumAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    builder=_segment_sum,
    pattern=OPAQUE,
    cases=[
        Case(((6, 3), _IDS), {"num_segments": 4}),
        Case((((6,), "int32"), _IDS.astype("int64")), {"num_segments": 6}),
        Case((((6, 2, 2), "float16"), _IDS), {"num_segments": 3}, 1e-2),
        Case(((0, 2), np.zeros(0, "int32")), {"num_segments": 2}),
    ],
    doc=_segment_sum.__doc__ or "",
))

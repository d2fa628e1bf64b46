"""Elements in order along an axis: sort, argsort, topk."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.axis_rows import AxisRows, index_type
from sterna.op.block_sort import LineSorter, NumberKeys, Packing
from sterna.op.checks import axis_of, of_kind, tensor
from sterna.op.dynamic import DimsLike, known, tensor_type, to_static
from sterna.op.indexing import as_dims, dims_of
from sterna.op.insertion import LINES_AT_ONCE, few_are_kept, inserted_lines
from sterna.op.ordering import key_type, order_along
from sterna.op.radix_sort import first_of_line, order_key, order_key_type
from sterna.op.statements import statements, variable
from sterna.op.thread_sort import KeyedLines
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, TupleWrapper
from sterna.relay.op import OPAQUE, Case, OpRecord, call, register
from sterna.schedule.device_target import has_many_barriers
from sterna.schedule.products import FLOAT32
from sterna.support.dtype import DataType
from sterna.target import Target, is_gpu, processor_of
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder

# Threads compare each element of a row with all others if there are no more than so many.
LONGEST_RANKED = 256


@attributes
class SortAttrs(Attrs):
    """Of sort."""

    axis: int = -1
    is_ascend: bool = True


@attributes
class ArgsortAttrs(Attrs):
    """Of argsort."""

    axis: int = -1
    is_ascend: bool = True
    dtype: DataType = DataType("int32")


class _Returns(Attrs):
    """What a choice of the first elements gives."""

    __slots__ = ()

    ret_type: str

    def normalize(self) -> None:
        if self.ret_type not in ("both", "values", "indices"):
            raise ValueError(f"ret_type is both, values or indices, not {self.ret_type!r}")


@attributes
class TopKAttrs(_Returns):
    """Of topk."""

    k: int = 1
    axis: int = -1
    ret_type: str = "both"
    is_ascend: bool = False
    dtype: DataType = DataType("int32")
    lines: int = 1
    """So many lines side by side are lanes of vectors; 1: one after the other, on any processor."""

    def normalize(self) -> None:
        _Returns.normalize(self)
        if self.lines < 1:
            raise ValueError(f"lines are at least 1, not {self.lines}")


@attributes
class DynTopKAttrs(_Returns):
    """Of dyn.topk."""

    axis: int = -1
    ret_type: str = "both"
    is_ascend: bool = False
    dtype: DataType = DataType("int32")


def _sorted(
    attrs: SortAttrs | ArgsortAttrs | TopKAttrs | DynTopKAttrs, out: Type, data: Tensor,
    wanted: Sequence[str], name: str, most_lines: int = 1,
) -> list[Tensor]:
    """The first values along an axis or their places, or both, as many as the results hold."""
    rows = AxisRows(dims_of(data), axis_of(attrs.axis, data.ndim))
    held = key_type(data.dtype)
    key = order_key_type(held)
    length = rows.length

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        source = ins[0]
        count = as_dims(outs[0].shape)[rows.axis]
        if most_lines > 1 and isinstance(length, int) and isinstance(count, int):
            fill_lines(ib, source, outs, length, count)
            return
        with rows.each(ib) as at:

            def key_at(place: Expr) -> Expr:
                value = build.cast(held, source[at(place)])
                return order_key(value, attrs.is_ascend)

            place_of = first_of_line(ib, length, count, key_at, key, alone=rows.count == 1)
            with ib.for_range(0, count, name="k", dtype=index_type(length)) as k:
                place = ib.let("place", place_of(k))
                for result, what in zip(outs, wanted, strict=True):
                    found = source[at(place)] if what == "values" else place
                    result[at(k)] = build.cast(result.dtype, found)

    def fill_lines(
        ib: IRBuilder, source: BufferVar, outs: list[BufferVar], length: int, count: int
    ) -> None:
        with rows.each_vector(ib, most_lines) as (lines, at):

            def key_at(place: Expr, line: Expr) -> Expr:
                return order_key(build.cast(held, source[at(place, line)]), attrs.is_ascend)

            place_of = inserted_lines(ib, lines, length, count, key_at, key)
            with ib.for_range(0, count, name="k", dtype=index_type(length)) as k, \
                    ib.for_range(0, lines, name="line") as line:
                place = ib.let("place", place_of(k, line))
                for result, what in zip(outs, wanted, strict=True):
                    found = source[at(place, line)] if what == "values" else place
                    result[at(k, line)] = build.cast(result.dtype, found)

    return statements(out, [data], fill, name)


def _ranked(
    attrs: SortAttrs | ArgsortAttrs | TopKAttrs | DynTopKAttrs, out: Type, data: Tensor,
    wanted: Sequence[str], name: str,
) -> list[Tensor] | None:
    """The same by threads: each counts what comes before one element, and puts it there.

    Long rows are merged, so that an element is compared with few others.
    """
    rows = AxisRows(dims_of(data), axis_of(attrs.axis, data.ndim))
    length = rows.length
    if not rows.is_static or not isinstance(length, int):
        return None
    held = key_type(data.dtype)
    key = order_key_type(held)

    def merge(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        count = as_dims(outs[0].shape)[rows.axis]
        lines = KeyedLines(ib, key, rows.count, length)
        lines.fill(lambda line, place: order_key(
            build.cast(held, ins[0][rows.at(line, place)]), attrs.is_ascend))
        begin = lines.sort()
        known = count if isinstance(count, int) else length
        with rows.each_part(ib, known) as (line, k, at), ib.if_scope(k < count):
            place = ib.let("place", lines.places[begin + line * length + k])
            for result, what in zip(outs, wanted, strict=True):
                found = ins[0][at(place)] if what == "values" else place
                result[at(k)] = build.cast(result.dtype, found)

    def rank(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        count = as_dims(outs[0].shape)[rows.axis]
        keys = ib.allocate(key, (rows.count * length,), name="keys")
        with rows.each_part(ib, length) as (line, place, at):
            value = build.cast(held, ins[0][at(place)])
            keys[line * length + place] = order_key(value, attrs.is_ascend)
        with rows.each_part(ib, length) as (line, place, at):
            own = ib.let("own", keys[line * length + place])
            smaller = variable(ib, index_type(length), "smaller", 0)
            with ib.for_range(0, length, name="other", dtype=str(place.dtype)) as other:
                found = ib.let("found", keys[line * length + other])
                first = build.logical_or(
                    found < own, build.logical_and(found.equal(own), other < place))
                smaller.set(smaller.get() + build.select(first, 1, 0))
            with ib.if_scope(smaller.get() < count):
                for result, what in zip(outs, wanted, strict=True):
                    made = ins[0][at(place)] if what == "values" else place
                    result[at(smaller.get())] = build.cast(result.dtype, made)

    keys = NumberKeys(str(data.dtype), attrs.is_ascend)
    packing = Packing(keys.bits, length)

    def sort_tiles(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        count = as_dims(outs[0].shape)[rows.axis]
        kind = index_type(length)

        def store(line: Expr, rank: Expr, packed: Expr) -> None:
            with ib.if_scope(rank < count) if not isinstance(count, int) else nullcontext():
                place = ib.let("place", packing.place(packed, kind))
                for result, what in zip(outs, wanted, strict=True):
                    found = ins[0][rows.at(line, place)] if what == "values" else place
                    result[rows.at(line, rank)] = build.cast(result.dtype, found)

        LineSorter(ib, packing, rows.count, length, lambda line, place: packing.packed(
            keys.of(ins[0][rows.at(line, place)]), place)
        ).first(count if isinstance(count, int) else length, store)

    if length <= LONGEST_RANKED:
        return statements(out, [data], rank, name)
    by_tiles = packing.fits and has_many_barriers()
    return statements(out, [data], sort_tiles if by_tiles else merge, name)


def _infer_sort(attrs: SortAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    axis_of(attrs.axis, kind.ndim)
    return kind


def _reference_sort(attrs: SortAttrs, data: Array) -> Array:
    places = order_along(data, attrs.axis, attrs.is_ascend)
    return np.take_along_axis(data, places, attrs.axis)


def _infer_argsort(attrs: ArgsortAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    axis_of(attrs.axis, kind.ndim)
    return TensorType(kind.shape, attrs.dtype)


def _reference_argsort(attrs: ArgsortAttrs, data: Array) -> Array:
    places: Array = order_along(data, attrs.axis, attrs.is_ascend)
    return places.astype(numpy_dtype(attrs.dtype))


_MIXED = np.array(
    [[3, np.nan, -0.0, np.inf, 0.0, 3, -np.inf], [1, 2, np.nan, -5, np.nan, 2, 1]], "float32"
)
_CASES = [
    Case((_MIXED,)),
    Case((_MIXED,), {"is_ascend": False}),
    Case((((9, 2, 3), "int8"),), {"axis": 0}),
    Case((((2, 33, 2), "uint16"),), {"axis": -2, "is_ascend": False}),
    Case((((2, 6), "bool"),)),
    Case((((1, 5), "float16"),)),
    Case(((3, 0),)),
    Case(((4, 1),), {"axis": 1}),
]

register(OpRecord(
    "sort",
    inputs=("data",),
    attrs=SortAttrs,
    infer=_infer_sort,
    compute=lambda attrs, out, data: _sorted(attrs, out, data, ["values"], "T_sort")[0],
    compute_by_threads=lambda attrs, out, data: _ranked(attrs, out, data, ["values"], "T_sort"),
    reference=_reference_sort,
    pattern=OPAQUE,
    cases=[*_CASES, Case((np.array([2**63, 1, 2**64 - 1, 0], "uint64"),))],
    doc="Elements in order along an axis, upwards or downwards; NaN counts as the largest.",
))

register(OpRecord(
    "argsort",
    inputs=("data",),
    attrs=ArgsortAttrs,
    infer=_infer_argsort,
    compute=lambda attrs, out, data: _sorted(attrs, out, data, ["indices"], "T_argsort")[0],
    compute_by_threads=lambda attrs, out, data: _ranked(
        attrs, out, data, ["indices"], "T_argsort"),
    reference=_reference_argsort,
    pattern=OPAQUE,
    cases=[*_CASES[:4], Case((((70,), "int32"),), {"dtype": "int64"}),
           Case((((5,), "bfloat16"),), {"dtype": "float32"})],
    doc="The places of elements in their order along an axis; of equals the first comes first.",
))


# ---- the first ones only ----


def _results(attrs: TopKAttrs | DynTopKAttrs, values: TensorType, count: Dim) -> Type:
    shape = list(values.shape)
    shape[axis_of(attrs.axis, values.ndim)] = count
    kinds = {
        "values": TensorType(tuple(shape), values.dtype),
        "indices": TensorType(tuple(shape), attrs.dtype),
    }
    if attrs.ret_type == "both":
        return TupleType((kinds["values"], kinds["indices"]))
    return kinds[attrs.ret_type]


def _wanted(attrs: TopKAttrs | DynTopKAttrs) -> list[str]:
    return ["values", "indices"] if attrs.ret_type == "both" else [attrs.ret_type]


def _infer_topk(attrs: TopKAttrs, data: Type) -> Type:
    kind = tensor(data, "data")
    length = kind.shape[axis_of(attrs.axis, kind.ndim)]
    if isinstance(length, int) and attrs.k > length:
        raise ValueError(f"k is at most the {length} elements along axis {attrs.axis}, "
                         f"not {attrs.k}")
    return _results(attrs, kind, length if attrs.k < 1 else attrs.k)


def _compute_topk(attrs: TopKAttrs | DynTopKAttrs, out: Type, data: Tensor, *k: Tensor) -> Any:
    lines = attrs.lines if isinstance(attrs, TopKAttrs) else 1
    made = _sorted(attrs, out, data, _wanted(attrs), "T_topk", lines)
    return made if attrs.ret_type == "both" else made[0]


def _in_lanes(
    attrs: TopKAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """The first few of lines that lie side by side as lanes, on processors that run vectors."""
    kind = tensor_type(args[0])
    if target is None or is_gpu(target) or attrs.lines > 1 or not kind.is_static:
        return None
    rows = AxisRows(kind.shape, axis_of(attrs.axis, kind.ndim))
    is_few = rows.lie_side_by_side and few_are_kept(rows.length, attrs.k)
    if not is_few or processor_of(target).lanes(FLOAT32) == 1:
        return None
    return call("topk", *args, **{**dict(attrs.items()), "lines": LINES_AT_ONCE})


def _reference_topk(attrs: TopKAttrs | DynTopKAttrs, data: Array, k: Array | None = None) -> Any:
    asked = attrs.k if isinstance(attrs, TopKAttrs) else int(np.asarray(k).item())
    length = data.shape[attrs.axis]
    count = length if asked < 1 else min(asked, length)
    places = order_along(data, attrs.axis, attrs.is_ascend)
    first = np.take(places, np.arange(count), axis=attrs.axis)
    found = {
        "values": np.take_along_axis(data, first, attrs.axis),
        "indices": first.astype(numpy_dtype(attrs.dtype)),
    }
    made = [found[what] for what in _wanted(attrs)]
    return made if attrs.ret_type == "both" else made[0]


def _topk(
    data: RelayExprLike, k: DimsLike = 1, axis: int = -1, ret_type: str = "both",
    is_ascend: bool = False, dtype: str = "int32",
) -> Any:
    """The k largest elements along an axis in order, or the smallest; their places, or both.

    All elements if k is less than 1. Of equals those that stand first come first.
    """
    options = {"axis": axis, "ret_type": ret_type, "is_ascend": is_ascend, "dtype": dtype}
    count = known(k)
    if count is None:
        made = make("dyn.topk", data, k, **options)
    else:
        made = make("topk", data, k=count, **options)
    return TupleWrapper(made, 2) if ret_type == "both" else made


_TOPK_CASES = [
    Case((_MIXED,), {"k": 3}),
    Case((_MIXED,), {"k": 4, "is_ascend": True, "ret_type": "values"}),
    Case((((5, 3), "int32"),), {"k": 2, "axis": 0, "ret_type": "indices", "dtype": "int64"}),
    Case((((2, 3), "int8"),), {"k": 0}),
    Case((((2, 1030), "int16"),), {"k": 17}),
    Case((((300, 2), "int8"),), {"k": 290, "axis": 0}),
    Case((np.tile(_MIXED.T, (3, 1, 9)),), {"k": 3, "axis": 1, "lines": 16}),
    Case((np.tile(_MIXED.T, (2, 3)),), {"k": 7, "axis": 0, "is_ascend": True, "lines": 4}),
    Case((((40, 21), "int64"),), {"k": 16, "axis": 0, "lines": 16}),
    Case((((2, 9, 5), "float16"),), {"k": 1, "axis": 1, "ret_type": "indices", "lines": 4}),
]

register(OpRecord(
    "topk",
    inputs=("data",),
    attrs=TopKAttrs,
    infer=_infer_topk,
    compute=_compute_topk,
    compute_by_threads=lambda attrs, out, data: _ranked(
        attrs, out, data, _wanted(attrs), "T_topk"),
    reference=_reference_topk,
    builder=_topk,
    legalize=_in_lanes,
    pattern=OPAQUE,
    cases=_TOPK_CASES,
    doc=_topk.__doc__ or "",
))


def _infer_dyn_topk(attrs: DynTopKAttrs, data: Type, k: Type) -> Type:
    kind = tensor(data, "data")
    axis_of(attrs.axis, kind.ndim)
    of_kind(tensor(k, "k", 0), "k", "int", "uint")
    return _results(attrs, kind, AnyDim())


register(OpRecord(
    "dyn.topk",
    inputs=("data", "k"),
    attrs=DynTopKAttrs,
    infer=_infer_dyn_topk,
    compute=_compute_topk,
    compute_by_threads=lambda attrs, out, data, k: _ranked(
        attrs, out, data, _wanted(attrs), "T_topk"),
    reference=_reference_topk,
    to_static=to_static("topk", "k"),
    pattern=OPAQUE,
    cases=[Case((_MIXED, np.array(2))), Case(((3, 4), np.array(3, "int32")), {"axis": 0}),
           Case((((2, 530), "int16"), np.array(7)), {"ret_type": "indices"})],
    doc="topk of a number of elements that is computed.",
))

"""The different elements of a tensor, or its different slices along an axis."""

from collections.abc import Callable

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, TupleType, Type
from sterna.op.axis_rows import index_type, product
from sterna.op.checks import at_least, axis_of, size_of
from sterna.op.indexing import dims_of, unravel
from sterna.op.ordering import key_type, less, merge_sort, ranks
from sterna.op.radix_sort import KeyedPlaces, order_key, order_key_type
from sterna.op.statements import statements, variable
from sterna.op.thread_sort import SHORTEST_BY_THREADS, KeyedLines, Positions, each
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class UniqueAttrs(Attrs):
    """Of unique."""

    is_sorted: bool = True
    return_counts: bool = False
    axis: int | None = None
    dtype: DataType = DataType("int32")


def _infer(attrs: UniqueAttrs, data: Type) -> TupleType:
    kind = at_least(data, "data", 1)
    if attrs.axis is None:
        count = size_of(kind.shape)
        values = TensorType((count,), kind.dtype)
    else:
        count, values = kind.shape[axis_of(attrs.axis, kind.ndim)], kind
    per_slice = TensorType((count,), attrs.dtype)
    counts = (per_slice,) if attrs.return_counts else ()
    return TupleType((values, per_slice, per_slice, TensorType((1,), attrs.dtype), *counts))


class _Slices:
    """What is compared: elements, or whole slices of elements."""

    def __init__(self, data: Tensor, axis: int | None) -> None:
        shape = dims_of(data)
        self.shape = shape
        self.axis = None if axis is None else axis_of(axis, len(shape))
        self.count = product(shape) if self.axis is None else shape[self.axis]
        rest = [] if self.axis is None else [*shape[: self.axis], *shape[self.axis + 1 :]]
        self.rest, self.size = rest, product(rest)

    def source(self, place: Expr, element: Expr) -> tuple[Expr, ...]:
        """Where an element of a slice lies in the tensor."""
        if self.axis is None:
            return tuple(unravel(place, self.shape))
        around = unravel(element, self.rest)
        return (*around[: self.axis], place, *around[self.axis :])

    def target(self, place: Expr, element: Expr) -> tuple[Expr, ...]:
        """Where it lies in the result."""
        return (place,) if self.axis is None else self.source(place, element)


# Which slice comes at a place of the order, and whether it differs from the one before it there.
_InOrder = tuple[Callable[[Expr], Expr], Callable[[Expr], Expr]]


def _elements_in_order(ib: IRBuilder, source: BufferVar, slices: _Slices) -> _InOrder:
    """Elements by their keys."""
    key = key_type(source.dtype)
    line = KeyedPlaces(ib, order_key_type(key), slices.count, "element")
    with ib.for_range(0, slices.count, name="k", dtype=line.kind) as k:
        value = build.cast(key, source[slices.source(k, build.const(0))])
        line.put(k, order_key(value, ascending=True), k)
    begin = ib.let("begin", line.sort(slices.count))
    return (
        lambda k: line.places[begin + k],
        lambda k: build.not_equal(line.keys[begin + k - 1], line.keys[begin + k]),
    )


def _slices_in_order(ib: IRBuilder, source: BufferVar, slices: _Slices) -> _InOrder:
    """Slices by the first of their elements that differ."""
    key = key_type(source.dtype)
    kind = index_type(slices.count)
    order = ib.allocate(kind, (slices.count * 2,), name="order")
    sign = variable(ib, "int8", "sign", 0)

    def element(place: Expr, index: Expr) -> Expr:
        return build.cast(key, source[slices.source(place, index)])

    def compared(i: Expr, j: Expr) -> Expr:
        """Sets sign to that of the first difference between two slices."""
        sign.set(0)
        with ib.for_range(0, slices.size, name="e") as e, ib.if_scope(sign.get().equal(0)):
            a, b = ib.let("a", element(i, e)), ib.let("b", element(j, e))
            after = build.select(less(b, a), build.const(1, "int8"), build.const(0, "int8"))
            sign.set(build.select(less(a, b), build.const(-1, "int8"), after))
        return sign.get()

    with ib.for_range(0, slices.count, name="k", dtype=kind) as k:
        order[k] = k
    begin = ib.let("begin", merge_sort(
        ib, slices.count, [order], lambda i, j: build.less(compared(order[i], order[j]), 0)
    ))
    return (
        lambda k: order[begin + k],
        lambda k: build.not_equal(compared(order[begin + k - 1], order[begin + k]), 0),
    )


def _compute(attrs: UniqueAttrs, out: TupleType, data: Tensor) -> list[Tensor]:
    """Sort the places of slices; equal ones are neighbours then and form groups.

    The group of a slice, numbered in sorted order, is renumbered by first occurrence if need be:
    in the order of places the first slice of a group gives the group its number.
    """
    slices = _Slices(data, attrs.axis)
    count = slices.count
    kind = index_type(count, product(dims_of(data)))
    put_in_order = _elements_in_order if slices.axis is None else _slices_in_order

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        source, (values, firsts, inverse, number) = ins[0], outs[:4]
        results = [values, firsts, *outs[4:]]
        groups = ib.allocate(kind, (count,), name="groups")
        numbers = ib.allocate(kind, (count,), name="numbers")
        place_at, differs = put_in_order(ib, source, slices)
        groups_found = variable(ib, kind, "groups_found", 0)
        with ib.for_range(0, count, name="k", dtype=kind) as k:
            numbers[k] = build.const(-1, kind)
            with ib.if_scope(k > 0), ib.if_scope(differs(k)):
                groups_found.set(groups_found.get() + 1)
            groups[place_at(k)] = groups_found.get()
        for result in results:
            with ib.for_range(0, product(result.shape), name="k") as k:
                result[k] = build.const(0, result.dtype)
        seen = variable(ib, kind, "seen", 0)
        with ib.for_range(0, count, name="k", dtype=kind) as k:
            group = ib.let("group", groups[k])
            is_first = ib.let("is_first", numbers[group] < 0)
            with ib.if_scope(is_first):
                numbers[group] = group if attrs.is_sorted else seen.get()
                seen.set(seen.get() + 1)
            at = ib.let("at", numbers[group])
            inverse[k] = build.cast(attrs.dtype, at)
            with ib.if_scope(is_first):
                firsts[at] = build.cast(attrs.dtype, k)
                with ib.for_range(0, slices.size, name="e") as e:
                    values[slices.target(at, e)] = source[slices.source(k, e)]
            for counts in outs[4:]:
                counts[at] = counts[at] + build.const(1, attrs.dtype)
        number[0] = build.cast(attrs.dtype, seen.get())

    return statements(out, [data], fill, "T_unique")


def _by_threads(attrs: UniqueAttrs, out: TupleType, data: Tensor) -> list[Tensor] | None:
    """The same by threads, of elements: sorted by merging, and groups counted by prefix sums.

    The sort keeps equals in their order, so that a group begins with its first occurrence.
    """
    slices = _Slices(data, attrs.axis)
    count = slices.count
    if slices.axis is not None or not isinstance(count, int) or count < SHORTEST_BY_THREADS:
        return None
    key = key_type(data.dtype)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        source, (values, firsts, inverse, number) = ins[0], outs[:4]
        lines = KeyedLines(ib, order_key_type(key), 1, count)
        kind, zero = lines.kind, build.const(0)

        def element(place: Expr) -> Expr:
            return source[slices.source(place, zero)]

        lines.fill(lambda _, place: order_key(build.cast(key, element(place)), ascending=True))
        begin = lines.sort()

        def is_head(k: Expr) -> Expr:
            """Whether the element that comes k-th differs from the one before."""
            at = begin + build.maximum(k, 1)
            differs = build.not_equal(lines.keys[at - 1], lines.keys[at])
            return build.logical_or(k.equal(0), differs)

        heads = Positions(ib, count)
        heads.mark(is_head)
        starts = ib.allocate(kind, (count + 1,), name="starts")
        is_first = ib.allocate("bool", (count,), name="is_first")
        with each(ib, count, kind) as k:
            for result in (values, firsts, *outs[4:]):
                with ib.if_scope(k >= heads.total):
                    result[k] = build.const(0, result.dtype)
            is_first[lines.places[begin + k]] = is_head(k)
            with ib.if_scope(is_head(k)):
                starts[heads[k]] = k
        with each(ib, 1, kind) as one:
            number[one] = build.cast(attrs.dtype, heads.total)
            starts[heads.total] = build.const(count, kind)
        seen = Positions(ib, count)
        if not attrs.is_sorted:
            seen.mark(lambda place: is_first[place])
        with each(ib, count, kind) as k:
            group = ib.let("group", heads[k + 1] - 1)
            first = ib.let("first", lines.places[begin + starts[group]])
            at = ib.let("at", group if attrs.is_sorted else seen[first])
            inverse[lines.places[begin + k]] = build.cast(attrs.dtype, at)
            with ib.if_scope(starts[group].equal(k)):
                firsts[at] = build.cast(attrs.dtype, first)
                values[at] = element(first)
                for counts in outs[4:]:
                    counts[at] = build.cast(attrs.dtype, starts[group + 1] - k)

    return statements(out, [data], fill, "T_unique")


def _reference(attrs: UniqueAttrs, data: Array) -> list[Array]:
    rows = data.reshape(-1, 1)
    if attrs.axis is not None:
        front = np.moveaxis(data, attrs.axis, 0)
        rows = front.reshape(front.shape[0], -1) if front.size else front.reshape(len(front), 0)
    keys = [tuple(row) for row in ranks(rows).tolist()]
    order = list(dict.fromkeys(keys))
    if attrs.is_sorted:
        order.sort()
    number = {one: place for place, one in enumerate(order)}
    inverse = np.array([number[one] for one in keys], np.int64)
    firsts = np.array([keys.index(one) for one in order], np.int64)
    count = len(keys)

    def padded(numbers: Array) -> Array:
        room = np.zeros(count, np.int64)
        room[: len(numbers)] = numbers
        return room.astype(attrs.dtype)

    axis = 0 if attrs.axis is None else attrs.axis
    source = data.reshape(-1) if attrs.axis is None else data
    values = np.zeros_like(source)
    np.moveaxis(values, axis, 0)[: len(order)] = np.moveaxis(source, axis, 0)[firsts]
    made = [values, padded(firsts), padded(inverse), np.array([len(order)]).astype(attrs.dtype)]
    counts = np.bincount(inverse, minlength=1)[: len(order)]
    return [*made, padded(counts)] if attrs.return_counts else made


_REPEATED = np.array([4, 1, 4, -3, 1, 1, 9], "int32")
_NANS = np.array([2, np.nan, -0.0, 2, 0.0, np.nan], "float32")
_ROWS = np.array([[1, 2, 1, 0], [3, 2, 3, 5], [1, 1, 1, 0]], "int8")

register(OpRecord(
    "unique",
    inputs=("data",),
    attrs=UniqueAttrs,
    infer=_infer,
    compute=_compute,
    compute_by_threads=_by_threads,
    reference=_reference,
    num_outputs=lambda attrs: 5 if attrs.return_counts else 4,
    pattern=OPAQUE,
    cases=[
        Case((_REPEATED,)),
        Case((_REPEATED,), {"is_sorted": False, "return_counts": True}),
        Case((_NANS.reshape(2, 3),), {"return_counts": True, "dtype": "int64"}),
        Case((_ROWS,), {"axis": 1, "return_counts": True}),
        Case((_ROWS[[2, 0, 2, 1]],), {"axis": 0, "is_sorted": False}),
        Case((((9,), "bool"),)),
        Case(((0,),), {"return_counts": True}),
        Case((((10, 15), "int8"),), {"return_counts": True}),
        Case((((90,), "int16"),), {"return_counts": True, "is_sorted": False}),
    ],
    doc="The different elements, in order or as they first occur, or different slices along axis.\n"
        "Gives them, the place where each first occurs, for every element which one it is, and how "
        "many there are; with return_counts also how often each occurs. The results have room for "
        "as many as there are elements, and zeros behind those that there are.",
))

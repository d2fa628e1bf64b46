"""The elements that are not zero: where they are, and slices that they select.

How many there are is known when the run has counted them. So each operator has a padded form, whose
result has room for all and which also gives the count. What lies behind them is zeros, or left as
it is where the result is cut to the count at once.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.axis_rows import index_type, product
from sterna.op.checks import at_least, axis_of, of_kind, size_of, tensor
from sterna.op.indexing import dims_of, unravel
from sterna.op.statements import loops, statements, variable
from sterna.op.thread_sort import SHORTEST_BY_THREADS, Positions, each
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr, TupleGetItem
from sterna.relay.op import OPAQUE, Case, OpRecord, call, register
from sterna.relay.steps import Trim
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class ArgWhereAttrs(Attrs):
    """Of argwhere and argwhere_padded."""

    dtype: DataType = DataType("int32")
    filled: bool = True
    """Whether a padded result has zeros behind what was found."""


@attributes
class CompressAttrs(Attrs):
    """Of compress and compress_padded."""

    axis: int | None = None
    filled: bool = True
    """Whether a padded result has zeros behind what was found."""


_COUNT = TensorType((1,), DataType("int32"))


def trimmed(name: str, args: Sequence[RelayExpr], along: int | None, **attrs: Any) -> RelayExpr:
    """A padded operator's first result, cut along an axis to the count that is its second."""
    both = call(name, *args, **attrs)
    kind = at_least(args[0].checked_type, "the operand", 0)
    axis = 0 if along is None else axis_of(along, kind.ndim)
    return Trim(TupleGetItem(both, 0), TupleGetItem(both, 1), axis)


def _infer_argwhere(padded: bool) -> Callable[..., Type]:
    def infer(attrs: ArgWhereAttrs, condition: Type) -> Type:
        kind = tensor(condition, "condition")
        if not padded:
            return TensorType((AnyDim(), kind.ndim), attrs.dtype)
        room = TensorType((size_of(kind.shape), kind.ndim), attrs.dtype)
        return TupleType((room, TensorType((1,), attrs.dtype)))

    return infer


def _compute_argwhere(attrs: ArgWhereAttrs, out: Type, condition: Tensor) -> Any:
    shape = dims_of(condition)
    count = product(shape)
    kind = index_type(count)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        found = variable(ib, kind, "found", 0)
        padded = len(outs) > 1
        with ExitStack() as loops:
            indices = [
                loops.enter_context(ib.for_range(0, size, name=f"i{d}", dtype=kind))
                for d, size in enumerate(shape)
            ]
            holds = _is_set(ins[0][tuple(indices)])
            if not padded:
                loops.enter_context(
                    ib.if_scope(build.logical_and(holds, found.get() < outs[0].shape[0]))
                )
            # where there is room for all, an element that is not wanted is written over by the next
            for d, index in enumerate(indices):
                outs[0][found.get(), d] = build.cast(attrs.dtype, index)
            found.set(found.get() + (build.cast(kind, holds) if padded else 1))
        if padded:
            outs[1][0] = build.cast(attrs.dtype, found.get())
        if padded and attrs.filled:
            with ib.for_range(found.get(), outs[0].shape[0], name="k") as k:
                for d in range(len(shape)):
                    outs[0][k, d] = build.const(0, attrs.dtype)

    made = statements(out, [condition], fill, "T_argwhere")
    return made if isinstance(out, TupleType) else made[0]


def _argwhere_by_threads(attrs: ArgWhereAttrs, out: Type, condition: Tensor) -> Any:
    """The same by a prefix sum: how many are set in front of each says where it goes."""
    shape = dims_of(condition)
    count = product(shape)
    if not isinstance(count, int) or count < SHORTEST_BY_THREADS:
        return None

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        found = outs[0]
        before = Positions(ib, count)

        def is_set(place: Expr) -> Expr:
            return _is_set(ins[0][tuple(unravel(place, shape))])

        before.mark(is_set)
        with each(ib, count, before.kind) as k:
            row = ib.let("row", before[k])
            wanted = is_set(k)
            if len(outs) == 1:
                wanted = build.logical_and(wanted, row < found.shape[0])
            with ib.if_scope(wanted):
                for d, index in enumerate(unravel(k, shape)):
                    found[row, d] = build.cast(attrs.dtype, index)
            if len(outs) > 1 and attrs.filled:
                with ib.if_scope(k >= before.total):
                    for d in range(len(shape)):
                        found[k, d] = build.const(0, attrs.dtype)
        for number in outs[1:]:
            with each(ib, 1, before.kind) as one:
                number[one] = build.cast(attrs.dtype, before.total)

    made = statements(out, [condition], fill, "T_argwhere")
    return made if isinstance(out, TupleType) else made[0]


def _is_set(value: Expr) -> Expr:
    return value if value.dtype.is_bool else build.not_equal(value, build.const(0, value.dtype))


def _reference_argwhere(attrs: ArgWhereAttrs, condition: Array) -> Array:
    made: Array = np.argwhere(condition.astype(bool)).astype(numpy_dtype(attrs.dtype))
    return made


def _reference_argwhere_padded(attrs: ArgWhereAttrs, condition: Array) -> list[Array]:
    found = _reference_argwhere(attrs, condition)
    made = np.zeros((condition.size, condition.ndim), found.dtype)
    made[: len(found)] = found
    return [made, np.array([len(found)]).astype(found.dtype)]


_FLAGS = np.array([[0, 1, 1], [0, 0, 1]], "float32")
_WHERE_CASES = [
    Case((_FLAGS,)),
    Case((((2, 1, 3), "bool"),), {"dtype": "int64"}),
    Case((np.array([np.nan, -0.0, 1e-30]),)),
    Case((((4,), "int8"),)),
    Case((np.array(True),)),
    Case((((7, 11), "bool"),)),
]

register(OpRecord(
    "argwhere",
    inputs=("condition",),
    attrs=ArgWhereAttrs,
    infer=_infer_argwhere(padded=False),
    compute=_compute_argwhere,
    compute_by_threads=_argwhere_by_threads,
    reference=_reference_argwhere,
    pattern=OPAQUE,
    measured=lambda attrs, args: trimmed(
        "argwhere_padded", args, 0, dtype=attrs.dtype, filled=False
    ),
    cases=_WHERE_CASES,
    doc="The indices of the elements that are not zero, one row for each.",
))

register(OpRecord(
    "argwhere_padded",
    inputs=("condition",),
    attrs=ArgWhereAttrs,
    infer=_infer_argwhere(padded=True),
    compute=_compute_argwhere,
    compute_by_threads=_argwhere_by_threads,
    reference=_reference_argwhere_padded,
    num_outputs=2,
    pattern=OPAQUE,
    cases=[*_WHERE_CASES, Case(((0, 2),))],
    doc="The indices of the elements that are not zero, with rows of zeros up to the number of all "
        "elements, and how many there are.",
))


# ---- slices that a condition selects ----


def _infer_compress(padded: bool) -> Callable[..., Type]:
    def infer(attrs: CompressAttrs, data: Type, condition: Type) -> Type:
        kind = at_least(data, "data", 1)
        flags = of_kind(tensor(condition, "condition", 1), "condition", "bool")
        shape: list[Dim] = [size_of(kind.shape)] if attrs.axis is None else list(kind.shape)
        axis = 0 if attrs.axis is None else axis_of(attrs.axis, kind.ndim)
        many, most = flags.shape[0], shape[axis]
        if isinstance(many, int) and isinstance(most, int) and many > most:
            raise ValueError(f"condition has at most {most} elements as data has, not {many}")
        shape[axis] = many if padded else AnyDim()
        made = TensorType(tuple(shape), kind.dtype)
        return TupleType((made, _COUNT)) if padded else made

    return infer


def _compute_compress(attrs: CompressAttrs, out: Type, data: Tensor, condition: Tensor) -> Any:
    shape, (count,) = dims_of(data), dims_of(condition)
    axis = None if attrs.axis is None else axis_of(attrs.axis, data.ndim)
    outer, inner = ([], []) if axis is None else (shape[:axis], shape[axis + 1 :])
    kind = index_type(product(shape))

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        source, flags, kept = ins[0], ins[1], outs[0]
        room = kept.shape[axis or 0]
        places = ib.allocate(kind, (count,), name="places")
        found = variable(ib, kind, "found", 0)
        with ib.for_range(0, count, name="k", dtype=kind) as k:
            # no branch: a place that is not wanted is written over by the next
            places[found.get()] = k
            found.set(found.get() + build.cast(kind, flags[k]))
        with (
            loops(ib, outer, "o") as around,
            ib.for_range(0, build.minimum(found.get(), room), name="n", dtype=kind) as n,
        ):
            k = ib.let("place", places[n])
            with ib.for_range(0, product(inner), name="e") as e:
                rest = unravel(e, inner)
                at = unravel(k, shape) if axis is None else [*around, k, *rest]
                kept[(*around, n, *rest)] = source[tuple(at)]
        if len(outs) > 1:
            outs[1][0] = build.cast("int32", found.get())
        if len(outs) > 1 and attrs.filled:
            with (
                loops(ib, outer, "o") as around,
                ib.for_range(found.get(), room, name="n", dtype=kind) as n,
                ib.for_range(0, product(inner), name="e") as e,
            ):
                kept[(*around, n, *unravel(e, inner))] = build.const(0, kept.dtype)

    made = statements(out, [data, condition], fill, "T_compress")
    return made if isinstance(out, TupleType) else made[0]


def _compress_by_threads(attrs: CompressAttrs, out: Type, data: Tensor, condition: Tensor) -> Any:
    """The same by a prefix sum over the condition."""
    shape, (count,) = dims_of(data), dims_of(condition)
    axis = None if attrs.axis is None else axis_of(attrs.axis, data.ndim)
    rest = [] if axis is None else [*shape[:axis], *shape[axis + 1 :]]
    size = product(rest)
    if not isinstance(count, int) or not isinstance(size, int) or size == 0:
        return None
    if count < SHORTEST_BY_THREADS:
        return None

    def along(place: Expr, element: Expr) -> tuple[Expr, ...]:
        around = unravel(element, rest)
        return (place,) if axis is None else (*around[:axis], place, *around[axis:])

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        source, flags, kept = ins[0], ins[1], outs[0]
        before = Positions(ib, count)
        before.mark(lambda place: flags[place])
        with each(ib, count * size, index_type(count * size)) as number:
            k, e = ib.let("k", number // size), ib.let("e", number % size)
            to = ib.let("place", before[k])
            place = tuple(unravel(k, shape)) if axis is None else along(k, e)
            with ib.if_scope(build.logical_and(flags[k], to < kept.shape[axis or 0])):
                kept[along(to, e)] = source[place]
            if len(outs) > 1 and attrs.filled:
                with ib.if_scope(k >= before.total):
                    kept[along(k, e)] = build.const(0, kept.dtype)
        for number_of in outs[1:]:
            with each(ib, 1, before.kind) as one:
                number_of[one] = build.cast("int32", before.total)

    made = statements(out, [data, condition], fill, "T_compress")
    return made if isinstance(out, TupleType) else made[0]


def _measured_compress(attrs: CompressAttrs, args: Sequence[RelayExpr]) -> RelayExpr:
    """Where the condition holds, and then what lies there: a result of just its size."""
    data, condition = args
    places = call("squeeze", trimmed("argwhere_padded", [condition], 0, filled=False), axis=(1,))
    if attrs.axis is None:
        data = call("reshape", data, newshape=(-1,))
    return call("take", data, places, axis=attrs.axis or 0)


def _reference_compress(attrs: CompressAttrs, data: Array, condition: Array) -> Array:
    made: Array = np.compress(condition, data, axis=attrs.axis)
    return made


def _reference_compress_padded(
    attrs: CompressAttrs, data: Array, condition: Array
) -> list[Array]:
    found = _reference_compress(attrs, data, condition)
    axis = 0 if attrs.axis is None else attrs.axis % data.ndim
    count = found.shape[axis]
    widths = [(0, len(condition) - count if i == axis else 0) for i in range(found.ndim)]
    return [np.pad(found, widths), np.array([count], "int32")]


_SELECTED = np.array([False, True, True])
_COMPRESS_CASES = [
    Case(((2, 3), _SELECTED)),
    Case((((2, 4, 2), "int8"), _SELECTED), {"axis": 1}),
    Case(((2, 3), _SELECTED), {"axis": -1}),
    Case(((2, 70), ((70,), "bool")), {"axis": 1}),
    Case(((5, 20), ((80,), "bool"))),
]

register(OpRecord(
    "compress",
    inputs=("data", "condition"),
    attrs=CompressAttrs,
    infer=_infer_compress(padded=False),
    compute=_compute_compress,
    compute_by_threads=_compress_by_threads,
    reference=_reference_compress,
    pattern=OPAQUE,
    measured=_measured_compress,
    cases=_COMPRESS_CASES,
    doc="The slices of data along axis, or its elements, for which a condition holds.",
))

register(OpRecord(
    "compress_padded",
    inputs=("data", "condition"),
    attrs=CompressAttrs,
    infer=_infer_compress(padded=True),
    compute=_compute_compress,
    compute_by_threads=_compress_by_threads,
    reference=_reference_compress_padded,
    num_outputs=2,
    pattern=OPAQUE,
    cases=_COMPRESS_CASES,
    doc="What compress gives, with zeros up to the length of the condition, and how many slices "
        "were selected.",
))

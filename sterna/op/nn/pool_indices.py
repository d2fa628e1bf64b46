"""Maximum pooling that also says where each largest element stood, and its inverse.

Places are counted through the whole input, all of it in the order of its axes; with
storage_order 1 the spatial axes are counted first to last instead of last to first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir.build import as_expr, const, logical_and, select
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, TupleType, Type, show_shape
from sterna.op.checks import expect_dim, of_kind, tensor
from sterna.op.indexing import divisor
from sterna.op.largest import first_largest, lowest
from sterna.op.nn.pool import (
    Pool1DAttrs,
    Pool2DAttrs,
    Pool3DAttrs,
    PoolAttrs,
    Seen,
    infer_pool,
    window_stage,
)
from sterna.op.windows import SPATIAL, pad_array
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OPAQUE, OUT_ELEMWISE_FUSABLE, Case, OpRecord, register
from sterna.schedule.products import wide, widened
from sterna.support.dtype import DataType
from sterna.te import IterVar, Tensor, compute, extern, max_value
from sterna.tir import ir_builder
from sterna.tir.stmt import Buffer, Stmt

INT64 = DataType("int64")


@attributes
class MaxPool1DIndicesAttrs(Pool1DAttrs):
    """Of nn.max_pool1d_with_indices."""

    storage_order: int = 0


@attributes
class MaxPool2DIndicesAttrs(Pool2DAttrs):
    """Of nn.max_pool2d_with_indices."""

    storage_order: int = 0


@attributes
class MaxPool3DIndicesAttrs(Pool3DAttrs):
    """Of nn.max_pool3d_with_indices."""

    storage_order: int = 0


IndicesAttrs = MaxPool1DIndicesAttrs | MaxPool2DIndicesAttrs | MaxPool3DIndicesAttrs


@attributes
class MaxUnpoolAttrs(Attrs):
    """Of nn.max_unpool."""

    output_shape: tuple[int, ...]


def _infer(attrs: IndicesAttrs, data: Type) -> TupleType:
    values = infer_pool(attrs, data)
    plain = f"NC{SPATIAL[len(attrs.pool_size)]}"
    if attrs.layout != plain or attrs.out_layout not in ("", plain):
        raise ValueError(f"places are counted in the layout {plain}, not in {attrs.layout}")
    if attrs.storage_order not in (0, 1):
        raise ValueError(f"storage_order is 0 or 1, not {attrs.storage_order}")
    return TupleType((values, TensorType(values.shape, INT64)))


def _flat(indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The place of an element among all, the last axis running fastest."""
    place = indices[0]
    for index, extent in zip(indices[1:], shape[1:], strict=True):
        place = place * extent + index
    return place


def _columns_first(place: Any, shape: Sequence[Any]) -> Any:
    """A place among all elements, with the spatial axes counted first to last."""
    indices = []
    for extent in reversed(shape[2:]):
        length = divisor(extent)
        indices.append(place % length)
        place = place // length
    for index, extent in zip(indices, reversed(shape[2:]), strict=True):
        place = place * extent + index
    return place


def _compute(attrs: IndicesAttrs, out: TupleType, data: Tensor) -> list[Tensor]:
    name = f"T_max_pool{len(attrs.pool_size)}d"
    shape = [extent.astype(INT64) for extent in data.shape]
    spatial = SPATIAL[len(attrs.pool_size)]

    def pairs(read: Expr, place: dict[str, Expr], axes: list[IterVar]) -> Any:
        inside: Expr = const(True)
        indices = [as_expr(place["N"]).astype(INT64), as_expr(place["C"]).astype(INT64)]
        for i, letter in enumerate(spatial):
            index = as_expr(place[letter] - attrs.before[i]).astype(INT64)
            inside = logical_and(inside, logical_and(index >= 0, index < shape[i + 2]))
            indices.append(index)
        where = select(inside, _flat(indices, shape), max_value(INT64))
        return first_largest((where, read), axes)

    where, values = window_stage(attrs, data, lowest(data.dtype), pairs, f"{name}_first")
    if attrs.storage_order:
        rows = where
        where = compute(
            rows.shape, lambda *i: _columns_first(rows(*i), shape), name=f"{name}_indices"
        )
    return [values, where]


def _reference(attrs: IndicesAttrs, data: Array) -> tuple[Array, Array]:
    seen = Seen(attrs, data)
    dtype = wide(str(data.dtype))
    border = lowest(dtype).value  # type: ignore[attr-defined]
    x = pad_array(widened(seen.plain, dtype), attrs.before, seen.tails, border)
    count = np.arange(data.size, dtype="int64").reshape(data.shape)
    numbers = pad_array(count, attrs.before, seen.tails, np.iinfo("int64").max)
    values = np.stack(list(seen.places(x)))
    where = np.stack(list(seen.places(numbers)))
    best = np.argmax(values, 0, keepdims=True)  # the first of equals, and a NaN before all
    chosen = np.take_along_axis(values, best, 0)[0].astype(data.dtype)
    place = np.take_along_axis(where, best, 0)[0]
    in_border = place == np.iinfo("int64").max  # equal to the border: take a real element
    place = np.where(in_border, np.min(where, 0), place)
    return chosen, _columns_first(place, data.shape) if attrs.storage_order else place


def _infer_unpool(attrs: MaxUnpoolAttrs, data: Type, indices: Type) -> TensorType:
    x = tensor(data, "data")
    where = of_kind(tensor(indices, "indices", x.ndim), "indices", "int")
    for have, want in zip(where.shape, x.shape, strict=True):
        expect_dim(have, want, f"an extent of indices, as data has shape {show_shape(x.shape)},")
    if len(attrs.output_shape) != x.ndim:
        raise ValueError(f"output_shape has {x.ndim} extents as data has, not {attrs.output_shape}")
    return TensorType(attrs.output_shape, x.dtype)


def _compute_unpool(
    attrs: MaxUnpoolAttrs, out: TensorType, data: Tensor, indices: Tensor
) -> Tensor:
    size = int(np.prod(out.concrete_shape))

    def fill(ins: list[Buffer], outs: list[Buffer]) -> Stmt:
        ib = ir_builder.create()
        x, where, y = ib.buffer_ptr(ins[0]), ib.buffer_ptr(ins[1]), ib.buffer_ptr(outs[0])
        count: Expr = const(1)
        for extent in data.shape:
            count = count * extent
        with ib.for_range(0, size, name="i") as i:
            y[i] = const(0, out.dtype)
        with ib.for_range(0, count, name="k") as k:
            place = where[k]
            with ib.if_scope(logical_and(place >= 0, place < size)):
                y[place] = x[k]
        return ib.get()

    made: Tensor = extern(out.shape, [data, indices], fill, name="T_max_unpool", dtype=out.dtype)
    return made


def _reference_unpool(attrs: MaxUnpoolAttrs, data: Array, indices: Array) -> Array:
    made = np.zeros(int(np.prod(attrs.output_shape)), data.dtype)
    for place, value in zip(indices.ravel(), data.ravel(), strict=True):
        if 0 <= place < made.size:
            made[place] = value
    return made.reshape(attrs.output_shape)


_FLAT = np.array([[[-np.inf, -np.inf, 3, 3, np.nan, 1, np.nan, -np.inf]]], "float32")

_CASES: list[list[Case]] = [
    [
        Case((_FLAT,), {"pool_size": 3, "strides": 2, "padding": 1}),
        Case((_FLAT,), {"pool_size": 2, "dilation": 3, "padding": 2, "storage_order": 1}),
    ],
    [
        Case((((2, 3, 7, 8), "int8"),), {"pool_size": (3, 2), "padding": 1}),
        Case(((2, 3, 7, 8),), {"pool_size": 2, "strides": 2, "ceil_mode": True,
                               "storage_order": 1}),
    ],
    [Case(((1, 2, 4, 5, 6),), {"pool_size": 2, "strides": (1, 2, 2), "storage_order": 1})],
]

_ATTRS: list[type[PoolAttrs]] = [
    MaxPool1DIndicesAttrs, MaxPool2DIndicesAttrs, MaxPool3DIndicesAttrs,
]

for _rank, (_kind, _some) in enumerate(zip(_ATTRS, _CASES, strict=True), 1):
    register(OpRecord(
        f"nn.max_pool{_rank}d_with_indices",
        inputs=("data",),
        attrs=_kind,
        infer=_infer,
        compute=_compute,
        reference=_reference,
        num_outputs=2,
        pattern=OUT_ELEMWISE_FUSABLE,
        cases=_some,
        doc="The largest element that each window sees, and its place in the whole input.",
    ))

register(OpRecord(
    "nn.max_unpool",
    inputs=("data", "indices"),
    attrs=MaxUnpoolAttrs,
    infer=_infer_unpool,
    compute=_compute_unpool,
    reference=_reference_unpool,
    pattern=OPAQUE,
    cases=[
        Case(
            ((1, 1, 2, 2), np.array([5, 0, 11, 10], "int64").reshape(1, 1, 2, 2)),
            {"output_shape": (1, 1, 3, 4)},
        ),
        Case(
            (((1, 2, 2), "int8"), np.array([7, 1, -3, 99], "int32").reshape(1, 2, 2)),
            {"output_shape": (1, 2, 4)},
        ),
    ],
    doc="Elements put at given places of a tensor of zeros, as nn.max_pool2d_with_indices counts.",
))

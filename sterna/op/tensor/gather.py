"""Elements picked by tensors of indices: gather, gather_nd, adv_index."""

import math
from collections.abc import Sequence

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type, has_no_elements
from sterna.op.checks import (
    at_least,
    axis_of,
    broadcast_shapes,
    expect_dim,
    expect_some,
    not_empty,
    of_kind,
    tensor,
)
from sterna.op.checks import tensors as all_tensors
from sterna.op.indexing import LARGEST_INT32, Index, dims_of, from_either_end, taken_from, within
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.te import Tensor
from sterna.te.operation import read_broadcast

# ---- gather ----


@attributes
class GatherAttrs(Attrs):
    """Of gather."""

    axis: int


def _infer_gather(attrs: GatherAttrs, data: Type, indices: Type) -> TensorType:
    kind = tensor(data, "data")
    picks = of_kind(tensor(indices, "indices", kind.ndim), "indices", "int", "uint")
    axis = axis_of(attrs.axis, kind.ndim)
    for place, (have, most) in enumerate(zip(picks.shape, kind.shape, strict=True)):
        if place != axis and type(have) is int and type(most) is int and have > most:
            raise ValueError(f"dimension {place} of indices is at most {most}, not {have}")
    made = TensorType(picks.shape, kind.dtype)
    if type(kind.shape[axis]) is int and kind.shape[axis] == 0 and not has_no_elements(made):
        raise ValueError("indices pick from an axis of data without elements")
    expect_some(kind.shape[axis], made, _PICKING)
    return made


_PICKING = "indices that pick from an axis"


def _safe(value: Expr, dims: Sequence[Dim], axis: int) -> Expr:
    """An index along an axis; once it lies inside of few enough elements, 32 bits do."""
    index = within(from_either_end(value, dims[axis]), dims[axis])
    known = [dim for dim in dims if type(dim) is int]
    small = len(known) == len(dims) and math.prod(known) <= LARGEST_INT32
    return index.astype("int32") if small else index


def _compute_gather(attrs: GatherAttrs, out: TensorType, data: Tensor, indices: Tensor) -> Tensor:
    axis = attrs.axis % data.ndim
    dims = dims_of(data)
    return taken_from(
        data, out.shape,
        lambda i: [*i[:axis], _safe(indices(*i), dims, axis), *i[axis + 1 :]], "T_gather",
    )


def held(indices: Array, dim: int) -> Array:
    """Indices counted from either end and held within a dimension."""
    wide = indices.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + dim, wide), 0, max(dim - 1, 0))


def _gather_reference(attrs: GatherAttrs, data: Array, indices: Array) -> Array:
    axis = attrs.axis % data.ndim
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = held(indices, data.shape[axis])
    return data[tuple(places)]


register(OpRecord(
    "gather",
    inputs=("data", "indices"),
    attrs=GatherAttrs,
    infer=_infer_gather,
    compute=_compute_gather,
    reference=_gather_reference,
    builder=lambda data, axis, indices: make("gather", data, indices, axis=axis),
    pattern=INJECTIVE,
    cases=[
        Case(((3, 4), np.array([[0, 2, 1, -1], [-3, 9, 0, 0]])), {"axis": 0}),
        Case((((2, 3, 2), "int8"), np.array([[[1], [0], [-1]]], "int32")), {"axis": -1}),
        Case(((3,), np.zeros((0,), "int64")), {"axis": 0}),
    ],
    doc="data at its own indices, except along one axis, where indices says which. Indices below "
        "0 count from the end.",
))


# ---- gather_nd ----


@attributes
class GatherNDAttrs(Attrs):
    """Of gather_nd."""

    batch_dims: int = 0
    index_rank: int | None = None


def _rank(attrs: GatherNDAttrs, first: Dim) -> int:
    """How many axes of data the indices name."""
    if type(first) is int:
        return first
    if attrs.index_rank is None:
        raise ValueError("the first dimension of indices is not known; give index_rank")
    return attrs.index_rank


def _infer_nd(attrs: GatherNDAttrs, data: Type, indices: Type) -> TensorType:
    kind = tensor(data, "data")
    picks = of_kind(at_least(indices, "indices", 1), "indices", "int", "uint")
    rank, batch = _rank(attrs, picks.shape[0]), attrs.batch_dims
    if not 0 <= batch < picks.ndim or batch + rank > kind.ndim:
        raise ValueError(
            f"{batch} batch_dims and {rank} indices for each element do not fit to {kind.ndim} "
            "dimensions of data"
        )
    for place in range(batch):
        expect_dim(picks.shape[1 + place], kind.shape[place], f"dimension {1 + place} of indices")
    made = TensorType((*picks.shape[1:], *kind.shape[batch + rank :]), kind.dtype)
    if not has_no_elements(made):
        not_empty(kind, "data", range(batch, batch + rank), "indices point to its elements")
        for axis in range(batch, batch + rank):
            expect_some(kind.shape[axis], made, _PICKING)
    return made


def _compute_nd(attrs: GatherNDAttrs, out: TensorType, data: Tensor, indices: Tensor) -> Tensor:
    dims = dims_of(data)
    rank, batch = _rank(attrs, dims_of(indices)[0]), attrs.batch_dims
    own = indices.ndim - 1

    def where(i: Index) -> Index:
        picked = [
            _safe(indices(number, *i[:own]), dims, batch + number) for number in range(rank)
        ]
        return [*i[:batch], *picked, *i[own:]]

    return taken_from(data, out.shape, where, "T_gather_nd")


def _nd_reference(attrs: GatherNDAttrs, data: Array, indices: Array) -> Array:
    batch, rank = attrs.batch_dims, indices.shape[0]
    picked = [held(indices[number], data.shape[batch + number]) for number in range(rank)]
    shape = indices.shape[1:]
    rows = list(np.indices(shape, sparse=True)[:batch])
    if not rows and not picked:
        return np.broadcast_to(data, (*shape, *data.shape)).copy()
    return np.broadcast_to(data[(*rows, *picked)], (*shape, *data.shape[batch + rank :])).copy()


register(OpRecord(
    "gather_nd",
    inputs=("data", "indices"),
    attrs=GatherNDAttrs,
    infer=_infer_nd,
    compute=_compute_nd,
    reference=_nd_reference,
    pattern=INJECTIVE,
    cases=[
        Case(((2, 3, 4), np.array([[0, 1, -1], [2, 0, 1]]))),
        Case(((2, 3, 4), np.array([[[0, 1], [1, 0]]], "int32"))),
        Case(((2, 3, 4), np.array([[2, 0], [3, 9]])), {"batch_dims": 1}),
        Case((((2, 3, 4), "int8"), np.array([[[1, 0, 2], [0, -4, 3]]])), {"batch_dims": 2}),
        Case(((3,), np.array([1]))),
    ],
    doc="data at indices of several axes: indices[:, i] are the indices of the element or part "
        "that result[i] is. The first batch_dims axes of data and of indices[0] run together.",
))


# ---- advanced indexing ----


def _index_shape(picks: Sequence[TensorType]) -> tuple[Dim, ...]:
    shape: tuple[Dim, ...] = ()
    for pick in picks:
        shape = broadcast_shapes(shape, pick.shape)
    return shape


def _infer_adv(attrs: None, inputs: Type) -> TensorType:
    kind, *picks = all_tensors(inputs, "inputs")
    for number, pick in enumerate(picks):
        of_kind(pick, f"inputs[{number + 1}]", "int", "uint")
    if not 1 <= len(picks) <= kind.ndim:
        raise ValueError(
            f"inputs are data and indices for one to {kind.ndim} of its axes, not {len(picks)}"
        )
    made = TensorType((*_index_shape(picks), *kind.shape[len(picks) :]), kind.dtype)
    if not has_no_elements(made):
        not_empty(kind, "inputs[0]", range(len(picks)), "indices point to its elements")
        for axis in range(len(picks)):
            expect_some(kind.shape[axis], made, _PICKING)
    return made


def _compute_adv(attrs: None, out: TensorType, inputs: list[Tensor]) -> Tensor:
    data, *picks = inputs
    dims = dims_of(data)
    own = out.ndim - (data.ndim - len(picks))

    def where(i: Index) -> Index:
        picked = [
            _safe(read_broadcast(pick, i[:own], out.shape[:own]), dims, axis)
            for axis, pick in enumerate(picks)
        ]
        return [*picked, *i[own:]]

    return taken_from(data, out.shape, where, "T_adv_index")


def _adv_reference(attrs: None, inputs: list[Array]) -> Array:
    data, *picks = inputs
    return data[tuple(held(pick, data.shape[axis]) for axis, pick in enumerate(picks))]


register(OpRecord(
    "adv_index",
    inputs=("*inputs",),
    infer=_infer_adv,
    compute=_compute_adv,
    reference=_adv_reference,
    pattern=INJECTIVE,
    cases=[
        Case(([(3, 4, 2), np.array([[0], [-1]]), np.array([1, 2, 0])],)),
        Case(([((5,), "int8"), np.array([[4, 0]], "int32")],)),
    ],
    doc="data[indices...] as in NumPy: the first axes by tensors of indices that broadcast.",
))

"""Gathering along one axis: elements picked by a tensor of indices."""


import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type, show_shape
from sterna.op.checks import axis_of, expect_dim, expect_some, map_dims, of_kind, tensor
from sterna.op.indexing import Index, as_index, dims_of, taken_from, unravel, within
from sterna.op.integer_rules import taken
from sterna.op.tensor.reshape import product
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.te import Tensor


@attributes
class TakeAttrs(Attrs):
    """Of take."""

    axis: int | None = None
    batch_dims: int = 0
    mode: str = "clip"

    def normalize(self) -> None:
        if self.mode not in ("clip", "wrap", "fast"):
            raise ValueError(f"mode is 'clip', 'wrap' or 'fast', not {self.mode!r}")


def _places(attrs: TakeAttrs, data: int, indices: int) -> tuple[int, int]:
    """The axis that is picked from, and how many first axes both operands share."""
    axis = axis_of(attrs.axis or 0, data)
    batch = attrs.batch_dims + (indices if attrs.batch_dims < 0 else 0)
    if not 0 <= batch <= min(axis, indices):
        raise ValueError(
            f"batch_dims {attrs.batch_dims} is more than the axes before axis {axis} of data or "
            f"than the {indices} of indices"
        )
    return axis, batch


def _infer(attrs: TakeAttrs, data: Type, indices: Type) -> TensorType:
    kind = tensor(data, "data")
    picks = of_kind(tensor(indices, "indices"), "indices", "int", "uint")
    if attrs.axis is None:
        made = TensorType(picks.shape, kind.dtype)
        _expect_elements(map_dims(lambda *dims: product(dims), *kind.shape), picks, made)
        return made
    axis, batch = _places(attrs, kind.ndim, picks.ndim)
    for place in range(batch):
        what = f"dimension {place} of indices"
        expect_dim(picks.shape[place], kind.shape[place], what)
    shape = (*kind.shape[:axis], *picks.shape[batch:], *kind.shape[axis + 1 :])
    made = TensorType(shape, kind.dtype)
    _expect_elements(kind.shape[axis], picks, made)
    return made


def _expect_elements(dim: Dim, picks: TensorType, made: TensorType) -> None:
    empty = any(type(extent) is int and extent == 0 for extent in picks.shape)
    if type(dim) is int and dim == 0 and not empty:
        raise ValueError(
            f"indices of shape {show_shape(picks.shape)} pick from an axis without elements"
        )
    expect_some(dim, made, "indices that pick from an axis")


def _held(attrs: TakeAttrs, value: Expr, dim: Dim) -> Expr:
    """The index within its axis. Under "fast" it is already; that is a promise, not a fact."""
    index = as_index(value)
    return index % dim if attrs.mode == "wrap" else within(index, dim)


def _compute(attrs: TakeAttrs, out: TensorType, data: Tensor, indices: Tensor) -> Tensor:
    dims = dims_of(data)
    if 0 in out.shape:  # there are no elements
        return taken_from(data, out.shape, lambda i: [0] * data.ndim, "T_take")
    if attrs.axis is None:
        return taken_from(
            data, out.shape,
            lambda i: unravel(_held(attrs, indices(*i), product(dims)), dims), "T_take",
        )
    axis, batch = _places(attrs, data.ndim, indices.ndim)
    picked = indices.ndim - batch

    def where(i: Index) -> Index:
        before, own, after = i[:axis], i[axis : axis + picked], i[axis + picked :]
        return [*before, _held(attrs, indices(*i[:batch], *own), dims[axis]), *after]

    return taken_from(data, out.shape, where, "T_take")


def _reference(attrs: TakeAttrs, data: Array, indices: Array) -> Array:
    if attrs.axis is None:
        return data.reshape(-1)[_held_array(attrs, indices, data.size)]
    axis, batch = _places(attrs, data.ndim, indices.ndim)
    picks = _held_array(attrs, indices, data.shape[axis])
    if not batch:
        return np.asarray(np.take(data, picks, axis))
    parts = [
        np.take(data[row], picks[row], axis - batch) for row in np.ndindex(*data.shape[:batch])
    ]
    shape = (*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :])
    return np.stack(parts).reshape(shape) if parts else np.empty(shape, data.dtype)


def _held_array(attrs: TakeAttrs, indices: Array, dim: int) -> Array:
    wide = indices.astype(np.int64)
    if not wide.size:
        return wide
    return wide % dim if attrs.mode == "wrap" else np.clip(wide, 0, dim - 1)


_PICKS = np.array([[0, 2, -1], [5, -7, 1]])

register(OpRecord(
    "take",
    inputs=("data", "indices"),
    attrs=TakeAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=INJECTIVE,
    integer=taken,
    cases=[
        Case(((2, 3), _PICKS)),
        Case(((2, 3), _PICKS), {"mode": "wrap"}),
        Case(((4, 3, 2), _PICKS), {"axis": 1}),
        Case(((4, 3, 2), _PICKS.astype("int32")), {"axis": -2, "mode": "wrap"}),
        Case(((4, 3), np.array(2, "uint8")), {"axis": 0, "mode": "fast"}),
        Case(((2, 4, 3), _PICKS), {"axis": 2, "batch_dims": 1}),
        Case((((2, 3, 4), "int8"), np.array([[[0], [1], [2]], [[3], [2], [1]]])),
             {"axis": 2, "batch_dims": 2}),
        Case(((2, 0), np.zeros((0, 2), "int64")), {"axis": 1}),
    ],
    doc="The elements of data at indices along an axis, or of all in a row without one. Indices "
        "outside are held within (clip) or counted round (wrap); fast promises that none is. The "
        "first batch_dims axes of both run together.",
))

"""Tensors made larger by repeating dimensions of 1, and smaller again by summing them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type, show_shape
from sterna.op.checks import of_kind, repeats_to, tensor
from sterna.op.dynamic import (
    DimsLike,
    by_extents,
    known_dims,
    length_of,
    open_dims,
    tensor_type,
    to_static,
    unknown_shape,
)
from sterna.op.indexing import dims_of, is_one
from sterna.op.tensor.reshape import same_shape
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike
from sterna.relay.op import COMM_REDUCE, INJECTIVE, Case, OpRecord, call, register
from sterna.te import IterVar, Tensor, compute, reduce_axis
from sterna.te import sum as te_sum
from sterna.te.operation import read_broadcast


@attributes
class BroadcastToAttrs(Attrs):
    """Of broadcast_to and collapse_sum_to."""

    shape: tuple[Dim, ...]


def _expect_broadcast(source: Sequence[Dim], shape: Sequence[Dim], what: str) -> None:
    """Whether a tensor of the first shape repeats to one of the second."""
    kept = shape[len(shape) - len(source) :]
    fits = len(source) <= len(shape) and all(
        repeats_to(have, want) for have, want in zip(source, kept, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{what} of shape {show_shape(tuple(source))} cannot be broadcast to shape "
            f"{show_shape(tuple(shape))}"
        )


def _infer_to(attrs: BroadcastToAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    _expect_broadcast(kind.shape, attrs.shape, "data")
    return TensorType(attrs.shape, kind.dtype)


def _infer_like(attrs: None, data: Type, broadcast_type: Type) -> TensorType:
    shape = tensor(broadcast_type, "broadcast_type").shape
    return _infer_to(BroadcastToAttrs(shape), data)


def _compute(attrs: BroadcastToAttrs | None, out: TensorType, data: Tensor, *_: Tensor) -> Tensor:
    made: Tensor = compute(
        out.shape, lambda *i: read_broadcast(data, i, out.shape), name="T_broadcast_to"
    )
    return made


def _broadcast_to(data: RelayExprLike, shape: DimsLike) -> Any:
    """data repeated along its dimensions of 1 and along new first ones, until it has a shape."""
    dims = open_dims(shape)
    if dims is None:
        return make("dyn.broadcast_to", data, shape)
    return make("broadcast_to", data, shape=dims)


register(OpRecord(
    "broadcast_to",
    inputs=("data",),
    attrs=BroadcastToAttrs,
    infer=_infer_to,
    compute=_compute,
    reference=lambda attrs, data: np.broadcast_to(data, attrs.shape),
    builder=_broadcast_to,
    rewrites=[same_shape],
    pattern=INJECTIVE,
    cases=[
        Case(((3, 1),), {"shape": (2, 3, 4)}),
        Case((((), "int8"),), {"shape": (5,)}),
        Case(((1, 3),), {"shape": (0, 3)}),
    ],
    doc=_broadcast_to.__doc__ or "",
))


def _infer_dyn(attrs: None, data: Type, shape: Type) -> TensorType:
    kind = tensor(data, "data")
    rank = length_of(shape, "shape")
    if rank < kind.ndim:
        raise ValueError(f"data has {kind.ndim} dimensions; shape has only {rank}")
    return TensorType(unknown_shape(rank), kind.dtype)


register(OpRecord(
    "dyn.broadcast_to",
    inputs=("data", "shape"),
    infer=_infer_dyn,
    compute=_compute,
    reference=lambda attrs, data, shape: np.broadcast_to(data, tuple(shape)),
    to_static=to_static("broadcast_to", "shape", open_dims),
    measured=by_extents("dyn.broadcast_to"),
    pattern=INJECTIVE,
    cases=[Case(((3, 1), np.array([2, 3, 4])))],
    doc="broadcast_to a shape that is computed.",
))


def _static_like(attrs: None, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    like = tensor_type(args[1])
    return call("broadcast_to", args[0], shape=like.shape) if like.is_static else None


register(OpRecord(
    "broadcast_to_like",
    inputs=("data", "broadcast_type"),
    infer=_infer_like,
    compute=_compute,
    reference=lambda attrs, data, like: np.broadcast_to(data, like.shape),
    simplify=_static_like,
    pattern=INJECTIVE,
    cases=[Case(((3, 1), (2, 3, 4)))],
    doc="broadcast_to the shape of another tensor.",
))


# ---- the way back ----


def _infer_sum(attrs: BroadcastToAttrs, data: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float", "int", "uint")
    _expect_broadcast(attrs.shape, kind.shape, "a tensor")
    return TensorType(attrs.shape, kind.dtype)


def _compute_sum(
    attrs: BroadcastToAttrs | None, out: TensorType, data: Tensor, *_: Tensor
) -> Tensor:
    extra = data.ndim - out.ndim
    axes = [
        reduce_axis((0, dim), f"k{place}")
        if place < extra or (is_one(out.shape[place - extra]) and not is_one(dim)) else None
        for place, dim in enumerate(dims_of(data))
    ]
    over = [axis for axis in axes if axis is not None]

    def element(*indices: Expr) -> Expr:
        own: list[Expr | IterVar] = [
            indices[place - extra] if axis is None else axis for place, axis in enumerate(axes)
        ]
        read = data(*own)
        return te_sum(read, axis=over) if over else read

    made: Tensor = compute(out.shape, element, name="T_collapse_sum")
    return made


def _summed(data: Array, shape: Sequence[int]) -> Any:
    wide = data.astype(np.float64) if data.dtype.kind not in "iu" else data
    extra = data.ndim - len(shape)
    ones = [i + extra for i, dim in enumerate(shape) if dim == 1]
    total = wide.sum(axis=(*range(extra), *ones), keepdims=True, dtype=wide.dtype)
    return total.reshape(shape).astype(data.dtype)


def _collapse_sum_to(data: RelayExprLike, shape: DimsLike) -> Any:
    """The sum of what broadcasting repeats: of data's elements that one of the result becomes."""
    dims = known_dims(shape)
    if dims is None:
        raise ValueError("collapse_sum_to: shape is not known before the run; give numbers")
    return make("collapse_sum_to", data, shape=dims)


register(OpRecord(
    "collapse_sum_to",
    inputs=("data",),
    attrs=BroadcastToAttrs,
    infer=_infer_sum,
    compute=_compute_sum,
    reference=lambda attrs, data: _summed(data, attrs.shape),
    builder=_collapse_sum_to,
    pattern=COMM_REDUCE,
    cases=[
        Case(((2, 3, 4),), {"shape": (3, 1)}),
        Case((((2, 3), "int32"),), {"shape": ()}),
        Case(((2, 3),), {"shape": (2, 3)}),
    ],
    doc=_collapse_sum_to.__doc__ or "",
))


def _infer_sum_like(attrs: None, data: Type, collapse_type: Type) -> TensorType:
    shape = tensor(collapse_type, "collapse_type").shape
    return _infer_sum(BroadcastToAttrs(shape), data)


def _static_sum_like(attrs: None, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    like = tensor_type(args[1])
    return call("collapse_sum_to", args[0], shape=like.shape) if like.is_static else None


register(OpRecord(
    "collapse_sum_like",
    inputs=("data", "collapse_type"),
    infer=_infer_sum_like,
    compute=_compute_sum,
    reference=lambda attrs, data, like: _summed(data, like.shape),
    simplify=_static_sum_like,
    pattern=COMM_REDUCE,
    cases=[Case(((2, 3, 4), (3, 1))), Case(((2, 3), (2, 3)))],
    doc="collapse_sum_to the shape of another tensor.",
))

"""Elements repeated: tile, repeat, sliding_window."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir.expr import ExprLike
from sterna.ir.types import Dim, TensorType, Type, same_dim
from sterna.op.checks import axis_of, map_dims, tensor
from sterna.op.dynamic import (
    DimsLike,
    by_extents,
    length_of,
    open_dims,
    to_static,
    unknown_shape,
)
from sterna.op.indexing import Index, dims_of, is_one, taken_from, unravel
from sterna.op.tensor.reshape import product
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExprLike
from sterna.relay.op import INJECTIVE, Case, OpRecord, register
from sterna.schedule.kernel import TABLE
from sterna.te import Tensor, compute

# Rows of so many bits are copied from where they are, as often as they are repeated.
LONG_ROW_BITS = 512


@attributes
class TileAttrs(Attrs):
    """Of tile."""

    reps: tuple[Dim, ...]


def _infer_tile(attrs: TileAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    if any(type(count) is int and count < 0 for count in attrs.reps):
        raise ValueError(f"reps are at least 0, as {attrs.reps} are not")
    ndim = max(kind.ndim, len(attrs.reps))
    dims = (1,) * (ndim - kind.ndim) + kind.shape
    reps = (1,) * (ndim - len(attrs.reps)) + attrs.reps
    shape = [map_dims(lambda a, b: a * b, dim, n) for dim, n in zip(dims, reps, strict=True)]
    return TensorType(tuple(shape), kind.dtype)


def _compute_tile(attrs: TileAttrs | None, out: TensorType, data: Tensor, *_: Tensor) -> Tensor:
    new = out.ndim - data.ndim
    data = _long_rows(data, out)
    dims = dims_of(data)

    def where(i: Index) -> Sequence[ExprLike]:
        if 0 in out.shape:  # there are no elements
            return [index * 0 for index in i[new:]]
        return [
            0 if is_one(dim) else index if same_dim(dim, extent) else index % dim
            for index, dim, extent in zip(i[new:], dims, out.shape[new:], strict=True)
        ]

    return taken_from(data, out.shape, where, "T_tile")


def _long_rows(data: Tensor, out: TensorType) -> Tensor:
    """Short rows that are repeated both inside and as a whole: made once, for all their copies."""
    kind = TensorType(data.shape)
    if not out.is_static or not kind.is_static or 0 in out.shape or not kind.ndim:
        return data
    *outer, last = kind.concrete_shape
    several = math.prod(out.concrete_shape[:-1]) > math.prod(outer)
    is_long = last * data.dtype.bits >= LONG_ROW_BITS
    if not several or is_long or last in (1, out.concrete_shape[-1]):
        return data
    made: Tensor = compute(
        (*outer, out.concrete_shape[-1]), lambda *i: data(*i[:-1], i[-1] % last),
        name="T_tile_rows", tag=TABLE,
    )
    return made


def _tile(data: RelayExprLike, reps: DimsLike) -> Any:
    """data repeated as a whole, so many times along every axis; reps stand for the last axes."""
    counts = open_dims(reps)
    if counts is None:
        return make("dyn.tile", data, reps)
    return make("tile", data, reps=counts)


register(OpRecord(
    "tile",
    inputs=("data",),
    attrs=TileAttrs,
    infer=_infer_tile,
    compute=_compute_tile,
    reference=lambda attrs, data: np.tile(data, attrs.reps),
    builder=_tile,
    pattern=INJECTIVE,
    cases=[
        Case(((2, 3),), {"reps": (2, 1, 3)}),
        Case(((2, 3),), {"reps": (2,)}),
        Case((((), "int8"),), {"reps": (3,)}),
        Case(((0, 2),), {"reps": (2, 2)}),
    ],
    doc=_tile.__doc__ or "",
))


def _infer_dyn_tile(attrs: None, data: Type, reps: Type) -> TensorType:
    kind = tensor(data, "data")
    return TensorType(unknown_shape(max(kind.ndim, length_of(reps, "reps"))), kind.dtype)


register(OpRecord(
    "dyn.tile",
    inputs=("data", "reps"),
    infer=_infer_dyn_tile,
    compute=_compute_tile,
    reference=lambda attrs, data, reps: np.tile(data, reps.tolist()),
    to_static=to_static("tile", "reps", open_dims),
    measured=by_extents("dyn.tile"),
    pattern=INJECTIVE,
    cases=[Case(((2, 3), np.array([2, 1, 2])))],
    doc="tile so many times as is computed.",
))


# ---- every element several times ----


@attributes
class RepeatAttrs(Attrs):
    """Of repeat."""

    repeats: int
    axis: int | None = None


def _infer_repeat(attrs: RepeatAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    if attrs.repeats < 0:
        raise ValueError(f"repeats is at least 0, not {attrs.repeats}")
    if attrs.axis is None:
        size = map_dims(lambda *dims: product(dims) * attrs.repeats, *kind.shape)
        return TensorType((size,), kind.dtype)
    axis = axis_of(attrs.axis, kind.ndim)
    shape = list(kind.shape)
    shape[axis] = map_dims(lambda dim: dim * attrs.repeats, shape[axis])
    return TensorType(tuple(shape), kind.dtype)


def _compute_repeat(attrs: RepeatAttrs, out: TensorType, data: Tensor) -> Tensor:
    def where(i: Index) -> Sequence[ExprLike]:
        if 0 in out.shape:  # there are no elements
            return [0] * data.ndim
        if attrs.axis is None:
            return unravel(i[0] // attrs.repeats, dims_of(data))
        axis = attrs.axis % data.ndim
        return [*i[:axis], i[axis] // attrs.repeats, *i[axis + 1 :]]

    return taken_from(data, out.shape, where, "T_repeat")


register(OpRecord(
    "repeat",
    inputs=("data",),
    attrs=RepeatAttrs,
    infer=_infer_repeat,
    compute=_compute_repeat,
    reference=lambda attrs, data: np.repeat(data, attrs.repeats, attrs.axis),
    pattern=INJECTIVE,
    cases=[
        Case(((2, 3),), {"repeats": 3, "axis": -1}),
        Case((((2, 3), "int8"),), {"repeats": 2}),
        Case(((2,),), {"repeats": 0, "axis": 0}),
    ],
    doc="Every element several times, along an axis or, without one, of all elements in a row.",
))


# ---- windows ----


@attributes
class SlidingWindowAttrs(Attrs):
    """Of sliding_window."""

    axis: int
    window_shape: tuple[int, ...]
    strides: tuple[int, ...]


def _infer_window(attrs: SlidingWindowAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    axis = axis_of(attrs.axis, kind.ndim)
    slid = kind.shape[axis:]
    for name, given in (("window_shape", attrs.window_shape), ("strides", attrs.strides)):
        if len(given) != len(slid):
            raise ValueError(f"{name} has a number for each axis from {axis} on: {len(slid)}")
        if any(number < 1 for number in given):
            raise ValueError(f"{name} are at least 1, as {given} are not")
    counts = [
        map_dims(lambda d, w, s: _windows(d, w, s), dim, window, stride)
        for dim, window, stride in zip(slid, attrs.window_shape, attrs.strides, strict=True)
    ]
    return TensorType((*kind.shape[:axis], *counts, *attrs.window_shape), kind.dtype)


def _windows(dim: Dim, window: int, stride: int) -> Dim:
    if type(dim) is int and dim < window:
        raise ValueError(f"a window of {window} does not fit into a dimension of {dim}")
    return (dim - window) // stride + 1


def _compute_window(attrs: SlidingWindowAttrs, out: TensorType, data: Tensor) -> Tensor:
    axis = attrs.axis % data.ndim

    def where(i: Index) -> Index:
        place, inside = i[axis : data.ndim], i[data.ndim :]
        steps = zip(place, attrs.strides, inside, strict=True)
        return [*i[:axis], *[p * stride + k for p, stride, k in steps]]

    return taken_from(data, out.shape, where, "T_sliding_window")


def _window_reference(attrs: SlidingWindowAttrs, data: Array) -> Array:
    axis = attrs.axis % data.ndim
    axes: Sequence[int] = range(axis, data.ndim)
    every = np.lib.stride_tricks.sliding_window_view(data, attrs.window_shape, tuple(axes))
    picked = (slice(None),) * axis + tuple(slice(None, None, step) for step in attrs.strides)
    return every[picked]


register(OpRecord(
    "sliding_window",
    inputs=("data",),
    attrs=SlidingWindowAttrs,
    infer=_infer_window,
    compute=_compute_window,
    reference=_window_reference,
    pattern=INJECTIVE,
    cases=[
        Case(((2, 5, 7),), {"axis": 1, "window_shape": (2, 3), "strides": (1, 2)}),
        Case((((6,), "int8"),), {"axis": -1, "window_shape": (4,), "strides": (2,)}),
    ],
    doc="Windows of the last axes, from one axis on, each moved on from the one before.",
))

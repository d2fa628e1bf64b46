"""Dimensions of 1 put in and taken out: expand_dims, squeeze."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir.types import Dim, TensorType, Type, show_shape
from sterna.op.checks import axis_of, of_kind, tensor
from sterna.op.dynamic import DimsLike, known, known_dims, length_of, to_static, unknown_shape
from sterna.op.indexing import is_one
from sterna.op.integer_rules import carried
from sterna.op.tensor.reshape import regrouped, same_shape, there_and_back, viewed_twice
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExprLike
from sterna.relay.layout_rules import Laid, LayoutPlan, Operands
from sterna.relay.op import INJECTIVE, Case, OpRecord, register


@attributes
class ExpandDimsAttrs(Attrs):
    """Of expand_dims."""

    axis: int
    num_newaxis: int = 1


@attributes
class DynExpandDimsAttrs(Attrs):
    """Of dyn.expand_dims."""

    num_newaxis: int = 1


def _expanded(shape: Sequence[Dim], axis: int, count: int) -> tuple[Dim, ...]:
    if not -len(shape) - 1 <= axis <= len(shape):
        raise ValueError(
            f"axis {axis} is no place before, between or after {len(shape)} dimensions"
        )
    if count < 0:
        raise ValueError(f"num_newaxis is at least 0, not {count}")
    place = axis if axis >= 0 else len(shape) + axis + 1
    return (*shape[:place], *(1,) * count, *shape[place:])


def _infer_expand(attrs: ExpandDimsAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    return TensorType(_expanded(kind.shape, attrs.axis, attrs.num_newaxis), kind.dtype)


def _expand_dims(data: RelayExprLike, axis: DimsLike, num_newaxis: int = 1) -> Any:
    """data with new dimensions of 1 from axis on; a negative axis counts places from the end."""
    place = known(axis)
    if place is None:
        return make("dyn.expand_dims", data, axis, num_newaxis=num_newaxis)
    if isinstance(place, tuple) and len(place) == 1:
        (place,) = place
    return make("expand_dims", data, axis=place, num_newaxis=num_newaxis)


register(OpRecord(
    "expand_dims",
    inputs=("data",),
    attrs=ExpandDimsAttrs,
    infer=_infer_expand,
    compute=regrouped("expand_dims"),
    reference=lambda attrs, data: data.reshape(
        _expanded(data.shape, attrs.axis, attrs.num_newaxis)),
    builder=_expand_dims,
    integer=carried("expand_dims"),
    pattern=INJECTIVE,
    is_view=True,
    rewrites=[same_shape, there_and_back, viewed_twice],
    cases=[
        Case(((2, 3),), {"axis": 1}),
        Case(((2, 3),), {"axis": -1, "num_newaxis": 2}),
        Case((((), "int8"),), {"axis": 0}),
    ],
    doc=_expand_dims.__doc__ or "",
))


def _infer_dyn_expand(attrs: DynExpandDimsAttrs, data: Type, axis: Type) -> TensorType:
    kind = tensor(data, "data")
    of_kind(tensor(axis, "axis", 0), "axis", "int", "uint")
    return TensorType(unknown_shape(kind.ndim + attrs.num_newaxis), kind.dtype)


register(OpRecord(
    "dyn.expand_dims",
    inputs=("data", "axis"),
    attrs=DynExpandDimsAttrs,
    infer=_infer_dyn_expand,
    compute=regrouped("expand_dims"),
    reference=lambda attrs, data, axis: data.reshape(
        _expanded(data.shape, int(axis), attrs.num_newaxis)),
    to_static=to_static("expand_dims", "axis"),
    pattern=INJECTIVE,
    is_view=True,
    cases=[Case(((2, 3), np.array(1)), {"num_newaxis": 2})],
    doc="expand_dims at a place that is computed.",
))


@attributes
class SqueezeAttrs(Attrs):
    """Of squeeze."""

    axis: tuple[int, ...] | None = None


def _squeezed(shape: Sequence[Dim], axis: Sequence[int] | None) -> tuple[Dim, ...]:
    if axis is None:
        return tuple(dim for dim in shape if not is_one(dim))
    gone = {axis_of(place, len(shape)) for place in axis}
    for place in gone:
        dim = shape[place]
        if type(dim) is int and dim != 1:
            raise ValueError(
                f"dimension {place} of shape {show_shape(tuple(shape))} is {dim}; only dimensions "
                "of 1 can be squeezed"
            )
    return tuple(dim for place, dim in enumerate(shape) if place not in gone)


def _infer_squeeze(attrs: SqueezeAttrs, data: Type) -> TensorType:
    kind = tensor(data, "data")
    if attrs.axis is None and not kind.is_static:
        raise ValueError(
            f"data has shape {show_shape(kind.shape)}; say by axis which dimensions are 1"
        )
    return TensorType(_squeezed(kind.shape, attrs.axis), kind.dtype)


def _squeeze(data: RelayExprLike, axis: DimsLike | None = None) -> Any:
    """data without its dimensions of 1, or without some of them."""
    if axis is None:
        return make("squeeze", data)
    places = known_dims(axis)
    if places is None:
        return make("dyn.squeeze", data, axis)
    return make("squeeze", data, axis=places)


def _layout(attrs: SqueezeAttrs, old: SqueezeAttrs, operands: Operands) -> LayoutPlan | None:
    """What is left keeps its layout."""
    laid = operands[0].laid
    if laid is None or not laid.is_permutation or attrs.axis is None:
        return None
    places = [place % len(laid.before) for place in attrs.axis]
    gone = {laid.before[place] for place in places}
    before, now = ("".join(a for a in name if a not in gone) for name in (laid.before, laid.now))
    moved = attrs.replace(axis=tuple(laid.axis(place) for place in places))
    return LayoutPlan((laid,), (Laid(before, now) if before != now else None,), moved)


register(OpRecord(
    "squeeze",
    inputs=("data",),
    attrs=SqueezeAttrs,
    infer=_infer_squeeze,
    compute=regrouped("squeeze"),
    reference=lambda attrs, data: data.reshape(_squeezed(data.shape, attrs.axis)),
    builder=_squeeze,
    integer=carried("squeeze"),
    pattern=INJECTIVE,
    is_view=True,
    layout=_layout,
    rewrites=[same_shape, there_and_back, viewed_twice],
    cases=[
        Case(((1, 3, 1, 2),)),
        Case(((1, 3, 1, 2),), {"axis": (-2,)}),
        Case((((1, 1), "bool"),)),
    ],
    doc=_squeeze.__doc__ or "",
))


def _infer_dyn_squeeze(attrs: None, data: Type, axis: Type) -> TensorType:
    kind = tensor(data, "data")
    rank = kind.ndim - length_of(axis, "axis")
    if rank < 0:
        raise ValueError(f"axis names more dimensions than the {kind.ndim} of data")
    return TensorType(unknown_shape(rank), kind.dtype)


def _squeezed_array(attrs: None, data: Array, axis: Array) -> Array:
    return data.reshape(_squeezed(data.shape, axis.tolist()))  # type: ignore[arg-type]


register(OpRecord(
    "dyn.squeeze",
    inputs=("data", "axis"),
    infer=_infer_dyn_squeeze,
    compute=regrouped("squeeze"),
    reference=_squeezed_array,
    to_static=to_static("squeeze", "axis"),
    pattern=INJECTIVE,
    is_view=True,
    cases=[Case(((1, 3, 1), np.array([0])))],
    doc="squeeze of dimensions that are computed.",
))

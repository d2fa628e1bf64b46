"""Tensors of one number: full, zeros, ones, and those with the shape of another tensor."""

from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import tensor
from sterna.op.dynamic import (
    DimsLike,
    by_extents,
    length_of,
    open_dims,
    tensor_type,
    to_static,
    unknown_shape,
)
from sterna.op.tensor.convert import convert, converted
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, const
from sterna.relay.layout_rules import follow
from sterna.relay.op import ELEMWISE, INJECTIVE, Case, OpRecord, call, register
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute


@attributes
class FillAttrs(Attrs):
    """Of full, zeros and ones."""

    shape: tuple[Dim, ...]
    dtype: DataType


@attributes
class DynFillAttrs(Attrs):
    """Of dyn.full, dyn.zeros and dyn.ones."""

    dtype: DataType


def _filled(value: Expr, out: TensorType, name: str) -> Tensor:
    made: Tensor = compute(out.shape, lambda *_: value, name=name)
    return made


def _scalar(kind: Type) -> TensorType:
    return tensor(kind, "fill_value", 0)


# ---- of a shape that is given ----


def _full(fill_value: RelayExprLike, shape: DimsLike = (), dtype: str = "") -> Any:
    """A tensor of one number; the element type is that of the number unless it is given."""
    if not isinstance(fill_value, RelayExpr):
        fill_value = const(fill_value, dtype or None)
    kind = dtype or str(tensor_type(fill_value).dtype)
    dims = open_dims(shape)
    if dims is None:
        return make("dyn.full", fill_value, shape, dtype=kind)
    return make("full", fill_value, shape=dims, dtype=kind)


def _compute_full(
    attrs: FillAttrs | DynFillAttrs | None, out: TensorType, fill_value: Tensor, *shape: Tensor
) -> Tensor:
    return _filled(convert(fill_value(), out.dtype), out, "T_full")


def _full_reference(attrs: FillAttrs, fill_value: Array) -> Array:
    return np.full(attrs.shape, converted(fill_value, attrs.dtype))  # type: ignore[arg-type]


def _infer_full(attrs: FillAttrs, fill_value: Type) -> TensorType:
    _scalar(fill_value)
    return TensorType(attrs.shape, attrs.dtype)


register(OpRecord(
    "full",
    inputs=("fill_value",),
    attrs=FillAttrs,
    infer=_infer_full,
    compute=_compute_full,
    reference=_full_reference,
    builder=_full,
    pattern=INJECTIVE,
    cases=[
        Case(((),), {"shape": (2, 3), "dtype": "float32"}),
        Case((np.array(3.7, "float32"),), {"shape": (), "dtype": "int8"}),
        Case(((),), {"shape": (2, 0), "dtype": "float32"}),
    ],
    doc="A tensor whose elements are all fill_value.",
))


def _infer_dyn_full(attrs: DynFillAttrs, fill_value: Type, shape: Type) -> TensorType:
    _scalar(fill_value)
    return TensorType(unknown_shape(length_of(shape, "shape")), attrs.dtype)


register(OpRecord(
    "dyn.full",
    inputs=("fill_value", "shape"),
    attrs=DynFillAttrs,
    infer=_infer_dyn_full,
    compute=_compute_full,
    reference=lambda attrs, value, shape: np.full(
        tuple(shape), converted(value, attrs.dtype)),
    to_static=to_static("full", "shape", open_dims),
    measured=by_extents("dyn.full"),
    cases=[Case(((), np.array([2, 3])), {"dtype": "float32"})],
    doc="full of a shape that is computed.",
))


def _constant(name: str, value: int) -> None:
    def builder(shape: DimsLike, dtype: str) -> Any:
        dims = open_dims(shape)
        if dims is None:
            return make(f"dyn.{name}", shape, dtype=dtype)
        return make(name, shape=dims, dtype=dtype)

    builder.__doc__ = f"A tensor of {name}."

    def compute_it(attrs: FillAttrs | DynFillAttrs, out: TensorType, *_: Tensor) -> Tensor:
        return _filled(build.const(value, out.dtype), out, f"T_{name}")

    def compute_like(attrs: None, out: TensorType, data: Tensor) -> Tensor:
        return _filled(build.const(value, out.dtype), out, f"T_{name}_like")

    def of_shape(attrs: None, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
        kind = tensor_type(args[0])
        return call(name, shape=kind.shape, dtype=kind.dtype) if kind.is_static else None

    register(OpRecord(
        name,
        inputs=(),
        attrs=FillAttrs,
        infer=lambda attrs: TensorType(attrs.shape, attrs.dtype),
        compute=compute_it,
        reference=lambda attrs: np.full(attrs.shape, value, numpy_dtype(attrs.dtype)),
        builder=builder,
        pattern=INJECTIVE,
        cases=[
            Case((), {"shape": (2, 3), "dtype": "float32"}),
            Case((), {"shape": (), "dtype": "bool"}),
            Case((), {"shape": (4,), "dtype": "bfloat16"}),
        ],
        doc=f"A tensor of {name}.",
    ))
    register(OpRecord(
        f"dyn.{name}",
        inputs=("shape",),
        attrs=DynFillAttrs,
        infer=lambda attrs, shape: TensorType(
            unknown_shape(length_of(shape, "shape")), attrs.dtype),
        compute=compute_it,
        reference=lambda attrs, shape: np.full(tuple(shape), value, numpy_dtype(attrs.dtype)),
        to_static=to_static(name, "shape", open_dims),
        measured=by_extents(f"dyn.{name}"),
        cases=[Case((np.array([2, 3]),), {"dtype": "int32"})],
        doc=f"{name} of a shape that is computed.",
    ))
    register(OpRecord(
        f"{name}_like",
        inputs=("data",),
        infer=lambda attrs, data: tensor(data, "data"),
        compute=compute_like,
        reference=lambda attrs, data: np.full(data.shape, value, data.dtype),
        simplify=of_shape,
        pattern=ELEMWISE,
        cases=[Case(((2, 3),)), Case((((0, 3), "int8"),))],
        doc=f"A tensor of {name} with the shape and the element type of another.",
    ))


_constant("zeros", 0)
_constant("ones", 1)


# ---- of the shape of another tensor ----


def _infer_full_like(attrs: None, data: Type, fill_value: Type) -> TensorType:
    _scalar(fill_value)
    return tensor(data, "data")


def _full_of_shape(attrs: None, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    kind = tensor_type(args[0])
    if not kind.is_static:
        return None
    return call("full", args[1], shape=kind.shape, dtype=kind.dtype)


register(OpRecord(
    "full_like",
    inputs=("data", "fill_value"),
    infer=_infer_full_like,
    compute=lambda attrs, out, data, value: _filled(
        convert(value(), out.dtype), out, "T_full_like"),
    reference=lambda attrs, data, value: np.full(
        data.shape, converted(value, DataType(str(data.dtype)))),
    simplify=_full_of_shape,
    pattern=INJECTIVE,
    layout=follow,
    cases=[Case(((2, 3), ())), Case((((2,), "int8"), np.array(7.5, "float32")))],
    doc="A tensor of one number with the shape and the element type of another.",
))

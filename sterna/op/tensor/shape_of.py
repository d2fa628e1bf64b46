"""The shape of a tensor as numbers of a graph: shape_of, ndarray_size."""

import math

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.checks import tensor
from sterna.op.dynamic import tensor_type
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr, const
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute


@attributes
class ShapeOfAttrs(Attrs):
    """Of shape_of and ndarray_size."""

    dtype: DataType = DataType("int32")


def _infer_shape(attrs: ShapeOfAttrs, data: Type) -> TensorType:
    return TensorType((tensor(data, "data").ndim,), attrs.dtype)


def _compute_shape(attrs: ShapeOfAttrs, out: TensorType, data: Tensor) -> Tensor:
    def extent(i: Expr) -> Expr:
        found = build.const(0, out.dtype)
        for place, dim in enumerate(data.shape):
            found = build.select(i == place, build.cast(out.dtype, dim), found)
        return found

    made: Tensor = compute(out.shape, extent, name="shape_of")
    return made


def _shape(attrs: ShapeOfAttrs, data: Array) -> Array:
    return np.array(data.shape, numpy_dtype(attrs.dtype))


def _known_shape(attrs: ShapeOfAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    kind = tensor_type(args[0])
    if not kind.is_static:
        return None
    return const(np.array(kind.concrete_shape, numpy_dtype(attrs.dtype)))


register(OpRecord(
    "shape_of",
    inputs=("data",),
    attrs=ShapeOfAttrs,
    infer=_infer_shape,
    compute=_compute_shape,
    reference=_shape,
    simplify=_known_shape,
    pattern=OPAQUE,
    cases=[Case(((2, 0, 3),)), Case(((),)), Case(((4,),), {"dtype": "int64"})],
    doc="The shape of a tensor as a vector of integers.",
))


def _compute_size(attrs: ShapeOfAttrs, out: TensorType, data: Tensor) -> Tensor:
    size = build.const(1, out.dtype)
    for dim in data.shape:
        size = size * build.cast(out.dtype, dim)
    made: Tensor = compute((), lambda: size, name="ndarray_size")
    return made


def _known_size(attrs: ShapeOfAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    kind = tensor_type(args[0])
    if not kind.is_static:
        return None
    return const(np.array(math.prod(kind.concrete_shape), numpy_dtype(attrs.dtype)))


register(OpRecord(
    "ndarray_size",
    inputs=("data",),
    attrs=ShapeOfAttrs,
    infer=lambda attrs, data: (tensor(data, "data"), TensorType((), attrs.dtype))[1],
    compute=_compute_size,
    reference=lambda attrs, data: np.array(data.size, numpy_dtype(attrs.dtype)),
    simplify=_known_size,
    pattern=OPAQUE,
    cases=[Case(((2, 3),)), Case(((),), {"dtype": "int64"})],
    doc="How many elements a tensor has.",
))

"""Numbers as places in a row of zeros."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import axis_of, of_kind, tensor
from sterna.op.dynamic import DimsLike, known
from sterna.op.indexing import as_index
from sterna.op.tensor.convert import convert, converted
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, const
from sterna.relay.op import INJECTIVE, Case, OpRecord, call, register
from sterna.support.dtype import DataType
from sterna.te import Tensor, compute


@attributes
class OneHotAttrs(Attrs):
    """Of one_hot."""

    depth: int
    axis: int
    dtype: DataType


@attributes
class DynOneHotAttrs(Attrs):
    """Of dyn.one_hot."""

    axis: int
    dtype: DataType


def _shape(shape: Sequence[Dim], depth: Dim, axis: int) -> tuple[Dim, ...]:
    place = axis_of(axis, len(shape) + 1)
    return (*shape[:place], depth, *shape[place:])


def _checked(indices: Type, on_value: Type, off_value: Type) -> TensorType:
    tensor(on_value, "on_value", 0)
    tensor(off_value, "off_value", 0)
    return of_kind(tensor(indices, "indices"), "indices", "int", "uint")


def _infer(attrs: OneHotAttrs, indices: Type, on_value: Type, off_value: Type) -> TensorType:
    kind = _checked(indices, on_value, off_value)
    if attrs.depth < 1:
        raise ValueError(f"depth is at least 1, not {attrs.depth}")
    return TensorType(_shape(kind.shape, attrs.depth, attrs.axis), attrs.dtype)


def _compute(
    attrs: OneHotAttrs | DynOneHotAttrs, out: TensorType, indices: Tensor, on_value: Tensor,
    off_value: Tensor, *_: Tensor,
) -> Tensor:
    axis = attrs.axis % out.ndim

    def element(*i: Expr) -> Expr:
        place = as_index(indices(*i[:axis], *i[axis + 1 :]))
        values = [convert(value(), out.dtype) for value in (on_value, off_value)]
        return build.select(place == i[axis], *values)

    made: Tensor = compute(out.shape, element, name="T_one_hot")
    return made


def _hot(
    attrs: OneHotAttrs | DynOneHotAttrs, indices: Array, on_value: Array, off_value: Array,
    depth: int,
) -> Array:
    rows = np.arange(depth).reshape(depth, *(1,) * indices.ndim)
    values = [converted(value, attrs.dtype) for value in (on_value, off_value)]
    return np.moveaxis(np.where(rows == indices.astype(np.int64), *values), 0, attrs.axis)


def _one_hot(
    indices: RelayExprLike, on_value: RelayExprLike, off_value: RelayExprLike, depth: DimsLike,
    axis: int, dtype: str,
) -> Any:
    """For every index a row of off_value with on_value at that place, along a new axis.

    An index outside of 0 to depth - 1 gives a row without on_value.
    """
    values = [
        value if isinstance(value, RelayExpr) else const(value, dtype)
        for value in (on_value, off_value)
    ]
    count = known(depth)
    if count is None:
        return make("dyn.one_hot", indices, *values, depth, axis=axis, dtype=dtype)
    if isinstance(count, tuple) and len(count) == 1:
        (count,) = count
    return make("one_hot", indices, *values, depth=int(count), axis=axis, dtype=dtype)


_ON, _OFF = np.array(2.5, "float32"), np.array(-1.0, "float32")

register(OpRecord(
    "one_hot",
    inputs=("indices", "on_value", "off_value"),
    attrs=OneHotAttrs,
    infer=_infer,
    compute=_compute,
    reference=lambda attrs, indices, on, off: _hot(attrs, indices, on, off, attrs.depth),
    builder=_one_hot,
    pattern=INJECTIVE,
    cases=[
        Case((np.array([[0, 3], [-1, 9]]), _ON, _OFF),
             {"depth": 4, "axis": -1, "dtype": "float32"}),
        Case((np.array([1, 0, 2], "uint8"), _ON, _OFF), {"depth": 3, "axis": 0, "dtype": "int32"}),
        Case((np.array(1, "int32"), np.array(1, "int8"), np.array(0, "int8")),
             {"depth": 2, "axis": 0, "dtype": "bool"}),
    ],
    doc=_one_hot.__doc__ or "",
))


def _infer_dyn(
    attrs: DynOneHotAttrs, indices: Type, on_value: Type, off_value: Type, depth: Type
) -> TensorType:
    kind = _checked(indices, on_value, off_value)
    of_kind(tensor(depth, "depth", 0), "depth", "int", "uint")
    return TensorType(_shape(kind.shape, AnyDim(), attrs.axis), attrs.dtype)


def _to_static(attrs: DynOneHotAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr | None:
    depth = known(args[3])
    if depth is None:
        return None
    return call("one_hot", *args[:3], depth=depth, axis=attrs.axis, dtype=attrs.dtype)


register(OpRecord(
    "dyn.one_hot",
    inputs=("indices", "on_value", "off_value", "depth"),
    attrs=DynOneHotAttrs,
    infer=_infer_dyn,
    compute=_compute,
    reference=lambda attrs, indices, on, off, depth: _hot(attrs, indices, on, off, int(depth)),
    to_static=_to_static,
    pattern=INJECTIVE,
    cases=[Case((np.array([1, 0]), _ON, _OFF, np.array(3)), {"axis": 1, "dtype": "float32"})],
    doc="one_hot of a depth that is computed.",
))

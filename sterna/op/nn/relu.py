"""Rectifiers: relu, leaky_relu, prelu."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import TensorType, Type
from sterna.op.checks import axis_of, expect_dim, of_kind, same_dtype, tensor
from sterna.op.elementwise import elementwise
from sterna.op.integer_rules import rectified
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.layout_rules import along_axis
from sterna.relay.op import BROADCAST, ELEMWISE, Case, OpRecord, is_call_of, register
from sterna.te import Tensor, compute

SPECIAL = np.array([-np.inf, -2.5, -0.0, 0.0, 3.5, np.inf, np.nan], "float32")


def _infer_numbers(attrs: object, data: Type) -> TensorType:
    return of_kind(tensor(data, "data"), "data", "float", "int", "uint")


def _of_numbers_above(relu: Call) -> RelayExpr | None:
    """relu(relu(x)) -> relu(x); relu(clip(x)) -> clip(x) if its bounds are not below 0"""
    (data,) = relu.args
    if is_call_of(data, "nn.relu"):
        return data
    if is_call_of(data, "clip"):
        bounds: Any = data.attrs  # type: ignore[attr-defined]
        return data if bounds.a_min >= 0 and bounds.a_max >= 0 else None
    return None


register(OpRecord(
    "nn.relu",
    inputs=("data",),
    infer=_infer_numbers,
    # Max gives its second operand if it is NaN, so that NaN stays NaN.
    compute=elementwise("relu", lambda attrs, x: build.maximum(build.const(0, x.dtype), x)),
    reference=lambda attrs, data: np.where(data < 0, np.zeros_like(data), data),
    pattern=ELEMWISE,
    rewrites=[_of_numbers_above],
    integer=rectified,
    cases=[Case((SPECIAL,)), Case((((2, 3), "int8"),)), Case((((), "bfloat16"),))],
    doc="max(x, 0); NaN stays NaN.",
))


@attributes
class LeakyReluAttrs(Attrs):
    """Of nn.leaky_relu."""

    alpha: float = 0.01


def _infer_floats(attrs: object, data: Type) -> TensorType:
    return of_kind(tensor(data, "data"), "data", "float")


def _sloped(x: Expr, slope: ExprLike) -> Expr:
    return build.select(x > 0.0, x, x * slope)


def _leaky_reference(attrs: LeakyReluAttrs, data: Array) -> Array:
    return np.where(data > 0, data, data * data.dtype.type(attrs.alpha))


register(OpRecord(
    "nn.leaky_relu",
    inputs=("data",),
    attrs=LeakyReluAttrs,
    infer=_infer_floats,
    compute=elementwise("leaky_relu", lambda attrs, x: _sloped(x, attrs.alpha)),
    reference=_leaky_reference,
    pattern=ELEMWISE,
    cases=[Case((SPECIAL,), {"alpha": 0.25}), Case((((2, 3), "float16"),))],
    doc="x where it is above 0, alpha * x elsewhere.",
))


@attributes
class PReluAttrs(Attrs):
    """Of nn.prelu."""

    axis: int = 1


def _infer_prelu(attrs: PReluAttrs, data: Type, alpha: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float")
    slopes = tensor(alpha, "alpha", 1)
    same_dtype([kind, slopes], ["data", "alpha"])
    axis = axis_of(attrs.axis, kind.ndim)
    expect_dim(slopes.shape[0], kind.shape[axis], "the number of slopes in alpha")
    return kind


def _complete(attrs: PReluAttrs, data: Type, alpha: Type | None) -> Sequence[Type | None]:
    if not isinstance(data, TensorType) or alpha is not None:
        return data, alpha
    return data, TensorType((data.shape[axis_of(attrs.axis, data.ndim)],), data.dtype)


def _compute_prelu(attrs: PReluAttrs, out: TensorType, data: Tensor, alpha: Tensor) -> Tensor:
    axis = attrs.axis % out.ndim
    made: Tensor = compute(
        out.shape, lambda *i: _sloped(data(*i), alpha(i[axis])), name="T_prelu"
    )
    return made


def _prelu_reference(attrs: PReluAttrs, data: Array, alpha: Array) -> Array:
    last = np.moveaxis(data, attrs.axis, -1)
    return np.moveaxis(np.where(last > 0, last, last * alpha), -1, attrs.axis)


register(OpRecord(
    "nn.prelu",
    inputs=("data", "alpha"),
    attrs=PReluAttrs,
    infer=_infer_prelu,
    complete=_complete,
    compute=_compute_prelu,
    reference=_prelu_reference,
    pattern=BROADCAST,
    layout=along_axis,
    cases=[
        Case(((2, 3, 4), (3,))),
        Case(((2, 5), (5,)), {"axis": -1}),
        Case((((3, 2), "float16"), ((3,), "float16")), {"axis": 0}),
    ],
    doc="x where it is above 0, alpha * x elsewhere, with an alpha for each index along an axis.",
))

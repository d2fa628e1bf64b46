"""A number for each index along one axis, added."""

from collections.abc import Sequence

import numpy as np

from sterna.ir.types import TensorType, Type
from sterna.op.checks import axis_of, expect_dim, of_kind, same_dtype, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.integer_rules import with_bias
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr
from sterna.relay.layout_rules import along_axis
from sterna.relay.op import BROADCAST, Case, OpRecord, call, register
from sterna.te import Tensor, compute


@attributes
class BiasAddAttrs(Attrs):
    """Of nn.bias_add."""

    axis: int = 1


def _infer(attrs: BiasAddAttrs, data: Type, bias: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float", "int", "uint")
    added = tensor(bias, "bias", 1)
    same_dtype([kind, added], ["data", "bias"])
    axis = axis_of(attrs.axis, kind.ndim)
    expect_dim(added.shape[0], kind.shape[axis], "the length of bias")
    return kind


def _complete(attrs: BiasAddAttrs, data: Type, bias: Type | None) -> Sequence[Type | None]:
    if not isinstance(data, TensorType) or bias is not None:
        return data, bias
    return data, TensorType((data.shape[axis_of(attrs.axis, data.ndim)],), data.dtype)


def _compute(attrs: BiasAddAttrs, out: TensorType, data: Tensor, bias: Tensor) -> Tensor:
    axis = attrs.axis % out.ndim
    made: Tensor = compute(out.shape, lambda *i: data(*i) + bias(i[axis]), name="T_bias_add")
    return made


def _reference(attrs: BiasAddAttrs, data: Array, bias: Array) -> Array:
    return np.moveaxis(np.moveaxis(data, attrs.axis, -1) + bias, -1, attrs.axis)


def _as_addition(attrs: BiasAddAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
    data, bias = args
    ndim = tensor_type(data).ndim
    after = ndim - attrs.axis % ndim - 1
    wide = call("expand_dims", bias, axis=1, num_newaxis=after) if after else bias
    return call("add", data, wide)


register(OpRecord(
    "nn.bias_add",
    inputs=("data", "bias"),
    attrs=BiasAddAttrs,
    infer=_infer,
    complete=_complete,
    compute=_compute,
    reference=_reference,
    canonicalize=_as_addition,
    integer=with_bias,
    pattern=BROADCAST,
    layout=along_axis,
    cases=[
        Case(((2, 3, 4), (3,))),
        Case(((2, 5), (5,)), {"axis": -1}),
        Case((((3, 2), "int32"), ((3,), "int32")), {"axis": 0}),
    ],
    doc="data + bias, with one number of bias for each index along an axis.",
))

"""nn.batch_norm as it is in inference: by a mean and a variance that are given."""

from typing import Any

import numpy as np

from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, TupleType, Type
from sterna.op.checks import axis_of, expect_dim, of_kind, same_dtype, tensor
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr, Tuple, const
from sterna.relay.op import OPAQUE, Case, OpRecord, call, register
from sterna.schedule.products import wide, widened
from sterna.te import Tensor, compute, sqrt

_NAMES = ("data", "gamma", "beta", "moving_mean", "moving_var")


@attributes
class BatchNormAttrs(Attrs):
    """Of nn.batch_norm."""

    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


def _infer(attrs: BatchNormAttrs, *kinds: Type) -> TupleType:
    data = of_kind(tensor(kinds[0], "data"), "data", "float")
    channels = data.shape[axis_of(attrs.axis, data.ndim)]
    given = [data, *[tensor(k, name, 1) for k, name in zip(kinds[1:], _NAMES[1:], strict=True)]]
    same_dtype(given, _NAMES)
    for kind, name in zip(given[1:], _NAMES[1:], strict=True):
        expect_dim(kind.shape[0], channels, f"the length of {name}")
    return TupleType((data, given[3], given[4]))


def _complete(attrs: BatchNormAttrs, data: Type | None, *others: Type | None) -> list[Type | None]:
    if not isinstance(data, TensorType):
        return [data, *others]
    each = TensorType((data.shape[axis_of(attrs.axis, data.ndim)],), data.dtype)
    return [data, *[each if kind is None else kind for kind in others]]


def _compute(
    attrs: BatchNormAttrs, out: TupleType, data: Tensor, gamma: Tensor, beta: Tensor,
    mean: Tensor, var: Tensor,
) -> list[Tensor]:
    axis, dtype = axis_of(attrs.axis, data.ndim), wide(data.dtype)

    def factor(c: Expr) -> Any:
        made = 1.0 / sqrt(var(c).astype(dtype) + attrs.epsilon)
        return made * gamma(c).astype(dtype) if attrs.scale else made

    scale = compute(mean.shape, factor, name="T_batch_norm_scale")

    def element(*i: Expr) -> Any:
        c = i[axis]
        made = (data(*i).astype(dtype) - mean(c).astype(dtype)) * scale(c)
        return (made + beta(c).astype(dtype) if attrs.center else made).astype(data.dtype)

    return [
        compute(data.shape, element, name="T_batch_norm"),
        compute(mean.shape, lambda c: mean(c), name="T_batch_norm_mean"),
        compute(var.shape, lambda c: var(c), name="T_batch_norm_var"),
    ]


def _reference(
    attrs: BatchNormAttrs, data: Array, gamma: Array, beta: Array, mean: Array, var: Array
) -> tuple[Array, Array, Array]:
    x = np.moveaxis(widened(data, str(data.dtype)), attrs.axis, -1)
    g, b, m, v = (widened(part, str(part.dtype)) for part in (gamma, beta, mean, var))
    made = (x - m) / np.sqrt(v + x.dtype.type(attrs.epsilon))
    made = made * g if attrs.scale else made
    made = made + b if attrs.center else made
    return np.moveaxis(made, -1, attrs.axis).astype(data.dtype), mean, var


def _simplify(attrs: BatchNormAttrs, args: tuple[RelayExpr, ...]) -> RelayExpr:
    data, gamma, beta, mean, var = args
    kind = data.checked_type
    assert isinstance(kind, TensorType)
    after = kind.ndim - axis_of(attrs.axis, kind.ndim) - 1

    def spread(per_channel: RelayExpr) -> RelayExpr:
        return call("expand_dims", per_channel, axis=1, num_newaxis=after) if after else per_channel

    epsilon, one = const(attrs.epsilon, kind.dtype), const(1.0, kind.dtype)
    factor: RelayExpr = call("divide", one, call("sqrt", call("add", var, epsilon)))
    factor = call("multiply", factor, gamma) if attrs.scale else factor
    shift: RelayExpr = call("multiply", call("negative", mean), factor)
    shift = call("add", shift, beta) if attrs.center else shift
    made = call("add", call("multiply", data, spread(factor)), spread(shift))
    return Tuple((made, mean, var))


_VAR = np.array([0.3, 2.0, 0.01], "float32")

register(OpRecord(
    "nn.batch_norm",
    inputs=_NAMES,
    attrs=BatchNormAttrs,
    infer=_infer,
    complete=_complete,
    compute=_compute,
    reference=_reference,
    simplify=_simplify,
    num_outputs=3,
    pattern=OPAQUE,
    cases=[
        Case(((2, 3, 4, 5), (3,), (3,), (3,), _VAR)),
        Case(((2, 4, 3), (3,), (3,), (3,), _VAR), {"axis": -1, "epsilon": 0.1}),
        Case(((2, 3, 4), (3,), (3,), (3,), _VAR), {"scale": False}),
        Case(((2, 3), (3,), (3,), (3,), _VAR), {"center": False}),
        Case(
            (*[(shape, "float16") for shape in ((1, 3, 2), (3,), (3,), (3,))],
             _VAR.astype("float16")),
            tolerance=2e-2,
        ),
    ],
    doc="(data - moving_mean) / sqrt(moving_var + epsilon) * gamma + beta, per channel; the mean "
    "and the variance are given back.",
))

"""Activations that are made of other operators: gelu, elu, mish and the like."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sterna.ir.types import TensorType, Type
from sterna.op.checks import of_kind, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.elementwise import in_float64
from sterna.op.tensor.unary import erf_of, sigmoid_of, tanh_of_softplus
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr, const
from sterna.relay.op import ELEMWISE, AttrsType, Case, OpRecord, call, register

_POINTS = np.array([-30.0, -3.0, -1.0, -0.3, -1e-4, -0.0, 0.5, 1.0, 2.9, 6.0, 40.0], "float32")


def _infer(attrs: object, data: Type) -> TensorType:
    return of_kind(tensor(data, "data"), "data", "float")


def _activation(
    name: str,
    attrs: type[AttrsType] | None,
    made_of: Callable[[AttrsType, RelayExpr], RelayExpr],
    reference: Callable[[AttrsType, Array], Array],
    doc: str,
    other: dict[str, float | str] | None = None,
) -> None:
    """Registers an activation; `other` are attributes to test that are not the defaults."""

    def computed(attrs: AttrsType, data: Array) -> Array:
        return in_float64(lambda x: np.asarray(reference(attrs, x)))(attrs, data)

    cases = [Case((_POINTS,)), Case((_POINTS.astype("float16"),), tolerance=4e-3)]
    register(OpRecord(
        name,
        inputs=("data",),
        attrs=attrs,
        infer=_infer,
        reference=computed,
        simplify=lambda attrs, args: made_of(attrs, args[0]),
        pattern=ELEMWISE,
        cases=cases if other is None else [*cases, Case((_POINTS,), other)],
        doc=doc,
    ))


def _number(value: float, like: RelayExpr) -> RelayExpr:
    return const(value, tensor_type(like).dtype)


# ---- gelu, sigmoids ----


@attributes
class GeluAttrs(Attrs):
    """Of nn.gelu."""

    approximate: str = "none"

    def normalize(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise ValueError(f"approximate is 'none' or 'tanh', not {self.approximate!r}")


def _gelu(attrs: GeluAttrs, x: RelayExpr) -> RelayExpr:
    if attrs.approximate == "none":
        return x * 0.5 * (call("erf", x * math.sqrt(0.5)) + 1.0)
    inner = (x * x * x * 0.044715 + x) * math.sqrt(2 / math.pi)
    return x * 0.5 * (call("tanh", inner) + 1.0)


def _gelu_reference(attrs: GeluAttrs, x: Array) -> Any:
    if attrs.approximate == "none":
        return 0.5 * x * (1 + erf_of(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_activation("nn.gelu", GeluAttrs, _gelu, _gelu_reference,
            "x times the share of the normal distribution below x; approximate='tanh' is a "
            "quicker curve near it.", {"approximate": "tanh"})


@attributes
class SwishAttrs(Attrs):
    """Of nn.swish."""

    beta: float = 1.0


_activation("nn.swish", SwishAttrs,
            lambda attrs, x: x * call("sigmoid", x if attrs.beta == 1.0 else x * attrs.beta),
            lambda attrs, x: x * sigmoid_of(attrs.beta * x), "x * sigmoid(beta * x).",
            {"beta": 1.7})


@attributes
class HardSigmoidAttrs(Attrs):
    """Of nn.hard_sigmoid."""

    alpha: float = 0.2
    beta: float = 0.5


def _hard_sigmoid(attrs: HardSigmoidAttrs, x: RelayExpr) -> RelayExpr:
    return call("clip", x * attrs.alpha + attrs.beta, a_min=0.0, a_max=1.0)


_activation("nn.hard_sigmoid", HardSigmoidAttrs, _hard_sigmoid,
            lambda attrs, x: np.clip(attrs.alpha * x + attrs.beta, 0, 1),
            "alpha * x + beta, held between 0 and 1.", {"alpha": 0.5, "beta": 0.6})
_activation("nn.hard_swish", None,
            lambda attrs, x: x * _hard_sigmoid(HardSigmoidAttrs(1 / 6, 0.5), x),
            lambda attrs, x: x * np.clip(x / 6 + 0.5, 0, 1),
            "x * hard_sigmoid(x) with alpha = 1/6 and beta = 0.5.")


# ---- softplus and its relatives ----


def _softplus(attrs: None, x: RelayExpr) -> RelayExpr:
    return call("nn.relu", x) + call("log1p", call("exp", -call("abs", x)))


def _softplus_reference(attrs: None, x: Array) -> Array:
    return np.logaddexp(x, 0.0)


_activation("nn.softplus", None, _softplus, _softplus_reference, "log(1 + exp(x)).")


_activation("nn.mish", None, lambda attrs, x: x * tanh_of_softplus(x),
            lambda attrs, x: x * np.tanh(_softplus_reference(attrs, x)),
            "x * tanh(softplus(x)).")
_activation("nn.softsign", None, lambda attrs, x: x / (call("abs", x) + 1.0),
            lambda attrs, x: x / (1 + np.abs(x)), "x / (1 + abs(x)).")


# ---- curves below 0 ----


@attributes
class EluAttrs(Attrs):
    """Of nn.elu and nn.celu."""

    alpha: float = 1.0


@attributes
class SeluAttrs(Attrs):
    """Of nn.selu."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875


def _below_zero(x: RelayExpr, below: RelayExpr) -> RelayExpr:
    return call("where", x > 0.0, x, below)


def _elu(attrs: EluAttrs, x: RelayExpr) -> RelayExpr:
    return _below_zero(x, call("expm1", x) * attrs.alpha)


def _elu_reference(attrs: EluAttrs, x: Array) -> Array:
    return np.where(x > 0, x, attrs.alpha * np.expm1(x))


_activation("nn.elu", EluAttrs, _elu, _elu_reference,
            "x above 0, alpha * (exp(x) - 1) elsewhere.", {"alpha": 0.4})
_activation("nn.selu", SeluAttrs,
            lambda attrs, x: _elu(EluAttrs(attrs.alpha), x) * attrs.gamma,
            lambda attrs, x: attrs.gamma * _elu_reference(EluAttrs(attrs.alpha), x),
            "gamma * elu(x).", {"alpha": 1.2, "gamma": 0.9})
_activation("nn.celu", EluAttrs,
            lambda attrs, x: _below_zero(x, call("expm1", x / attrs.alpha) * attrs.alpha),
            lambda attrs, x: np.where(x > 0, x, attrs.alpha * np.expm1(x / attrs.alpha)),
            "x above 0, alpha * (exp(x / alpha) - 1) elsewhere.", {"alpha": 0.4})


@attributes
class ThresholdedReluAttrs(Attrs):
    """Of nn.thresholded_relu."""

    alpha: float = 1.0


_activation("nn.thresholded_relu", ThresholdedReluAttrs,
            lambda attrs, x: call("where", x <= attrs.alpha, _number(0.0, x), x),
            lambda attrs, x: np.where(x <= attrs.alpha, 0, x), "x above alpha, 0 elsewhere.",
            {"alpha": 2.5})

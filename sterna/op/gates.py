"""The functions that gates of recurrent networks go through, as expressions and in NumPy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.relay.arrays import Array
from sterna.tir import op as t


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of a gate; scalar(x, alpha, beta) as an expression, array(...) in NumPy."""

    scalar: Callable[[Any, Any, Any], Any]
    array: Callable[[Any, Any, Any], Any]
    alpha: float | None = None
    """What alpha is by default; None if the function has none."""
    beta: float | None = None


def _positive(x: Expr) -> Expr:
    return x > build.const(0, x.dtype)


def _clipped(x: Expr, low: float, high: float) -> Expr:
    return build.maximum(build.minimum(x, build.const(high, x.dtype)), build.const(low, x.dtype))


def _softplus(x: Expr) -> Expr:
    """log(1 + exp(x)) without overflow."""
    zero = build.const(0, x.dtype)
    return build.maximum(x, zero) + t.log1p(t.exp(-t.abs(x)))


ACTIVATIONS: dict[str, Activation] = {
    "affine": Activation(lambda x, a, b: x * a + b, lambda x, a, b: a * x + b, 1.0, 0.0),
    "elu": Activation(
        lambda x, a, b: build.select(
            _positive(x), x, (t.exp(build.minimum(x, build.const(0, x.dtype))) - 1.0) * a
        ),
        lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
        1.0,
    ),
    "hardsigmoid": Activation(
        lambda x, a, b: _clipped(x * a + b, 0, 1),
        lambda x, a, b: np.clip(a * x + b, 0, 1),
        0.2, 0.5,
    ),
    "leakyrelu": Activation(
        lambda x, a, b: build.select(_positive(x), x, x * a),
        lambda x, a, b: np.where(x > 0, x, a * x),
        0.01,
    ),
    "relu": Activation(
        lambda x, a, b: build.maximum(build.const(0, x.dtype), x),
        lambda x, a, b: np.maximum(x, 0),
    ),
    "scaledtanh": Activation(
        lambda x, a, b: t.tanh(x * b) * a, lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0
    ),
    "sigmoid": Activation(lambda x, a, b: t.sigmoid(x), lambda x, a, b: 1 / (1 + np.exp(-x))),
    "softplus": Activation(lambda x, a, b: _softplus(x), lambda x, a, b: np.logaddexp(x, 0)),
    "softsign": Activation(lambda x, a, b: x / (t.abs(x) + 1.0), lambda x, a, b: x / (1 + abs(x))),
    "tanh": Activation(lambda x, a, b: t.tanh(x), lambda x, a, b: np.tanh(x)),
    "thresholdedrelu": Activation(
        lambda x, a, b: build.select(x > a, x, build.const(0, x.dtype)),
        lambda x, a, b: np.where(x > a, x, 0),
        1.0,
    ),
}


@dataclass(frozen=True, slots=True)
class Gate:
    """A function with its constants, and the bound of what goes into it."""

    function: Activation
    alpha: float | None
    beta: float | None
    clip: float | None

    def expr(self, x: Expr) -> Any:
        """It, of an expression."""
        given = (self.alpha, self.beta)
        constants = [None if one is None else build.const(one, x.dtype) for one in given]
        if self.clip is not None:
            x = _clipped(x, -self.clip, self.clip)
        return self.function.scalar(x, *constants)

    def array(self, x: Array) -> Any:
        """It, of an array."""
        bounded = x if self.clip is None else np.clip(x, -self.clip, self.clip)
        return self.function.array(bounded, self.alpha, self.beta)


def gates_of(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float], clip: float | None
) -> list[Gate]:
    """The functions of these names; each takes the next alpha and beta if it has such."""
    rest = {"alpha": list(alphas), "beta": list(betas)}

    def take(kind: str, default: float | None) -> float | None:
        return rest[kind].pop(0) if default is not None and rest[kind] else default

    made = []
    for name in names:
        function = ACTIVATIONS[name.lower()]
        alpha, beta = take("alpha", function.alpha), take("beta", function.beta)
        made.append(Gate(function, alpha, beta, clip))
    return made

"""Layer and RMS normalisation in graphs that spell them out.

    %1 = subtract(%x, mean(%x, axis=-1, keepdims=True))
    %2 = sqrt(add(mean(power(%1, 2f), axis=-1, keepdims=True), 1e-5f))
    add(multiply(divide(%1, %2), %gamma), %beta)   ->   nn.layer_norm(%x, %gamma, %beta)

The quotient becomes a normalisation without weights, which takes in a factor and then an offset.

    multiply(multiply(%x, rsqrt(add(mean(power(%x, 2f), axis=-1, keepdims=True), 1e-5f))), %weight)
                                                   ->   nn.rms_norm(%x, %weight)
"""

import math
from typing import Any

import numpy as np

from sterna.ir.types import TensorType
from sterna.op.dynamic import tensor_type
from sterna.op.rows import axes_of
from sterna.relay.arrays import numpy_dtype, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr, const
from sterna.relay.op import call, is_call_of
from sterna.target import Target

# Data, and the axes that are normalised over.
Centred = tuple[RelayExpr, list[int]]


def of_quotient(
    attrs: None, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """Centred data over its deviation, or data over the root of its mean square."""
    spread = _under_root(args[1])
    return _normalised(args[0], spread) or _over_mean_square(args[0], spread)


def of_product(attrs: None, args: tuple[RelayExpr, ...], target: Target | None) -> RelayExpr | None:
    """Data times the inverse of its deviation or of its mean square's root; a normalisation times
    weights."""
    for data, factor in (args, args[::-1]):
        spread = _under_inverse_root(factor)
        found = _normalised(data, spread) or _over_mean_square(data, spread)
        if found is None and _is_bare_rms(data):
            found = _with_weights(data, None, 1, factor)
        if found is None and _takes(data, "scale") and not data.attrs.center:  # type: ignore
            found = _with_weights(data, "scale", 1, factor)
        if found is not None:
            return found
    return None


def of_sum(attrs: None, args: tuple[RelayExpr, ...], target: Target | None) -> RelayExpr | None:
    """A normalisation plus weights."""
    for data, offset in (args, args[::-1]):
        if _takes(data, "center"):
            found = _with_weights(data, "center", 2, offset)
            if found is not None:
                return found
    return None


def _normalised(data: RelayExpr, spread: RelayExpr | None) -> RelayExpr | None:
    """Data over the root of what is given, if that is its variance and a little more."""
    centred = _centred(data)
    if centred is None or spread is None or not is_call_of(spread, "add"):
        return None
    assert isinstance(spread, Call)
    x, axes = centred
    kind = tensor_type(x)
    if axes != list(range(kind.ndim - len(axes), kind.ndim)) or not kind.is_static:
        return None
    for variance, other in (spread.args, spread.args[::-1]):
        epsilon = _number(other)
        if epsilon is None or not epsilon > 0 or not _is_variance(variance, centred):
            continue
        shape = tuple(kind.concrete_shape[axis] for axis in axes)
        ones, zeros = (const(made(shape, numpy_dtype(kind.dtype))) for made in (np.ones, np.zeros))
        return call("nn.layer_norm", x, ones, zeros, axis=tuple(axes), epsilon=epsilon,
                    center=False, scale=False)
    return None


def _over_mean_square(data: RelayExpr, spread: RelayExpr | None) -> RelayExpr | None:
    """Data over the root of what is given, if that is the mean of its squares and a little more."""
    if spread is None or not is_call_of(spread, "add"):
        return None
    assert isinstance(spread, Call)
    kind = tensor_type(data)
    for mean, other in (spread.args, spread.args[::-1]):
        epsilon, axes = _number(other), _axes_of_mean(mean)
        if epsilon is None or not epsilon > 0 or axes is None or not kind.is_static:
            continue
        assert isinstance(mean, Call)
        parts = _factors_of_square(mean.args[0])
        if not parts or any(part is not data for part in parts) or not kind.dtype.is_float:
            continue
        if axes != list(range(kind.ndim - len(axes), kind.ndim)):
            continue
        shape = tuple(kind.concrete_shape[axis] for axis in axes)
        ones = const(np.ones(shape, numpy_dtype(kind.dtype)))
        return call("nn.rms_norm", data, ones, axis=tuple(axes), epsilon=epsilon)
    return None


def _is_bare_rms(expr: RelayExpr) -> bool:
    """Whether it is an RMS normalisation whose weights are ones."""
    if not is_call_of(expr, "nn.rms_norm"):
        return False
    assert isinstance(expr, Call)
    weight = expr.args[1]
    return isinstance(weight, Constant) and bool((to_numpy(weight.data) == 1).all())


def _centred(expr: RelayExpr) -> Centred | None:
    """subtract(x, mean(x)) -> x and the axes of the mean"""
    if not is_call_of(expr, "subtract"):
        return None
    assert isinstance(expr, Call)
    data, mean = expr.args
    axes = _axes_of_mean(mean)
    if axes is None or not tensor_type(data).dtype.is_float:
        return None
    assert isinstance(mean, Call)
    return (data, axes) if mean.args[0] is data else None


def _axes_of_mean(expr: RelayExpr, operator: str = "mean") -> list[int] | None:
    if not is_call_of(expr, operator):
        return None
    assert isinstance(expr, Call)
    attrs: Any = expr.attrs
    if not attrs.keepdims or attrs.exclude or getattr(attrs, "unbiased", False):
        return None
    return axes_of(attrs.axis, tensor_type(expr.args[0]).ndim)


def _is_variance(expr: RelayExpr, centred: Centred) -> bool:
    data, axes = centred
    if _axes_of_mean(expr, "variance") == axes:
        assert isinstance(expr, Call)
        return expr.args[0] is data
    if _axes_of_mean(expr) != axes:
        return False
    assert isinstance(expr, Call)
    same = [_centred(part) for part in _factors_of_square(expr.args[0])]
    return bool(same) and all(
        one is not None and one[0] is data and one[1] == axes for one in same
    )


def _factors_of_square(expr: RelayExpr) -> tuple[RelayExpr, ...]:
    """power(x, 2) or multiply(x, y) -> what is multiplied"""
    if is_call_of(expr, "power"):
        assert isinstance(expr, Call)
        return expr.args[:1] if _number(expr.args[1]) == 2 else ()
    if is_call_of(expr, "multiply"):
        assert isinstance(expr, Call)
        return expr.args
    return ()


def _under_root(expr: RelayExpr) -> RelayExpr | None:
    """sqrt(x) or power(x, 0.5) -> x"""
    if is_call_of(expr, "sqrt"):
        assert isinstance(expr, Call)
        return expr.args[0]
    if is_call_of(expr, "power"):
        assert isinstance(expr, Call)
        return expr.args[0] if _number(expr.args[1]) == 0.5 else None
    return None


def _under_inverse_root(expr: RelayExpr) -> RelayExpr | None:
    """rsqrt(x) or divide(1, sqrt(x)) -> x"""
    if is_call_of(expr, "rsqrt"):
        assert isinstance(expr, Call)
        return expr.args[0]
    if is_call_of(expr, "divide"):
        assert isinstance(expr, Call)
        return _under_root(expr.args[1]) if _number(expr.args[0]) == 1 else None
    return None


def _takes(expr: RelayExpr, what: str) -> bool:
    """Whether it is a normalisation that has no such weights yet."""
    return is_call_of(expr, "nn.layer_norm") and not getattr(expr.attrs, what)  # type: ignore


def _with_weights(
    norm: RelayExpr, what: str | None, place: int, weights: RelayExpr
) -> RelayExpr | None:
    """What a normalisation becomes that takes weights in; what: the attribute that says so."""
    assert isinstance(norm, Call)
    kind, want = weights.checked_type, tensor_type(norm.args[place]).concrete_shape
    if not isinstance(kind, TensorType) or not kind.is_static or kind.ndim < len(want):
        return None
    extra = kind.ndim - len(want)
    if kind.ndim > tensor_type(norm).ndim or math.prod(kind.concrete_shape[:extra]) != 1:
        return None
    if kind.concrete_shape[extra:] != want:
        return None
    args = list(norm.args)
    args[place] = call("reshape", weights, newshape=want) if extra else weights
    attrs: Any = norm.attrs
    return Call(norm.op, tuple(args), attrs.replace(**{what: True}) if what else attrs)


def _number(expr: RelayExpr) -> float | None:
    if not isinstance(expr, Constant) or to_numpy(expr.data).size != 1:
        return None
    return float(to_numpy(expr.data).reshape(()))

"""Reductions that are made of several operators: std, mean_variance, mean_std, logsumexp."""

from typing import Any

from sterna.relay.builders import builder
from sterna.relay.expr import RelayExpr, Tuple, TupleWrapper


def mean_variance(
    data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False,
    unbiased: bool = False,
) -> TupleWrapper:
    """The mean over axes, and the mean of the squared distances from it."""
    mean = builder("mean")(data, axis=axis, keepdims=True, exclude=exclude)
    variance = builder("variance")(data, axis, keepdims, exclude, unbiased, with_mean=mean)
    return TupleWrapper(Tuple((builder("reshape_like")(mean, variance), variance)), 2)


def mean_std(
    data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False,
    unbiased: bool = False,
) -> TupleWrapper:
    """The mean over axes, and the standard deviation from it."""
    mean, variance = mean_variance(data, axis, keepdims, exclude, unbiased)
    return TupleWrapper(Tuple((mean, builder("sqrt")(variance))), 2)


def std(
    data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False,
    unbiased: bool = False,
) -> RelayExpr:
    """The standard deviation over axes: the root of the variance."""
    made: RelayExpr = builder("sqrt")(builder("variance")(data, axis, keepdims, exclude, unbiased))
    return made


def logsumexp(data: Any, axis: Any = None, keepdims: bool = False) -> RelayExpr:
    """The logarithm of the sum of exponentials over axes, without overflow on the way."""
    most = builder("max")(data, axis=axis, keepdims=True)
    zero = builder("zeros_like")(most)
    shift = builder("where")(builder("isfinite")(most), most, zero)
    powers = builder("exp")(builder("subtract")(data, shift))
    total = builder("log")(builder("sum")(powers, axis=axis, keepdims=keepdims))
    made: RelayExpr = builder("add")(total, builder("reshape_like")(shift, total))
    return made

"""Reductions made of several operators, against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.interpreter import interpret

Array = np.ndarray[Any, Any]

AXES = [
    ({}, None), ({"axis": 1}, 1), ({"axis": -1, "keepdims": True}, 2), ({"axis": (0, 2)}, (0, 2)),
    ({"axis": 0, "exclude": True}, (1, 2)),
]


def evaluate(build: Callable[..., Any], data: Array, **attrs: Any) -> Any:
    x = relay.var("x", shape=data.shape, dtype=str(data.dtype))
    function = relay.Function((x,), build(x, **attrs))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(function))
    return interpret(mod["main"], data)


@pytest.fixture
def data() -> Array:
    return np.random.default_rng(3).standard_normal((2, 3, 4)).astype("float32")


@pytest.mark.parametrize(("attrs", "axis"), AXES, ids=str)
@pytest.mark.parametrize("unbiased", [False, True])
def test_means_and_deviations(data: Array, attrs: Any, axis: Any, unbiased: bool) -> None:
    keep = attrs.get("keepdims", False)
    mean = data.mean(axis=axis, keepdims=keep)
    var = data.var(axis=axis, keepdims=keep, ddof=int(unbiased))
    for build, wanted in (
        (relay.std, [np.sqrt(var)]),
        (relay.mean_std, [mean, np.sqrt(var)]),
        (relay.mean_variance, [mean, var]),
    ):
        got = evaluate(build, data, unbiased=unbiased, **attrs)
        for one, want in zip(got if len(wanted) > 1 else [got], wanted, strict=True):
            assert one.shape == want.shape
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("attrs", "axis"), AXES[:-1], ids=str)
def test_logsumexp(data: Array, attrs: Any, axis: Any) -> None:
    far = np.where(np.arange(24).reshape(data.shape) < 16, data, -np.inf) + 300
    far = far.astype("float32")
    with np.errstate(divide="ignore"):
        want = np.log(np.exp(far.astype("float64")).sum(axis, keepdims=bool(attrs.get("keepdims"))))
    got = evaluate(relay.logsumexp, far, **attrs)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_logsumexp_at_the_ends() -> None:
    for value, want in ((np.inf, np.inf), (-np.inf, -np.inf), (np.nan, np.nan)):
        got = evaluate(relay.logsumexp, np.full(3, value, "float32"))
        np.testing.assert_array_equal(got, np.float32(want))

"""Normalisations and losses: references against torch, types, messages."""

from typing import Any

import numpy as np
import pytest

from sterna import relay
from sterna.ir.module import IRModule
from sterna.ir.types import TensorType
from tests.op.torch_support import functional, reference, tensor

RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def test_batch_norm_is_torchs() -> None:
    x, g, b, m, v = draw(2, 3, 4, 5), draw(3), draw(3), draw(3), np.abs(draw(3))
    want = functional().batch_norm(*map(tensor, (x, m, v, g, b)), eps=1e-3).numpy()
    got, mean, var = reference("nn.batch_norm", x, g, b, m, v, epsilon=1e-3)
    np.testing.assert_allclose(got, want)
    assert mean is m
    assert var is v
    last = reference("nn.batch_norm", np.moveaxis(x, 1, -1), g, b, m, v, axis=3, epsilon=1e-3)[0]
    np.testing.assert_allclose(np.moveaxis(last, -1, 1), want)


def test_norms_of_the_data_itself_are_torchs() -> None:
    f = functional()
    x, g, b = draw(2, 6, 4, 5), draw(6), draw(6)
    want = f.instance_norm(tensor(x), weight=tensor(g), bias=tensor(b)).numpy()
    np.testing.assert_allclose(reference("nn.instance_norm", x, g, b), want)
    want = f.group_norm(tensor(x), 3, tensor(g), tensor(b)).numpy()
    np.testing.assert_allclose(reference("nn.group_norm", x, g, b, num_groups=3), want)
    last = reference("nn.group_norm", np.moveaxis(x, 1, -1), g, b, num_groups=3, axis=-1)
    np.testing.assert_allclose(np.moveaxis(last, -1, 1), want)
    g, b = draw(4, 5), draw(4, 5)
    want = f.layer_norm(tensor(x), (4, 5), tensor(g), tensor(b)).numpy()
    np.testing.assert_allclose(reference("nn.layer_norm", x, g, b, axis=(2, 3)), want)
    want = f.rms_norm(tensor(x), (4, 5), tensor(g), eps=1e-5).numpy()
    np.testing.assert_allclose(reference("nn.rms_norm", x, g, axis=(2, 3)), want)


def test_lengths_are_torchs() -> None:
    f = functional()
    x = draw(2, 6, 4)
    for p in (1, 2, 3):
        want = f.normalize(tensor(x), p=p, dim=1).numpy()
        np.testing.assert_allclose(reference("nn.lp_normalize", x, axis=1, p=p), want)
    want = f.normalize(tensor(x), dim=1).numpy()
    np.testing.assert_allclose(reference("nn.l2_normalize", x, eps=1e-12, axis=1), want)
    want = f.local_response_norm(tensor(x), 3, alpha=0.5, beta=0.6, k=1.5).numpy()
    got = reference("nn.lrn", x, size=3, alpha=0.5, beta=0.6, bias=1.5)
    np.testing.assert_allclose(got, want)


def test_losses_are_torchs() -> None:
    f = functional()
    x, w = draw(4, 5, 3), np.abs(draw(5))
    y = RNG.integers(0, 5, (4, 3))
    y[0, 0] = -100
    for reduction in ("none", "mean", "sum"):
        want = f.nll_loss(tensor(x), tensor(y), tensor(w), reduction=reduction).numpy()
        np.testing.assert_allclose(reference("nn.nll_loss", x, y, w, reduction=reduction), want)


def test_untyped_weights() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    names = ("gamma", "beta", "mean", "var")
    given = [relay.var(name) for name in names]
    y = relay.nn.batch_norm(x, *given)[0]
    assert y.checked_type == TensorType((1, 3, 8, 8))
    assert all(one.checked_type == TensorType((3,)) for one in given)
    gamma, beta = relay.var("gamma"), relay.var("beta")
    assert relay.nn.layer_norm(x, gamma, beta).checked_type == TensorType((1, 3, 8, 8))
    assert gamma.checked_type == TensorType((8,))


def test_a_batch_norm_is_a_multiplication_and_an_addition() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    given = [relay.var(name, shape=(3,)) for name in ("gamma", "beta", "mean", "var")]
    y = relay.nn.batch_norm(x, *given)[0]
    function = relay.Function((x, *given), y)
    simple = relay.transform.SimplifyInference()(IRModule.from_expr(function))["main"]
    assert isinstance(simple.body, relay.Call)
    assert str(simple.body.op) == "add"
    product = simple.body.args[0]
    assert isinstance(product, relay.Call)
    assert str(product.op) == "multiply"
    assert product.args[0] is simple.params[0]


def norm(name: str, shape: tuple[int, ...], *weights: tuple[int, ...], **attrs: Any) -> Any:
    given = [relay.var(f"w{i}", shape=weight) for i, weight in enumerate(weights)]
    return getattr(relay.nn, name)(relay.var("x", shape=shape), *given, **attrs)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="the length of beta is 3, not 4"):
        norm("batch_norm", (1, 3, 8), (3,), (4,), (3,), (3,))
    with pytest.raises(ValueError, match="gamma's extent for axis 2 of data is 8, not 3"):
        norm("layer_norm", (1, 3, 8), (3,), (8,))
    with pytest.raises(ValueError, match="6 channels do not fall into 4 groups"):
        norm("group_norm", (1, 6, 8), (6,), (6,), num_groups=4)
    with pytest.raises(ValueError, match="axis 0 is the batch"):
        norm("instance_norm", (1, 6, 8), (1,), (1,), axis=0)
    with pytest.raises(ValueError, match=r"axis \(1, -2\) names a dimension twice"):
        norm("layer_norm", (1, 3, 8), (3, 3), (3, 3), axis=(1, -2))
    with pytest.raises(ValueError, match="reduction is none, mean or sum, not 'all'"):
        relay.nn.nll_loss(
            relay.var("x", shape=(2, 3)), relay.var("y", shape=(2,), dtype="int32"),
            relay.var("w", shape=(3,)), reduction="all",
        )

"""Which graphs are recognised as layer or RMS normalisation, and that they keep their numbers."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.interpreter import interpret
from sterna.relay.traverse import post_order

SHAPE = (2, 3, 8)
X = relay.var("x", shape=SHAPE)
GAMMA, BETA = relay.var("g", shape=(8,)), relay.var("b", shape=(8,))


def number(value: float) -> Any:
    return relay.const(np.float32(value))


def mean(x: Any, axis: Any = -1, keepdims: bool = True, **others: Any) -> Any:
    return relay.mean(x, axis=axis, keepdims=keepdims, **others)


def centred(x: Any = X, axis: Any = -1) -> Any:
    return relay.subtract(x, mean(x, axis))


def squared(x: Any) -> Any:
    return relay.power(x, number(2))


def deviation(variance: Any, epsilon: float = 1e-5) -> Any:
    return relay.sqrt(relay.add(variance, number(epsilon)))


def norm(axis: Any = -1) -> Any:
    inner = centred(axis=axis)
    return relay.divide(inner, deviation(mean(squared(inner), axis)))


def weighted(made: Any) -> Any:
    return relay.add(relay.multiply(made, GAMMA), BETA)


def by_product() -> Any:
    inner = centred()
    factor = relay.rsqrt(relay.add(number(1e-5), mean(relay.multiply(inner, inner))))
    return relay.multiply(factor, inner)


def by_inverse() -> Any:
    inner = centred()
    return relay.multiply(inner, relay.divide(number(1), deviation(mean(squared(inner)))))


RECOGNISED: dict[str, Any] = {
    "as_exported": lambda: weighted(norm()),
    "no_weights": norm,
    "weights_first": lambda: relay.add(BETA, relay.multiply(GAMMA, norm())),
    "offset_only": lambda: relay.add(norm(), BETA),
    "rsqrt": lambda: weighted(by_product()),
    "inverse": lambda: weighted(by_inverse()),
    "computed_twice": lambda: relay.divide(centred(), deviation(mean(squared(centred())))),
    "root_as_power": lambda: relay.divide(
        centred(), relay.power(relay.add(mean(squared(centred())), number(1e-3)), number(0.5))
    ),
    "by_variance": lambda: relay.divide(
        centred(), deviation(relay.variance(X, axis=-1, keepdims=True))
    ),
    "two_axes": lambda: relay.multiply(norm((1, 2)), relay.var("h", shape=(3, 8))),
    "weights_with_ones": lambda: relay.multiply(norm(), relay.var("h", shape=(1, 1, 8))),
}
NEAR_MISSES: dict[str, Any] = {
    "other_axis": lambda: norm(1),
    "no_epsilon": lambda: relay.divide(centred(), relay.sqrt(mean(squared(centred())))),
    "negative_epsilon": lambda: relay.divide(
        centred(), deviation(mean(squared(centred())), -1e-5)
    ),
    "cubes": lambda: relay.divide(
        centred(), deviation(mean(relay.power(centred(), number(3))))
    ),
    "not_centred": lambda: relay.divide(X, deviation(mean(squared(centred())))),
    "squares_of_data": lambda: relay.divide(centred(), deviation(mean(squared(X)))),
    "other_data": lambda: relay.divide(
        centred(), deviation(mean(squared(centred(relay.var("y", shape=SHAPE)))))
    ),
    "axes_differ": lambda: relay.divide(centred(), deviation(mean(squared(centred()), (1, 2)))),
    "inner_axes_differ": lambda: relay.divide(
        centred(), deviation(mean(squared(centred(axis=1))))
    ),
    "unbiased": lambda: relay.divide(
        centred(), deviation(relay.variance(X, axis=-1, keepdims=True, unbiased=True))
    ),
    "not_a_root": lambda: relay.divide(
        centred(), relay.add(mean(squared(centred())), number(1e-5))
    ),
    "product_of_two": lambda: relay.divide(
        centred(), deviation(mean(relay.multiply(centred(), X)))
    ),
}


def over_root(square: Any, by_factor: bool = True) -> Any:
    spread = relay.add(mean(square), number(1e-5))
    if by_factor:
        return relay.multiply(X, relay.rsqrt(spread))
    return relay.divide(X, relay.sqrt(spread))


MEAN_SQUARES: dict[str, Any] = {
    "no_weights": lambda: over_root(squared(X)),
    "weights_first": lambda: relay.multiply(GAMMA, over_root(squared(X))),
    "product": lambda: relay.multiply(over_root(relay.multiply(X, X)), GAMMA),
    "quotient": lambda: relay.multiply(over_root(squared(X), by_factor=False), GAMMA),
}


def legalized(body: Any) -> tuple[Any, Any]:
    plain = relay.transform.InferType()(tvm.IRModule.from_expr(body))
    made = relay.transform.InferType()(relay.transform.Legalize()(plain))
    return plain["main"], made["main"]


def operators(func: Any) -> set[str]:
    return {str(e.op) for e in post_order(func.body) if isinstance(e, relay.Call)}


def agree(plain: Any, made: Any) -> None:
    rng = np.random.default_rng(0)
    given = {
        p.name_hint: rng.standard_normal(p.checked_type.shape).astype("float32") + 3
        for p in plain.params
    }
    want, have = (interpret(f, *[given[p.name_hint] for p in f.params]) for f in (plain, made))
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", RECOGNISED)
def test_what_exporters_write_is_recognised(name: str) -> None:
    plain, made = legalized(RECOGNISED[name]())
    assert operators(made) <= {"nn.layer_norm", "reshape"}
    agree(plain, made)


@pytest.mark.parametrize("name", MEAN_SQUARES)
def test_rows_over_their_mean_squares_are_recognised(name: str) -> None:
    plain, made = legalized(MEAN_SQUARES[name]())
    assert operators(made) == {"nn.rms_norm"}
    agree(plain, made)


def test_squares_of_other_data_are_no_mean_square() -> None:
    other = relay.var("y", shape=SHAPE)
    for square in (squared(other), relay.multiply(X, other), relay.power(X, number(3))):
        _, made = legalized(over_root(square))
        assert "nn.rms_norm" not in operators(made)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_no_normalisation_stays(name: str) -> None:
    _, made = legalized(NEAR_MISSES[name]())
    assert "nn.layer_norm" not in operators(made)


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (2, 3, 8), (4, 1, 1, 8)])
def test_what_does_not_lie_along_the_axes_is_no_weight(shape: tuple[int, ...]) -> None:
    other = relay.var("o", shape=shape)
    plain, made = legalized(relay.add(relay.multiply(norm(), other), other))
    assert {"nn.layer_norm", "add", "multiply"} <= operators(made)
    agree(plain, made)


def test_an_offset_before_a_factor_is_no_weight_of_it() -> None:
    plain, made = legalized(relay.multiply(relay.add(norm(), BETA), GAMMA))
    assert {"nn.layer_norm", "multiply"} == operators(made)
    agree(plain, made)

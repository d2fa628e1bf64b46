"""Products with few columns: filled up to vectors, with the numbers that are asked for."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.interpreter import interpret

AVX512 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=emeraldrapids -num-cores=1"
N1 = "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1 -num-cores=1"


def product(a: tuple[int, ...], b: tuple[int, ...]) -> Any:
    x, y = relay.var("x", shape=a), relay.var("y", shape=b)
    made = relay.nn.matmul(x, y) if len(b) == 2 else relay.nn.batch_matmul(x, y, transpose_b=False)
    return relay.Function((x, y), relay.nn.relu(made))


def optimized(function: Any, target: str) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return relay.optimize(tvm.IRModule.from_expr(function), target=target)[0]["main"]


@pytest.mark.parametrize(
    ("a", "b", "wide"),
    [((1000, 64), (64, 3), 4), ((4, 352, 145), (4, 145, 10), 16), ((2, 20, 40), (40, 5), 8),
     ((1000, 64), (64, 8), None), ((1000, 64), (64, 17), None), ((8, 64), (64, 3), None)],
    ids=["three", "batch", "rows of matrices", "a vector", "more", "few rows"],
)
def test_columns_are_filled_up_and_left_out_again(
    a: tuple[int, ...], b: tuple[int, ...], wide: int | None
) -> None:
    function = product(a, b)
    made = optimized(function, AVX512)
    assert ("nn.pad" in str(made)) == (wide is not None)
    assert wide is None or f", {wide}), float32]" in str(made)
    assert "nn.pad" not in str(optimized(function, N1))
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(shape, "float32") for shape in (a, b)]
    np.testing.assert_allclose(
        interpret(made, *values), np.maximum(values[0] @ values[1], 0), rtol=1e-4, atol=1e-4
    )


def test_keys_of_attention_stay_as_they_are() -> None:
    q, k = relay.var("q", shape=(1, 40, 4, 16)), relay.var("k", shape=(1, 10, 4, 16))
    scores = relay.nn.batch_matmul(
        relay.transpose(q, [0, 2, 1, 3]), relay.transpose(k, [0, 2, 3, 1]), transpose_b=False)
    mixed = relay.nn.batch_matmul(
        relay.nn.softmax(scores), relay.transpose(k, [0, 2, 1, 3]), transpose_b=False)
    made = optimized(relay.Function((q, k), mixed), AVX512)
    assert "nn.attention" in str(made)

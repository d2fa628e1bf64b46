"""Products of an array with itself, such as Gram matrices: both operands are one array."""

import numpy as np
import pytest

import sterna
from sterna import relay


@pytest.mark.parametrize("rows", [4, 48])
def test_a_gram_matrix(rows: int) -> None:
    x = relay.var("x", shape=(rows, 40))
    module = sterna.IRModule.from_expr(relay.Function((x,), relay.nn.relu(relay.nn.dense(x, x))))
    given = np.random.default_rng(1).standard_normal((rows, 40)).astype("float32")
    made = relay.create_executor("graph", module, target="llvm").evaluate()(given)
    np.testing.assert_allclose(made.numpy(), np.maximum(given @ given.T, 0), rtol=1e-4, atol=1e-4)


def test_squares_of_matrices() -> None:
    x = relay.var("x", shape=(2, 33, 33))
    body = relay.nn.batch_matmul(x, x, transpose_b=False)
    module = sterna.IRModule.from_expr(relay.Function((x,), body))
    given = np.random.default_rng(2).standard_normal((2, 33, 33)).astype("float32")
    made = relay.create_executor("graph", module, target="llvm").evaluate()(given)
    np.testing.assert_allclose(made.numpy(), given @ given, rtol=1e-4, atol=1e-4)

"""Products whose columns only a run counts: whole vectors, and shorter ones for what is left."""

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.lowering.lower_kernel import ask_kernel
from sterna.relay.infer import infer


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [5, None])
def test_columns_that_fill_no_vectors(transposed: bool, rows: int | None) -> None:
    a = relay.var("a", shape=(2, rows or relay.Any(), 9))
    b = relay.var("b", shape=(2, relay.Any(), 9) if transposed else (2, 9, relay.Any()))
    made = relay.nn.batch_matmul(a, b, transpose_a=False, transpose_b=transposed)
    module = tvm.IRModule.from_expr(relay.Function((a, b), relay.nn.relu(made)))
    run = relay.create_executor("vm", module, target="llvm").evaluate()
    rng = np.random.default_rng(0)
    for columns in (0, 1, 7, 15, 16, 17, 31, 64, 71):
        for count in (rows,) if rows else (1, 17):
            x = rng.standard_normal((2, count, 9)).astype("float32")
            y = rng.standard_normal((2, 9, columns)).astype("float32")
            given = np.ascontiguousarray(y.swapaxes(1, 2)) if transposed else y
            want = np.maximum(x @ y, 0)
            np.testing.assert_allclose(run(x, given).numpy(), want, rtol=1e-4, atol=1e-5)


def test_panels_are_packed_for_open_rows() -> None:
    rows = relay.Any("rows")
    a, b = relay.var("a", shape=(2, rows, 48)), relay.var("b", shape=(2, 40, 48))
    module = tvm.IRModule.from_expr(relay.Function((a, b), relay.nn.batch_matmul(a, b)))
    run = relay.create_executor("vm", module, target="llvm").evaluate()
    rng = np.random.default_rng(0)
    y = rng.standard_normal((2, 40, 48)).astype("float32")
    for count in (0, 1, 5, 16, 17, 100):
        x = rng.standard_normal((2, count, 48)).astype("float32")
        want = x @ y.swapaxes(1, 2)
        np.testing.assert_allclose(run(x, y).numpy(), want, rtol=1e-4, atol=1e-4)
    extent = tvm.te.var("extent")
    kernel = relay.Function(
        (c := relay.var("c", shape=(2, extent, 48)), b), relay.nn.batch_matmul(c, b))
    infer(kernel)
    decided = ask_kernel(kernel, tvm.target.Target("llvm")).decisions
    assert str(decided["free operand"]).startswith("panels")

"""Products by matrices as GPUs read them: constants turned before, others where rows are many."""

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.interpreter import interpret


@pytest.mark.parametrize(("rows", "is_constant", "transpose_b", "dense"), [
    (3, True, False, True), (3, False, False, False), (64, False, False, True),
    (3, False, True, True),
])
def test_a_matrix_is_turned(
    rows: int, is_constant: bool, transpose_b: bool, dense: bool
) -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((2, rows, 24)).astype("float16")
    matrix = rng.standard_normal((40, 24) if transpose_b else (24, 40)).astype("float16")
    x = relay.var("x", shape=data.shape, dtype="float16")
    w = relay.const(matrix) if is_constant else relay.var("w", shape=matrix.shape, dtype="float16")
    product = relay.nn.matmul(x, w, transpose_b=transpose_b)
    free = tuple(relay.analysis.free_vars(product))
    module = tvm.IRModule.from_expr(relay.Function(free, product))
    module = relay.transform.InferType()(module)
    made = relay.transform.Legalize(tvm.target.Target("cuda -arch=sm_90a"))(module)
    assert ("nn.dense" in str(made)) == dense
    found = interpret(made["main"], *([data] if is_constant else [data, matrix]))
    want = data.astype("float32") @ (matrix.T if transpose_b else matrix).astype("float32")
    np.testing.assert_allclose(found, want, rtol=1e-2, atol=1e-2)
    kept = relay.transform.Legalize(tvm.target.Target("llvm"))(module)
    assert "nn.dense" not in str(kept)

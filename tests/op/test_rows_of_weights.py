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
    made = relay.transform.Legalize(tvm.target.Target("cuda -arch=sm_80"))(module)
    assert ("nn.dense" in str(made)) == dense
    found = interpret(made["main"], *([data] if is_constant else [data, matrix]))
    want = data.astype("float32") @ (matrix.T if transpose_b else matrix).astype("float32")
    np.testing.assert_allclose(found, want, rtol=1e-2, atol=1e-2)
    for target in ("llvm", "cuda -arch=sm_90a"):
        kept = relay.transform.Legalize(tvm.target.Target(target))(module)
        reads_columns = target == "llvm" or (not is_constant and not transpose_b)
        assert "nn.dense" not in str(kept) or not reads_columns


def test_many_matrices_by_one_are_turned_before() -> None:
    x = relay.var("x", shape=(4, 24, 40), dtype="float16")
    w = relay.var("w", shape=(48, 24), dtype="float16")
    body = relay.nn.dense(relay.transpose(x, axes=(0, 2, 1)), w)
    module = relay.transform.InferType()(
        tvm.IRModule.from_expr(relay.Function((x, w), body)))
    made = relay.transform.Legalize(tvm.target.Target("cuda -arch=sm_90a"))(module)
    assert "transpose(" in str(made) and "nn.dense" in str(made)


@pytest.mark.parametrize("name", ["nn.dense", "nn.matmul", "nn.batch_matmul"])
def test_operands_are_read_as_they_lie(name: str) -> None:
    rng = np.random.default_rng(0)
    outer = (2,) if name == "nn.batch_matmul" else ()
    axes = (0, 2, 1) if outer else (1, 0)
    second = (48, 24) if name == "nn.dense" else (24, 48)
    shapes = [(*outer, 24, 40), (*outer, *reversed(second))]
    data = [rng.standard_normal(shape).astype("float16") for shape in shapes]
    given = [relay.var(f"x{n}", shape=shape, dtype="float16") for n, shape in enumerate(shapes)]
    turned = [relay.transpose(each, axes=axes) for each in given]
    more = {"transpose_b": False} if outer else {}
    product = {"nn.dense": relay.nn.dense, "nn.matmul": relay.nn.matmul,
               "nn.batch_matmul": relay.nn.batch_matmul}[name](*turned, **more)
    module = tvm.IRModule.from_expr(relay.Function(tuple(given), product))
    module = relay.transform.InferType()(module)
    made = relay.transform.Legalize(tvm.target.Target("cuda -arch=sm_90a"))(module)
    assert "transpose(" not in str(made)
    found = interpret(made["main"], *data)
    left, right = (each.astype("float32").swapaxes(-1, -2) for each in data)
    want = left @ (right.T if name == "nn.dense" else right)
    np.testing.assert_allclose(found, want, rtol=1e-2, atol=2e-2)

"""Products of narrow floats whose operands only the run knows."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.arrays import numpy_dtype
from sterna.relay.expr import RelayExpr
from tests.schedule.implemented import run_built

BUILDERS: dict[str, Any] = {
    "dense": lambda a, b: relay.nn.dense(a, b),
    "matmul": lambda a, b: relay.nn.matmul(a, b, transpose_b=True),
    "batch_matmul": lambda a, b: relay.nn.batch_matmul(a, b),
}


def legalized(made: RelayExpr, inputs: Any) -> str:
    mod = tvm.IRModule.from_expr(relay.Function(inputs, made))
    target = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")
    passes = [relay.transform.InferType(), relay.transform.Legalize(target)]
    return str(tvm.transform.Sequential(passes)(mod))


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("dtype, step", [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_operands_are_widened_once(name: str, dtype: str, step: float) -> None:
    outer = (2,) if name == "batch_matmul" else ()
    x, y = (relay.var(n, shape=(*outer, m, 40), dtype=dtype) for n, m in (("x", 9), ("y", 6)))
    made = BUILDERS[name](x, y)
    assert legalized(made, (x, y)).count('dtype="float32"') >= 2
    rng = np.random.default_rng(4)
    arrays = [
        rng.standard_normal((*outer, rows, 40)).astype(numpy_dtype(dtype)) for rows in (9, 6)
    ]
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function((x, y), made)), target="native")
    got = run_built(lib, x=arrays[0], y=arrays[1])
    assert got.dtype == numpy_dtype(dtype)
    want = np.matmul(arrays[0].astype("float64"), arrays[1].astype("float64").swapaxes(-1, -2))
    np.testing.assert_allclose(got.astype("float64"), want, rtol=1.01 * step, atol=1e-5)


def test_single_rows_and_known_weights_stay() -> None:
    x, y = (relay.var(n, shape=(m, 40), dtype="float16") for n, m in (("x", 1), ("y", 6)))
    assert "float32" not in legalized(relay.nn.dense(x, y), (x, y))
    weight = relay.const(np.ones((6, 40), "float16"))
    many = relay.var("many", shape=(9, 40), dtype="float16")
    assert "float32" not in legalized(relay.nn.dense(many, weight), (many,))

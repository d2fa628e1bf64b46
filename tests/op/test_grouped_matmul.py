"""Rows times the matrix of their group: packed and free matrices, open rows."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.relay.arrays import Array
from sterna.relay.interpreter import interpret
from sterna.relay.op import find

ENDS = [0, 1, 1, 8, 13, 26, 30]


def operands(columns: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(columns)
    data = rng.standard_normal((32, 24)).astype("float32")
    return data, rng.standard_normal((7, 24, columns)).astype("float32"), np.array(ENDS, "int32")


def wanted(*given: Array) -> Array:
    record, made = find("nn.grouped_matmul"), relay.nn.grouped_matmul(*map(relay.const, given))
    assert record.reference is not None
    found: Array = record.reference(made.attrs, *given)
    return found


@pytest.mark.parametrize("columns", [3, 40, 131])
@pytest.mark.parametrize("is_constant", [True, False])
def test_groups_of_all_sizes(columns: int, is_constant: bool) -> None:
    data, weight, ends = operands(columns)
    inputs = {"x": data, "ends": ends}
    matrices: Any = relay.const(weight)
    if not is_constant:
        inputs["w"], matrices = weight, relay.var("w", shape=weight.shape)
    made = relay.nn.grouped_matmul(
        relay.var("x", shape=data.shape), matrices, relay.var("ends", shape=(7,), dtype="int32"))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.nn.relu(made)), target="llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(**inputs)
    want = np.maximum(wanted(data, weight, ends), 0)
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-4)


def test_the_rows_may_stay_open() -> None:
    data, weight, ends = operands(40)
    x = relay.var("x", shape=(relay.Any(), 24))
    made = relay.nn.grouped_matmul(x, relay.const(weight), relay.const(ends))
    run = relay.create_executor("vm", tvm.IRModule.from_expr(made), target="llvm").evaluate()
    for rows in (32, 9, 0):
        np.testing.assert_allclose(
            run(data[:rows]).numpy(), wanted(data[:rows], weight, ends), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ends", [[50, 7, 120, 390], [300, 500, 3, 4], [0, 0, 0, 0]])
@pytest.mark.parametrize("is_constant", [True, False])
def test_gpus_multiply_by_every_matrix(ends: list[int], is_constant: bool) -> None:
    rng = np.random.default_rng(3)
    data = rng.standard_normal((400, 256)).astype("float32")
    given = data, rng.standard_normal((4, 256, 128)).astype("float32"), np.array(ends, "int32")
    free: list[Any] = [
        relay.var(f"p{n}", shape=each.shape, dtype=str(each.dtype)) for n, each in enumerate(given)
    ]
    if is_constant:
        free[1] = relay.const(given[1])
    module = tvm.IRModule.from_expr(relay.nn.grouped_matmul(*free))
    made = relay.transform.Legalize(tvm.target.Target("cuda -arch=sm_90a"))(module)
    name = "nn.dense" if is_constant else "nn.matmul"  # as the matrices lie
    assert "grouped_matmul" not in str(made) and str(made).count(name) == 4
    inputs = [each for n, each in enumerate(given) if n != 1 or not is_constant]
    found = interpret(made["main"], *inputs)
    np.testing.assert_allclose(found, wanted(*given), rtol=1e-4, atol=1e-4)

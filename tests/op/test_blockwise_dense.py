"""Weights of few bits: packed for a processor, by tiles of few rows and by panels of many."""

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.relay.arrays import Array
from sterna.relay.op import find


def operands(rows: int, units: int, bits: int, dtype: str = "float32") -> tuple[Array, ...]:
    rng = np.random.default_rng(rows + units + bits)
    weight = rng.integers(0, 256, (units, 64 * bits // 8)).astype("uint8")
    floats = [rng.standard_normal(shape).astype(dtype) for shape in ((rows, 64), (units, 2))]
    return floats[0], weight, floats[1], rng.integers(0, 1 << bits, (units, 2)).astype(dtype)


def wanted(bits: int, *given: Array) -> Array:
    made = relay.nn.blockwise_dense(*map(relay.const, given), bits=bits)
    reference = find("nn.blockwise_dense").reference
    assert reference is not None
    found: Array = reference(made.attrs, *given)
    return found


@pytest.mark.parametrize(("rows", "bits"), [(1, 4), (3, 8), (7, 2), (12, 4), (20, 8), (4, 4)])
@pytest.mark.parametrize("units", [5, 96])
def test_rows_of_any_number(rows: int, bits: int, units: int) -> None:
    data, *known = operands(rows, units, bits)
    made = relay.nn.blockwise_dense(
        relay.var("x", shape=data.shape), *map(relay.const, known), bits=bits)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.nn.relu(made)), target="llvm")
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=data)
    want = np.maximum(wanted(bits, data, *known), 0)
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-3)


def test_open_rows_take_tiles_or_panels_as_they_come() -> None:
    data, *known = operands(29, 40, 4)
    x = relay.var("x", shape=(relay.Any(), 64))
    made = relay.nn.blockwise_dense(x, *map(relay.const, known))
    run = relay.create_executor("vm", tvm.IRModule.from_expr(made), target="llvm").evaluate()
    for rows in (29, 12, 11, 1, 0):
        np.testing.assert_allclose(
            run(data[:rows]).numpy(), wanted(4, data[:rows], *known), rtol=1e-4, atol=1e-3)


def test_blocks_are_of_whole_bytes() -> None:
    data, weight, _, _ = operands(1, 4, 2)
    scales = relay.const(np.ones((4, 32), "float32"))
    with pytest.raises(tvm.TVMError, match="64 numbers of 2 bits are not 32 blocks of bytes"):
        made = relay.nn.blockwise_dense(
            relay.const(data), relay.const(weight), scales, scales, bits=2)
        tvm.IRModule.from_expr(made)

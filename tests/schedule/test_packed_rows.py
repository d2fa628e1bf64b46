"""Packed rows: products read their data in the order of their tiles, and give the same numbers."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.lowering.lower_kernel import lower_kernel
from sterna.schedule.choose import answering
from sterna.schedule.kernel import Processor
from sterna.schedule.packed_rows import AS_THEY_LIE, PACKED

BY_LANES = Processor(128, 32, by_element_fma=True, l2_bytes=1 << 20)
SHAPES = [(15, 64, 96), (7, 8, 12), (33, 20, 40), (128, 24, 36), (9, 4, 8), (40, 81, 33)]


def kernel_of(body: Any) -> Any:
    """The one kernel of everything in an expression."""
    return relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"].body.op


def run(body: Any, given: list[Any], way: str) -> Any:
    kernel = kernel_of(body)
    with answering({"rows": way}):
        loops = lower_kernel(kernel, "kernel", BY_LANES).function
    out = tvm.nd.empty(kernel.body.checked_type.shape)
    tvm.build(loops, target="llvm")["kernel"](*map(tvm.nd.array, given), out)
    return out.numpy()


@pytest.mark.parametrize("way", [AS_THEY_LIE, PACKED])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_with_an_epilogue(shape: tuple[int, int, int], way: str) -> None:
    rows, depth, columns = shape
    rng = np.random.default_rng(rows)
    a = rng.standard_normal((rows, depth)).astype("float32")
    b = rng.standard_normal((depth, columns)).astype("float32")
    bias = rng.standard_normal(columns).astype("float32")
    x, w, v = (relay.var(n, shape=s.shape) for n, s in zip("xwv", (a, b, bias), strict=True))
    body = relay.nn.relu(relay.nn.matmul(x, w) + v)
    expected = np.maximum(a.astype("float64") @ b + bias, 0)
    np.testing.assert_allclose(run(body, [a, b, bias], way), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", [AS_THEY_LIE, PACKED])
@pytest.mark.parametrize("rows", [6, 17])
def test_packed_weights_and_several_axes(rows: int, way: str) -> None:
    rng = np.random.default_rng(rows)
    a = rng.standard_normal((2, rows, 16)).astype("float32")
    b = rng.standard_normal((3, 16, 12)).astype("float32")
    x, w = relay.var("x", shape=a.shape), relay.var("w", shape=b.shape)
    body = relay.nn.dense(x, w, units=36, implementation="direct(weights=OI12o)")
    expected = a.astype("float64") @ b.transpose(1, 0, 2).reshape(16, 36)
    np.testing.assert_allclose(run(body, [a, b], way), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "depth", "units", "packed"), [
    (128, 768, 96, False),  # few columns read what stays in the second cache
    (128, 768, 3072, True),
    (512, 768, 768, True),  # more than that cache holds
    (64, 1024, 768, True),  # whole pages apart
])
def test_rows_are_packed_where_that_pays(rows: int, depth: int, units: int, packed: bool) -> None:
    x, w = relay.var("x", shape=(rows, depth)), relay.var("w", shape=(units // 12, depth, 12))
    body = relay.nn.dense(x, w, units=units, implementation="direct(weights=OI12o)")
    taken = lower_kernel(kernel_of(body), "kernel", BY_LANES).choices.get("rows")
    assert taken == (PACKED if packed else None)


def test_rows_that_are_read_number_by_number_stay() -> None:
    x, w = relay.var("x", shape=(512, 768)), relay.var("w", shape=(24, 768, 32))
    body = relay.nn.dense(x, w, units=768, implementation="direct(weights=OI32o)")
    assert "rows" not in lower_kernel(kernel_of(body), "kernel", Processor(256, 16)).choices


def test_rows_that_only_the_run_counts() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((768, 1024)).astype("float32")
    x = relay.var("x", relay.TensorType((relay.Any(), 1024)))
    module = tvm.IRModule.from_expr(relay.Function((x,), relay.nn.dense(x, relay.const(weight))))
    made = relay.vm.compile(module, target="llvm -mcpu=native")
    machine = tvm.runtime.vm.VirtualMachine(made, tvm.cpu())
    for rows in (1, 7, 8, 30):
        given = rng.standard_normal((rows, 1024)).astype("float32")
        expected = given.astype("float64") @ weight.T
        got = machine.run(given).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)

"""Transposed convolutions by convolutions, held against their definition."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.relay.op import find

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], bool]] = [
    ((1, 8, 6, 7), (8, 16, 2, 2), {"strides": 2}, True),
    ((2, 3, 5, 4), (3, 5, 4, 4), {"strides": 2, "padding": 1}, True),
    ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": 2, "padding": 1, "output_padding": 1}, True),
    ((1, 4, 5, 6), (4, 3, 5, 3), {"strides": 3, "padding": (1, 0, 2, 1)}, True),
    ((1, 4, 5, 6), (4, 3, 3, 3), {"padding": 1}, True),
    ((1, 4, 5, 6), (4, 3, 2, 3), {"strides": 4}, True),
    ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": (2, 1)}, False),
    ((1, 4, 5, 6), (4, 3, 3, 3), {"strides": 2, "padding": 4}, False),
    ((1, 4, 5, 6), (4, 2, 3, 3), {"strides": 2, "groups": 2}, False),
    ((1, 4, 5, 6), (4, 2, 3, 3), {"strides": 2, "dilation": 2}, False),
]


@pytest.mark.parametrize(("shape", "window", "attrs", "replaced"), CASES)
def test_they_compute_what_they_are(
    shape: tuple[int, ...], window: tuple[int, ...], attrs: dict[str, Any], replaced: bool
) -> None:
    rng = np.random.default_rng(0)
    data, weight = (rng.standard_normal(s).astype("float32") for s in (shape, window))
    x = relay.var("x", shape=shape)
    full = {"strides": 1, "padding": 0, **attrs}
    body = relay.nn.relu(relay.nn.conv2d_transpose(x, relay.const(weight), **full))
    mod = tvm.IRModule.from_expr(relay.Function((x,), body))
    with tvm.transform.PassContext(opt_level=3):
        text = str(relay.optimize(mod, "llvm -mcpu=native")[0])
        lib = relay.build(mod, target="llvm -mcpu=native")
    assert ("nn.conv2d_transpose" in text) != replaced
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(x=data)
    record = find("nn.conv2d_transpose")
    assert record.attrs is not None and record.reference is not None
    want = np.maximum(record.reference(record.attrs(**full), data, weight), 0)
    np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)

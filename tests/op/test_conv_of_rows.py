"""Convolutions of bytes along one axis, which run as those of images of one row."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from tests.schedule.byte_layers import convolved, extremes

LAYERS: dict[str, Any] = {
    "border": ((1, 16, 21), (32, 16, 3), {"strides": 2, "padding": (1, 2)}),
    "dilated": ((2, 8, 13), (16, 8, 3), {"dilation": 2}),
    "depthwise": ((1, 32, 9), (32, 1, 3), {"groups": 32, "padding": 1}),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind: str) -> None:
    shape, kernel, attrs = LAYERS[kind]
    rng = np.random.default_rng(len(kind))
    x, w = extremes(rng, shape, "int8"), rng.integers(-40, 41, kernel).astype("int8")
    one = relay.const(1.0)
    made = relay.qnn.conv1d(
        relay.var("x", shape=shape, dtype="int8"), relay.const(w), relay.const(77), relay.const(0),
        one, one, kernel_size=kernel[2], channels=kernel[0], **attrs,
    )
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(made), target="llvm")
    assert "conv1d" not in lib.get_graph_json()
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=x)
    padding = np.broadcast_to(attrs.get("padding", 0), 2)
    flat = {
        "strides": (1, attrs.get("strides", 1)), "dilation": attrs.get("dilation", 1),
        "padding": (0, int(padding[0]), 0, int(padding[1])), "groups": attrs.get("groups", 1),
    }
    want = convolved(x.astype("int64")[:, :, None] - 77, w.astype("int64")[:, :, None], flat)
    np.testing.assert_array_equal(module.get_output(0).numpy(), want[:, :, 0])


def test_floats_stay_as_they_are() -> None:
    x, w = relay.var("x", shape=(1, 4, 9)), relay.const(np.ones((8, 4, 3), "float32"))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.nn.conv1d(x, w)), target="llvm")
    assert "conv1d" in lib.get_graph_json()

"""Bytes whose channels fill no vectors of dot products."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.op.nn._padded_bytes import with_whole_dots
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.interpreter import interpret
from sterna.target import Target
from tests.schedule.implemented import run_built

DOTS = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"


def dense() -> tuple[Any, RelayExpr]:
    weight = np.random.default_rng(2).integers(-128, 128, (83, 64)).astype("int8")
    x = relay.var("x", shape=(9, 64), dtype="int8")
    return x, relay.nn.dense(x, relay.const(weight), out_dtype="int32")


def conv() -> tuple[Any, RelayExpr]:
    weight = np.random.default_rng(2).integers(-128, 128, (58, 12, 3, 3)).astype("int8")
    x = relay.var("x", shape=(1, 12, 9, 7), dtype="int8")
    made = relay.nn.conv2d(x, relay.const(weight), padding=1, border=-3, out_dtype="int32")
    return x, made


@pytest.mark.parametrize("layer", [dense, conv])
def test_further_channels_are_cut_off_again(layer: Any) -> None:
    x, made = layer()
    made.checked_type  # noqa: B018  (arguments get their types)
    assert isinstance(made, Call)
    name = "nn.dense" if layer is dense else "nn.conv2d"
    wider = with_whole_dots(name, made.attrs, made.args, Target(DOTS))
    assert isinstance(wider, Call) and str(wider.op) == "strided_slice"
    assert with_whole_dots(name, made.attrs, made.args, Target("c")) is None
    data = np.random.default_rng(3).integers(-128, 128, x.checked_type.shape).astype("int8")
    want = interpret(relay.Function((x,), made), data)
    np.testing.assert_array_equal(interpret(relay.Function((x,), wider), data), want)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function((x,), made)), target="native")
    np.testing.assert_array_equal(run_built(lib, x=data), want)

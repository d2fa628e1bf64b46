"""Networks for projects, and what they give by this machine's own code."""

from typing import Any

import numpy as np

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.driver.aot_factory import AOTProgram
from sterna.relay.arrays import from_numpy, to_numpy
from sterna.relay.backend import Executor, Runtime

C_INTERFACE = {"unpacked-api": True, "interface-api": "c"}


def mixed() -> tvm.IRModule:
    """Floats through functions that compilers have and lack, beside exact integers."""
    rng = np.random.default_rng(1)
    image = relay.var("image", shape=(1, 1, 8, 8))
    signal = relay.var("signal:0", shape=(1, 16), dtype="int8")
    weight = relay.const(rng.standard_normal((4, 1, 3, 3)).astype("float32"))
    conv = relay.nn.relu(relay.nn.conv2d(image, weight, padding=(1, 1)))
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(conv))
    scores = relay.nn.dense(pooled, relay.const(rng.standard_normal((5, 4)).astype("float32")))
    made = relay.nn.softmax(relay.tanh(scores) + relay.erf(scores))
    wide = relay.cast(signal, "int32")
    taps = relay.const(rng.integers(-128, 128, (6, 16)).astype("int32"))
    summed = relay.sum(wide * taps, axis=1)
    whole = relay.right_shift(summed * relay.const(77), relay.const(4))
    return tvm.IRModule.from_expr(relay.Tuple((made, whole, relay.cast(whole, "int8"))))


def build(mod: tvm.IRModule, target: Any = "c", **options: Any) -> AOTProgram:
    """The network in C, with a C interface."""
    chosen = {"executor": Executor("aot", C_INTERFACE), "runtime": Runtime("crt"), **options}
    program = relay.build(mod, target=target, **chosen)
    assert isinstance(program, AOTProgram)
    return program


def run_here(mod: tvm.IRModule, inputs: dict[str, Any]) -> list[Any]:
    """What the network gives on this machine."""
    module = graph_executor.GraphModule(relay.build(mod, target="llvm")["default"](tvm.cpu(0)))
    for name, array in inputs.items():
        module.set_input(name, from_numpy(np.asarray(array, order="C")))
    module.run()
    return [to_numpy(module.get_output(place)) for place in range(module.get_num_outputs())]


def assert_agree(got: list[Any], want: list[Any]) -> None:
    """Integers bit by bit, floats to 1e-5."""
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        if one.dtype.kind in "iub":
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)

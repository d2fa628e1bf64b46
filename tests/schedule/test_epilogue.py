"""What follows an operator of statements: computed where its results are stored."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.interpreter import interpret
from sterna.schedule.epilogue import epilogue_of, split_bias
from sterna.schedule.implementation import Plan
from sterna.schedule.kernel import Processor
from sterna.schedule.winograd_plan import transform_weights
from tests.schedule.implemented import packed_conv2d

SHAPE = (2, 9, 6, 16)
WEIGHTS = transform_weights(
    np.random.default_rng(0).standard_normal((16, 3, 3, 16)).astype("float32"), 4, 16
)


def by_winograd() -> Any:
    x, w = relay.var("x", shape=SHAPE), relay.var("w", shape=WEIGHTS.shape)
    plan = Plan.of(
        "winograd", m=4, tiles=3, split="blocks", lanes=16, registers=16, together=1, products=144
    )
    return packed_conv2d(x, plan, [w], 16, 3, padding=(1, 1, 1, 1))


def swish(made: Any) -> Any:
    biased = relay.add(made, relay.var("b", shape=(16,)))
    return relay.multiply(biased, relay.sigmoid(biased))


def residual(made: Any) -> Any:
    biased = relay.add(made, relay.var("b", shape=(1, 1, 1, 16)))
    return relay.nn.relu(relay.add(biased, relay.var("r", shape=SHAPE)))


EPILOGUES = [
    swish, residual, lambda made: relay.cast(made, "float16"), lambda made: relay.add(made, made),
]


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_results_are_stored_once(epilogue: Any) -> None:
    """No buffer for what the operator alone would give, and no second pass over it."""
    kernel = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(epilogue(by_winograd())))
    func = kernel["main"].body.op
    lowered = lower_kernel(func, "kernel", Processor(512, 32, threads=2))
    assert str(lowered.function).count("# parallel") == 1
    rng = np.random.default_rng(1)
    shapes = [tuple(p.checked_type.shape) for p in func.params]
    given = [WEIGHTS if shape == WEIGHTS.shape else rng.standard_normal(shape).astype("float32")
             for shape in shapes]
    want = interpret(func, *given)
    out = tvm.nd.empty(want.shape, str(want.dtype))
    tvm.build(lowered.function, target="llvm")["kernel"](*map(tvm.nd.array, given), out)
    atol = (1e-3 if want.dtype == "float16" else 1e-5) * abs(want).max()
    np.testing.assert_allclose(out.numpy(), want, rtol=0, atol=atol)


def test_only_the_same_element_follows() -> None:
    a = te.placeholder((4, 4), name="a")
    made = te.compute((4, 4), lambda i, j: a[i, j] + 1.0)
    turned = te.compute((4, 4), lambda i, j: made[j, i] * 2.0)
    total = te.reduce_axis((0, 4))
    summed = te.compute((4, 4), lambda i, j: te.sum(made[i, total], axis=total))
    wider = te.compute((4, 4, 4), lambda i, j, k: made[i, j])
    bias = te.placeholder((4,), name="b")
    biased = te.compute((4, 4), lambda i, j: made[i, j] + bias[j])
    for other in (made, turned, summed, wider):
        assert epilogue_of(made, other) is None
    found = epilogue_of(made, biased)
    assert found is not None and found.reads == (bias,)


def test_what_sums_begin_with() -> None:
    """Terms of a channel that are added to a sum first; not those of other places, nor twice."""
    bias, less = (tvm.tir.decl_buffer((16,), "int32", name) for name in ("bias", "less"))
    other = tvm.tir.decl_buffer((4, 16), "int32", "other")
    scale = tvm.tir.decl_buffer((16,), "float32", "scale")

    def biased(place: Any, value: Any) -> Any:
        return (value + bias[place[-1]] - less[place[-1]]).astype("float32") * scale[place[-1]]

    parts = split_bias(biased, 2)
    assert parts is not None
    begin, finish = parts
    row, channel, total = (te.var(name, "int32") for name in ("row", "channel", "total"))
    assert str(begin(channel)) == "bias[channel] + (0 - less[channel])"
    assert str(finish((row, channel), total)) == "float32(total)*scale[channel]"
    assert split_bias(lambda place, value: value + other[place[0], place[1]], 2) is None
    assert split_bias(lambda place, value: (value + bias[place[-1]]) * value, 2) is None
    assert split_bias(lambda place, value: bias[place[-1]] - value, 2) is None

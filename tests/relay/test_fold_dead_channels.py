"""FoldDeadChannels: constant channels go, and results stay the same to the last bit."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.arrays import Array
from sterna.relay.expr import Call
from sterna.relay.interpreter import interpret
from sterna.relay.passes.fold_dead_channels import fold_dead_channels
from sterna.schedule.kernel import Processor
from tests.schedule.byte_layers import extremes

BORDER = -128


def layer(data: Any, weights: Array, rng: np.random.Generator, dead: Array, **attrs: Any) -> Any:
    """A convolution whose dead channels have weights that no input brings over half a step."""
    outputs = weights.shape[-1] if attrs.get("groups", 1) == 1 else weights.shape[2]
    made = relay.nn.conv2d(
        data, relay.const(weights), channels=outputs, kernel_size=weights.shape[:2],
        data_layout="NHWC", out_dtype="int32", border=BORDER, **attrs,
    )
    bias = rng.integers(-3000, 3000, outputs).astype("int32")
    power = np.where(dead, -30, -7).astype("int32")
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, outputs).astype("int32")
    return relay.qnn.rescale(
        relay.add(made, relay.const(bias)), relay.const(multiplier), relay.const(power),
        relay.const(0), relay.const(int(rng.choice([-128, -100]))), axis=3, rounding="TWICE",
    )


def network(seed: int, padding: Any) -> tuple[Any, Array]:
    """A window, a depthwise window and a pointwise layer, and what comes in."""
    rng = np.random.default_rng(seed)
    data = relay.var("x", shape=(1, 5, 6, 4), dtype="int8")
    dead = rng.random(16) < 0.5
    first = layer(data, extremes(rng, (3, 3, 4, 16), "int8"), rng, dead, kernel_layout="HWIO",
                  padding=padding)
    own = extremes(rng, (3, 3, 16, 1), "int8")
    own[:, :, rng.random(16) < 0.3] = 0
    middle = layer(first, own, rng, dead & (rng.random(16) < 0.7), kernel_layout="HWOI", groups=16,
                   padding=padding)
    last = extremes(rng, (1, 1, 16, 8), "int8")
    last[:, :, rng.random(16) < 0.2] = 0
    made = layer(middle, last, rng, np.zeros(8, bool), kernel_layout="HWIO")
    return relay.Function((data,), made), extremes(rng, (1, 5, 6, 4), "int8")


def channels_in(func: Any) -> list[int]:
    found: list[int] = []

    def look(expr: Any) -> None:
        channels = getattr(expr.attrs, "channels", None) if isinstance(expr, Call) else None
        if channels:
            found.append(channels)

    relay.analysis.post_order_visit(func, look)
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("padding", [1, 0])
def test_results_stay_the_same(seed: int, padding: int) -> None:
    func, x = network(seed, padding)
    made = fold_dead_channels(func)
    before, after = (interpret(each, x) for each in (func, made))
    np.testing.assert_array_equal(np.asarray(after), np.asarray(before))
    first, middle, last = channels_in(made)
    assert first == middle < 16 and first % 4 == 0 and last == 8


def test_only_where_memory_is_scarce() -> None:
    func, _ = network(0, 1)
    mod = tvm.IRModule.from_expr(func)
    for processor, wanted in [(Processor(), 16), (Processor(has_spare_memory=False), 8)]:
        with tvm.transform.PassContext(opt_level=3):
            made = relay.transform.FoldDeadChannels(processor)(mod)
        assert channels_in(made["main"])[0] <= wanted
        assert (channels_in(made["main"])[0] == 16) == processor.has_spare_memory
    assert relay.transform.FoldDeadChannels()(mod)["main"] is mod["main"]


def test_a_result_that_others_read_keeps_its_channels() -> None:
    func, x = network(1, 1)
    calls: list[Any] = []
    relay.analysis.post_order_visit(func, lambda expr: calls.append(expr))
    rescales = [e for e in calls if isinstance(e, Call) and "rescale" in str(e.op)]
    both = relay.Function(func.params, relay.Tuple((rescales[0], func.body)))
    made = fold_dead_channels(both)
    assert channels_in(made)[0] == 16
    before, after = (interpret(each, x) for each in (both, made))
    for a, b in zip(after, before, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_layers_keep_their_names() -> None:
    func, _ = network(0, 1)
    calls: list[Any] = []
    relay.analysis.post_order_visit(func, calls.append)
    for place, each in enumerate(e for e in calls if isinstance(e, Call)):
        each.span = f"layer {place}"
    made: list[Any] = []
    relay.analysis.post_order_visit(fold_dead_channels(func), made.append)
    names = [each.span for each in made if isinstance(each, Call)]
    assert None not in names and {f"layer {place}" for place in range(9)} == set(names)

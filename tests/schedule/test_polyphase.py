"""Depthwise convolutions by planes of one channel: when, and their numbers on this machine."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import relay
from sterna.relay.arrays import from_numpy
from sterna.relay.expr import Constant, RelayExpr, Var
from sterna.relay.interpreter import interpret
from sterna.schedule.kernel import Processor
from tests.schedule.implemented import implement, names_in, run_built

AVX512 = Processor(512, 32, l1_bytes=48 << 10, l2_bytes=2 << 20)
POLYPHASE = {"layouts": "NCHW -> NCHW", "implementation": "polyphase"}


def depthwise(
    shape: tuple[int, ...], window: tuple[int, int], free: bool = False, **attrs: Any
) -> relay.Function:
    """A depthwise convolution with channels first, a bias and a rectifier behind it."""
    x, channels = relay.var("x", shape=shape), shape[1]
    known = np.random.default_rng(7).standard_normal((channels, 1, *window), "float32")
    given: tuple[Var, ...] = (relay.var("weight", shape=known.shape),) if free else ()
    weight: RelayExpr = given[0] if free else Constant(from_numpy(known))
    made = relay.nn.conv2d(x, weight, groups=channels, kernel_size=window, **attrs)
    bias = relay.const(np.linspace(-1, 1, channels, dtype="float32"))
    return relay.Function((x, *given), relay.nn.relu(relay.nn.bias_add(made, bias)))


def check_numbers(
    shape: tuple[int, ...], window: tuple[int, int], free: bool = False, tile: str = "",
    **attrs: Any,
) -> None:
    """Against the interpreter."""
    func, is_packed = depthwise(shape, window, free, **attrs), f"[{shape[1]}, {math.prod(window)}]"
    rng = np.random.default_rng(3)
    feeds = {"x": rng.standard_normal(shape, "float32")}
    if free:
        feeds["weight"] = rng.standard_normal((shape[1], 1, *window), "float32")
    answers = {**POLYPHASE, **({"tile": tile} if tile else {})}
    with tvm.transform.PassContext(opt_level=3, config={"schedule.answers": answers}):
        lib = relay.build(tvm.IRModule.from_expr(func), target="native")
    assert is_packed in lib.get_graph_json()
    want = interpret(func, *feeds.values())
    np.testing.assert_allclose(run_built(lib, **feeds), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("free", [False, True], ids=["known", "free"])
def test_rows_shorter_than_vectors_run_on(free: bool) -> None:
    func = depthwise((1, 32, 14, 14), (3, 3), free, padding=1, strides=2)
    assert names_in(implement(func.body, AVX512)) == ["polyphase"]


def test_windows_that_are_too_large_to_be_written_out_take_another_way() -> None:
    func = depthwise((1, 32, 28, 28), (11, 11), padding=5)
    assert "polyphase" not in names_in(implement(func.body, AVX512))


@pytest.mark.parametrize("tile", ["1", "3", "8"])
def test_numbers_of_every_tile(tile: str) -> None:
    check_numbers((2, 5, 15, 13), (3, 3), tile=tile, padding=1, strides=2)


def test_numbers_of_weights_that_the_run_gives() -> None:
    check_numbers((1, 6, 9, 11), (5, 3), free=True, padding=(2, 1), strides=(1, 2))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_numbers(data: st.DataObject) -> None:
    def some(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    window, dilation = (some(1, 5), some(2, 5)), (some(1, 3), some(1, 3))
    padding = tuple(some(0, 4) for _ in range(4))
    image = tuple(
        max(1, (taps - 1) * gap + 1 - before - after) + some(0, 17)
        for taps, gap, before, after in zip(
            window, dilation, padding[:2], padding[2:], strict=True)
    )
    check_numbers(
        (some(1, 2), some(2, 4), *image), window, padding=padding, dilation=dilation,
        strides=(some(1, 3), some(1, 3)),
    )

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


def depthwise(
    shape: tuple[int, ...], window: tuple[int, ...], free: bool = False, **attrs: Any
) -> relay.Function:
    """A depthwise convolution with channels first, a bias and a rectifier behind it."""
    x, channels = relay.var("x", shape=shape), shape[1]
    known = np.random.default_rng(7).standard_normal((channels, 1, *window), "float32")
    given: tuple[Var, ...] = (relay.var("weight", shape=known.shape),) if free else ()
    weight: RelayExpr = given[0] if free else Constant(from_numpy(known))
    conv = {1: relay.nn.conv1d, 2: relay.nn.conv2d, 3: relay.nn.conv3d}[len(window)]
    made = conv(x, weight, groups=channels, kernel_size=window, **attrs)
    bias = relay.const(np.linspace(-1, 1, channels, dtype="float32"))
    return relay.Function((x, *given), relay.nn.relu(relay.nn.bias_add(made, bias)))


def check_numbers(
    shape: tuple[int, ...], window: tuple[int, ...], free: bool = False, tile: str = "",
    **attrs: Any,
) -> None:
    """Against the interpreter."""
    func, is_packed = depthwise(shape, window, free, **attrs), f"[{shape[1]}, {math.prod(window)}]"
    rng = np.random.default_rng(3)
    feeds = {"x": rng.standard_normal(shape, "float32")}
    if free:
        feeds["weight"] = rng.standard_normal((shape[1], 1, *window), "float32")
    answers = {"layouts": "NCHW -> NCHW", "implementation": "polyphase"}
    answers |= {"tile": tile} if tile else {}
    with tvm.transform.PassContext(opt_level=3, config={"schedule.answers": answers}):
        lib = relay.build(tvm.IRModule.from_expr(func), target="native")
    assert is_packed in lib.get_graph_json()
    want = interpret(func, *feeds.values())
    np.testing.assert_allclose(run_built(lib, **feeds), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("free", [False, True], ids=["known", "free"])
def test_rows_shorter_than_vectors_run_on(free: bool) -> None:
    func = depthwise((1, 32, 14, 14), (3, 3), free, padding=1, strides=2)
    assert names_in(implement(func.body, AVX512)) == ["polyphase"]


@pytest.mark.parametrize(
    ("channels", "image", "window", "layout"),
    [(32, (13, 87), 7, "NHWC"), (32, (14, 80), 7, "NHWC"), (32, (56, 56), 7, "NHWC"),
     (96, (112, 112), 7, "NCHW"), (32, (40, 40), 3, "NCHW")],
)
def test_channels_move_for_large_windows_of_images_in_the_cache(
    channels: int, image: tuple[int, int], window: int, layout: str
) -> None:
    """Vectors of channels load each number from one line, those of pixels mostly from two."""
    func = depthwise((1, channels, *image), (window, window), padding=window // 2)
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake -num-cores=1"
    text = str(relay.optimize(tvm.IRModule.from_expr(func), target)[0])
    assert ('data_layout="NHWC"' in text) is (layout == "NHWC")


def test_windows_that_are_too_large_to_be_written_out_take_another_way() -> None:
    func = depthwise((1, 32, 28, 28), (11, 11), padding=5)
    assert "polyphase" not in names_in(implement(func.body, AVX512))


@pytest.mark.parametrize("tile", ["1", "3", "8"])
def test_numbers_of_every_tile(tile: str) -> None:
    check_numbers((2, 5, 15, 13), (3, 3), tile=tile, padding=1, strides=2)


@pytest.mark.parametrize("free", [False, True], ids=["known", "free"])
@pytest.mark.parametrize("image", [(40,), (9, 11), (4, 6, 7)], ids=["row", "image", "volume"])
def test_numbers_of_large_windows(image: tuple[int, ...], free: bool) -> None:
    window = {1: (33,), 2: (7, 5), 3: (3, 5, 3)}[len(image)]
    padding = tuple(size // 2 for size in window)
    check_numbers((1, 6, *image), window, free, padding=padding, strides=(2,) * len(image))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_numbers(data: st.DataObject) -> None:
    def some(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(some(low, high) for _ in range(rank))

    rank = some(1, 3)
    window, dilation, strides = each(2, 9 - 2 * rank), each(1, 3), each(1, 3)
    before, after = each(0, 4), each(0, 4)
    image = tuple(
        max(1, (taps - 1) * gap + 1 - first - last) + some(0, 17)
        for taps, gap, first, last in zip(window, dilation, before, after, strict=True)
    )
    check_numbers(
        (some(1, 2), some(2, 4), *image), window, padding=before + after, dilation=dilation,
        strides=strides,
    )

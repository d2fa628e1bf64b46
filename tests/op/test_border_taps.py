"""Convolutions by parts whose windows see no border."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.op.nn._border_taps import runs_of
from sterna.relay.interpreter import interpret
from sterna.schedule.contraction import Contraction
from sterna.schedule.kernel import Processor
from sterna.support.dtype import DataType

MACHINE = Processor(512, 32, l1_bytes=48 << 10, l2_bytes=2 << 20)
F32 = DataType("float32")


def test_runs_see_the_same_taps() -> None:
    made = Contraction(
        1, (28, 28), 8, (28, 28), 8, F32, F32, F32, (3, 3), (1, 1), (24, 1), (24, 1), (24, 1)
    )
    down = [(run.first, run.count, list(run.taps), run.seen) for run in runs_of(made, 0)]
    assert down == [
        (0, 4, [1, 2], range(28)), (4, 20, [1], range(4, 24)), (24, 4, [0, 1], range(28)),
    ]
    across = [(run.first, run.count, run.seen) for run in runs_of(made, 1)]
    assert across == [(0, 1, range(2)), (1, 26, range(28)), (27, 1, range(26, 28))]


def optimised(answer: str | None, **attrs: Any) -> tuple[relay.Function, relay.Function, Any]:
    """A convolution, the same with its border computed or skipped, and its data."""
    rng = np.random.default_rng(5)
    layout = attrs.get("data_layout", "NCHW")
    shape = (2, 96, 14, 17) if layout == "NCHW" else (2, 14, 17, 96)
    x = relay.var("x", shape=shape)
    weight = rng.standard_normal((256, 96 // attrs.get("groups", 1), 3, 3), "float32")
    func = relay.Function((x,), relay.nn.conv2d(x, relay.const(weight), **attrs))
    config = {"schedule.answers": {"border": answer}} if answer else {}
    order = [relay.transform.InferType(), relay.transform.SkipBorderTaps(MACHINE)]
    with tvm.transform.PassContext(opt_level=3, config=config):
        mod = tvm.transform.Sequential(order)(tvm.IRModule.from_expr(func))
    return func, mod["main"], rng.standard_normal(shape, "float32")


@pytest.mark.parametrize(
    "attrs",
    [
        {"dilation": 12, "padding": 12},
        {"dilation": (10, 12), "padding": (10, 12, 9, 12), "strides": (2, 1)},
        {"dilation": 8, "padding": 8, "groups": 2, "data_layout": "NHWC"},
        {"dilation": 9, "padding": (1, 17, 18, 3), "strides": 3},
    ],
    ids=["square", "strided", "groups", "one side"],
)
@pytest.mark.parametrize("way", ["skipped", "by taps"])
def test_parts_give_the_same_numbers(way: str, attrs: dict[str, Any]) -> None:
    func, parts, data = optimised(way, **attrs)
    assert str(parts).count("nn.conv2d") > 1
    want = interpret(func, data)
    np.testing.assert_allclose(interpret(parts, data), want, rtol=1e-4, atol=1e-3)


def test_large_weights_are_read_once() -> None:
    x = relay.var("x", shape=(1, 2048, 14, 14))
    weight = relay.const(np.ones((256, 2048, 3, 3), "float32"))
    mod = tvm.IRModule.from_expr(relay.nn.conv2d(x, weight, dilation=12, padding=12))
    order = [relay.transform.InferType(), relay.transform.SkipBorderTaps(MACHINE)]
    with tvm.transform.PassContext(opt_level=3):
        text = str(tvm.transform.Sequential(order)(mod))
    assert (text.count("nn.conv2d"), text.count("concatenate")) == (9, 0)


def test_it_is_skipped_where_it_is_most_of_what_windows_see() -> None:
    assert str(optimised(None, dilation=12, padding=12)[1]).count("nn.conv2d") == 9
    assert str(optimised(None, padding=1)[1]).count("nn.conv2d") == 1

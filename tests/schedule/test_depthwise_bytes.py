"""Depthwise layers of bytes on registers of 128 bits, whose rows are interleaved as they come."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.schedule.kernel import Processor
from tests.schedule.byte_layers import convolved, extremes
from tests.schedule.implemented import implement, names_in, run_built

DOTS = Processor(128, 32, has_dot4=True)
ARM = "llvm -mtriple=aarch64-linux-gnu -mattr=+dotprod"


@pytest.mark.parametrize(("channels", "size", "padding", "stride"), [
    (16, (5, 19), (1, 1, 1, 1), 1),  # the last row of results is alone
    (32, (6, 11), (0, 2, 0, 1), 1),
    (24, (4, 7), (1, 1, 1, 1), 1),  # blocks of eight channels
    (16, (1, 3), (2, 1, 1, 2), 1),  # most rows lie outside
    (16, (9, 20), (1, 1, 1, 1), 2),  # one row of results of four rows
    (32, (8, 7), (0, 1, 1, 0), 2),
])
def test_layers_are_exact(
    channels: int, size: tuple[int, int], padding: tuple[int, int, int, int], stride: int
) -> None:
    rng = np.random.default_rng(channels)
    x, w = extremes(rng, (2, channels, *size), "int8"), extremes(rng, (channels, 1, 3, 3), "int8")
    zero, one = 77, relay.const(1.0)
    attrs: dict[str, Any] = {"groups": channels, "padding": padding, "strides": (stride, stride)}
    made = relay.qnn.conv2d(
        relay.var("x", shape=x.shape, dtype="int8"), relay.const(w), relay.const(zero),
        relay.const(0), one, one, kernel_size=(3, 3), channels=channels, **attrs,
    )
    mod = implement(made, DOTS, "depthwise_dot4", target=ARM)
    assert names_in(mod) == ["depthwise_dot4"]
    with tvm.transform.PassContext(opt_level=2):
        found = run_built(relay.build(mod, target="llvm"), x=x)
    want = convolved(x.astype("int64") - zero, w.astype("int64"), attrs)
    np.testing.assert_array_equal(found, want)

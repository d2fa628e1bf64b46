"""Sums of convolutions of the same data become one."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay import transform
from tests.relay.support import apply, assert_same_values, run


def weights(*shape: int) -> Any:
    return relay.const(np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32"))


def conv(x: Any, channels: int, size: int, padding: Any, **attrs: Any) -> Any:
    made = relay.nn.conv2d(
        x, weights(channels, 4 // attrs.get("groups", 1), size, size), padding=padding, **attrs)
    return relay.nn.bias_add(made, weights(channels))


def convolutions(func: Any) -> int:
    return int(relay.analysis.list_op_freqs(tvm.IRModule({"main": func})).get("nn.conv2d", 0))


@pytest.mark.parametrize("attrs", [{}, {"groups": 4}, {"strides": 2}])
def test_branches_become_one(attrs: dict[str, Any]) -> None:
    """As RepVGG and MobileOne are trained: windows of two sizes, and what is added beside them."""
    x, y = relay.var("x", shape=(1, 4, 8, 9)), relay.var("y", shape=(1, 4, 1, 1))
    total = relay.add(conv(x, 4, 1, 0, **attrs), conv(x, 4, 3, 1, **attrs))
    total = relay.add(relay.add(total, y), conv(x, 4, 3, 1, **attrs))
    before = relay.Function((x, y), relay.nn.relu(total))
    made = apply(transform.AddUpParallelConv2D(), before)
    assert convolutions(before) == 3 and convolutions(made) == 1
    assert_same_values(run(made), run(before), 1e-4)


def test_dilated_windows_lie_at_their_steps() -> None:
    x = relay.var("x", shape=(1, 4, 9, 9))
    total = relay.add(conv(x, 4, 3, 2, dilation=2), conv(x, 4, 1, 0, dilation=2))
    before = relay.Function((x,), total)
    made = apply(transform.AddUpParallelConv2D(), before)
    assert convolutions(made) == 1
    assert_same_values(run(made), run(before), 1e-4)


def test_what_differs_or_is_needed_stays() -> None:
    """Other data, other dilations, windows that stick out, and branches that are read elsewhere."""
    x, y = (relay.var(name, shape=(1, 4, 8, 8)) for name in "xy")
    wide = conv(x, 4, 3, 1)
    for other in (
        conv(y, 4, 3, 1), conv(x, 4, 3, 2, dilation=2), conv(x, 4, 1, 0, groups=4),
        relay.nn.conv2d(x, weights(4, 4, 1, 3), padding=(0, 0, 0, 2)),
        relay.nn.conv2d(x, relay.nn.relu(weights(4, 4, 3, 3)), padding=1),
    ):
        before = relay.Function((x, y), relay.add(wide, other))
        assert convolutions(apply(transform.AddUpParallelConv2D(), before)) == 2
    again = relay.add(relay.add(wide, conv(x, 4, 3, 1)), relay.nn.relu(wide))
    made = apply(transform.AddUpParallelConv2D(), relay.Function((x,), again))
    assert convolutions(made) == 2

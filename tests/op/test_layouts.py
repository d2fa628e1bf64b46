"""Layouts pass through operators without changing what they compute."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sterna import relay
from sterna.relay.op import is_call_of
from sterna.relay.passes.convert_layout import convert_layout
from sterna.relay.traverse import post_order
from tests.op.harness import evaluate, flatten

CASES: dict[str, Callable[[Any], Any]] = {
    "bias_add": lambda y: relay.nn.bias_add(y, relay.const(np.arange(4, dtype="float32"))),
    "prelu": lambda y: relay.nn.prelu(y, relay.const(np.arange(4, dtype="float32"))),
    "pad": lambda y: relay.nn.pad(y, ((0, 0), (1, 0), (2, 3), (0, 1))),
    "concatenate": lambda y: relay.concatenate([y, relay.exp(y)], 1),
    "split": lambda y: relay.split(y, 2, 1)[1],
    "slice": lambda y: relay.strided_slice(y, [1, -3], [3, 9], axes=[1, 3]),
    "squeeze": lambda y: relay.squeeze(relay.max(y, axis=2, keepdims=True), axis=[2]),
    "reverse": lambda y: relay.reverse(y, 1),
    "depth_to_space": lambda y: relay.nn.depth_to_space(y, 2),
    "cast_like": lambda y: relay.cast_like(y, relay.const(np.zeros((2, 3, 4, 5, 6), "float16"))),
    "full_like": lambda y: relay.full_like(y, relay.const(2.0)),
    "where": lambda y: relay.where(y > 0.0, y, relay.const(np.ones((4, 1, 1), "float32"))),
    "clip": lambda y: relay.clip(y, -1.0, 1.0),
    "per_axis": lambda y: relay.fixed_point_multiply_per_axis(
        relay.cast(y * 100.0, "int32"), *[
            relay.const(np.array(values, "int32"))
            for values in ([1 << 30, 5 << 27, 1 << 29, 3 << 28], [0, 1, 2, 3], [3, 2, 1, 0])],
        True, True, [1]),
}
PASSED_BY = {
    "expand_dims": lambda y: relay.expand_dims(y, 1),
    "broadcast_to": lambda y: relay.broadcast_to(y, (3, *y.checked_type.shape)),
    "reshape": lambda y: relay.reshape(y, (0, -1)),
    "transpose": lambda y: relay.transpose(y, (1, 0, 3, 2)),
    "stack": lambda y: relay.stack([y, y], 2),
    "tile": lambda y: relay.tile(y, (1, 2, 1, 1)),
}


def converted(make: Callable[[Any], Any]) -> tuple[relay.Function, Any, Any]:
    """A function with a convolution in another layout, and its values before and after."""
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=(2, 3, 6, 7))
    w = relay.const(rng.standard_normal((4, 3, 3, 3)).astype("float32"))
    result = make(relay.nn.conv2d(x, w, padding=(1, 1)))
    func = relay.Function((x,), result)
    changed = convert_layout(func, {"nn.conv2d": ["NHWC", "default"]})
    values = rng.standard_normal((2, 3, 6, 7)).astype("float32")
    before, after = (
        flatten(evaluate(f.body, {f.params[0]: values})) for f in (func, changed)
    )
    return changed, before, after


@pytest.mark.parametrize("name", [*CASES, *PASSED_BY])
def test_the_result_stays(name: str) -> None:
    changed, before, after = converted({**CASES, **PASSED_BY}[name])
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one.astype("float64"), other.astype("float64"), atol=1e-4)
    if name in CASES:
        last = changed.body
        assert is_call_of(last, "layout_transform") or is_call_of(last, "transpose"), (
            "the layout passes through to the end"
        )
    transforms = [e for e in post_order(changed.body) if is_call_of(e, "layout_transform")]
    assert transforms

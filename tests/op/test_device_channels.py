"""Convolutions whose channels fill no vectors of a GPU, and few groups of them."""

from typing import Any

import numpy as np
import pytest

import sterna
from sterna import relay
from sterna.op.nn import _device_channels as device_channels
from sterna.relay.interpreter import interpret
from sterna.relay.traverse import post_order
from sterna.schedule.choose import answering
from sterna.target import Target

GPU = "cuda -arch=sm_90a"
# The shapes of data and weights, further attributes, the operators that remain, and the groups.
CHANGED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], set[str], str]] = [
    ((1, 6, 5, 5), (7, 6, 3, 3), {"padding": 1}, {"nn.pad", "nn.conv2d", "strided_slice"}, ""),
    ((2, 5, 4, 6), (3, 3, 6, 8), {"data_layout": "NHWC", "kernel_layout": "HWIO", "strides": 2},
     {"nn.pad", "nn.conv2d"}, ""),
    ((1, 3, 5, 5), (6, 3, 3, 3), {}, {"nn.pad", "nn.conv2d", "strided_slice"}, ""),
    ((1, 32, 5, 5), (48, 16, 3, 3), {"groups": 2, "padding": 1},
     {"strided_slice", "nn.conv2d", "concatenate"}, "2 convolutions"),
    ((1, 40, 5, 5), (60, 4, 3, 3), {"groups": 10, "padding": 1},
     {"strided_slice", "nn.conv2d", "concatenate", "where"}, "2 convolutions"),
    ((1, 48, 5, 5), (36, 4, 3, 3), {"groups": 12, "padding": 1},
     {"nn.conv2d", "concatenate", "where"}, "2 groups"),
    ((2, 4, 6, 60), (3, 3, 4, 60), {"data_layout": "NHWC", "kernel_layout": "HWIO", "groups": 15},
     {"nn.conv2d", "concatenate", "where"}, "3 groups"),
    ((2, 4, 6, 60), (3, 3, 4, 45), {"data_layout": "NHWC", "kernel_layout": "HWIO", "groups": 15},
     {"nn.conv2d", "concatenate", "where"}, "1 groups"),
]
KEPT: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 8, 5, 5), (16, 8, 3, 3), {}),
    ((1, 32, 5, 5), (32, 1, 3, 3), {"groups": 32}),
    ((1, 16, 5, 5), (16, 8, 3, 3), {"groups": 2}),
]


def plain(data: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any]) -> Any:
    x, w = relay.var("x", shape=data), relay.var("w", shape=weight)
    return (x, w), relay.nn.conv2d(x, w, **attrs)


@pytest.mark.parametrize("data, weight, attrs, operators, way", CHANGED)
def test_they_compute_the_same(
    data: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any], operators: set[str],
    way: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_channels, "LEAST_MACS", 1)
    monkeypatch.setattr(device_channels, "LEAST_GROUPED_MACS", 1)
    params, call = plain(data, weight, attrs)
    with answering({"groups of a convolution": way}):
        made = device_channels.with_device_channels(call.attrs, call.args, Target(GPU))
    assert made is not None
    assert {str(e.op) for e in post_order(made) if isinstance(e, relay.Call)} == operators
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s).astype("float32") for s in (data, weight)]
    want, have = (interpret(relay.Function(params, body), *given) for body in (call, made))
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("data, weight, attrs", KEPT)
def test_what_fits_stays(
    data: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_channels, "LEAST_MACS", 1)
    monkeypatch.setattr(device_channels, "LEAST_GROUPED_MACS", 1)
    _, call = plain(data, weight, attrs)
    assert device_channels.with_device_channels(call.attrs, call.args, Target(GPU)) is None


def test_small_ones_and_processors_keep_theirs() -> None:
    _, call = plain(*CHANGED[0][:3])
    for target in (GPU, "llvm"):
        assert device_channels.with_device_channels(call.attrs, call.args, Target(target)) is None


def groups_of(gpu: str, size: int, channels: int, groups: int, kind: str = "bfloat16") -> int:
    """How many groups a convolution of 3 x 3 has, as all of its kernels together."""
    x = relay.var("x", shape=(32, channels, size, size), dtype=kind)
    w = relay.var("w", shape=(channels, channels // groups, 3, 3), dtype=kind)
    call = relay.nn.conv2d(x, w, groups=groups, padding=1)
    made = device_channels.with_device_channels(call.attrs, call.args, Target(gpu))
    assert made is None or (isinstance(made, relay.Call) and str(made.op) == "nn.conv2d")
    if made is None:
        return groups
    attrs: Any = made.attrs
    return int(attrs.groups)


@pytest.mark.parametrize("gpu, size, channels, groups, kind, wanted", [
    (GPU, 7, 1024, 32, "bfloat16", {8, 16}), (GPU, 28, 256, 32, "float16", {2, 4}),
    (GPU, 56, 128, 32, "bfloat16", {1, 2}), (GPU, 28, 96, 3, "bfloat16", {1}),
    (GPU, 56, 128, 32, "float32", {32}), (GPU, 28, 320, 10, "float32", {10}),
    ("cuda -arch=sm_80", 7, 1024, 32, "bfloat16", {8, 16}),
    ("cuda -arch=sm_75", 7, 1024, 32, "bfloat16", {32}), ("opencl", 7, 1024, 32, "float32", {32}),
])
def test_groups_fill_tiles_where_that_takes_less_time(
    gpu: str, size: int, channels: int, groups: int, kind: str, wanted: set[int]
) -> None:
    assert groups_of(gpu, size, channels, groups, kind) in wanted


def test_sums_may_be_wider_than_what_is_multiplied() -> None:
    x, w = (relay.var(name, shape=shape, dtype="bfloat16") for name, shape in (
        ("x", (1, 58, 40, 40)), ("w", (58, 58, 1, 1))))
    attrs = relay.nn.conv2d(x, w, out_dtype="float32").attrs
    made = device_channels.with_device_channels(attrs, (x, w), Target(GPU))
    assert made is not None
    kind = relay.transform.InferType()(sterna.IRModule.from_expr(made))["main"].ret_type
    assert (kind.dtype, kind.shape) == ("float32", (1, 58, 40, 40))

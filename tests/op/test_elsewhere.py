"""Layers compiled for AArch64 give there what they should; an emulator runs them if need be."""

from pathlib import Path
from typing import Any

import numpy as np

from sterna import relay
from tests.op.harness import evaluate
from tests.op.on_aarch64 import run_on_aarch64


def check(made: Any, x: np.ndarray[Any, Any], tmp_path: Path) -> None:
    """A function of one input, against what its operators say of themselves."""
    got = run_on_aarch64(made, "-mcpu=neoverse-n1", x, tmp_path)
    (data,) = relay.analysis.free_vars(made)
    want = evaluate(made, {data: x}).ravel()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)


def joined(*parts: Any) -> Any:
    """Several results as one."""
    return relay.concatenate([relay.reshape(part, (-1,)) for part in parts], 0)


def test_extremes_and_sigmoids_keep_nan(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 8, 9, 7)).astype("float32") * 4
    x.ravel()[::11], x.ravel()[5::29], x.ravel()[7::31] = np.nan, np.inf, -np.inf
    data = relay.var("x", shape=x.shape)
    pooled = relay.nn.max_pool2d(data, (3, 3), (2, 2), padding=1)
    made = [relay.nn.relu(data), relay.clip(data, -1.0, 2.0), pooled, relay.maximum(data, -data)]
    check(joined(*made, relay.sigmoid(data)), x, tmp_path)


def test_sums_take_numbers_from_lanes(tmp_path: Path) -> None:
    """Bands, parts of weights, windows, blocks of pixels and dense layers, by uneven tiles too."""
    rng = np.random.default_rng(1)

    def conv(data: Any, outputs: int, channels: int, window: int, **attrs: Any) -> Any:
        inner = channels // attrs.get("groups", 1)
        weight = rng.standard_normal((outputs, inner, window, window)).astype("float32") * 0.1
        made = relay.nn.conv2d(data, relay.const(weight), padding=window // 2, **attrs)
        return relay.nn.relu(made)

    x = rng.standard_normal((1, 24, 11, 13)).astype("float32")
    data = relay.var("x", shape=x.shape)
    points, wide = conv(data, 40, 24, 1), conv(data, 176, 24, 1, strides=2)
    by_parts = conv(wide, 24, 176, 3, strides=2)
    chain = conv(conv(conv(data, 8, 24, 1), 48, 8, 1), 48, 48, 3, groups=48)
    rows = relay.const(rng.standard_normal((20, 13)).astype("float32"))
    dense = relay.nn.dense(relay.reshape(points, (-1, 13)), rows)
    deep = relay.const(rng.standard_normal((20, 44)).astype("float32"))
    even = relay.nn.dense(relay.reshape(points, (130, 44)), deep)
    grouped = conv(data, 12, 24, 3, groups=2)
    square = conv(conv(data, 16, 24, 3), 16, 16, 3)
    few = conv(points, 9, 40, 3, strides=2)
    stem = conv(relay.reshape(data, (1, 3, 26, 44)), 32, 3, 7, strides=2)
    made = [square, points, by_parts, chain, dense, even, grouped, few, stem]
    check(joined(*made), x, tmp_path)


def test_bytes_take_groups_from_lanes(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(-128, 128, (1, 32, 9, 11)).astype("float32")
    data = relay.cast(relay.var("x", shape=x.shape), "int8")

    def weight(*shape: int) -> Any:
        return relay.const(rng.integers(-128, 128, shape).astype("int8"))

    def conv(outputs: int, window: int, strides: int) -> Any:
        kernel = weight(outputs, 32, window, window)
        return relay.nn.conv2d(
            data, kernel, padding=window // 2, strides=strides, out_dtype="int32"
        )

    def depthwise(image: Any, strides: int) -> Any:
        kernel = weight(32, 1, 3, 3)
        made = relay.nn.conv2d(
            image, kernel, padding=1, strides=strides, groups=32, out_dtype="int32"
        )
        scales = [relay.const(np.float32(scale)) for scale in (3e-4, 0.05)]
        zero, point = relay.const(0), relay.const(3)
        return relay.qnn.op.requantize(made, scales[0], zero, scales[1], point)

    rows = relay.reshape(data, (33, 96))
    dense = relay.nn.dense(rows, weight(24, 96), out_dtype="int32")
    unsigned = relay.cast(relay.nn.relu(data), "uint8")
    deep = [depthwise(data, 1), depthwise(unsigned, 1), depthwise(data, 2)]
    made = joined(conv(24, 1, 1), conv(20, 3, 2), dense, *[relay.cast(y, "int32") for y in deep])
    check(relay.cast(made, "float32"), x, tmp_path)

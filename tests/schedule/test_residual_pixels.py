"""Residual connections of few channels in one kernel: exact, and taken where that pays."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.op.qnn._double_rounding import rounding_records
from sterna.relay.arrays import Array
from tests.schedule.byte_layers import extremes
from tests.schedule.implemented import implement, run_built
from tests.schedule.test_halves import M4

FACTORS = {"lhs_factor": 3526604, "rhs_factor": -8912256, "start": -51047014, "shift": 22}


def rescaled(sums: Array, multiplier: Array, power: Array, zero: int) -> Array:
    """As TFLite Micro rounds: upward behind 31 bits, then halves away from zero."""
    high = (sums * multiplier + (1 << 30)) >> 31
    half = np.where(high < 0, -1, 0) + (np.int64(1) << -power - 1)
    return np.asarray(np.clip(((high + half) >> -power) + zero, -128, 127))


def summed(own: Array, beside: Array, swapped: bool) -> Array:
    lhs, rhs = (beside, own) if swapped else (own, beside)
    first, second = (lhs.astype(np.int64) * FACTORS["lhs_factor"],
                     rhs.astype(np.int64) * FACTORS["rhs_factor"])
    total = first + second + FACTORS["start"]
    return np.asarray(np.clip(total >> FACTORS["shift"], -128, 127))


def layer(
    image: tuple[int, int, int], outputs: int, stride: int, swapped: bool = False,
    least: int = -9, ends: str = "",
) -> tuple[Any, dict[str, Array], Array]:
    """A layer of one tap, and bytes that are added to it; what it reads, and what it gives."""
    rng = np.random.default_rng(outputs)
    x = extremes(rng, (1, *image), "int8")
    w = extremes(rng, (1, 1, image[2], outputs), "int8")
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, outputs)
    power, bias = rng.integers(least, -2, outputs), rng.integers(-9000, 9000, outputs)
    made = relay.nn.conv2d(
        relay.var(f"x{ends}", shape=x.shape, dtype="int8"), relay.const(w), kernel_size=(1, 1),
        channels=outputs, strides=(stride, stride), data_layout="NHWC", kernel_layout="HWIO",
        out_dtype="int32")
    made = relay.qnn.rescale(
        relay.add(made, relay.const(bias.astype("int32"))), relay.const(multiplier.astype("int32")),
        relay.const(power.astype("int32")), relay.const(0), relay.const(-17), rounding="TWICE",
        is_normal=True, axis=3)
    read = x[:, ::stride, ::stride].astype(np.int64)
    beside = extremes(rng, (*read.shape[:3], outputs), "int8")
    other = relay.var(f"y{ends}", shape=beside.shape, dtype="int8")
    operands = (other, made) if swapped else (made, other)
    own = rescaled(read @ w[0, 0].astype(np.int64) + bias, multiplier, power, -17)
    want = summed(own, beside, swapped).astype("int8")
    return relay.qnn.shifted_sum(*operands, **FACTORS), {f"x{ends}": x, f"y{ends}": beside}, want


# By image, output channels, stride and whether the layer is the second operand: pixels of a tile.
RESIDUAL = [
    ((32, 32, 16), 32, 2, False, 4),
    ((31, 31, 8), 16, 2, True, 4),
    ((15, 15, 12), 13, 1, False, 3),
    ((22, 22, 4), 9, 1, True, 4),
    ((13, 26, 8), 8, 1, False, 2),
]


@pytest.mark.parametrize(("image", "outputs", "stride", "swapped", "pixels"), RESIDUAL)
def test_sums_with_a_layer_are_exact(
    image: tuple[int, int, int], outputs: int, stride: int, swapped: bool, pixels: int
) -> None:
    made, feeds, want = layer(image, outputs, stride, swapped)
    mod = implement(made, M4, "halves", target="c")
    assert f"pixels={pixels}" in mod.astext() and "qnn.residual_pixels" in mod.astext()
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), **feeds), want)


@pytest.mark.parametrize("least", [-31, -3])
def test_shifts_are_factors_of_a_word(least: int) -> None:
    made, feeds, want = layer((16, 16, 8), 8, 1, least=least)
    mod = implement(made, M4, "halves", target="c")
    assert "qnn.residual_pixels" in mod.astext()
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), **feeds), want)


def test_a_shift_by_two_is_no_factor() -> None:
    one = np.ones(1, np.int64)
    assert rounding_records(np.ones((1, 4), np.int64), one, one << 30, one * -2, 0) is None


def test_a_layer_that_others_read_is_not_computed_twice() -> None:
    made, _, _ = layer((16, 16, 8), 8, 1)
    own = made.args[0]
    other = relay.nn.max_pool2d(own, (3, 3), padding=(1, 1), layout="NHWC")
    mod = implement(relay.qnn.shifted_sum(own, other, **FACTORS), M4, "halves", target="c")
    assert "qnn.residual_pixels" not in mod.astext()


def test_weights_grow_only_where_that_pays() -> None:
    made, _, _ = layer((8, 8, 96), 96, 1)
    assert "qnn.residual_pixels" not in implement(made, M4, "halves", target="c").astext()


@pytest.mark.parametrize(("channels", "records", "beside", "attrs", "message"), [
    (6, (3, 8), (1, 4, 4, 3), {}, "which come by four"),
    (8, (3, 8), (1, 4, 4, 3), {}, "five words and one for two channels"),
    (8, (3, 9), (1, 4, 4, 3), {"shift": 32}, "shift is from 1 to 31"),
    (8, (3, 9), (1, 4, 4, 3), {"strides": (0, 1)}, "strides are two numbers from 1 on"),
    (8, (3, 9), (1, 4, 4, 5), {}, "beside is Tensor"),
    (8, (3, 9), (1, 4, 4, 3), {"pixels": 3}, "tiles of 3 pixels do not fit"),
])
def test_records_that_do_not_fit(
    channels: int, records: tuple[int, int], beside: tuple[int, ...], attrs: dict[str, Any],
    message: str,
) -> None:
    data = relay.var("x", shape=(1, 4, 4, channels), dtype="int8")
    other = relay.var("y", shape=beside, dtype="int8")
    words = relay.const(np.zeros(records, "int32"))
    with pytest.raises(Exception, match=message):
        made = relay.qnn.residual_pixels(data, words, other, **attrs)
        tvm.relay.transform.InferType()(tvm.IRModule.from_expr(made))

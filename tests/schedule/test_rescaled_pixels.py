"""Pointwise layers with their rescaling in one kernel: exact, and refused where numbers have no
room."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.op.qnn.rescaled_pixels import records_of
from sterna.relay.arrays import Array
from tests.schedule.byte_layers import extremes
from tests.schedule.implemented import implement, run_built
from tests.schedule.test_halves import M4


def rounded_twice(sums: Array, multiplier: int, power: int, zero: int = -128) -> Array:
    """As TFLite Micro rounds: what is half of a step away from 0, away from it."""
    high = (sums * multiplier + (1 << 30)) >> 31
    half = (1 << -power - 1) - (high < 0)
    return np.asarray(np.clip(((high + half) >> -power) + zero, -128, 127))


@pytest.mark.parametrize("multiplier", [1 << 30, (1 << 30) + 1, 1395864371, (1 << 31) - 1])
def test_every_sum_is_rounded_as_in_two_steps(multiplier: int) -> None:
    powers = np.array([-2, -5, -8])
    start, weights = np.array([-3, 0, 7]), np.ones((3, 4), np.int64)
    packed = records_of(weights, start, np.full(3, multiplier), powers)
    assert packed is not None
    records, shift = packed
    for record, begin, power in zip(records.astype(np.int64), start, powers, strict=True):
        left = record[0] // begin if begin else record[1] & 0xFFFF
        sums = np.arange(-600, 256 << -power)
        high = ((sums * left * record[-2]) >> 32) + record[-1]
        np.testing.assert_array_equal(
            np.clip(high >> shift, -128, 127), rounded_twice(sums, multiplier, power))


def layer(power: Array, zero: int = -128, **changed: Any) -> tuple[Any, Array, Array]:
    """Eight channels to as many as there are powers, on 24 x 24 pixels; what it reads and gives."""
    rng = np.random.default_rng(len(power))
    x = extremes(rng, (1, 24, 24, 8), "int8")
    w = extremes(rng, (1, 1, 8, len(power)), "int8")
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, len(power))
    bias = rng.integers(-9000, 9000, len(power))
    made = relay.nn.conv2d(
        relay.var("x", shape=x.shape, dtype="int8"), relay.const(w), kernel_size=(1, 1),
        channels=len(power), data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32",
    )
    given: dict[str, Any] = {"rounding": "TWICE", "is_normal": True, "axis": 3, **changed}
    made = relay.qnn.rescale(
        relay.add(made, relay.const(bias.astype("int32"))), relay.const(multiplier.astype("int32")),
        relay.const(power.astype("int32")), relay.const(0), relay.const(zero), **given,
    )
    sums = x.astype(np.int64) @ w[0, 0].astype(np.int64) + bias
    each = [rounded_twice(sums[..., n], int(multiplier[n]), int(power[n]), zero)
            for n in range(len(power))]
    return made, x, np.stack(each, -1).astype("int8")


@pytest.mark.parametrize(("power", "changed", "taken"), [
    (np.array([-9, -8, -7, -3]), {}, True),
    (np.array([-9, -8, -7, -2]), {}, False),  # weights of the last would need nine places, and
    (np.array([-12, -2]), {}, False),  # a factor for its shift 33 bits
    (np.array([-9, -8]), {"out_dtype": "int16"}, False),
])
def test_where_numbers_have_room(power: Array, changed: dict[str, Any], taken: bool) -> None:
    made, x, want = layer(power, **changed)
    mod = implement(made, M4, "halves", target="c")
    assert ("qnn.rescaled_pixels" in mod.astext()) == taken
    if not changed:
        np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), x=x), want)


@pytest.mark.parametrize(("power", "zero", "one_shift"), [
    (np.array([-9, -8, -7, -3]), -128, True),
    (np.array([-9, -29, -8]), -128, True),  # the second is the zero point, whatever the data
    (np.array([-9, -8, -7, -3]), 5, False),
    (np.array([-13, -3, -31]), -128, False),
    (np.array([-12, -9, -31]), 127, False),
])
def test_any_zero_point_and_shifts_far_apart(power: Array, zero: int, one_shift: bool) -> None:
    made, x, want = layer(power, zero)
    mod = implement(made, M4, "halves", target="c")
    assert "qnn.rescaled_pixels" in mod.astext() and ("shift=" in mod.astext()) == one_shift
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), x=x), want)


def test_channels_of_next_to_no_scale_are_fixed_bytes() -> None:
    power, start = np.array([-8, -20, -25]), np.array([0, 1 << 29, 1 << 29])
    packed = records_of(np.ones((3, 4), np.int64), start, np.full(3, 1 << 30), power)
    assert packed is not None
    records, shift = packed
    assert not records[1:, :-1].any()  # neither weights nor a factor
    assert [int(record[-1]) >> shift for record in records[1:]] == [127, -120]


@pytest.mark.parametrize(("channels", "records", "attrs", "message"), [
    (6, (3, 6), {"shift": 4}, "which come by four"),
    (8, (3, 6), {"shift": 4}, "three words and one for two channels"),
    (8, (3, 7), {}, "four words and one for two channels"),
    (8, (3, 7), {"shift": 32}, "shift is from 0 to 31"),
    (8, (3, 7), {"shift": 4, "pixels": 4}, "tiles of 4 pixels do not fit"),
])
def test_records_that_do_not_fit(
    channels: int, records: tuple[int, int], attrs: dict[str, int], message: str
) -> None:
    data = relay.var("x", shape=(5, channels), dtype="int8")
    with pytest.raises(Exception, match=message):
        made = relay.qnn.rescaled_pixels(data, relay.const(np.zeros(records, "int32")), **attrs)
        tvm.relay.transform.InferType()(tvm.IRModule.from_expr(made))

"""Depthwise layers with their rescaling in one kernel: exact, and refused where numbers have no
room."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.arrays import Array
from tests.schedule.byte_layers import extremes
from tests.schedule.implemented import implement, run_built
from tests.schedule.test_halves import M4
from tests.schedule.test_rescaled_pixels import rounded_twice

Layer = tuple[Any, Array, Array]


def layer(
    image: tuple[int, ...], window: tuple[int, int], stride: tuple[int, int] = (1, 1),
    padding: tuple[int, ...] = (0, 0, 0, 0), zero: int = 5, power: int = -8, bias: str = "add",
) -> Layer:
    """A layer of channels apart, what it reads, and what NumPy says."""
    rng = np.random.default_rng(sum(image))
    channels, border = image[-1], -3
    x, w = extremes(rng, image, "int8"), extremes(rng, (*window, channels, 1), "int8")
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, channels)
    start = rng.integers(-9000, 9000, channels).astype("int32")
    made = relay.nn.conv2d(
        relay.var("x", shape=x.shape, dtype="int8"), relay.const(w), kernel_size=window,
        channels=channels, data_layout="NHWC", kernel_layout="HWOI", out_dtype="int32",
        groups=channels, strides=stride, padding=padding, border=border,
    )
    made = relay.add(made, relay.const(start)) if bias == "add" else relay.subtract(
        made, relay.const(-start))
    made = relay.qnn.rescale(
        made, relay.const(multiplier.astype("int32")),
        relay.const(np.full(channels, power, "int32")), relay.const(0), relay.const(zero),
        rounding="TWICE", is_normal=True, axis=3,
    )
    top, left, bottom, right = padding
    padded = np.pad(x.astype(np.int64), [(0, 0), (top, bottom), (left, right), (0, 0)],
                    constant_values=border)
    seen = np.lib.stride_tricks.sliding_window_view(padded, window, (1, 2))
    seen = seen[:, :: stride[0], :: stride[1]]
    sums = np.einsum("nyxchw,hwc->nyxc", seen, w[..., 0].astype(np.int64)) + start
    each = [rounded_twice(sums[..., n], int(multiplier[n]), power, zero) for n in range(channels)]
    return made, x, np.stack(each, -1).astype("int8")


SAME = (1, 1, 1, 1)


@pytest.mark.parametrize(("made", "tile"), [
    (layer((2, 9, 12, 8), (3, 3), padding=SAME), "outputs=6"),
    (layer((1, 12, 12, 8), (3, 3), (2, 2), (0, 0, 1, 1)), "outputs=6, lanes=4"),
    (layer((1, 24, 11, 8), (3, 3), (1, 2), SAME, bias="subtract"), "outputs=6"),
    (layer((1, 7, 16, 5), (5, 5), padding=(2, 2, 2, 2)), "outputs=6"),  # and a tile of four
    (layer((1, 9, 5, 8), (2, 2), padding=(0, 1, 0, 0)), "outputs=5, lanes=4"),
    (layer((1, 8, 9, 8), (7, 7), padding=(3, 3, 3, 3), zero=-128), "outputs=6"),
    (layer((1, 40, 1, 16), (3, 1)), "outputs=6, lanes=4"),  # a column, which becomes a line
    (layer((1, 1, 60, 8), (1, 5), zero=-128), "outputs=6, lanes=4"),
    (layer((1, 40, 44, 4), (3, 3), padding=SAME, power=-3), "outputs=6"),
    (layer((1, 60, 44, 4), (3, 3), (2, 2), SAME, power=-31), "outputs=6, lanes=4"),  # in bands
])
def test_layers_are_exact(made: Layer, tile: str) -> None:
    made, x, want = made
    mod = implement(made, M4, target="c")
    (line,) = (each for each in mod.astext().splitlines() if "qnn." in each)
    assert "qnn.rescaled_planes" in line and tile in line
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), x=x), want)


def test_short_windows_of_one_row_are_read_from_their_records() -> None:
    for window, short in (((1, 3), True), ((1, 5), True), ((1, 7), False), ((3, 3), False)):
        made, x, want = layer((1, 4, 60, 8), window)
        built = relay.build(implement(made, M4, target="c"), target="c")
        assert ("sterna_rescaled_lines" in built.lib.get_source()) == short
        np.testing.assert_array_equal(run_built(built, x=x), want)


@pytest.mark.parametrize("made", [
    layer((1, 15, 1, 12), (15, 1)),
    layer((1, 4, 4, 8), (4, 4), zero=-128),
    layer((2, 7, 3, 4), (7, 3), bias="subtract"),
    layer((1, 1, 5, 8), (1, 5), power=-31),
])
def test_windows_as_large_as_the_image(made: Layer) -> None:
    made, x, want = made
    mod = implement(made, M4, target="c")
    assert "qnn.rescaled_window" in mod.astext() and "qnn.rescale(" not in mod.astext()
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), x=x), want)


def test_records_of_four_channels_that_do_not_fit() -> None:
    for shape, records in (((1, 3, 2, 6), (1, 19)), ((1, 3, 2, 8), (2, 18))):
        data = relay.var("x", shape=shape, dtype="int8")
        with pytest.raises(Exception, match="records of four channels have the shape"):
            made = relay.qnn.rescaled_window(data, relay.const(np.zeros(records, "int32")))
            tvm.relay.transform.InferType()(tvm.IRModule.from_expr(made))


@pytest.mark.parametrize("made", [
    layer((1, 12, 12, 8), (3, 3), padding=SAME, power=-2),  # a factor would need 33 bits
    layer((1, 5, 5, 4), (3, 3)),  # saves less than its code is worth
])
def test_layers_that_stay_two(made: Layer) -> None:
    made, x, want = made
    mod = implement(made, M4, target="c")
    assert "qnn.rescaled_planes" not in mod.astext()
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), x=x), want)


def test_processors_of_wider_products_have_planes_of_four_channels() -> None:
    made, _, _ = layer((1, 12, 12, 8), (3, 3), padding=SAME)
    m55 = replace(M4, has_dot_across=True)
    assert "qnn.rescaled_planes" in implement(made, M4, target="c").astext()
    assert "qnn.rescaled_quads" in implement(made, m55, target="c").astext()


@pytest.mark.parametrize(("records", "attrs", "message"), [
    ((4, 7), {}, r"the shape \(8, 7\) for windows of \(3, 3\)"),
    ((8, 7), {"window": (5, 5)}, r"the shape \(8, 14\)"),
    ((8, 7), {"strides": (0, 1)}, "strides is at least 1"),
    ((8, 7), {"window": (3,)}, "window, strides and dilation are of two axes"),
    ((8, 7), {"outputs": 3}, "tiles of 3 pixels of 1 channels do not fit"),
    ((8, 7), {"outputs": 4, "lanes": 2}, "tiles of 4 pixels of 2 channels do not fit"),
    ((8, 10), {"window": (6, 1)}, "which they fit into"),
])
def test_records_that_do_not_fit(
    records: tuple[int, int], attrs: dict[str, Any], message: str
) -> None:
    data = relay.var("x", shape=(1, 5, 9, 8), dtype="int8")
    with pytest.raises(Exception, match=message):
        made = relay.qnn.rescaled_planes(data, relay.const(np.zeros(records, "int32")), **attrs)
        tvm.relay.transform.InferType()(tvm.IRModule.from_expr(made))


@pytest.mark.parametrize(("power", "bias", "normal"), [(-1, 1, True), (-1, 1 << 30, False)])
def test_shifts_of_one_place_are_normal_where_sums_have_room(
    power: int, bias: int, normal: bool
) -> None:
    rng = np.random.default_rng(5)
    x, w = extremes(rng, (1, 6, 6, 4), "int8"), extremes(rng, (3, 3, 4, 1), "int8")
    start = np.array([bias, -bias, 0, 99], "int32")
    made = relay.nn.conv2d(
        relay.var("x", shape=x.shape, dtype="int8"), relay.const(w), kernel_size=(3, 3),
        channels=4, data_layout="NHWC", kernel_layout="HWOI", out_dtype="int32", groups=4)
    made = relay.qnn.rescale(
        relay.add(made, relay.const(start)), relay.const(np.full(4, 1395864371, "int32")),
        relay.const(np.array([power, -6, -9, -12], "int32")), relay.const(0), relay.const(4),
        rounding="TWICE", scales_down=True, axis=3)
    seen = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (3, 3), (1, 2))
    sums = np.einsum("nyxchw,hwc->nyxc", seen, w[..., 0].astype(np.int64)) + start
    want = [rounded_twice(sums[..., n], 1395864371, int(each), 4)
            for n, each in enumerate((power, -6, -9, -12))]
    mod = implement(made, M4, target="c")
    assert ("is_normal=True" in mod.astext()) == normal
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), x=x), np.stack(want, -1))

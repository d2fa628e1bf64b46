"""Transposes through tiles of shared memory, as the interpreter runs them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sterna import relay
from sterna.schedule.choose import answering
from sterna.tir import pipeline as loop_pipeline
from sterna.tir.device_interpreter import run_on_device
from tests.gpu.test_network_kernels import HOPPER, lowered, var

CASES: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "plain": (lambda: relay.transpose(var("x", 64, 40), (1, 0)), lambda x: x.T),
    "ragged": (lambda: relay.transpose(var("x", 33, 35), (1, 0)), lambda x: x.T),
    "bytes": (lambda: relay.transpose(var("x", 20, 3, 48, dtype="int8"), (2, 1, 0)),
              lambda x: x.transpose(2, 1, 0)),
    "channels_last": (lambda: relay.layout_transform(var("x", 2, 10, 5, 4), "NCHW", "NHWC"),
                      lambda x: x.transpose(0, 2, 3, 1)),
    "with_more": (
        lambda: relay.add(relay.nn.relu(relay.transpose(
            relay.cast(var("x", 2, 12, 16), "float16"), (0, 2, 1))), var("b", 12, dtype="float16")),
        lambda x, b: np.maximum(x.astype("float16").transpose(0, 2, 1), 0) + b),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("where", [HOPPER, "opencl"])
def test_transposes(name: str, where: str) -> None:
    expr, wanted = CASES[name]
    function = lowered(expr(), where).function
    assert "^" in str(function)
    rng = np.random.default_rng(0)
    arrays = [
        (9 * rng.standard_normal([int(n) for n in b.shape])).astype(str(b.dtype))
        for b in function.buffers if b is not None
    ]
    run_on_device(loop_pipeline.run(function), *arrays, seed=1)
    np.testing.assert_array_equal(arrays[-1], wanted(*arrays[:-1]))


def test_a_barrier_is_between_the_halves_alone() -> None:
    with answering({"tile of a transpose": "64 x 128"}):
        function = lowered(CASES["plain"][0]()).function
    assert str(loop_pipeline.run(function)).count("storage_sync") == 1


SHIFTED: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "odd": (lambda: relay.transpose(var("x", 67, 73), (1, 0)), lambda x: x.T),
    "twice odd": (lambda: relay.transpose(var("x", 70, 38), (1, 0)), lambda x: x.T),
    "batch": (lambda: relay.transpose(var("x", 3, 35, 41), (0, 2, 1)),
              lambda x: x.transpose(0, 2, 1)),
    "between": (lambda: relay.transpose(var("x", 33, 2, 35), (2, 1, 0)),
                lambda x: x.transpose(2, 1, 0)),
    "long": (lambda: relay.transpose(var("x", 37, 33, dtype="int64"), (1, 0)), lambda x: x.T),
    "with_more": (
        lambda: relay.add(relay.nn.relu(relay.transpose(
            var("x", 2, 19, 33), (0, 2, 1))), var("b", 19)),
        lambda x, b: np.maximum(x.transpose(0, 2, 1), 0) + b),
}


@pytest.mark.parametrize("name, side", [*((name, 64) for name in SHIFTED), ("odd", 128)])
def test_rows_that_begin_inside_of_vectors(name: str, side: int) -> None:
    """All of their elements come by vectors, and results go by vectors but for ends of rows."""
    expr, wanted = SHIFTED[name]
    with answering({"tile of a transpose": f"{side} x 64, shifted"}):
        function = lowered(expr()).function
    assert "read_base" in str(function)
    rng = np.random.default_rng(0)
    arrays = [
        (9 * rng.standard_normal([int(n) for n in b.shape])).astype(str(b.dtype))
        for b in function.buffers if b is not None
    ]
    run_on_device(loop_pipeline.run(function), *arrays, seed=1)
    np.testing.assert_array_equal(arrays[-1], wanted(*arrays[:-1]))


@pytest.mark.parametrize("dtype, is_shifted", [("float32", True), ("bfloat16", False)])
def test_odd_extents_of_words_are_moved_by_vectors(dtype: str, is_shifted: bool) -> None:
    function = lowered(relay.transpose(var("x", 8191, 8193, dtype=dtype), (1, 0))).function
    assert ("read_base" in str(function)) == is_shifted


@pytest.mark.parametrize("shape, tile", [((8191, 8193), "(128, 32)"), ((8192, 8192), "(64, 64)")])
def test_odd_extents_have_rows_of_a_warp(shape: tuple[int, int], tile: str) -> None:
    function = lowered(relay.transpose(var("x", *shape, dtype="bfloat16"), (1, 0))).function
    assert f"allocate({tile}, \"bfloat16\", \"shared\")" in str(function)


@pytest.mark.parametrize("shape, axes, tile", [
    ((49, 1031, 1337), (1, 2, 0), "(64, 32)"), ((1337, 1031, 49), (2, 0, 1), "(68, 69)"),
])
def test_tiles_that_have_all_that_follows_each_other(
    shape: tuple[int, ...], axes: tuple[int, ...], tile: str
) -> None:
    """The rows of such a tile follow each other in the result."""
    function = lowered(relay.transpose(var("x", *shape), axes)).function
    assert f"allocate({tile}, \"float32\", \"shared\")" in str(function)


@pytest.mark.parametrize("where", [HOPPER, "opencl"])
def test_rows_that_change_places_have_neighbours_of_both_sides(where: str) -> None:
    """Heads of attention: blocks have some of them and some tokens."""
    with answering({"rows of a permutation": "2"}):
        function = lowered(relay.transpose(var("x", 2, 5, 4, 8), (0, 2, 1, 3)), where).function
    assert "i1.outer" in str(function)
    x = np.random.default_rng(0).standard_normal((2, 5, 4, 8)).astype("float32")
    out = np.empty((2, 4, 5, 8), "float32")
    run_on_device(loop_pipeline.run(function), x, out, seed=1)
    np.testing.assert_array_equal(out, x.transpose(0, 2, 1, 3))

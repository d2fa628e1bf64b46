"""Loops of statements that threads share because each iteration touches elements of its own."""

import numpy as np

from sterna import relay
from sterna.tir import pipeline as loop_pipeline
from sterna.tir.device_interpreter import run_on_device
from tests.gpu.test_network_kernels import lowered, var


def test_scattered_rows_are_shared_by_their_columns() -> None:
    """Updates of one place keep their order: the last one counts."""
    places = relay.var("i", shape=(1, 4), dtype="int64")
    made = lowered(relay.scatter_nd(var("x", 6, 5, 7), places, var("y", 4, 5, 7)), "opencl")
    text = str(made.function)
    assert "range(1):  # thread threadIdx.x" not in text
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n, 5, 7)).astype("float32") for n in (6, 4))
    at = np.array([[2, 5, 2, -6]])
    out = np.zeros_like(x)
    run_on_device(loop_pipeline.run(made.function), x, at, y, out, seed=1)
    wanted = x.copy()
    for place, row in zip(at[0], y, strict=True):
        wanted[place] = row
    np.testing.assert_array_equal(out, wanted)


def test_updates_of_one_axis_alone_are_one_threads() -> None:
    places = relay.var("i", shape=(4,), dtype="int64")
    made = lowered(relay.scatter_elements(var("x", 6), places, var("y", 4)), "opencl")
    assert str(made.function).count("range(1):  # thread threadIdx.x") == 1

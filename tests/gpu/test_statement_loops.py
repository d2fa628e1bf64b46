"""Loops of statements that threads share because each iteration touches elements of its own."""

import numpy as np
import pytest

from sterna import relay
from sterna.tir import ir_builder
from sterna.tir import pipeline as loop_pipeline
from sterna.tir.buffer import decl_buffer
from sterna.tir.device_interpreter import run_on_device
from sterna.tir.passes.bind_threads import bind_threads
from tests.gpu.test_network_kernels import lowered, var
from tests.tir.programs import function


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


@pytest.mark.parametrize("rest", [(), (3,)])
def test_updates_are_shared_by_what_they_change(rest: tuple[int, ...]) -> None:
    """Each thread takes all of them, and does those of its own elements in their order."""
    places = relay.var("i", shape=(40, *rest), dtype="int64")
    x, y = var("x", 9, *rest), var("y", 40, *rest)
    made = lowered(relay.scatter_elements(x, places, y, axis=0, reduction="mul"), "opencl")
    assert "range(1):  # thread threadIdx.x" not in str(made.function)
    rng = np.random.default_rng(0)
    given, factors = (rng.standard_normal((n, *rest)).astype("float32") for n in (9, 40))
    at = rng.integers(-9, 9, (40, *rest))
    out = np.zeros_like(given)
    run_on_device(loop_pipeline.run(made.function), given, at, factors, out, seed=1)
    wanted = given.copy()
    for place in np.ndindex(at.shape):
        wanted[at[place], *place[1:]] *= factors[place]
    np.testing.assert_array_equal(out, wanted)


def test_segments_are_shared_by_what_they_add_to() -> None:
    ids = relay.var("i", shape=(50,), dtype="int32")
    made = lowered(relay.segment_sum(var("x", 50, 2), ids, num_segments=6), "opencl")
    assert "range(1):  # thread threadIdx.x" not in str(made.function)
    rng = np.random.default_rng(0)
    x, at = rng.standard_normal((50, 2)).astype("float32"), rng.integers(-1, 7, 50, "int32")
    out = np.zeros((6, 2), "float32")
    run_on_device(loop_pipeline.run(made.function), x, at, out, seed=1)
    wanted = np.zeros_like(out)
    for place, row in zip(at, x, strict=True):
        if 0 <= place < 6:
            wanted[place] += row
    np.testing.assert_array_equal(out, wanted)


def test_steps_that_wait_for_each_other_are_one_threads() -> None:
    """Each adds what the one before has made."""
    ib = ir_builder.create()
    x = decl_buffer((8,), "float32", "x")
    out = ib.buffer_ptr(x)
    with ib.for_range(0, 7, name="i") as i:
        out[i + 1] = out[i + 1] + out[i]
    bound = str(bind_threads(function("sums", ib.get(), x)))
    assert "range(1):  # thread threadIdx.x" in bound


def test_sorts_and_scans_leave_no_thread_alone() -> None:
    for made in (relay.topk(var("x", 2, 40), k=3, ret_type="values"),
                 relay.cumsum(var("x", 3, 70), axis=1)):
        function = lowered(made, "opencl").function
        assert "range(1):  # thread threadIdx.x" not in str(function)
        x = np.random.default_rng(0).standard_normal(
            [int(n) for n in function.buffers[0].shape]).astype("float32")
        wanted = -np.sort(-x, 1)[:, :3] if x.shape[1] == 40 else np.cumsum(x, 1)
        out = np.zeros_like(wanted)
        run_on_device(loop_pipeline.run(function), x, out, seed=1)
        np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)

"""The quick exponential: its error, its bounds, and what is no number."""

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.schedule.exponential import MOST, quick_exp


def computed(x: np.ndarray, target: str) -> np.ndarray:
    given = te.placeholder(x.shape, "float32", name="x")
    made = te.compute(x.shape, lambda i: quick_exp(given[i]), name="y")
    schedule = te.create_schedule(made.op)
    _, lane = schedule[made].split(made.op.axis[0], factor=16)
    schedule[made].vectorize(lane)
    out = tvm.nd.empty(x.shape)
    tvm.build(schedule, [given, made], target=target)(tvm.nd.array(x), out)
    return out.numpy()


@pytest.mark.parametrize("target", ["llvm -mcpu=native", "llvm", "c"])
def test_the_error_is_small(target: str) -> None:
    x = np.linspace(-87.3, MOST, 1 << 18).astype("float32")
    want = np.exp(x.astype("float64"))
    np.testing.assert_allclose(computed(x, target), want, rtol=2e-7)


def test_the_ends() -> None:
    x = np.array([0.0, -0.0, -88.1, -1e9, -3.4e38, -np.inf, np.nan] + [-1.0] * 9, "float32")
    made = computed(x, "llvm")
    np.testing.assert_array_equal(made[:7], [1, 1, 0, 0, 0, 0, np.nan])

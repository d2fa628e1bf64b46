"""Scatters whose updates threads sort by their places."""

from typing import Any

import numpy as np
import pytest

from sterna import relay
from sterna.op import block_sort, thread_scatter
from tests.gpu.test_network_kernels import HOPPER, kernels_of
from tests.gpu.test_thread_sorts import check, var

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short lines are sorted too, by small tiles."""
    monkeypatch.setattr(thread_scatter, "FEWEST", 4)
    monkeypatch.setattr(block_sort, "TILE_BYTES", 256)


def numbers(*shape: int) -> Any:
    return RNG.integers(-4, 5, shape).astype("float32")


@pytest.mark.parametrize("mode", ["update", "add", "mul", "min", "max"])
def test_rows(mode: str) -> None:
    """Some go where others went, some nowhere; the last one counts."""
    at = RNG.integers(-6, 7, (1, 20))
    data, updates = numbers(5, 3), numbers(20, 3)
    made = relay.scatter_nd(*map(var, "dau", (data, at, updates)), mode=mode)
    check(made, data, at, updates, target=HOPPER)


def test_elements_of_several_axes() -> None:
    at = RNG.integers(-2, 4, (2, 4, 5))
    data, updates = numbers(3, 4), numbers(4, 5)
    made = relay.scatter_nd(*map(var, "dau", (data, at, updates)), mode="add")
    check(made, data, at, updates, target=HOPPER)


@pytest.mark.parametrize("axis, places", [(1, (3, 9)), (0, (9, 5)), (1, (2, 40))])
def test_elements_along_an_axis(axis: int, places: tuple[int, int]) -> None:
    """Also of fewer lines than there are."""
    at = RNG.integers(-8, 9, places)
    data, updates = numbers(3, 6), numbers(*places)
    if axis == 0:
        data = numbers(4, 5)
    made = relay.op.call(
        "scatter_elements", *map(var, "dau", (data, at, updates)), axis=axis, reduction="add")
    check(made, data, at, updates, target=HOPPER)


def test_one_place_for_a_row_is_no_place_for_each_element() -> None:
    at = relay.var("i", shape=(20,), dtype="int64")
    wide = relay.broadcast_to(relay.reshape(at, newshape=(20, 1)), shape=(20, 3))
    data, updates = (relay.var(n, shape=(k, 3)) for n, k in (("d", 5), ("u", 20)))
    made = relay.op.call("scatter_elements", data, wide, updates, axis=0, reduction="add")
    assert ["scatter_nd" in str(each) for each in kernels_of(made, HOPPER).values()] == [True]

"""The generic schedule, over shapes that nobody tuned for: odd extents, borders, any axis."""

import numpy as np
import pytest

from sterna import relay
from tests.schedule.test_schedules import PROCESSORS, check


def extents(rng: np.random.Generator, rank: int, most: int = 24) -> tuple[int, ...]:
    """A random shape."""
    return tuple(int(size) for size in rng.integers(1, most, rank))


@pytest.mark.parametrize("seed", range(6))
def test_elements_of_any_shape(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(3, 9)), *extents(rng, 2, 60))
    x, y = relay.var("x", shape=shape), relay.var("y", shape=shape)
    check(relay.add(relay.tanh(x), y), PROCESSORS[seed % len(PROCESSORS)])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_borders(mode: str) -> None:
    rng = np.random.default_rng(len(mode))
    for processor in PROCESSORS[:3]:
        shape = tuple(int(size) for size in rng.integers(5, 40, 3))
        width = [(0, 0), *(tuple(map(int, rng.integers(0, 5, 2))) for _ in range(2))]
        x = relay.var("x", shape=shape)
        check(relay.nn.relu(relay.nn.pad(x, pad_width=width, pad_mode=mode)), processor)

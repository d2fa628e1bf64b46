"""When the values of two forms of a graph count as equal."""

import re
from typing import Any

import numpy as np

from sterna.relay.interpreter import interpret
from tests.relay.random_graphs import Drawn


def value(drawn: Drawn, function: Any, shift: float = 0.0) -> Any:
    """What the references give for a graph's values, or for some nearly equal to them."""
    rng = np.random.default_rng(1)
    given = [_shifted(each, shift, rng) for each in drawn.values]
    with np.errstate(all="ignore"):
        return interpret(function, *given)


def _shifted(array: Any, shift: float, rng: np.random.Generator) -> Any:
    if not shift or array.dtype.kind != "f":
        return array
    return (array * (1 + shift * rng.choice([-1.0, 1.0], array.shape))).astype(array.dtype)


def flat(nested: Any) -> list[Any]:
    """The arrays in a value."""
    if not isinstance(nested, tuple):
        return [nested]
    return [leaf for part in nested for leaf in flat(part)]


def tolerance_of(drawn: Drawn) -> float:
    """Narrow floats anywhere leave few digits, and an operator by others rounds more often."""
    return 5e-2 if re.search(r"float16|float8|float4", str(drawn.function)) else 1e-3


def hold(got: Any, want: Any, near: Any, tolerance: float) -> None:
    """Equal values; where a result jumps for nearly equal parameters, nothing is asked."""
    for a, b, c in zip(flat(got), flat(want), flat(near), strict=True):
        assert a.dtype == b.dtype
        if not tolerance:
            np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))
            continue
        if b.shape != c.shape:
            continue  # a shape that depends on numbers
        assert a.shape == b.shape
        x, y, z = (np.asarray(part).astype(np.float64) for part in (a, b, c))
        with np.errstate(invalid="ignore"):
            steep = np.abs(y - z)
            scale = max(1.0, float(np.max(np.abs(y)[np.isfinite(y)], initial=0.0)))
            bad = np.abs(x - y) > tolerance * scale + 100 * steep
        bad |= np.isnan(x) != np.isnan(y)
        bad &= np.isnan(y) == np.isnan(z)
        assert not bad.any(), (x[bad], y[bad], z[bad])

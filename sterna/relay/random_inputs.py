"""Inputs drawn at random, for timing a model and for trying it."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from sterna.relay.arrays import Array, numpy_dtype
from sterna.support.dtype import DataType


class Spec(Protocol):
    """What an input is called, and what it holds."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


def random_inputs(
    specs: Sequence[Spec], seed: int = 0, integers: tuple[int, int] = (0, 2)
) -> dict[str, Array]:
    """An array per input: normal floats, and integers from the first to before the second number.

    The same seed gives the same arrays.
    """
    generator = np.random.default_rng(seed)
    return {spec.name: _drawn(generator, spec, integers) for spec in specs}


def _drawn(generator: Any, spec: Spec, integers: tuple[int, int]) -> Array:
    if DataType(spec.dtype).kind in ("int", "uint"):
        drawn: Array = generator.integers(*integers, spec.shape)
    elif spec.dtype == "bool":
        drawn = generator.integers(0, 2, spec.shape)
    else:
        drawn = generator.standard_normal(spec.shape, dtype="float32")
    return drawn.astype(numpy_dtype(spec.dtype))

"""Inputs drawn at random, for timing a model and for trying it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.model.arguments import TensorSpec
from sterna.relay.arrays import Array, numpy_dtype
from sterna.support.dtype import DataType


def random_inputs(
    specs: Sequence[TensorSpec], seed: int = 0, integers: tuple[int, int] = (0, 2)
) -> dict[str, Array]:
    """An array per input: normal floats, and integers from the first to before the second number.

    The same seed gives the same arrays.
    """
    generator = np.random.default_rng(seed)
    return {spec.name: _drawn(generator, spec, integers) for spec in specs}


def _drawn(generator: Any, spec: TensorSpec, integers: tuple[int, int]) -> Array:
    if DataType(spec.dtype).kind in ("int", "uint"):
        drawn: Array = generator.integers(*integers, spec.shape)
    elif spec.dtype == "bool":
        drawn = generator.integers(0, 2, spec.shape)
    else:
        drawn = generator.standard_normal(spec.shape, dtype="float32")
    return drawn.astype(numpy_dtype(spec.dtype))
